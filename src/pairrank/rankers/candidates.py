"""The candidates of one query, compared with each other: who is certainly above whom, and which blocks that makes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pairrank.kernel import confidence, exploration, loops, partition
from pairrank.rng import Purpose
from pairrank.types import BoolArray, Float32Array, FloatArray, IntArray

# Up to this many candidates, comparing all of them costs less than finding out which comparisons can be spared.
WHOLE = 256
RANK = int(Purpose.RANK)  # compiled code takes long to look at an enumeration

# (scores of m, scores of n, squared widths (m, n), factor) -> (m, n): see `partition.certain_by_score`.
Rule = Callable[[Float32Array, Float32Array, Float32Array, float], BoolArray]
Places = IntArray | slice
# For each rule, what a document's own width adds to the gap of scores that makes an order certain.
HALF: dict[Rule, Callable[[Float32Array, float], Any]] = {
    partition.certain_by_score: partition.half_by_score,
    partition.certain_by_probability: partition.half_by_probability,
}


class Shown(NamedTuple):
    """What is shown of the candidates.

    Attributes
    ----------
    ends : the ends of the blocks that hold the first k places, rising.
    places : (k,), places in the order of scores, as shown. blocks : (k,), the block of each.
    fair : (k, k), which pairs of them are in a fair order: either could have come first with equal chance.
    """

    ends: IntArray
    places: IntArray
    blocks: IntArray
    fair: BoolArray


class Candidates:
    """Any number of candidates; places count in the order of scores, and only what is asked for is compared."""

    def __init__(
        self,
        X: FloatArray,
        scores: FloatArray,
        inverse: Float32Array,
        rule: Rule,
        factor: float,
        stake: float = 0.0,
    ) -> None:
        self.order = np.argsort(-scores, kind="stable")
        # Only differences matter, and float32 is enough for them once what all candidates share is taken away.
        self._scores = (scores[self.order] - scores[0]).astype(np.float32)
        self._X = confidence.centred(X)[self.order]
        self._rule, self._factor = rule, factor
        self._projected = self._X @ inverse
        self._own = np.einsum("ij,ij->i", self._projected, self._X)
        self._ease = _ease(len(X), stake) if stake else None

    def show(self, k: int, rng: np.random.Generator, *, shuffled: bool) -> Shown:
        """Find the blocks that hold the first ``k`` places, and draw those places."""
        ends = self.ends(k)
        return Shown(ends, *self.arrange(ends, k, rng, shuffled=shuffled))

    def show_at_once(self, fast: loops.Loops, k: int, seed: int, number: int) -> Shown:
        """Not for candidates that were not all compared."""
        raise NotImplementedError("compiled loops draw from few candidates; use Whole")

    def ends(self, k: int) -> IntArray:
        """The ends of the blocks that hold the first ``k`` places."""
        half = HALF[self._rule](np.sqrt(np.maximum(self._own, 0.0)), self._factor)
        margins = (self._scores - half, self._scores + half)
        return partition.leading_blocks(self.certain_rows, self._certain_over, margins, k)

    def arrange(
        self, ends: IntArray, k: int, rng: np.random.Generator, *, shuffled: bool
    ) -> tuple[IntArray, IntArray, BoolArray]:
        """Draw the first ``k`` places (k,); with the block of each (k,), and which pairs are in a fair order (k, k).

        ``shuffled`` shuffles each block whole; else certain orders are kept inside of it.
        """
        places, blocks = np.arange(k), np.searchsorted(ends, np.arange(k))
        start = 0
        for end in ends.tolist():
            if end > start:
                stop = min(end + 1, k)
                draw = exploration.draw_random if shuffled else partial(self._draw, start)
                places[start:stop] = start + draw(end + 1 - start, stop - start, rng)
            start = end + 1
        if shuffled:
            return places, blocks, np.equal.outer(blocks, blocks)
        return places, blocks, exploration.fair_pairs(self.certain_among(places))

    def _draw(self, start: int, size: int, n_draws: int, rng: np.random.Generator) -> IntArray:
        """The first ``n_draws`` places of the block of ``size`` that begins at ``start``, counted from there."""
        block = slice(start, start + size)
        return exploration.draw_conservative_lazily(
            lambda first, last: self.certain_rows(start + first, start + last)[:, block],
            lambda documents: self._predecessors(documents, block),
            size,
            n_draws,
            rng,
        )

    def certain_rows(self, start: int, stop: int) -> BoolArray:
        """(stop - start, n), the certain orders of places start to stop - 1 over all."""
        return self._certain_over(slice(start, stop), slice(None))

    def certain_among(self, places: IntArray) -> BoolArray:
        """(k, k), the certain orders among some places."""
        return self._certain_over(places, places)

    def _certain_over(self, upper: Places, lower: Places) -> BoolArray:
        """(m, w), the certain orders of some places over others."""
        return self._rule(self._scores[upper], self._scores[lower], self._squared(upper, lower), self._factor)

    def propensities(self, ends: IntArray, places: IntArray) -> FloatArray:
        """Not for candidates that were not all compared."""
        raise NotImplementedError("propensities need all comparisons; use Whole")

    def _squared(self, upper: Places, lower: Places) -> Float32Array:
        """(m, w), squared widths between some places and others."""
        squared = confidence.squared_widths_between(
            self._projected[upper], self._own[upper], self._X[lower], self._own[lower]
        )
        if self._ease is not None:
            squared *= self._ease[upper][:, None]
        return squared

    def _predecessors(self, documents: IntArray, block: slice) -> BoolArray:
        """(m, size), which documents of the block are certainly above each of ``documents`` (places in the block)."""
        lower = documents + block.start
        # The widths are symmetric, so comparing the negated scores asks who is above instead of who is below.
        squared = self._squared(lower, block)
        if self._ease is not None:
            squared *= self._ease[block] / self._ease[lower][:, None]  # it goes by the upper document
        return self._rule(-self._scores[lower], -self._scores[block], squared, self._factor)


class Whole(Candidates):
    """Few candidates, or ones whose certain orders are to be closed: all are compared, once."""

    closes: ClassVar[bool] = False

    def __init__(
        self,
        X: FloatArray,
        scores: FloatArray,
        inverse: Float32Array,
        rule: Rule,
        factor: float,
        stake: float = 0.0,
    ) -> None:
        self.order, self._scores, ordered = confidence.ordered(X, scores)
        self._rule, self._factor, self._stake = rule, factor, stake
        self._G = np.matmul(ordered @ inverse, ordered.T, dtype=np.float32)  # used up by the first comparison

    @cached_property
    def certain(self) -> BoolArray:
        """(n, n), the certain orders of all places."""
        squared = confidence.squared_widths_of(self._G)
        if self._stake:
            squared *= _ease(len(squared), self._stake)[:, None]
        certain = self._rule(self._scores, self._scores, squared, self._factor)
        return partition.transitive_closure(certain) if self.closes else certain

    def show_at_once(self, fast: loops.Loops, k: int, seed: int, number: int) -> Shown:
        """`show` with the stream of an impression, in one go: for certain orders by score, no stake and no closure."""
        unit = max(self._factor, partition.TINY)
        self.certain, ends, places, blocks, fair = fast.show(self._G, self._scores, unit, k, seed, number, RANK)
        return Shown(ends, places, blocks, fair)

    def ends(self, k: int) -> IntArray:
        """The ends of the blocks that hold the first ``k`` places."""
        return partition.first_blocks(self.certain, k)

    def arrange(
        self, ends: IntArray, k: int, rng: np.random.Generator, *, shuffled: bool
    ) -> tuple[IntArray, IntArray, BoolArray]:
        """As for any candidates, from the orders at hand."""
        fast = loops.compiled()
        if shuffled or fast is None:
            return super().arrange(ends, k, rng, shuffled=shuffled)
        # As many keys as the blocks would draw one after the other, and so the same ones.
        n_keys = start = 0
        for stop in (ends + 1).tolist():
            n_keys += (stop - start) * (min(stop, k) - start) if stop - start > 1 else 0
            start = stop
        return fast.arrange(self.certain, ends, k, rng.random(n_keys))

    def _draw(self, start: int, size: int, n_draws: int, rng: np.random.Generator) -> IntArray:
        return exploration.draw_conservative(self.certain[start : start + size, start : start + size], n_draws, rng)

    def certain_rows(self, start: int, stop: int) -> BoolArray:
        """A view of `certain`."""
        return self.certain[start:stop]

    def certain_among(self, places: IntArray) -> BoolArray:
        """(k, k), the certain orders among some places."""
        return self.certain[places[:, None], places]

    def propensities(self, ends: IntArray, places: IntArray) -> FloatArray:
        """`exploration.propensities` of what was drawn."""
        # The block that holds the last of them is the last that matters.
        n = int(ends[-1]) + 1
        return exploration.propensities(self.certain[:n, :n], places, partition.block_numbers(ends, n))


class Closed(Whole):
    """Candidates under the transitive closure of their certain orders."""

    closes = True


def _ease(n: int, stake: float) -> Float32Array:
    """(n,), what squared widths are multiplied by when the upper document is at each place: less further down."""
    ease: Float32Array = (np.log2(np.arange(n) + 2.0) ** (-2.0 * stake)).astype(np.float32)
    return ease
