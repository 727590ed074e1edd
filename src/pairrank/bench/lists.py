"""What rankers are measured on: lists of one exact shape with realistic features, and users who click on them.

Features and grades are those of ``synthetic:mslr`` (correlated, of mixed shapes, per-query min-max), cut to the
shape; clicks come from users of the customary tables, so that blocks form as they do in use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pairrank import click_models, data, rankers
from pairrank.bench.measure import clock
from pairrank.rankers import Ranker
from pairrank.rng import Purpose, generator
from pairrank.types import BoolArray, FloatArray, Impression, IntArray

K = 10
SEED = 1
# Drawn with a mean well above the length wanted, so that most lists are long enough to be cut to it.
_SPARE = 1.6
_USUAL = 120


class LabelledList(NamedTuple):
    """The documents of one query."""

    features: FloatArray
    grades: IntArray


def candidates(n_docs: int, n_features: int, count: int) -> list[LabelledList]:
    """``count`` queries of exactly ``n_docs`` documents and ``n_features`` features."""
    # A long list is put together from queries of usual length: long ones would take long to generate.
    parts = -(-n_docs // _USUAL)
    length = -(-n_docs // parts)
    pieces = _pieces(length, n_features, parts * count)
    return [
        LabelledList(*(np.concatenate(arrays)[:n_docs] for arrays in zip(*pieces[i : i + parts], strict=True)))
        for i in range(0, parts * count, parts)
    ]


def _pieces(n_docs: int, n_features: int, count: int) -> list[LabelledList]:
    found: list[LabelledList] = []
    seed = 0
    while len(found) < count:
        # Features that are constant over so few queries must stay: the width is part of the shape.
        name = f"synthetic:mslr(queries={2 * count + 10}, docs={_SPARE * n_docs}, features={n_features}, seed={seed})"
        split = data.load(name, drop_constant=False, cache=False)
        for features, grades in split.queries():
            if len(features) >= n_docs:
                found.append(LabelledList(features[:n_docs].astype(np.float64), grades[:n_docs].copy()))
        seed += 1
    return found[:count]


@dataclass(eq=False)
class Stream:
    """Queries without end, and users who click on what is shown."""

    queries: list[LabelledList]
    users: str = "informational"
    t: int = 0

    def __post_init__(self) -> None:
        self._users = click_models.make(self.users, n_grades=5)

    def next(self) -> LabelledList:
        """The next query."""
        self.t += 1
        return self.queries[self.t % len(self.queries)]

    def clicks(self, query: LabelledList, impression: Impression) -> BoolArray:
        """What the users click on."""
        coins = generator(SEED, self.t, Purpose.CLICKS).random((len(query.grades), 2))
        return self._users.clicks(query.grades[impression.ranking], coins[impression.ranking])

    def play(self, ranker: Ranker, rounds: int, between: Callable[[], float] = lambda: 0.0) -> FloatArray:
        """(rounds, 3), seconds of rank and of learn, and what ``between`` gives after every round."""
        taken = np.empty((rounds, 3))
        for row in taken:
            query = self.next()
            began = clock()
            impression = ranker.rank(query.features, K)
            row[0] = clock() - began
            clicked = self.clicks(query, impression)
            began = clock()
            ranker.learn(impression, clicked)
            row[1] = clock() - began
            row[2] = between()
        return taken


def make(name: str, n_features: int) -> Ranker:
    """A fresh ranker."""
    return rankers.make(name, n_features=n_features, seed=SEED)


def timed_round(ranker: Ranker, X: FloatArray, clicked: BoolArray) -> tuple[float, IntArray]:
    """The seconds of one round, and what it showed; ``clicked`` (n,) : which documents are clicked when shown."""
    began = clock()
    impression = ranker.rank(X, K)
    ranker.learn(impression, clicked[impression.ranking])
    return clock() - began, impression.ranking


def two_products(stream: Stream, n_features: int) -> Callable[[], float]:
    """The floor of a round, by `clock`: X·M⁻¹ and (X·M⁻¹)·Xᵀ in float64, on the query that was asked last."""
    inverse = np.linalg.inv(np.cov(np.concatenate([q.features for q in stream.queries]).T) + np.eye(n_features))

    def floor() -> float:
        X = stream.queries[stream.t % len(stream.queries)].features
        began = clock()
        projected = X @ inverse
        projected @ X.T
        return clock() - began

    return floor
