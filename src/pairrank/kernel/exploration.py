"""From blocks to a list: which documents of a block come first is drawn; only the first k positions are."""

from __future__ import annotations

import numpy as np

from pairrank.types import BoolArray, IntArray


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
