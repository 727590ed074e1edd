"""Who does the work: this process, some processes, or a Ray cluster. Results are the same and come in order.

>>> with start("serial") as engine:
...     list(engine.map(abs, [1, -2]))
[1, 2]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pairrank.checking import check_choice, check_whole
from pairrank.engines.base import Engine, Item, Result, cores
from pairrank.engines.processes import Processes
from pairrank.engines.ray import Ray
from pairrank.engines.serial import Serial

__all__ = ["ENGINES", "Engine", "cores", "over_processes", "start"]

ENGINES = ("serial", "processes", "ray")


def start(name: str = "serial", workers: int | None = None) -> Engine:
    """The engine called ``name``, with so many ``workers`` (default: one per core); to be used in a ``with``.

    Ray is the cluster at the address in the environment's RAY_ADDRESS, or a local one that lives as long as the work.
    """
    check_choice("engine", name, ENGINES)
    if workers is not None:
        check_whole("workers", workers, 1)
    if name == "serial":
        return Serial()
    return Processes(workers) if name == "processes" else Ray(workers)


def over_processes(
    function: Callable[[Item], Result], items: Iterable[Item], jobs: int, report: Callable[[int], None]
) -> list[Result]:
    """``function`` of every item, in their order, over ``jobs`` processes; ``report`` hears how many are done."""
    results: list[Result] = []
    with start("serial" if jobs == 1 else "processes", jobs) as engine:
        for result in engine.map(function, items):
            results.append(result)
            report(len(results))
    return results
