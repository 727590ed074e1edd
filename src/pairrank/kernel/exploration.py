"""From blocks to a list: which documents of a block come first is drawn; only the first k positions are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pairrank.types import BoolArray, FloatArray, IntArray

# documents (m,) -> (m, size): for each of them, which documents of the block are certainly above it.
Predecessors = Callable[[IntArray], BoolArray]


def draw_random(size: int, n_draws: int, rng: np.random.Generator) -> IntArray:
    """The first ``n_draws`` places of a uniformly shuffled block of ``size`` documents."""
    order: IntArray = np.argsort(rng.random(size), kind="stable")[:n_draws]
    return order


def draw_conservative(certain: BoolArray, n_draws: int, rng: np.random.Generator) -> IntArray:
    """The first ``n_draws`` places of a block, never against a certain order.

    Position by position, uniformly among the documents with no certain predecessor left: each position gives every
    document a random key, and the free one with the smallest key is taken. ``certain`` (size, size) holds the block's
    orders, certain[i, j] when i is certainly above j.
    """
    size = len(certain)
    keys = rng.random((n_draws, size))
    waiting = certain.sum(axis=0)  # certain predecessors left; a document that was taken waits for ever
    drawn = np.empty(n_draws, dtype=np.int64)
    for position in range(n_draws):
        taken = int(np.where(waiting == 0, keys[position], 2.0).argmin())
        drawn[position] = taken
        waiting -= certain[taken]
        waiting[taken] = size
    return drawn


def draw_conservative_lazily(predecessors: Predecessors, size: int, n_draws: int, rng: np.random.Generator) -> IntArray:
    """`draw_conservative` for a long block, to the bit, asking only for the orders above documents that it tries.

    A position tries documents from the smallest key up until one is free. While little is certain the first try
    succeeds, so the first choices of all positions are asked for at once.
    """
    keys = rng.random((n_draws, size))
    known: dict[int, IntArray] = {}

    def ask(documents: IntArray) -> None:
        new = np.array([d for d in documents.tolist() if d not in known], dtype=np.int64)
        if len(new):
            known.update((d, np.flatnonzero(row)) for d, row in zip(new.tolist(), predecessors(new), strict=True))

    ask(np.unique(keys.argmin(axis=1)))
    taken = np.zeros(size, dtype=np.bool_)
    drawn = np.empty(n_draws, dtype=np.int64)
    for position in range(n_draws):
        drawn[position] = _first_free(keys[position], taken, known, ask)
        taken[drawn[position]] = True
    return drawn


def _first_free(keys: FloatArray, taken: BoolArray, known: dict[int, IntArray], ask: Callable[[IntArray], None]) -> int:
    """The free document with the smallest key: its certain predecessors, if any, are all taken."""
    tried, batch = 0, 4
    while True:
        batch = min(2 * batch, len(keys))
        smallest = np.argpartition(keys, batch - 1)[:batch] if batch < len(keys) else np.arange(len(keys))
        candidates = smallest[np.argsort(keys[smallest])][tried:]
        candidates = candidates[~taken[candidates]]
        for document in candidates.tolist():
            if document not in known:
                ask(candidates)
            if taken[known[document]].all():
                return int(document)
        tried = batch
