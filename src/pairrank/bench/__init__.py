"""Benchmarks: every figure a ratio taken within one run. This table is the only list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pairrank import threads
from pairrank.bench import beside, exactness, many_candidates, parsing, raw_units, round, streams, whole_run
from pairrank.bench.measure import CLOCK, Row
from pairrank.errors import UnknownNameError
from pairrank.kernel import jit

__all__ = ["CLOCK", "NAMES", "Row", "against", "run"]

_TABLE: dict[str, Callable[..., Iterator[Row]]] = {
    "round": round.measure,
    "streams": streams.measure,
    "many": many_candidates.measure,
    "exactness": exactness.measure,
    "units": raw_units.measure,
    "additive": round.additive,
    "whole-run": whole_run.measure,
    "parsing": parsing.measure,
    "sweep": whole_run.sweep,
    "baselines": round.baselines,
}
NAMES = tuple(_TABLE)


def run(names: Sequence[str], *, quick: bool = False, until: int = 0) -> Iterator[Row]:
    """The rows of the benchmarks called ``names``, as they come; ``until`` is the round that ``streams`` goes on to."""
    table = _TABLE | {"streams": partial(streams.measure, until=until)}
    unknown = [name for name in names if name not in table]
    if unknown:
        raise UnknownNameError(f"no benchmark is called {unknown[0]!r}; there are: {', '.join(NAMES)}")
    jit.load()  # a long run would have them; what it costs to load them is not what is measured
    with threads.single():
        for name in names:
            yield from table[name](quick)


def against(folder: str, *, quick: bool = False) -> Iterator[Row]:
    """The rows of another program, called by ``folder``/against.py, beside ours."""
    jit.load()
    with threads.single():
        yield from beside.measure(folder, quick)
