"""Functions that may only rise or only fall: weights moved, as little as the posterior minds, to where they do."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from pairrank.features.linear import Units
from pairrank.types import FloatArray

# Rises that follow from each other make the matrix of the constraints singular; this share of its diagonal does not.
_JITTER = 1e-10
# What is asked for in advance is at most this often doubled: up to 1e-4 of the steepest wrong rise.
_DOUBLINGS = 20


def constraints(units: Units, signs: dict[int, int]) -> FloatArray:
    """(m, n_inputs), rows A with A·θ ≥ 0 where every feature in ``signs`` only rises (1) or only falls (-1).

    One row for the rise over each piece, and one for the slope beyond the ends.
    """
    rows = []
    for feature, sign in sorted(signs.items()):  # in whatever order they were told: the same bits
        own = units.knots_of(feature)
        at = own if len(own) else units.middle[feature : feature + 1]
        X = np.tile(units.middle, (len(at) + 1, 1))
        X[:, feature] = np.append(at, at[-1] + units.units[feature])
        rows.append(sign * np.diff(units.columns(X) / units.units, axis=0))
    return np.concatenate(rows)


def projected(theta: FloatArray, A: FloatArray, covariance: FloatArray | None) -> FloatArray:
    """The θ' nearest to ``theta`` (m,) with Aθ' ≥ 0, in the norm of the inverse of its ``covariance``, or of I.

    θ' = θ + ΣAᵀμ, where μ ≥ 0 minimises ½ μᵀAΣAᵀμ + μᵀAθ: least squares without negative values, in a Cholesky factor
    of AΣAᵀ. What the jitter takes from Aθ' is asked for in advance, or documents that differ in one such feature alone
    would stand the wrong way round by a hair.
    """
    if (A @ theta >= 0.0).all():
        return theta
    from scipy.optimize import nnls  # takes longer to import than the rest of a ranker, and few need it

    spread = A if covariance is None else A @ covariance
    C = spread @ A.T
    scale = 1.0 / np.sqrt(np.maximum(C.diagonal(), 1e-300))
    L = cholesky(C * np.outer(scale, scale) + _JITTER * np.eye(len(C)), lower=True)
    rises = scale * (A @ theta)
    margin = -_JITTER * float(rises.min())
    for _ in range(_DOUBLINGS):
        margin *= 2.0
        mu, _ = nnls(L.T, solve_triangular(L, margin - rises, lower=True))
        moved: FloatArray = theta + (scale * mu) @ spread
        if (A @ moved >= 0.0).all():
            return moved
    # Pieces of which one is longer than another by more digits than a number has: rounding has no function but a line.
    lines = (A != 0.0).argmax(axis=1)  # a line's column is the first of its feature
    for line in np.unique(lines[A @ moved < 0.0]):
        rows, slope = A[lines == line], moved[line]
        moved[(rows != 0.0).any(axis=0)] = 0.0
        moved[line] = slope if rows[0, line] * slope > 0.0 else 0.0
    return moved
