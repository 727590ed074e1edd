"""Many candidates: ten thousand documents, ten of them shown, over the one product that touches them all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairrank.bench.lists import SEED, K, Stream, candidates, make
from pairrank.bench.measure import Row, clock, peak_bytes, ratio
from pairrank.rankers import Ranker
from pairrank.rankers.pairrank import PairRank
from pairrank.rng import Purpose, generator
from pairrank.types import FloatArray

RANKERS = ("pairrank", "pairrank-c")
UNCERTAIN, FORMED = 20.0, 4.0  # what ranking may cost, in products X·M⁻¹, before and after blocks form
MEMORY = 4.0  # extra memory, in sizes of X
BUDGET = 3.0  # seconds of ranking in a case; three repetitions are made in any case


def measure(quick: bool) -> Iterator[Row]:
    """Time and memory for each ranker: fresh, after some rounds, and once blocks have formed."""
    n_docs = 600 if quick else 10_000
    X = candidates(n_docs, 136, 1)[0].features
    lists = candidates(100, 136, 10 if quick else 100)
    for name in RANKERS:
        stream, ranker = Stream(lists), make(name, X.shape[1])
        for rounds in (0, 20, 40) if quick else (0, 300, 3_000):
            stream.play(ranker, rounds - stream.t)
            yield from _rows(ranker, X, f"{name}, {n_docs} x 136, after {rounds} rounds", quick)
        yield from _rows(sure(name, X, lists[0].features), X, f"{name}, {n_docs} x 136, sure of its weights", quick)


def sure(name: str, X: FloatArray, sample: FloatArray) -> Ranker:
    """A ranker so sure of some weights that the first block of ``X`` ends before the last document.

    Its prior is ever narrower around weights that spread the scores of ``sample`` as a trained model's do.
    """
    weights = generator(SEED, 0, Purpose.DATA).standard_normal(X.shape[1])
    weights *= 2.0 / float(np.std(sample @ weights))
    for power in range(2, 12):
        ranker = make(name, X.shape[1])
        if isinstance(ranker, PairRank):
            ranker.set_prior(weights, 10.0**power * np.eye(X.shape[1]))
        if _top_block(ranker, X) < len(X):
            break
    return ranker


def _top_block(ranker: Ranker, X: FloatArray) -> int:
    """Documents in the blocks that reach the first K positions."""
    return int(ranker.rank(X, K).memory["ends"][-1]) + 1


def _rows(ranker: Ranker, X: FloatArray, case: str, quick: bool) -> Iterator[Row]:
    inverse = np.eye(X.shape[1]) + 0.01
    taken: list[tuple[float, float]] = []
    while len(taken) < 3 or (len(taken) < 9 and not quick and sum(rank for rank, _ in taken) < BUDGET):
        began = clock()
        X @ inverse
        between = clock()
        ranker.rank(X, K)
        taken.append((clock() - between, between - began))
    rank, product = np.array(taken).T
    reached = _top_block(ranker, X)
    detail = {"product_ms": float(1e3 * np.median(product)), "documents_in_the_top_blocks": float(reached)}
    limit = FORMED if reached < len(X) else UNCERTAIN
    yield Row("many", case, "rank over the product X·M⁻¹", *ratio(rank, product), limit=limit, detail=detail)
    memory = peak_bytes(lambda: ranker.rank(X, K)) / X.nbytes
    yield Row("many", case, "peak extra memory over X", memory, memory, memory, limit=MEMORY, detail=detail)
