"""The pairwise logistic model: σ, its slope, the Hessian of the paper's Eq. 1, and the projection.

Pairs are oriented so that the preferred document comes first; then y = 1 for all of them and Eq. 1 reads
L(θ) = Σ w log(1 + exp(-x·θ)) + ½ (θ - θ₀)ᵀ P (θ - θ₀), with P = λI and θ₀ = 0 in the paper.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from pairrank.types import FloatArray

# Newton's method in the scores of one list stops when a step is this small; what is left is of its square.
CLOSE = 3e-2
MAX_STEPS = 100
PROJECTIONS = 50  # steps of the projection, at most


def sigmoid(x: FloatArray) -> FloatArray:
    """σ(x) = 1 / (1 + exp(-x)). By numpy's exp, which takes whole registers: a quarter of the time of scipy's expit."""
    with np.errstate(over="ignore"):  # exp(-x) = ∞ is right: σ is 0 there
        result: FloatArray = np.exp(-x)
    result += 1.0  # in place: over a history the arrays that lie between cost more than the sums
    return np.divide(1.0, result, out=result)


def slope(x: FloatArray) -> FloatArray:
    """σ'(x) = σ(x) σ(-x), exact in both tails."""
    e = np.exp(-np.abs(x))
    return e / np.square(1.0 + e)


def pair_hessian(theta: FloatArray, pairs: FloatArray, weight: FloatArray, precision: FloatArray) -> FloatArray:
    """∇²L(θ) = Σ w σ'(x·θ) x xᵀ + P, (d, d)."""
    return precision + pairs.T @ ((weight * slope(pairs @ theta))[:, None] * pairs)


def project(
    theta: FloatArray, pairs: FloatArray, weight: FloatArray, precision: FloatArray, M: FloatArray, radius: float
) -> FloatArray:
    """The appendix's projection: argmin over ‖θ'‖ ≤ Q of ‖g(θ') - g(θ)‖_{M⁻¹}, g(θ) = Σ w σ(x·θ) x + Pθ.

    Gauss-Newton: g is linearised at the current point with G = ∇g, and min ‖G θ' - c‖_{M⁻¹} over the ball is solved
    exactly through the eigenvectors of Gᵀ M⁻¹ G. ``radius`` is Q. Inside the ball θ is returned as it is.
    """
    if np.linalg.norm(theta) <= radius:
        return theta
    # Features of very different sizes can make M singular to rounding; this much of its own size does not change it.
    L: FloatArray = np.linalg.cholesky(M + 1e-12 * np.trace(M) / len(M) * np.eye(len(M))).astype(np.float64, copy=False)

    def image(at: FloatArray) -> FloatArray:
        return pairs.T @ (weight * sigmoid(pairs @ at)) + precision @ at

    target = image(theta)

    def distance_of(at: FloatArray) -> float:
        return float(np.linalg.norm(solve_triangular(L, image(at) - target, lower=True)))

    point = theta * (radius / np.linalg.norm(theta))
    distance = distance_of(point)
    for _ in range(PROJECTIONS):
        G = pair_hessian(point, pairs, weight, precision)
        A = solve_triangular(L, G, lower=True)
        c = solve_triangular(L, target - image(point) + G @ point, lower=True)
        direction = _least_squares_in_ball(A, c, radius) - point
        size = 1.0
        while size > 1e-10:
            candidate = point + size * direction  # a segment of the ball: still inside
            closer = distance_of(candidate)
            if closer < distance:
                break
            size /= 2
        else:
            return point
        gain, point, distance = distance - closer, candidate, closer
        if gain <= 1e-12 * max(distance, 1e-300):
            break
    return point


def _least_squares_in_ball(A: FloatArray, c: FloatArray, radius: float) -> FloatArray:
    """argmin ‖A x - c‖ over ‖x‖ ≤ radius: (AᵀA + μI) x = Aᵀc with the μ ≥ 0 that puts x on the sphere, or μ = 0."""
    values, vectors = np.linalg.eigh(A.T @ A)
    values = np.maximum(values, values[-1] * 1e-15)
    b = vectors.T @ (A.T @ c)

    def length(mu: float) -> float:
        return float(np.linalg.norm(b / (values + mu)))

    low, high = 0.0, 0.0
    if length(0.0) > radius:
        high = float(np.linalg.norm(b)) / radius  # there ‖x‖ ≤ ‖b‖/μ = radius
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if length(middle) > radius else (low, middle)
    solution: FloatArray = vectors @ (b / (values + high))
    return solution
