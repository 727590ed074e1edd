"""Round at the floor: rank and learn over the two matrix products that every round must pay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairrank import rankers
from pairrank.bench.lists import Stream, candidates, make, timed_round, two_products
from pairrank.bench.measure import Row, amortised, quartiles
from pairrank.types import FloatArray

# (documents, features): an MSLR list, a Yahoo list, a long list, a LETOR list; and what a round may cost.
SHAPES: tuple[tuple[int, int, float | None], ...] = ((100, 136, 2.5), (24, 700, 3.0), (1000, 136, None), (20, 46, None))
RANKERS = ("pairrank", "pairrank-c(refine=true)")
# The other online rankers, of which a round may cost so much.
BASELINES = ("dbgd", "epsilon-greedy", "mgd", "mgd(multileaving=team-draft)", "pdgd", "sgd-ranknet")
BASELINE = 5.0
# Documents, features, and how many times a linear round an additive one may cost.
ADDITIVE = ((24, 20, 2.0), (100, 136, 4.0))


def measure(quick: bool) -> Iterator[Row]:
    """A row per shape and ranker."""
    before, rounds = (5, 10) if quick else (500, 400)
    for n_docs, n_features, limit in SHAPES:
        queries = candidates(n_docs, n_features, 10 if quick else 100)
        for name in RANKERS:
            yield over_floor("round", name, Stream(queries), before, rounds, limit)


def baselines(quick: bool) -> Iterator[Row]:
    """A row per other ranker at the first shape."""
    before, rounds = (5, 40) if quick else (100, 400)
    queries = candidates(*SHAPES[0][:2], 10 if quick else 100)
    for name in BASELINES:
        yield over_floor("baselines", name, Stream(queries), before, rounds, BASELINE)


def additive(quick: bool) -> Iterator[Row]:
    """A row per shape: the mean round of an additive model, its pieces fixed, over that of a linear one, in turns."""
    warm, rounds = (70, 30) if quick else (300, 500)
    for documents, features, limit in ADDITIVE:
        both = [rankers.make("pairrank", n_features=features, seed=1, model=m) for m in ("linear", "additive")]
        rng = np.random.default_rng(0)
        seconds = np.empty((rounds, 2))
        for t in range(-warm, rounds):
            X, coins = rng.random((documents, features)), rng.random(documents)
            clicked = coins < X[:, 0] * (1.0 - X[:, 0]) * 3.0
            spent = [timed_round(ranker, X, clicked)[0] for ranker in both]
            if t >= 0:
                seconds[t] = spent
        linear, pieces = seconds.T
        figure = "mean additive round over a linear one"
        yield Row("additive", f"{documents} x {features}", figure, *amortised(pieces, linear), limit=limit)


def over_floor(benchmark: str, name: str, stream: Stream, before: int, rounds: int, limit: float | None) -> Row:
    """``rounds`` rounds after ``before`` others, each followed by the floor on the same documents."""
    n_docs, n_features = stream.queries[0].features.shape
    ranker = make(name, n_features)
    stream.play(ranker, before)
    taken = stream.play(ranker, rounds, two_products(stream, n_features))
    return over_products(benchmark, f"{name}, {n_docs} x {n_features}", before, before + rounds, taken, limit)


def over_products(benchmark: str, case: str, start: int, stop: int, taken: FloatArray, limit: float | None) -> Row:
    """The row of what `Stream.play` took (n, 3) with `two_products` between the rounds ``start`` to ``stop``."""
    rounds, floors = taken[:, :2].sum(axis=1), taken[:, 2]
    rank, learn = taken[:, :2].sum(axis=0) / floors.sum()
    detail = {
        "rank": float(rank),
        "learn": float(learn),
        "median_round": float(np.median(rounds) / np.median(floors)),
        "third_quartile_round": quartiles(rounds / np.median(floors))[1],
        "floor_ms": float(1e3 * np.median(floors)),
    }
    what = f"{case}, rounds {start} to {stop}"
    figure = "rank + learn over the two products"
    return Row(benchmark, what, figure, *amortised(rounds, floors), limit=limit, detail=detail)
