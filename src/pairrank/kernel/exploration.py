"""From blocks to a list: which documents of a block come first is drawn; only the first k positions are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pairrank.kernel import jit
from pairrank.types import BoolArray, FloatArray, IntArray

# (start, stop) -> (stop - start, size): the certain orders of a block's documents start to stop - 1 over all of it.
CertainRows = Callable[[int, int], BoolArray]
# documents (m,) -> (m, size): for each of them, which documents of the block are certainly above it.
Predecessors = Callable[[IntArray], BoolArray]


def draw_blocks(ends: IntArray, k: int, draw: Callable[[int, int, int], IntArray]) -> tuple[IntArray, IntArray]:
    """The first ``k`` places of a list of blocks, and the block of each, both (k,).

    ``ends`` are the last places of the blocks, rising; ``draw(start, stop, n)`` gives the first n places of the block
    from start to stop. A block of one document is not drawn.
    """
    places, blocks = np.arange(k), np.searchsorted(ends, np.arange(k))
    start = 0
    for stop in (ends + 1).tolist():
        if stop - start > 1:
            shown = min(stop, k)
            places[start:shown] = draw(start, stop, shown - start)
        start = stop
    return places, blocks


def draw_random(size: int, n_draws: int, rng: np.random.Generator) -> IntArray:
    """The first ``n_draws`` places of a uniformly shuffled block of ``size`` documents."""
    return np.argsort(rng.random(size), kind="stable")[:n_draws]


def draw_conservative(certain: BoolArray, n_draws: int, rng: np.random.Generator) -> IntArray:
    """The first ``n_draws`` places of a block, never against a certain order.

    Position by position, uniformly among the documents with no certain predecessor left: each position gives every
    document a random key, and the free one with the smallest key is taken. ``certain`` (size, size) holds the block's
    orders, certain[i, j] when i is certainly above j.
    """
    size = len(certain)
    keys = rng.random(n_draws * size)
    return draw_blocks_by_key(np.ascontiguousarray(certain), np.array([size - 1]), n_draws, keys)[0]


@jit.twin()
def draw_blocks_by_key(certain: BoolArray, ends: IntArray, k: int, keys: FloatArray) -> tuple[IntArray, IntArray]:
    """`draw_blocks` by `draw_conservative`, for orders ``certain`` (n, n) of all places.

    ``keys`` (k n,) are random numbers: a row of its block's size for each position that is drawn, and some to spare.
    """
    used = 0

    def draw(start: int, stop: int, n_draws: int) -> IntArray:
        nonlocal used
        own = keys[used : used + n_draws * (stop - start)].reshape(n_draws, stop - start)
        used += own.size
        return start + _by_smallest_key(certain[start:stop, start:stop], own)

    return draw_blocks(ends, k, draw)


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

    The documents with the highest scores, the leaders, stand certainly above nearly all that are not free: one
    product with them rules those out. The others are tried from the smallest key up, and asked for by batches.
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
