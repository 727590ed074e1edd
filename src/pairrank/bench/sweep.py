"""Sweep scaling: the same runs over two processes and over one, both started afresh."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter

import numpy as np

from pairrank.bench.measure import Row, interleaved, ratio
from pairrank.sim import RunSpec

# Runs all specs in that many processes. It is the laboratory's, handed in: faces do not import each other.
Sweep = Callable[[Sequence[RunSpec], int], object]


def measure(sweep: Sweep, quick: bool) -> Iterator[Row]:
    """One row: by how much two processes beat one, by the clock on the wall."""
    runs, rounds = (2, 50) if quick else (8, 2_000)
    data = "synthetic:tiny" if quick else "synthetic:linear"
    specs = [RunSpec(data=data, rounds=rounds, seed=seed, ideal="") for seed in range(runs)]
    one, two = interleaved([partial(sweep, specs, jobs) for jobs in (1, 2)], 1 if quick else 3, perf_counter).T
    yield Row(
        "sweep",
        f"{runs} runs of {rounds} rounds on {data}",
        "two processes over one: times as fast",
        *ratio(one, two),
        detail={"one_process_seconds": float(np.median(one)), "two_processes_seconds": float(np.median(two))},
    )
