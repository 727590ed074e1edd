"""Certain orders and the blocks between them.

Everything here works on documents already sorted by falling score. A certain order always agrees with the order of
the scores, so only pairs (i, j) with i above j matter, and the blocks of the paper (connected components of uncertain
pairs, merged where the block graph has a cycle) are the contiguous runs between cuts that no uncertain pair crosses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import logit

from pairrank.kernel import jit
from pairrank.kernel.logistic import sigmoid
from pairrank.types import BoolArray, Float32Array, FloatArray, Inspection, IntArray

Real = FloatArray | Float32Array

Places = IntArray | slice
# (m places, w places) -> (m, w): the certain orders of the first over the others.
CertainOver = Callable[[Places, Places], BoolArray]


def certain_by_probability(scores: Real, below: Real, squared: Real, alpha: float) -> BoolArray:
    """The paper's certain orders, (m, n): σ(s_i - s_j) - α‖x_ij‖_{M⁻¹} > ½.

    ``scores`` (m,) are the upper documents', ``below`` (n,) those they are compared with, ``squared`` (m, n) the
    squared widths. float32 or float64 throughout.
    """
    # σ(x) - ½ = ½ tanh(x/2), exact near zero, and numpy's tanh takes whole registers.
    margin = np.tanh(0.5 * (scores[:, None] - below))
    margin *= 0.5 / max(alpha, TINY)
    return _exceeds(margin, squared)


def certain_by_score(scores: Real, below: Real, squared: Real, z: float) -> BoolArray:
    """Certain orders by the posterior, (m, n): s_i - s_j > z‖x_ij‖_{H⁻¹}; transitive by the triangle inequality."""
    unit = max(z, TINY)
    return wider_apart(scores / unit, below / unit, squared)


@jit.twin()
def wider_apart(scores: Real, below: Real, squared: Real) -> BoolArray:
    """(m, n): s_i - s_j > ‖x_ij‖, for scores in units of z; all of one type, float32 or float64."""
    return _exceeds(scores[:, None] - below, squared)


def half_by_score(own: Real, z: float) -> Real:
    """(n,), h such that s_i - s_j > h_i + h_j makes i certainly above j, by the widths ``own`` ‖x_i‖_{H⁻¹} (n,) alone.

    ‖x_i - x_j‖ ≤ ‖x_i‖ + ‖x_j‖, wherever the features are counted from.
    """
    return (SLACK * z) * own


def half_by_probability(own: Real, alpha: float) -> Real:
    """As `half_by_score` for the paper's orders: s_i - s_j must exceed g(w) = logit(½ + αw), w ≤ own_i + own_j.

    g is convex, so g(own_i + own_j) ≤ ½ g(2 own_i) + ½ g(2 own_j); and nothing is certain where αw is a half or more.
    """
    with np.errstate(divide="ignore"):
        half: Real = 0.5 * logit(np.minimum(0.5 + (2.0 * SLACK * alpha) * own, 1.0))
    return half


# Widths are a little wider in these bounds than in the comparisons themselves, for those are rounded.
SLACK = 1.001

# With no width at all every order is certain; this is as good as zero, and neither its square nor that of a score in
# units of it is out of reach of float32.
TINY = 1e-12


def _exceeds(margin: Real, squared: Real) -> BoolArray:
    """margin > √squared, by squares, because the root is slow; ``margin`` is used up."""
    ahead: BoolArray = margin > 0
    np.square(margin, out=margin)
    ahead &= margin > squared
    return ahead


def transitive_closure(certain: BoolArray) -> BoolArray:
    """The closure of certain orders (n, n) (``refine``): i is above j if a chain of certain orders leads there.

    Repeated squaring; most relations are closed already, and the first product shows it.
    """
    closed = certain.copy()
    while True:
        reachable = closed.astype(np.float32)
        chained = (reachable @ reachable) > 0.5
        chained &= ~closed
        if not chained.any():
            return closed
        closed |= chained


def reaches(certain: BoolArray) -> IntArray:
    """For each of the first m sorted documents: the position of its last uncertain partner.

    ``certain`` (m, n) holds their rows against all n sorted documents; a document without one below reaches itself.
    """
    m, n = certain.shape
    own = np.arange(m)
    last = n - 1 - np.argmin(certain[:, ::-1], axis=1)
    # argmin answers 0 for a row that is certain throughout; a row is never certain about itself, so that cannot be.
    reach: IntArray = np.maximum(last, own)
    return reach


def block_ends(reach: IntArray) -> IntArray:
    """The last position of each block, rising, from the reach of every sorted document (n,)."""
    return np.flatnonzero(np.maximum.accumulate(reach) == np.arange(len(reach)))


def block_numbers(ends: IntArray, n: int) -> IntArray:
    """(n,), for each sorted position the number of its block."""
    return np.searchsorted(ends, np.arange(n))


def leading_blocks(certain_over: CertainOver, margins: tuple[Real, Real], k: int) -> IntArray:
    """The ends of the blocks that hold the first ``k`` of n sorted positions, rising, asking for little.

    ``margins`` are the lowest and the highest score that each document may have, (n,) both, such that i is certainly
    above j where the lowest of i is above the highest of j.
    """
    n = len(margins[0])
    asked = min(n, max(2 * k, 16))
    reach = np.maximum.accumulate(reaches(certain_over(slice(asked), slice(None))))
    ends = np.flatnonzero(reach == np.arange(asked))
    if len(ends) == 0 or ends[-1] < k - 1:
        ends = np.append(ends, _end_of_block(certain_over, margins, asked, int(reach[-1])))
    return ends[: np.searchsorted(ends, k - 1) + 1]


# Documents that are asked at once while a block is followed down: few as long as they lead on, then more.
FEW, MANY = 8, 128


def _end_of_block(certain_over: CertainOver, margins: tuple[Real, Real], start: int, furthest: int) -> int:
    """Where a block ends whose documents before ``start`` were asked and reach down to ``furthest``.

    Of the others inside of it only those matter that may be below somebody outside, and of these the lowest are the
    likeliest to reach on. When none is left, the block ends.
    """
    lowest, highest = margins
    n = len(lowest)
    highest_below = np.maximum.accumulate(highest[::-1])[::-1]
    waiting = np.arange(n) >= start
    batch = FEW
    while furthest < n - 1:
        inside = slice(0, furthest + 1)
        perhaps = np.flatnonzero(waiting[inside] & (lowest[inside] <= highest_below[furthest + 1]))
        if len(perhaps) == 0:
            break
        asked = perhaps[np.argsort(lowest[perhaps], kind="stable")[:batch]]
        waiting[asked] = False
        # Beyond the last whose highest score is not below their lowest, all orders are certain.
        stop = n - int(np.searchsorted(highest_below[::-1], lowest[asked[0]]))
        certain = certain_over(asked, slice(furthest + 1, stop))
        reached = np.flatnonzero(~certain.all(axis=0))
        batch = FEW if len(reached) else min(2 * batch, MANY)
        furthest += 1 + int(reached[-1]) if len(reached) else 0
    return furthest


@jit.twin()
def first_blocks(certain: BoolArray, k: int) -> IntArray:
    """`leading_blocks` where the certain orders (n, n) are known already."""
    ends = block_ends(reaches(certain))
    return ends[: np.searchsorted(ends, k - 1) + 1]


def inspected(
    scores: FloatArray, order: IntArray, certain: BoolArray, width: FloatArray, unit: str, z: float | None = None
) -> Inspection:
    """Scores (n,) and widths (n, n) by row, and the certain orders (n, n) of the documents sorted by ``order`` (n,)."""
    back = np.argsort(order)
    return Inspection(
        scores=scores,
        order=order,
        probability=sigmoid(np.subtract.outer(scores, scores)),
        width=width,
        certain=certain[np.ix_(back, back)],
        blocks=block_numbers(block_ends(reaches(certain)), len(order))[back],
        unit=unit,
        z=z,
    )
