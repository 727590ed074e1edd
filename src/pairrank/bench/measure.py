"""How figures are taken: one thread, interleaved repetitions, ratios within one run, with their spread.

A time alone says more about the machine than about the code, so every figure is a ratio of two times (or sizes) taken
turn by turn in the same process. The clock is the process's own CPU time where the system tells it finely enough: what
other processes take in between does not count then. Where waiting is part of the matter (files, worker processes) it
is the wall's.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pairrank.types import FloatArray

Action = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes
    ----------
    benchmark : the benchmark's name. case : what was measured (ranker, shape, ...). figure : what the number means.
    value : the ratio. low, high : quartiles over the repetitions.
    limit : what the value is held to, or None. at_least : the limit is a lower one.
    detail : whatever helps to read the value: parts of it, absolute times.
    """

    benchmark: str
    case: str
    figure: str
    value: float
    low: float
    high: float
    limit: float | None = None
    at_least: bool = False
    detail: Mapping[str, float] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the value keeps its limit; None where there is none."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """The row as JSON-able values, with `met`."""
        return {**asdict(self), "detail": dict(self.detail), "met": self.met}


# The name and function of the clock: CPU time of all threads, to the microsecond or finer, else the wall's.
_FINE = time.get_clock_info("process_time").resolution <= 1e-6
CLOCK, clock = ("process CPU time", time.process_time) if _FINE else ("wall time", time.perf_counter)


def interleaved(actions: Sequence[Action], repetitions: int, by: Callable[[], float] = clock) -> FloatArray:
    """(repetitions, n_actions) seconds: all actions in turn, again and again."""

    def seconds(action: Action) -> float:
        began = by()
        action()
        return by() - began

    return np.array([[seconds(action) for action in actions] for _ in range(repetitions)])


def quartiles(values: ArrayLike) -> tuple[float, float]:
    """The first and third quartile."""
    low, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.75))
    return float(low), float(high)


def ratio(upper: ArrayLike, lower: ArrayLike) -> tuple[float, float, float]:
    """(value, low, high): the ratio of medians, and the quartiles of the turn-by-turn ratios."""
    above, below = np.asarray(upper, dtype=np.float64), np.asarray(lower, dtype=np.float64)
    return (float(np.median(above) / np.median(below)), *quartiles(above / below))


def amortised(upper: FloatArray, lower: FloatArray) -> tuple[float, float, float]:
    """(value, low, high): the ratio of totals, so that rare long turns count, and quartiles over ten batches."""
    parts = [
        float(above.sum() / below.sum())
        for above, below in zip(np.array_split(upper, 10), np.array_split(lower, 10), strict=True)
        if len(below)
    ]
    return (float(upper.sum() / lower.sum()), *quartiles(parts))


def peak_bytes(action: Action) -> int:
    """The most memory that ``action`` held at once beyond what there was before, as Python's allocators saw it."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
