"""Exactness bought: how far the cheap estimator strays from the exact minimiser, fed with the same lists and clicks.

‖θ̂ - θ_exact‖ is taken in the norm of the matrix that widths are made of (M, or the posterior's H), and divided by the
factor on widths (z, or 4α since σ is nowhere steeper than ¼): by Cauchy-Schwarz no pair's score or probability is off
by more than that share of its confidence width. In the mean over directions it is off by 1/√d of that, which is what
the default's tolerance is about.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pairrank import rankers
from pairrank.bench.lists import K, Stream, candidates, make
from pairrank.bench.measure import Row, quartiles
from pairrank.rankers.pairrank import PairRank

# Rounds of each: with the paper's λ the exact minimiser takes long to find after every list.
RANKERS = {"pairrank": 1_000, "pairrank-c(refine=true)": 300}


def measure(quick: bool) -> Iterator[Row]:
    """Two rows per ranker: the stray, and the share of rounds with other blocks."""
    queries = candidates(30 if quick else 100, 136, 10 if quick else 100)
    for name, rounds in RANKERS.items():
        yield from _rows(name, Stream(queries), 30 if quick else rounds)


def stray(ranker: PairRank, exact: PairRank) -> float:
    """‖θ̂ - θ_exact‖ in the norm of ``exact``'s matrix, over its factor on widths (times 4 where they are of σ)."""
    away = ranker._weights - exact._weights
    squared = float(away @ np.linalg.solve(exact._metric, away))
    return math.sqrt(max(squared, 0.0)) / (exact.width_factor * (1.0 if exact.width == "score" else 4.0))


def _rows(name: str, stream: Stream, rounds: int) -> Iterator[Row]:
    """The exact estimator shows lists; that of the default tolerance learns from the same clicks."""
    d = stream.queries[0].features.shape[1]
    base, given = rankers.parse(name)
    exact: Any = make(rankers.spell(base, {**given, "tolerance": 0.0}), d)
    ranker: Any = make(name, d)
    strays, differ = np.empty(rounds), np.empty(rounds, dtype=np.bool_)
    for n in range(rounds):
        query = stream.next()
        impression = exact.rank(query.features, K)
        clicked = stream.clicks(query, impression)
        exact.learn(impression, clicked)
        ranker.learn(replace(impression, ranker=ranker.fingerprint), clicked)
        strays[n] = stray(ranker, exact)
        differ[n] = (ranker.inspect(query.features).blocks != exact.inspect(query.features).blocks).any()
    case = f"{name}, tolerance={ranker.tolerance:g}, {rounds} rounds"
    # The largest error of any pair where widths are of probabilities, the root mean square where they are of scores.
    scale = math.sqrt(d) if ranker.width == "score" else 1.0
    thirds = {f"third_{i}": float(part.max()) for i, part in enumerate(np.array_split(strays, 3), start=1)}
    yield Row(
        "exactness",
        case,
        "largest |θ - exact| over the confidence width",
        float(strays.max()),
        *quartiles(strays),
        limit=0.01 * scale,
        detail={"root_mean_square": float(strays.max() / scale), "median": float(np.median(strays)), **thirds},
    )
    share = float(differ.mean())
    yield Row(
        "exactness",
        case,
        "share of rounds with other blocks than the exact estimator's",
        share,
        *quartiles([part.mean() for part in np.array_split(differ, 10)]),
        limit=0.01,
        detail={"rounds_that_differ": float(differ.sum())},
    )
