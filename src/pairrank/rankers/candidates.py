"""The candidates of one query compared with each other: which orders are certain, and which blocks that makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from pairrank.kernel import confidence, exploration, jit, partition
from pairrank.kernel.partition import Places
from pairrank.rankers.base import Draw
from pairrank.types import BoolArray, Float32Array, FloatArray, IntArray

# Up to this many candidates, comparing all of them costs less than finding out which comparisons can be spared.
FEW = 256
# Where one document in this many of a block is drawn, or more, asking for all of its orders at once costs less, too:
# a byte for each pair, so for no more than so many documents.
ONE_IN, MANY = 16, 2**14

# (scores of m, scores of n, squared widths (m, n), factor) -> (m, n): see `partition.certain_by_score`.
Rule = Callable[[Float32Array, Float32Array, Float32Array, float], BoolArray]
# For each rule, what a document's own width adds to the gap of scores that makes an order certain.
HALF: dict[Rule, Callable[[Float32Array, float], Any]] = {
    partition.certain_by_score: partition.half_by_score,
    partition.certain_by_probability: partition.half_by_probability,
}


class Candidates(ABC):
    """Sorted candidates; places count in the order of scores, ``order`` (n,) has their rows."""

    order: IntArray

    @abstractmethod
    def ends(self, k: int) -> IntArray:
        """The ends of the blocks that hold the first ``k`` places, rising."""

    @abstractmethod
    def draw(self, ends: IntArray, k: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """The first ``k`` places, drawn block by block without breaking a certain order, and the block of each."""

    @abstractmethod
    def certain(self) -> BoolArray:
        """(n, n), the certain orders of all places."""


def show(candidates: Candidates, k: int, rng: np.random.Generator, *, shuffled: bool) -> Draw:
    """Find the blocks that hold the first ``k`` places, and draw those; ``shuffled`` heeds no order inside a block."""

    def draw(start: int, stop: int, n: int) -> IntArray:
        return start + exploration.draw_random(stop - start, n, rng)

    ends = candidates.ends(k)
    places, blocks = exploration.draw_blocks(ends, k, draw) if shuffled else candidates.draw(ends, k, rng)
    return drawn(ends, candidates.order[places], blocks)


def drawn(ends: IntArray, rows: IntArray, blocks: IntArray) -> Draw:
    """The ``rows`` (k,) drawn and the block of each (k,), of blocks with these ``ends``.

    Remembered with the blocks, the ends tell their sizes even where a block runs on below what was shown.
    """
    return Draw(rows, blocks, bool(ends[-1] >= len(ends)), {"ends": ends})


@jit.twin()
def show_by_score(
    X: FloatArray, weights: FloatArray, inverse: Float32Array, z: float, k: int, keys: FloatArray
) -> tuple[IntArray, IntArray, IntArray]:
    """`show` in one go, for up to `FEW` candidates and widths of scores: what `drawn` takes.

    ``inverse`` (d, d) is H⁻¹, ``z`` above zero, and ``keys`` (k n,) are as in `exploration.draw_blocks_by_key`.
    """
    candidates = compared(X, weights, inverse, partition.certain_by_score, z, closed=False)
    ends = candidates.ends(k)
    places, blocks = exploration.draw_blocks_by_key(candidates.certain(), ends, k, keys)
    return ends, candidates.order[places], blocks


def compared(
    X: FloatArray, weights: FloatArray, inverse: Float32Array, rule: Rule, factor: float, *, closed: bool
) -> Candidates:
    """Candidates with inputs X (n, d), scores X·θ, and widths ``factor`` ‖x_i - x_j‖ in the norm of ``inverse``.

    ``closed`` takes the transitive closure of the certain orders.
    """
    if not closed and len(X) > FEW:
        return LazyPairs(X, weights, inverse, rule, factor)
    order, scores, G = confidence.in_order(X, weights, inverse)
    certain = rule(scores, scores, confidence.squared_widths_of(G), factor)
    return Known(order, partition.transitive_closure(certain) if closed else certain)


class Known(Candidates):
    """Candidates of which all orders are known: ``certain`` (n, n)."""

    def __init__(self, order: IntArray, certain: BoolArray) -> None:
        self.order, self._certain = order, certain

    def ends(self, k: int) -> IntArray:
        return partition.first_blocks(self._certain, k)

    def draw(self, ends: IntArray, k: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        return exploration.draw_blocks_by_key(self._certain, ends, k, rng.random(k * len(self.order)))

    def certain(self) -> BoolArray:
        return self._certain


class Asked(Candidates):
    """Any number of candidates: only what is asked for is compared."""

    @abstractmethod
    def over(self, upper: Places, lower: Places) -> BoolArray:
        """(m, w), the certain orders of some places over others."""

    @abstractmethod
    def under(self, lower: Places, upper: Places) -> BoolArray:
        """(m, w), which of the places ``upper`` are certainly above each of ``lower``."""

    def draw(self, ends: IntArray, k: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        def draw(start: int, stop: int, n: int) -> IntArray:
            block, size = slice(start, stop), stop - start
            if size <= max(FEW, min(ONE_IN * n, MANY)):
                certain = np.empty((size, size), dtype=np.bool_)
                for row in range(0, size, FEW):
                    part = slice(start + row, min(start + row + FEW, stop))
                    certain[row : row + FEW] = self.over(part, block)
                return start + exploration.draw_conservative(certain, n, rng)
            return start + exploration.draw_conservative_lazily(
                lambda first, last: self.over(slice(start + first, start + last), block),
                lambda documents: self.under(documents + start, block),
                size,
                n,
                rng,
            )

        return exploration.draw_blocks(ends, k, draw)

    def certain(self) -> BoolArray:
        return self.over(slice(None), slice(None))


class LazyPairs(Asked):
    """Candidates that are many; scores and widths as in `compared`."""

    def __init__(self, X: FloatArray, weights: FloatArray, inverse: Float32Array, rule: Rule, factor: float) -> None:
        scores = X.dot(weights)
        self.order = np.argsort(-scores, kind="stable")
        # Only differences matter, and float32 is enough for them once what all candidates share is taken away.
        self._scores = (scores[self.order] - scores[0]).astype(np.float32)
        self._X = X[self.order].astype(np.float32)
        self._rule, self._factor = rule, factor
        self._projected: Float32Array = self._X @ inverse
        self._own = np.einsum("ij,ij->i", self._projected, self._X)

    def ends(self, k: int) -> IntArray:
        half = HALF[self._rule](np.sqrt(np.maximum(self._own, 0.0)), self._factor)
        margins = (self._scores - half, self._scores + half)
        return partition.leading_blocks(self.over, margins, k)

    def over(self, upper: Places, lower: Places) -> BoolArray:
        return self._rule(self._scores[upper], self._scores[lower], self._squared(upper, lower), self._factor)

    def under(self, lower: Places, upper: Places) -> BoolArray:
        # The widths are symmetric, so comparing the negated scores asks which are above instead of which are below.
        return self._rule(-self._scores[lower], -self._scores[upper], self._squared(lower, upper), self._factor)

    def _squared(self, upper: Places, lower: Places) -> Float32Array:
        """(m, w), squared widths between some places and others, up to rounding: G_ii + G_jj - 2 G_ij."""
        widths: Float32Array = self._projected[upper] @ self._X[lower].T
        widths *= -2.0
        widths += self._own[upper, None]
        widths += self._own[lower]
        return widths
