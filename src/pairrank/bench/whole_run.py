"""Whole run: a simulation with held-out evaluation on schedule, and the share of each of its phases."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairrank.bench.measure import Row, quartiles
from pairrank.sim import RunSpec, simulate

RANKERS = ("pairrank", "pairrank-c", "pdgd")


def measure(quick: bool) -> Iterator[Row]:
    """A row per ranker and phase."""
    data, rounds = ("synthetic:tiny", 100) if quick else ("synthetic:mslr", 5_000)
    specs = [RunSpec(data=data, ranker=name, rounds=rounds, ideal="") for name in RANKERS]
    simulate(RunSpec(data=data, ranker=RANKERS[0], rounds=1, ideal=""))  # loading and generating is not part of a run
    runs = [[simulate(spec).seconds for spec in specs] for _ in range(2 if quick else 3)]
    for i, name in enumerate(RANKERS):
        turns = [turn[i] for turn in runs]
        total = [sum(seconds.values()) for seconds in turns]
        for phase in turns[0]:
            shares = [seconds[phase] / all_ for seconds, all_ in zip(turns, total, strict=True)]
            yield Row(
                "whole-run",
                f"{name}, {data}, {rounds} rounds",
                f"share of {phase}",
                float(np.median(shares)),
                *quartiles(shares),
                detail={
                    "run_seconds": float(np.median(total)),
                    "phase_ms_per_round": float(np.median([1e3 * seconds[phase] / rounds for seconds in turns])),
                },
            )
