"""Certain orders and the blocks between them.

Everything here works on documents already sorted by falling score. A certain order always agrees with the order of
the scores, so only pairs (i, j) with i above j matter, and the blocks of the paper (connected components of uncertain
pairs, merged where the block graph has a cycle) are the contiguous runs between cuts that no uncertain pair crosses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from pairrank.kernel import loops
from pairrank.types import BoolArray, Float32Array, FloatArray, IntArray

Real = FloatArray | Float32Array

# (start, stop) -> (stop - start, n): the certain orders of sorted documents start to stop - 1 over all n.
CertainRows = Callable[[int, int], BoolArray]


def certain_by_probability(scores: Real, below: Real, squared: Real, alpha: float) -> BoolArray:
    """The paper's certain orders, (m, n): σ(s_i - s_j) - α‖x_ij‖_{M⁻¹} > ½.

    ``scores`` (m,) are the upper documents', ``below`` (n,) those they are compared with, ``squared`` (m, n) the
    squared widths. float32 or float64 throughout.
    """
    margin = expit(scores[:, None] - below)
    margin -= 0.5
    margin /= max(alpha, TINY)
    return _exceeds(margin, squared)


def certain_by_score(scores: Real, below: Real, squared: Real, z: float) -> BoolArray:
    """Certain orders by the posterior, (m, n): s_i - s_j > z‖x_ij‖_{H⁻¹}; transitive by the triangle inequality."""
    unit = max(z, TINY)
    upper: Any = scores / unit
    lower: Any = below / unit
    if squared.dtype == np.float32 and (fast := loops.compiled()):
        return fast.certain_by_score(upper, lower, squared.astype(np.float32, copy=False))
    return _exceeds(upper[:, None] - lower, squared)


# With no width at all every order is certain; this is as good as zero, and its square is not yet zero in float32.
TINY = 1e-15


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


def reaches(certain: BoolArray, first: int = 0) -> IntArray:
    """For each of m sorted documents ``first``, ``first`` + 1, ...: the position of its last uncertain partner.

    ``certain`` (m, n) holds their rows against all n sorted documents; a document without one below reaches itself.
    """
    m, n = certain.shape
    own = np.arange(first, first + m)
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


def leading_blocks(certain_rows: CertainRows, n: int, k: int, chunk: int) -> IntArray:
    """The ends of the blocks that hold the first ``k`` of ``n`` sorted positions, rising.

    Rows are asked for from the top, ``chunk`` at first and then up to eight times as many, until the block that holds
    position k is closed, or until an uncertain pair reaches the last document, which closes it there. Before the rows
    inside an open block are gone through, those at its lower edge are asked, which are the likeliest to reach on.
    """
    ends: list[int] = []
    furthest, start, most = -1, 0, 8 * chunk
    while not ends or ends[-1] < k - 1:
        stop = min(n, start + chunk)
        reach = np.maximum(np.maximum.accumulate(reaches(certain_rows(start, stop), start)), furthest)
        ends.extend((np.flatnonzero(reach == np.arange(start, stop)) + start).tolist())
        furthest = int(reach[-1])
        if furthest >= stop and (not ends or ends[-1] < k - 1):
            furthest = _reach_on(certain_rows, stop, furthest, n, most)
        start, chunk = stop, min(2 * chunk, most)
        if furthest == n - 1 and (not ends or ends[-1] < n - 1):
            ends.append(n - 1)
    return np.array(ends[: np.searchsorted(ends, k - 1) + 1])


def first_blocks(certain: BoolArray, k: int) -> IntArray:
    """`leading_blocks` where the certain orders (n, n) are known already."""
    if fast := loops.compiled():
        return fast.leading_ends(certain, k)
    ends = block_ends(reaches(certain))
    return ends[: np.searchsorted(ends, k - 1) + 1]


def _reach_on(certain_rows: CertainRows, start: int, furthest: int, n: int, edge: int) -> int:
    """How far an open block is seen to reach by asking only the last ``edge`` documents of it, again and again."""
    while furthest < n - 1:
        first = max(start, furthest + 1 - edge)
        on = int(reaches(certain_rows(first, furthest + 1), first).max())
        if on == furthest:
            break
        furthest = on
    return furthest
