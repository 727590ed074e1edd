"""How sure the model is of a pair: M and its inverse under low-rank updates, widths of all pairs, and α_t."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.blas import dgemm, dgemv, dtrsm, sgemm
from scipy.linalg.lapack import dpotrf, dpotri

from pairrank.kernel import jit
from pairrank.types import AnyArray, Float32Array, FloatArray, IntArray

# Lemma 1's constants: noise of a yes or no is ½-sub-Gaussian, the sigmoid is ¼-Lipschitz.
R = 0.5
K_MU = 0.25
LARGEST = 1e30


def updated_inverse(inverse: FloatArray, rows: FloatArray) -> tuple[FloatArray, float]:
    """(M + VᵀV)⁻¹ from M⁻¹ for ``rows`` V (m, d), and log det(M + VᵀV) - log det(M).

    Woodbury: with W = M⁻¹Vᵀ and LLᵀ = I + VW the update is M⁻¹ - TTᵀ, T = W L⁻ᵀ, O(m d²) and one pass over M⁻¹.
    """
    W = inverse.dot(rows.T)
    inner = rows.dot(W)
    inner.flat[:: len(rows) + 1] += 1.0
    L, info = dpotrf(inner, lower=1)
    if info != 0:
        raise FloatingPointError("the update is not positive definite; the features are too large for float64")
    T = dtrsm(1.0, L, W, side=1, lower=1, trans_a=1)
    return plus_product(inverse, T, T, -1.0), 2.0 * float(np.log(np.diagonal(L)).sum())


def plus_product(matrix: FloatArray, A: FloatArray, B: FloatArray, factor: float) -> FloatArray:
    """matrix + factor A Bᵀ for symmetric ``matrix`` (d, d) and A Bᵀ of A, B (d, m), in one pass over a copy of it."""
    total: FloatArray = dgemm(factor, B, A, beta=1.0, c=matrix.T, trans_b=1).T
    return total


# Products that compiled code takes part in are by scipy's BLAS, which numba calls: numpy's may be another one.


def product(A: AnyArray, B: AnyArray) -> AnyArray:
    """A B for two matrices, each laid out by rows or the transpose of one that is; both float32 or both float64."""
    (a, flip_a), (b, flip_b) = ((M.T, 0) if M.flags.c_contiguous else (M, 1) for M in (A, B))
    gemm = sgemm if A.dtype == np.float32 else dgemm
    total: AnyArray = gemm(1.0, b, a, trans_a=flip_b, trans_b=flip_a).T
    return total


def scores(X: FloatArray, weights: FloatArray) -> FloatArray:
    """X·θ, (n,), for rows X (n, d)."""
    products: FloatArray = dgemv(1.0, X.T, weights, trans=1)
    return products


def inverse_of(matrix: FloatArray) -> tuple[FloatArray, float]:
    """(M⁻¹, log det M) afresh from a symmetric positive definite M, O(d³)."""
    L = np.linalg.cholesky(matrix)
    log_det = 2.0 * float(np.log(np.diagonal(L)).sum())
    # LAPACK counts by columns, for which this is the upper factor; it fills the upper half, that is our lower one.
    inverse: FloatArray = dpotri(L.T, lower=0, overwrite_c=1)[0].T
    inverse += np.tril(inverse, -1).T
    return inverse, log_det


def squared_widths(X: FloatArray, inverse: FloatArray) -> FloatArray:
    """‖x_i - x_j‖²_{M⁻¹} for all rows of ``X`` (n, d), as (n, n): with G = X M⁻¹ Xᵀ it is G_ii + G_jj - 2 G_ij."""
    projected = X @ inverse
    own = np.einsum("ij,ij->i", projected, X)
    # Rounding can take the difference of near-equal documents below zero.
    squared: FloatArray = np.maximum(own[:, None] + own - 2.0 * (projected @ X.T), 0.0)
    return squared


@jit.twin()
def within(X: FloatArray, bound: float) -> bool:
    """Whether all of X (n, d), laid out by rows, lies within ±``bound``; NaN does not."""
    # No product of BLAS here: it would wake its threads.
    return bool(X.max() <= bound and X.min() >= -bound)


@jit.twin()
def standardised(X: FloatArray, unit: FloatArray, furthest: float) -> FloatArray:
    """X (n, d) less the mean of its rows, each column over its ``unit`` (d,), and nothing beyond ±``furthest``.

    From the first row: a mean of equal numbers far from zero is not that number, and constants must become zero. In a
    column that reaches further the lower median is taken instead, which a row that is far out leaves where it is.
    """
    away: FloatArray = X - X[0]
    # By rows, as a loop does: a single column would be added up by halves.
    away -= (np.add.reduce(away) if len(unit) > 1 else away.cumsum()[-1]) / len(away)
    away *= 1.0 / unit
    if away.max() > furthest or away.min() < -furthest:
        far = np.flatnonzero((np.abs(away) > furthest).any(axis=0))
        middle = np.sort(X[:, far], axis=0)[(len(X) - 1) // 2] + 0.0  # which of two zeros is not told
        away[:, far] = np.minimum(np.maximum((X[:, far] - middle) * (1.0 / unit[far]), -furthest), furthest)
    return away


def squared_widths_of(G: Float32Array) -> Float32Array:
    """Squared widths of all pairs, (n, n), up to rounding, in the place of G = X M⁻¹ Xᵀ: G_ii + G_jj - 2 G_ij."""
    own = G.diagonal().copy()
    G *= -2.0
    G += own[:, None] + own
    return G


@jit.twin()
def in_order(X: FloatArray, weights: FloatArray, inverse: Float32Array) -> tuple[IntArray, Float32Array, Float32Array]:
    """Few candidates by falling score X·θ, ties by row: their rows (n,), and in float32 what differences are taken of.

    These are in that order the scores less that of the first row, (n,), and G = X M⁻¹ Xᵀ, (n, n), for ``inverse`` M⁻¹
    (d, d) and inputs X (n, d), which are centred.
    """
    found = scores(X, weights)
    order = (-found).argsort(kind="stable")
    inputs = X.astype(np.float32).take(order, axis=0)
    falling = (found.take(order) - found[0]).astype(np.float32)
    return order, falling, product(product(inputs, inverse), inputs.T)


def alpha_theory(
    log_det: float, n_features: int, lam: float, radius: float, delta1: float, c_mu: float = 0.25
) -> float:
    """α_t of Lemma 1: (2k_μ/c_μ) (√(R² log(det M / (δ₁² det λI))) + √λ Q).

    ``log_det`` is log det M_t, ``radius`` is Q, ``c_mu`` the smallest slope of σ over the admissible models (¼, the
    kindest, by default).
    """
    # A prior may start M below λI. And what α is beyond LARGEST, where nothing is certain, float32 could not hold.
    log_ratio = max(log_det - n_features * math.log(lam) - 2.0 * math.log(delta1), 0.0)
    return min((2.0 * K_MU / c_mu) * (math.sqrt(R**2 * log_ratio) + math.sqrt(lam) * radius), LARGEST)
