"""Slow, obvious twins of what the package does fast: the pairwise logistic loss, and its minimum by Newton's method.

L(θ) = Σ w log(1 + exp(-x·θ)) + ½ (θ - m)ᵀ P (θ - m), for pairs x (n, d), weights w (n,), P (d, d) and m (d,).
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from pairrank.types import FloatArray


def _falls(scores: FloatArray) -> FloatArray:
    """σ(-s), without overflow."""
    falls: FloatArray = expit(-scores)
    return falls


def pair_loss(theta: FloatArray, x: FloatArray, w: FloatArray, P: FloatArray, mean: FloatArray) -> float:
    away = theta - mean
    return float(w @ np.logaddexp(0.0, -(x @ theta)) + 0.5 * away @ P @ away)


def pair_gradient(theta: FloatArray, x: FloatArray, w: FloatArray, P: FloatArray, mean: FloatArray) -> FloatArray:
    gradient: FloatArray = P @ (theta - mean) - x.T @ (w * _falls(x @ theta))
    return gradient


def pair_hessian(theta: FloatArray, x: FloatArray, w: FloatArray, P: FloatArray) -> FloatArray:
    hessian: FloatArray = P + x.T @ ((w * _falls(x @ theta) * _falls(-(x @ theta)))[:, None] * x)
    return hessian


def minimise(
    x: FloatArray, w: FloatArray, P: FloatArray, mean: FloatArray, start: FloatArray | None = None
) -> FloatArray:
    """argmin L, (d,): Newton steps, halved until the loss falls, until a step is nothing in the Hessian's norm."""
    theta = mean.copy() if start is None else start.copy()
    for _ in range(200):
        gradient = pair_gradient(theta, x, w, P, mean)
        step = np.linalg.solve(pair_hessian(theta, x, w, P), gradient)
        fall = max(float(gradient @ step), 0.0)
        if fall <= 1e-20:
            break
        size, value = 1.0, pair_loss(theta, x, w, P, mean)
        # Near the minimum the fall drowns in rounding; there the whole step is safe.
        while fall > 1e-8 and size > 1e-8:
            if pair_loss(theta - size * step, x, w, P, mean) <= value - 0.25 * size * fall:
                break
            size /= 2
        theta = theta - size * step
    return theta
