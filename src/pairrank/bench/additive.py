"""An additive model's round over a linear one's, once its pieces are fixed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairrank import rankers
from pairrank.bench.lists import timed_round
from pairrank.bench.measure import Row, amortised

# Documents, features, and how many times a linear round an additive one may cost.
SHAPES = ((24, 20, 2.0), (100, 136, 4.0))


def measure(quick: bool) -> Iterator[Row]:
    """Per shape the mean round of the one over that of the other, in turns."""
    warm, rounds = (70, 30) if quick else (300, 500)
    for documents, features, limit in SHAPES:
        both = [rankers.make("pairrank", n_features=features, seed=1, model=m) for m in ("linear", "additive")]
        rng = np.random.default_rng(0)
        seconds = np.empty((rounds, 2))
        for t in range(-warm, rounds):
            X, coins = rng.random((documents, features)), rng.random(documents)
            clicked = coins < X[:, 0] * (1.0 - X[:, 0]) * 3.0
            spent = [timed_round(ranker, X, clicked)[0] for ranker in both]
            if t >= 0:
                seconds[t] = spent
        linear, additive = seconds.T
        figure = "mean additive round over a linear one"
        yield Row("additive", f"{documents} x {features}", figure, *amortised(additive, linear), limit=limit)
