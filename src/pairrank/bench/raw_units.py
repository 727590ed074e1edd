"""Raw units: lists with features multiplied by constants and moved by others, against the same lists as they are.

Constants are between 1e-6 and 1e6, and every other list is moved by up to 1e8, feature by feature; by less where a
feature was made smaller, so that eight of its digits are left. A function of a feature's value cannot do with another
constant in each list: for an additive model all lists are moved alike.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairrank import rankers
from pairrank.bench.lists import timed_round
from pairrank.bench.measure import Row, amortised, quartiles

DOCUMENTS, FEATURES = 20, 46
_BATCHES = 10
# All rankers, and the estimators that some have besides: exact after every list, the authors' mean loss, functions.
RANKERS = (
    *(name for name in rankers.names() if "model" in rankers.options(name)),  # olRankNet has no units
    "pairrank(tolerance=0)",
    "pairrank(preset=authors)",
    "pairrank(model=additive)",
)


def measure(quick: bool) -> Iterator[Row]:
    """Two rows per ranker: the time of a round over that in units of one, and the share of lists that are the same."""
    rounds = 40 if quick else 2_000
    for name in RANKERS:
        plain, raw = (rankers.make(name, n_features=FEATURES, seed=1) for _ in range(2))
        rng = np.random.default_rng(0)
        weights = rng.standard_normal(FEATURES)
        factor = 10.0 ** rng.uniform(-6.0, 6.0, FEATURES)
        alike = rng.uniform(-1e8, 1e8, FEATURES) if "additive" in name else None
        seconds, same = np.empty((rounds, 2)), np.empty(rounds, dtype=np.bool_)
        for t in range(rounds):
            X, coins = rng.random((DOCUMENTS, FEATURES)), rng.random(DOCUMENTS)
            moved = t % 2 * rng.uniform(-1e8, 1e8, FEATURES) if alike is None else alike
            clicked = coins < 1.0 / (1.0 + np.exp(-(X - 0.5) @ weights))
            seconds[t, 0], shown = timed_round(plain, X, clicked)
            seconds[t, 1], again = timed_round(raw, X * factor + moved * np.minimum(factor, 1.0), clicked)
            same[t] = np.array_equal(shown, again)
        figure = "mean round in raw units over one in units of one"
        found = amortised(seconds[:, 1], seconds[:, 0])
        yield Row("units", f"{name}, {DOCUMENTS} x {FEATURES}", figure, *found, limit=1.1)
        share = (float(same.mean()), *quartiles([float(part.mean()) for part in np.array_split(same, _BATCHES)]))
        figure = "share of lists that are the same"
        yield Row("units", f"{name}, {rounds} rounds", figure, *share, limit=0.999, at_least=True)
