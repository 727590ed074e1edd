"""Who does the work: this process, some processes, or a Ray cluster. Results are the same and come in order.

>>> with start("serial") as engine:
...     list(engine.map(abs, [1, -2]))
[1, 2]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from pairrank import threads
from pairrank.checking import check_choice, check_whole
from pairrank.engines.base import Engine, Item, Pool, Result, call, cores, enlist, processes, sharing, submit
from pairrank.engines.ray import connected

__all__ = ["ENGINES", "Engine", "cores", "enlist", "over_processes", "processes", "sharing", "start", "submit"]

ENGINES = ("serial", "processes", "ray")


def start(name: str = "serial", workers: int | None = None) -> AbstractContextManager[Engine]:
    """The engine called ``name``, with so many ``workers`` (default: one per core), for a ``with``: they start once.

    Ray is the cluster at the address in the environment's RAY_ADDRESS, or a local one that lives as long as the work.
    """
    check_choice("engine", name, ENGINES)
    if workers is not None:
        check_whole("workers", workers, 1)
    return _started(name, workers)


@contextmanager
def _started(name: str, workers: int | None) -> Iterator[Engine]:
    # One thread also for what is done with the results here: a sum has the same bits everywhere.
    with threads.single():
        if name == "serial":
            yield Engine()
        elif name == "processes":
            n = workers or cores()
            with processes(n, enlist) as pool:
                yield Pool(n, partial(submit, pool, call), Future.result, (BrokenExecutor,))
        else:
            with connected(workers, os.environ.get("RAY_ADDRESS")) as ray:
                n = workers or int(ray.cluster_resources().get("CPU", 1))
                deaths = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)
                yield Pool(n, ray.remote(call).remote, ray.get, deaths)


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
