"""From blocks to a list: which documents of a block come first is drawn; only the first k positions are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pairrank.types import BoolArray, FloatArray, IntArray

# (start, stop) -> (stop - start, size): the certain orders of a block's documents start to stop - 1 over all of it.
CertainRows = Callable[[int, int], BoolArray]
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
    return _by_smallest_key(certain, rng.random((n_draws, len(certain))))


def _by_smallest_key(certain: BoolArray, keys: FloatArray) -> IntArray:
    """For each row of ``keys`` (n_draws, size) the free document with the smallest."""
    size = len(certain)
    waiting = certain.sum(axis=0)  # certain predecessors left; a document that was taken waits for ever
    first: IntArray = keys.argmin(axis=1)
    if not waiting[first].any() and len(set(first.tolist())) == len(first):
        return first  # while little is certain, the first choices are free and distinct
    drawn = np.empty(len(keys), dtype=np.int64)
    for position, row in enumerate(keys):
        free = (waiting == 0).nonzero()[0]
        taken = free[row[free].argmin()]
        drawn[position] = taken
        waiting -= certain[taken]
        waiting[taken] = size
    return drawn


def draw_conservative_lazily(
    certain_rows: CertainRows, predecessors: Predecessors, size: int, n_draws: int, rng: np.random.Generator
) -> IntArray:
    """`draw_conservative` for a long block, to the bit, asking only for the orders that it needs.

    The documents with the highest scores, the leaders, stand certainly above nearly everybody who is not free: one
    product with them tells who cannot be. Who is left is tried from the smallest key up, and asked for by batches.
    """
    keys = rng.random((n_draws, size))
    leaders = certain_rows(0, min(LEADERS, size))  # (n_leaders, size), leaders over all
    waiting = leaders.sum(axis=0)
    taken = np.zeros(size, dtype=np.bool_)
    known: dict[int, IntArray] = {}  # the predecessors of each document asked for

    def is_free(document: int, batch: IntArray) -> bool:
        if document not in known:
            new = np.array([d for d in batch.tolist() if d not in known])
            known.update((d, row.nonzero()[0]) for d, row in zip(new.tolist(), predecessors(new), strict=True))
        return bool(taken[known[document]].all())

    drawn = np.empty(n_draws, dtype=np.int64)
    for position, row in enumerate(keys):
        perhaps = ((waiting == 0) & ~taken).nonzero()[0]
        batches = (perhaps[batch] for batch in _by_rising_key(row[perhaps]))
        choice = next(d for batch in batches for d in batch.tolist() if is_free(d, batch))
        drawn[position] = choice
        taken[choice] = True
        if choice < len(leaders):
            waiting -= leaders[choice]
    return drawn


# Documents with the highest scores that are compared with all of a long block at once.
LEADERS = 64


def _by_rising_key(keys: FloatArray) -> Iterator[IntArray]:
    """Documents by rising key, in batches: the first few without sorting all, then twice as many each time."""
    done, batch = 0, 4
    while done < len(keys):
        batch = min(2 * batch, len(keys))
        smallest = np.argpartition(keys, batch - 1)[:batch] if batch < len(keys) else np.arange(len(keys))
        yield smallest[np.argsort(keys[smallest])][done:]
        done = batch


def fair_pairs(certain: BoolArray) -> BoolArray:
    """(k, k): which pairs of shown positions had their order decided by a fair coin in `draw_conservative`.

    ``certain`` (k, k) holds the certain orders among the shown documents, in shown order. A document is free once its
    certain predecessors are drawn, and all of those are shown above it. When the upper document of a pair was drawn and
    the lower was free as well, the two were equally likely to be drawn: given that one of them was, a fair coin.
    """
    positions = np.arange(len(certain))[:, None]
    free_from = (certain * (positions + 1)).max(axis=0)
    fair: BoolArray = (free_from <= positions) & (positions < positions.T)
    fair |= fair.T.copy()
    return fair


def propensities(certain: BoolArray, places: IntArray, block: IntArray) -> FloatArray:
    """(k, k): 2 P(R*) / (P(R) + P(R*)) for each pair of shown positions, R* the list with the two exchanged.

    As PDGD weighs a pair by the reversed ranking: one for a fair coin, zero where the other order could not be shown.
    ``certain`` (n, n) holds the certain orders of the sorted documents, ``places`` (k,) those shown, ``block`` (n,) the
    block of every document. A list's probability is Π 1/(free documents) over its positions.
    """
    k = len(places)
    weight = np.zeros((k, k))
    usual = _log_probability(certain, places, block)
    for a in range(k):
        for b in range(a + 1, k):
            if block[places[a]] == block[places[b]]:
                swapped = places.copy()
                swapped[[a, b]] = places[[b, a]]
                ahead = _log_probability(certain, swapped, block) - usual
                weight[a, b] = weight[b, a] = 2.0 / (1.0 + np.exp(min(-ahead, 700.0)))
    return weight


def _log_probability(certain: BoolArray, places: IntArray, block: IntArray) -> float:
    """log of the chance that `draw_conservative`, block after block, gives just these places; -inf where it cannot."""
    position = np.full(len(certain), len(certain))  # of who is not shown: beyond all
    position[places] = np.arange(len(places))
    inside = certain & (block[:, None] == block)
    free_from = np.where(inside, position[:, None] + 1, 0).max(axis=0)
    if (free_from[places] > position[places]).any():
        return -np.inf
    n_free = [
        int(((free_from <= p) & (position >= p) & (block == block[place])).sum()) for p, place in enumerate(places)
    ]
    return -float(np.log(n_free).sum())
