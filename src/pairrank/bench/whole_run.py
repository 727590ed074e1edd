"""Whole runs: the share of each phase of a simulation with held-out evaluation, and runs over two processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from time import perf_counter

import numpy as np

from pairrank import engines
from pairrank.bench.measure import Row, interleaved, quartiles, ratio
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
            per_round = float(np.median([1e3 * seconds[phase] / rounds for seconds in turns]))
            detail = {"run_seconds": float(np.median(total)), "phase_ms_per_round": per_round}
            case, middle = f"{name}, {data}, {rounds} rounds", float(np.median(shares))
            yield Row("whole-run", case, f"share of {phase}", middle, *quartiles(shares), detail=detail)


def _play(specs: Sequence[RunSpec], jobs: int) -> None:
    with engines.start("processes", jobs) as engine:
        list(engine.map(_held_out, specs))


def _held_out(spec: RunSpec) -> float:
    return simulate(spec).ndcg


def sweep(quick: bool) -> Iterator[Row]:
    """One row: by how much two processes beat one, by the clock on the wall."""
    runs, rounds = (2, 50) if quick else (8, 2_000)
    data = "synthetic:tiny" if quick else "synthetic:linear"
    specs = [RunSpec(data=data, rounds=rounds, seed=seed, ideal="") for seed in range(runs)]
    one, two = interleaved([partial(_play, specs, jobs) for jobs in (1, 2)], 1 if quick else 3, perf_counter).T
    took = {"one_process_seconds": float(np.median(one)), "two_processes_seconds": float(np.median(two))}
    case = f"{runs} runs of {rounds} rounds on {data}"
    yield Row("sweep", case, "two processes over one: times as fast", *ratio(one, two), detail=took)
