"""Exactness bought: how far cheap estimators stray from the exact minimiser, fed with the same lists and clicks.

‖θ̂ - θ_exact‖ is taken in the norm of the matrix that widths are made of (M, or the posterior's H), and divided by the
factor on widths (z, or 4α since σ is nowhere steeper than ¼): by Cauchy-Schwarz no pair's score or probability is off
by more than that share of its confidence width. In the mean over directions it is off by 1/√d of that, which is what
the default's tolerance is about.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pairrank import rankers
from pairrank.bench.lists import K, Stream, candidates, make
from pairrank.bench.measure import Row, quartiles
from pairrank.rankers import Ranker
from pairrank.rankers.pairrank import PairRank

# Rounds of each: with the paper's λ the exact minimiser takes long to find after every list.
RANKERS = {"pairrank": 1_000, "pairrank-c(refine=true)": 300}
TOLERANCES = (1e-2, 1e-3, 1e-4)


@dataclass(eq=False)
class _Follower:
    """A tolerance under test, and what was found at every round."""

    ranker: PairRank
    strays: list[float] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)


def measure(quick: bool) -> Iterator[Row]:
    """Two rows per ranker and tolerance: the stray, and the share of rounds with other blocks."""
    queries = candidates(30 if quick else 100, 136, 10 if quick else 100)
    for name, rounds in RANKERS.items():
        n = 30 if quick else rounds
        for label, follower in _follow(name, Stream(queries), n).items():
            default = f"tolerance={_pairrank(name, {}).tolerance:g}"
            yield from _rows(f"{name}, {label}, {n} rounds", follower, default == label)


def _pairrank(name: str, options: Mapping[str, object], n_features: int = 1) -> PairRank:
    base, given = rankers.parse(name)
    ranker: Ranker = make(rankers.spell(base, {**given, **options}), n_features)
    if not isinstance(ranker, PairRank):
        raise TypeError(f"{name} is no PairRank")
    return ranker


def _follow(name: str, stream: Stream, rounds: int) -> dict[str, _Follower]:
    """The exact estimator shows lists; all others learn from the same clicks."""
    d = stream.queries[0].features.shape[1]
    exact = _pairrank(name, {"tolerance": 0.0}, d)
    followers = {f"tolerance={t:g}": _Follower(_pairrank(name, {"tolerance": t}, d)) for t in TOLERANCES}
    for _ in range(rounds):
        query = stream.next()
        impression = exact.rank(query.features, K)
        clicked = stream.clicks(query, impression)
        exact.learn(impression, clicked)
        blocks = exact.inspect(query.features).blocks
        for follower in followers.values():
            follower.ranker.learn(replace(impression, ranker=follower.ranker.fingerprint), clicked)
            follower.strays.append(stray(follower.ranker, exact))
            follower.same.append(bool((follower.ranker.inspect(query.features).blocks == blocks).all()))
    return followers


def stray(ranker: PairRank, exact: PairRank) -> float:
    """‖θ̂ - θ_exact‖ in the norm of ``exact``'s matrix, over its factor on widths (times 4 where they are of σ)."""
    away = ranker._weights - exact._weights
    squared = float(away @ np.linalg.solve(exact._metric, away))
    return math.sqrt(max(squared, 0.0)) / (exact.width_factor * (1.0 if exact.width == "score" else 4.0))


def _rows(case: str, follower: _Follower, default: bool) -> Iterator[Row]:
    strays, differ = np.array(follower.strays), ~np.array(follower.same)
    # The largest error of any pair where widths are of probabilities, the root mean square where they are of scores.
    scale = math.sqrt(follower.ranker.n_features) if follower.ranker.width == "score" else 1.0
    thirds = {f"third_{i}": float(part.max()) for i, part in enumerate(np.array_split(strays, 3), start=1)}
    yield Row(
        "exactness",
        case,
        "largest |θ - exact| over the confidence width",
        float(strays.max()),
        *quartiles(strays),
        limit=0.01 * scale if default else None,
        detail={"root_mean_square": float(strays.max() / scale), "median": float(np.median(strays)), **thirds},
    )
    share = float(differ.mean())
    yield Row(
        "exactness",
        case,
        "share of rounds with other blocks than the exact estimator's",
        share,
        *quartiles([part.mean() for part in np.array_split(differ, 10)]),
        limit=0.01 if default else None,
        detail={"rounds_that_differ": float(differ.sum())},
    )
