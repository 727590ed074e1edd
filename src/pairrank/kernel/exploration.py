"""From blocks to a list: which documents of a block come first is drawn; only the first k positions are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    """`draw_conservative`, to the bit, asking only for the orders above documents that it tries.

    A position tries documents from the smallest key up until one is free. While little is certain the first try
    succeeds, so the first choices of all positions are asked for at once; after that a short block is asked for whole,
    and a long one in batches.
    """
    keys = rng.random((n_draws, size))
    known: dict[int, int] = {}  # for each document asked for, the set of its predecessors as bits of a number

    def ask(documents: IntArray) -> None:
        for document, bits in zip(documents.tolist(), np.packbits(predecessors(documents), axis=1), strict=True):
            known[document] = int.from_bytes(bits.tobytes(), "big")

    ask(np.unique(keys.argmin(axis=1)))
    # Bit of a document in those numbers: packbits fills whole bytes, the first document highest.
    top = 8 * -(-size // 8) - 1
    left = (1 << (top + 1)) - 1
    drawn = np.empty(n_draws, dtype=np.int64)
    for position in range(n_draws):
        taken = next(
            document
            for batch in _by_key(keys[position])
            for document in batch.tolist()
            if _is_free(document, left, top, known, ask, batch, size)
        )
        drawn[position] = taken
        left &= ~(1 << (top - taken))
    return drawn


# Blocks up to this size are asked for whole once their first choices do not suffice.
ASK_WHOLE = 256


def _is_free(
    document: int,
    left: int,
    top: int,
    known: dict[int, int],
    ask: Callable[[IntArray], None],
    batch: IntArray,
    size: int,
) -> bool:
    """Whether a document is still there and has no certain predecessor left; ``left`` holds who is still there."""
    if not left >> (top - document) & 1:
        return False
    if document not in known:
        wanted = range(size) if size <= ASK_WHOLE else batch.tolist()
        ask(np.array([d for d in wanted if d not in known and left >> (top - d) & 1]))
    return known[document] & left == 0


def _by_key(keys: FloatArray) -> Iterator[IntArray]:
    """Documents by rising key, in batches: the first few without sorting all, then twice as many each time."""
    done, batch = 0, 16
    while done < len(keys):
        batch = min(2 * batch, len(keys))
        smallest = np.argpartition(keys, batch - 1)[:batch] if batch < len(keys) else np.arange(len(keys))
        yield smallest[np.argsort(keys[smallest])][done:]
        done = batch
