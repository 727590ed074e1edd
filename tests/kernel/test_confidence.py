from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.estimator.information_matrix import InformationMatrix
from pairrank.kernel import confidence


def test_inverse_and_determinant_after_ten_thousand_updates() -> None:
    rng = np.random.default_rng(0)
    M = InformationMatrix(30, 0.1)
    exact = 0.1 * np.eye(30)
    for _ in range(10_000):
        rows = rng.normal(size=(rng.integers(1, 6), 30)) * rng.random()
        M.add(rows)
        exact += rows.T @ rows
    fresh = np.linalg.inv(exact)
    assert np.linalg.norm(M.inverse - fresh) <= 1e-8 * np.linalg.norm(fresh)
    assert M.log_det == pytest.approx(np.linalg.slogdet(exact)[1], rel=1e-8)
    np.testing.assert_allclose(M.matrix, exact, rtol=1e-12)


def test_inverse_stays_right_between_refactorisations() -> None:
    rng = np.random.default_rng(1)
    inverse, exact, log_det = np.eye(12) / 0.5, 0.5 * np.eye(12), 12 * math.log(0.5)
    for _ in range(999):
        rows = rng.normal(size=(3, 12))
        inverse, more = confidence.updated_inverse(inverse, rows)
        log_det += more
        exact += rows.T @ rows
    np.testing.assert_allclose(inverse, np.linalg.inv(exact), rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(inverse, inverse.T, rtol=1e-12, atol=1e-16)
    assert log_det == pytest.approx(np.linalg.slogdet(exact)[1], rel=1e-10)


def test_fresh_inverse_equals_numpy() -> None:
    A = np.random.default_rng(2).normal(size=(20, 20))
    matrix = A @ A.T + np.eye(20)
    inverse, log_det = confidence.inverse_of(matrix)
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-9, atol=1e-12)
    assert log_det == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 6))
def test_widths_equal_the_definition_pair_by_pair(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    X, A = rng.normal(size=(n, d)), rng.normal(size=(d, d))
    X[rng.integers(n)] = X[0]  # a duplicate document
    inverse = np.linalg.inv(A @ A.T + np.eye(d))
    squared = confidence.squared_widths(X, inverse)
    for i in range(n):
        for j in range(n):
            x = X[i] - X[j]
            assert squared[i, j] == pytest.approx(x @ inverse @ x, abs=1e-9)
    assert (squared >= 0).all()


def test_alpha_theory_is_lemma_1() -> None:
    lam, Q, delta1, c_mu = 0.3, 2.0, 0.1, 0.2
    M = np.diag([1.0, 2.0, 5.0])
    expected = (2 * 0.25 / c_mu) * (
        math.sqrt(0.25 * math.log(np.linalg.det(M) / (delta1**2 * lam**3))) + math.sqrt(lam) * Q
    )
    assert confidence.alpha_theory(np.linalg.slogdet(M)[1], 3, lam, Q, delta1, c_mu) == pytest.approx(expected)


def test_an_update_beyond_float64_is_refused() -> None:
    with pytest.raises(FloatingPointError):
        confidence.updated_inverse(-np.eye(2), np.array([[2.0, 0.0]]))
