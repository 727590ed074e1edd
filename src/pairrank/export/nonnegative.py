"""Weights of which none is below 0, for engines that take no others: fitted as such, not clipped."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from pairrank import threads
from pairrank.types import FloatArray


@threads.single()
def nonnegative(weights: FloatArray, covariance: FloatArray) -> FloatArray:
    """(d,): argmin over θ ≥ 0 of (θ - θ̂)ᵀ C⁻¹ (θ - θ̂), the likeliest such weights under θ ~ N(θ̂, C).

    θ̂ = ``weights`` (d,), C = ``covariance`` (d, d). A weight that is set to 0 moves those of correlated features along,
    which clipping would not do.

    >>> nonnegative(np.array([1.0, -1.0]), np.array([[1.0, 0.9], [0.9, 1.0]])).round(2)
    array([1.9, 0. ])
    """
    from scipy.optimize import nnls  # takes longer to import than the rest, and few need it

    unit = np.sqrt(np.diagonal(covariance))
    # With C = KKᵀ the distance is ‖K⁻¹(θ - θ̂)‖², a least-squares problem; in standard deviations units do not matter.
    K = np.linalg.cholesky(covariance / np.outer(unit, unit))
    inverse = solve_triangular(K, np.eye(len(unit)), lower=True)
    found, _ = nnls(inverse, inverse @ (weights / unit))
    result: FloatArray = found * unit
    return result
