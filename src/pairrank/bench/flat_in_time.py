"""Flat in t: what a round costs late in the day over what it costs early, both over the floor of their own time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairrank.bench.lists import Stream, candidates, make, two_products
from pairrank.bench.measure import Row, quartiles
from pairrank.types import FloatArray

ROUNDS = (500, 5_000, 50_000)
QUICK = (40, 80, 160)
# The paper's settings pass over the whole history after every list (docs/performance.md): they are not flat, no limit
# holds for them, and the last stretch would take hours.
RANKERS: dict[str, tuple[int, float | None]] = {"pairrank": (3, 1.15), "pairrank-c(refine=true)": (2, None)}
# A stretch runs from round t to 1.25 t: work that comes each time the history has grown by a factor falls into every
# stretch about equally often, and is paid for in the mean.
STRETCH = 1.25
_BATCHES = 10


def measure(quick: bool) -> Iterator[Row]:
    """A row per ranker and late round."""
    queries = candidates(100, 136, 10 if quick else 200)
    for name, (stretches, limit) in RANKERS.items():
        rounds = (QUICK if quick else ROUNDS)[:stretches]
        costs = _costs(name, Stream(queries), rounds)
        early = costs[0]
        for t, late in zip(rounds[1:], costs[1:], strict=True):
            value = float(late[:, 0].sum() / late[:, 1].sum() / (early[:, 0].sum() / early[:, 1].sum()))
            low, high = quartiles(_batches(late) / np.median(_batches(early)))
            medians = [float(np.median(c[:, 0]) / np.median(c[:, 1])) for c in (early, late)]
            yield Row(
                "flat",
                f"{name}, 100 x 136, round {t} against {rounds[0]}",
                "mean round late over early, each over its floor",
                value,
                low,
                high,
                limit=limit,
                detail={
                    "early_over_floor": float(early[:, 0].sum() / early[:, 1].sum()),
                    "late_over_floor": float(late[:, 0].sum() / late[:, 1].sum()),
                    "median_round_late_over_early": medians[1] / medians[0],
                    "late_round_ms": float(1e3 * late[:, 0].mean()),
                },
            )


def _costs(name: str, stream: Stream, rounds: tuple[int, ...]) -> list[FloatArray]:
    """For each stretch, (n, 2): seconds of every round in it, and of the floor right after it."""
    n_features = stream.queries[0].features.shape[1]
    ranker = make(name, n_features)
    floor = two_products(stream, n_features)
    costs = []
    for t in rounds:
        stream.play(ranker, t - stream.t)
        floors: list[float] = []
        taken = stream.play(ranker, round(STRETCH * t) - t, lambda floors=floors: floors.append(floor()))  # type: ignore[misc]
        costs.append(np.column_stack([taken.sum(axis=1), floors]))
    return costs


def _batches(costs: FloatArray) -> FloatArray:
    """Mean over floor, batch by batch."""
    return np.array([part[:, 0].sum() / part[:, 1].sum() for part in np.array_split(costs, _BATCHES)])
