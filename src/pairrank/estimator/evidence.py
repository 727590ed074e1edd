"""How stiff a function should be: the prior's precision of a block of weights, set by the evidence.

For a Laplace posterior N(θ̂, H⁻¹) with prior precision p of a block of m weights, let S be the block of H⁻¹ and t that
of θ̂. With p + δ instead the log-evidence changes by

    ½ m log((p + δ)/p) - ½ log det(I + δS) - ½ δ tᵀ(I + δS)⁻¹ t,

all else as it is: no matrix larger than m × m is needed.

Clicks that flatten out where documents are all bad, or all good, look as if the heaviest features bent, while it is the
score that does, and no order is the better for it. So a block must show its worth beside a polynomial of the score, as
far as this rises with it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pairrank.types import FloatArray, IntArray

# A block so stiff, as a multiple of λ, that its weights are nothing but rounding: a line, where all start.
LINE = 1e6
# How stiff a block may be, stiffest first.
STIFF = np.array([LINE, 30.0, 10.0, 3.0, 0.6, 0.25, 0.1])
# What the log-evidence must gain before a block becomes anything but as stiff as can be: many blocks are asked at once,
# and neither the pairs of one list nor lists of the same query are independent. On MQ2008, whose queries come back, 4
# cost .003 of held-out NDCG against 8; with 8 one of five folds lost .006, with 10 .004. Of 20 runs with noisy users
# where functions saturate, 8 had no bend after 1,000 lists with 8, 11 with 10, 14 with 12.
NATS = 10.0
# And as a share of what it gains without the polynomial, which cannot stand for every way to flatten out. Where lines
# are the truth and one feature has nearly all the weight, up to .5 was seen, .7 with the square alone; .7 to 1 where a
# function rises and falls or starts late, and from .5 for the heaviest feature that saturates to 1 for lighter ones.
SHARE = 0.6


class Powers(NamedTuple):
    """The score's square and cube as two more columns z, by sums over pairs; Δ is a winner's value less its loser's.

    both : (d, 2), Σ w σ' x Δzᵀ. own : (2, 2), Σ w σ' Δz Δzᵀ. pull : (2,), Σ w σ(-x·θ̂) Δz. plain : Σ w σ' Δs² for the
    score s.
    """

    both: FloatArray
    own: FloatArray
    pull: FloatArray
    plain: float


def stiffness(
    columns: IntArray, before: FloatArray, lam: float, theta: FloatArray, inverse: FloatArray, powers: Powers
) -> FloatArray:
    """(b,), how stiff each of b blocks of weights should be, as a multiple of ``lam``, where it is ``before`` (b,).

    Parameters
    ----------
    columns : (b, m), the weights of each block, -1 beyond those that it has.
    theta, inverse : (d,) and (d, d), θ̂ and H⁻¹.
    powers : of the score, see `beside`.
    """
    there, after = columns >= 0, before
    inner, sizes = np.where(there[:, :, None] & there[:, None, :], 1.0, 0.0), there.sum(axis=1)
    # One after the other, the best first: what one block explains, its like need not explain again.
    for _ in range(2 * len(columns)):
        other, wider = beside(theta, inverse, powers)
        S, W = (inner * matrix[columns[:, :, None], columns[:, None, :]] for matrix in (inverse, wider))
        found = gains(S, there * theta[columns], sizes, lam * after, lam * STIFF)
        gain = found.max(axis=1) - found[:, 0]
        doubted = gains(W, there * other[columns], sizes, lam * after, lam * STIFF)
        sure = doubted.max(axis=1) - doubted[:, 0] > np.maximum(NATS, SHARE * gain)
        # What is bent has bent the score as well, whose powers then tell less: here the gain alone decides.
        bent = np.isin(after, STIFF[1:]) & (gain > NATS)
        best = np.where(sure | bent, found.argmax(axis=1), 0)
        worth = np.where(STIFF[best] == after, -np.inf, found[np.arange(len(best)), best])
        first = int(worth.argmax())
        if worth[first] == -np.inf:
            break
        change = lam * (STIFF[best[first]] - after[first])
        after = np.where(np.arange(len(after)) == first, STIFF[best[first]], after)
        theta, inverse = stiffened(theta, inverse, columns[first][there[first]], change)
    return after


def stiffened(theta: FloatArray, inverse: FloatArray, block: IntArray, change: float) -> tuple[FloatArray, FloatArray]:
    """θ̂ (d,) and H⁻¹ (d, d) where ``change`` is added to the prior's precision of the weights ``block`` (m,)."""
    A = inverse[:, block]
    pulled = np.linalg.solve(np.eye(len(block)) / change + A[block], np.column_stack([theta[block], A.T]))
    return theta - A @ pulled[:, 0], inverse - A @ pulled[:, 1:]


def beside(theta: FloatArray, inverse: FloatArray, powers: Powers) -> tuple[FloatArray, FloatArray]:
    """θ̂ (d,) and H⁻¹ (d, d) as they were if a polynomial of the score, s + c·(s², s³), explained clicks.

    A score that flattens out still rises: c is shortened until the root mean square of what the polynomial adds to the
    Δs of a pair, as a share of Δs, is one. What would turn pairs round is a feature that has bent.
    """
    both, own, pull, plain = powers
    V = inverse @ both
    K = np.linalg.pinv(own - both.T @ V, rcond=1e-9, hermitian=True)
    c = K @ pull
    added = float(c @ own @ c)
    if added > plain:
        c *= math.sqrt(plain / added)
    return theta - V @ c, inverse + V @ K @ V.T


def gains(S: FloatArray, t: FloatArray, sizes: IntArray, precision: FloatArray, wanted: FloatArray) -> FloatArray:
    """(b, n): what the log-evidence gains with each ``wanted`` (n,) precision in the place of a block's own (b,).

    ``S`` (b, m, m) are parts of H⁻¹ and ``t`` (b, m) of θ̂, 0 beyond a block's own ``sizes`` (b,).
    """
    found = np.empty((len(t), len(wanted)))
    for i, p in enumerate(wanted.tolist()):
        change = p - precision
        A = np.eye(t.shape[1]) + change[:, None, None] * S
        pull = np.einsum("bi,bi->b", t, np.linalg.solve(A, t[:, :, None])[:, :, 0])
        found[:, i] = 0.5 * (sizes * np.log(p / precision) - np.linalg.slogdet(A)[1] - change * pull)
    return found
