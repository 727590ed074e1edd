"""One list's pairs, taken in exactly against the quadratic model of all before: an equation in k documents' scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dgemv
from scipy.linalg.lapack import dgesv
from scipy.special import expit

from pairrank.kernel import jit
from pairrank.kernel.confidence import product, scores
from pairrank.kernel.logistic import CLOSE, MAX_STEPS
from pairrank.kernel.pairs import LONG, Pairs, preferences, shown, sparse_laplacian
from pairrank.types import AnyArray, BoolArray, FloatArray, IntArray

# Up to this many documents plain loops are faster than LAPACK, once they are compiled.
FEW = 32

Product = Callable[[FloatArray, FloatArray], FloatArray]


class Solution(NamedTuple):
    """Where the scores of a list have come to rest.

    Attributes
    ----------
    b : (k,), how hard each document is pulled: w σ(-(s_w - s_l)), plus at winners and minus at losers.
    L : (k, k), the Laplacian of w σ', which the list adds to the curvature in its documents' scores.
    S : (k, k), L (I + KL)⁻¹: by Woodbury (H + DᵀLD)⁻¹ = H⁻¹ - H⁻¹Dᵀ S DH⁻¹.
    moved : bᵀKb, the squared length of the move that this makes in the norm of H.
    """

    b: FloatArray
    L: FloatArray
    S: FloatArray
    moved: float


class Taken(NamedTuple):
    """θ̂ (d,) and H⁻¹ (d, d) after a list; ``L``, of long lists a sparse array, and ``moved`` as in `Solution`."""

    theta: FloatArray
    inverse: FloatArray
    L: Any
    moved: float


def take_in(D: FloatArray, pairs: Pairs, theta: FloatArray, inverse: FloatArray) -> Taken:
    """Minimise (quadratic model so far) + (loss of these ``pairs``), exactly; then add their curvature to H.

    With A = DH⁻¹ and K = ADᵀ for documents ``D`` (k, d) the minimiser is θ + Aᵀb, where the scores s' = s + K b(s') and
    b(s') collects w σ(-(s'_w - s'_l)) with plus at winners and minus at losers: an equation in k unknowns.
    """
    if len(D) > max(LONG, len(theta)):
        return _take_in_long(D, pairs, theta, inverse)
    return (take_in_short if takes_in_one_go(D) else _taken_in)(D, *pairs, theta, inverse)


@jit.twin(Taken)
def take_in_short(
    D: FloatArray, winner: IntArray, loser: IntArray, weight: FloatArray, theta: FloatArray, inverse: FloatArray
) -> Taken:
    """`take_in` of a list of two documents at least, with two columns at least."""
    return _taken_in(D, winner, loser, weight, theta, inverse)


def takes_in_one_go(D: FloatArray) -> bool:
    """Whether `take_in_shown` is for documents D (k, d): of one column numba makes a vector; BLAS adds up otherwise."""
    return len(D) <= FEW and D.shape[1] > 1


@jit.twin()
def take_in_shown(
    D: FloatArray,
    clicks: BoolArray,
    theta: FloatArray,
    inverse: FloatArray,
    first: int,
    rows: AnyArray,
    winner: IntArray,
    loser: IntArray,
    weight: FloatArray,
) -> tuple[FloatArray, FloatArray, float]:
    """`take_in` of the pairs `shown` of a short list: θ̂ (d,), H⁻¹ (d, d) and how far θ̂ moves.

    The list is written down, too: its documents as ``rows`` (k, d), which count from ``first``, and its pairs (n,).
    """
    found = shown(clicks)
    rows[:], winner[:], loser[:], weight[:] = D, found.winner + first, found.loser + first, found.weight
    after, updated, _, moved = _taken_in(D, *found, theta, inverse)
    return after, updated, moved


def _taken_in(
    D: FloatArray, winner: IntArray, loser: IntArray, weight: FloatArray, theta: FloatArray, inverse: FloatArray
) -> Taken:
    A = product(D, inverse)
    b, L, S, moved = solve_list(scores(D, theta), product(A, D.T), preferences(winner, loser, weight, len(D)))
    update = product(A.T, product(S, A))
    return Taken(theta + dgemv(1.0, A.T, b), np.subtract(inverse, update, out=update), L, moved)


def _take_in_long(D: FloatArray, pairs: Pairs, start: FloatArray, inverse: FloatArray) -> Taken:
    """`take_in` by equations in the weights: with J = DᵀLD a step δ of Newton's is (I + H⁻¹J) δ = H⁻¹Dᵀb - (θ - start).

    O(d) per pair and O(d³) beside that.
    """
    (winner, loser, weight), k, unit = pairs, len(D), np.eye(len(start))
    theta = start
    for _ in range(MAX_STEPS):
        s = D @ theta
        doubt = expit(s[loser] - s[winner])
        force = weight * doubt
        stiffness = force * (1.0 - doubt)
        L = sparse_laplacian(winner, loser, stiffness, k)
        J, pull = D.T @ (L @ D), D.T @ (np.bincount(winner, force, k) - np.bincount(loser, force, k))
        solved = _solve(unit + inverse @ J, np.column_stack([inverse @ pull - (theta - start), inverse]))
        step = solved[:, 0]
        size = float(np.abs(D @ step).max())
        theta = theta + (step if size <= 1.0 else step * (math.log1p(size) / size))
        if size < CLOSE:
            pull = pull - J @ step
            break
    inverse = solved[:, 1:]
    return Taken(theta, 0.5 * (inverse + inverse.T), L, float(pull @ (theta - start)))


def solve_list(start: FloatArray, K: FloatArray, weights: FloatArray) -> Solution:
    """Solve s' = start + K b(s') by Newton's method, for ``K`` = D H⁻¹ Dᵀ (k, k) and scores ``start`` (k,).

    ``weights`` (k, k) holds the weight of i's preference over j. Short lists are worked out in the order of a loop.
    """
    if len(start) > FEW:
        return _newton(start, K, weights, np.matmul, _solve)
    return _newton(start, K, weights, _product, _eliminate)


def _newton(start: FloatArray, K: FloatArray, weights: FloatArray, product: Product, solve: Product) -> Solution:
    scores, unit = start, np.eye(len(start))
    for _ in range(MAX_STEPS):
        b, L = _forces(weights, expit(scores - scores[:, None]))
        solved = solve(unit + product(K, L), np.column_stack([start + product(K, b) - scores, unit]))
        step = solved[:, 0]
        size = max(map(abs, step.tolist()))
        # A step that would move a pair far is shortened, as logistic losses ask for.
        scores = scores + (step if size <= 1.0 else step * (math.log1p(size) / size))
        if size < CLOSE:
            # Quadratic convergence: what is left is of the order CLOSE²/10, and b moves along by its derivative.
            b = b - product(L, step)
            break
    return Solution(b, L, product(L, np.ascontiguousarray(solved[:, 1:])), float(_total(b * product(K, b))))


def _forces(weights: FloatArray, doubt: FloatArray) -> tuple[FloatArray, FloatArray]:
    """b (k,), each document's sum of w σ(-(s_i - s_j)) won less lost, and the Laplacian (k, k) of w σ'.

    ``doubt`` (k, k) is σ(-(s_i - s_j)), so that doubtᵀ is 1 - doubt. Nobody is preferred to himself.
    """
    force = weights * doubt
    stiffness = force * doubt.T
    stiffness = stiffness + stiffness.T
    b = _total(force - force.T)
    L: FloatArray = -stiffness
    L.flat[:: len(L) + 1] = _total(stiffness)
    return b, L


# In the order of a loop, one operation after the other: what `sum`, BLAS and LAPACK would not do, and what makes the
# compiled twin give the same bits. So does expit, whose exp is the C library's.


def _total(terms: FloatArray, axis: int = -1) -> FloatArray:
    """Sums over an axis, as running sums that start at zero (and so are never minus zero)."""
    total: FloatArray = np.add(np.cumsum(terms, axis=axis).take(-1, axis), 0.0)
    return total


def _product(A: FloatArray, B: FloatArray) -> FloatArray:
    """A B for a small matrix A and a matrix or vector B."""
    return _total(A * B if B.ndim == 1 else A[:, :, None] * B, axis=1)


def _eliminate(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """matrix⁻¹ right by Gauss and Jordan's elimination with pivots."""
    k = len(matrix)
    A = np.concatenate([matrix, right], axis=1)
    for i in range(k):
        pivot = i + int(np.abs(A[i:, i]).argmax())
        if pivot != i:
            A[[i, pivot]] = A[[pivot, i]]
        A[i] /= A[i, i]
        factors = A[:, i].copy()
        factors[i] = 0.0
        A -= factors[:, None] * A[i]
    return A[:, k:]


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """matrix⁻¹ right, without the cost of checking it."""
    solution: FloatArray = dgesv(matrix, right)[2]
    return solution
