from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import slow_twins
from pairrank.kernel import logistic


def problem(seed: int, n: int = 60, d: int = 5, separable: bool = False) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=d)
    pairs = rng.normal(size=(n, d))
    probability = 1 / (1 + np.exp(-pairs @ theta))
    wins = pairs @ theta > 0 if separable else rng.random(n) < probability
    A = rng.normal(size=(d, d))
    return np.where(wins[:, None], pairs, -pairs), rng.random(n) + 0.1, A @ A.T + np.eye(d), rng.normal(size=d)


def test_sigmoid_is_stable_and_symmetric() -> None:
    x = np.array([-800.0, -40.0, -1.0, 0.0, 1.0, 40.0, 800.0])
    s = logistic.sigmoid(x)
    assert s[0] == 0.0
    assert s[3] == 0.5
    assert s[-1] == 1.0
    assert s[2] == pytest.approx(1 / (1 + np.exp(1)), rel=1e-15)
    np.testing.assert_allclose(logistic.slope(x), s * logistic.sigmoid(-x), rtol=1e-15)
    assert logistic.slope(np.array([40.0]))[0] == pytest.approx(np.exp(-40), rel=1e-12)


@given(st.integers(0, 10_000))
def test_gradient_and_hessian_are_the_differences_of_the_loss(seed: int) -> None:
    pairs, weight, P, mean = problem(seed, n=10, d=3)
    theta = np.random.default_rng(seed + 1).normal(size=3)
    gradient = slow_twins.pair_gradient(theta, pairs, weight, P, mean)
    hessian = logistic.pair_hessian(theta, pairs, weight, P)
    h = 1e-5
    args = (pairs, weight, P, mean)
    for i, e in enumerate(np.eye(3)):
        up, down = theta + h * e, theta - h * e
        slope = (slow_twins.pair_loss(up, *args) - slow_twins.pair_loss(down, *args)) / (2 * h)
        assert gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-6)
        bend = (slow_twins.pair_gradient(up, *args) - slow_twins.pair_gradient(down, *args)) / (2 * h)
        np.testing.assert_allclose(hessian[i], bend, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("lam", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("seed", range(4))
def test_minimiser_agrees_with_an_independent_optimiser(seed: int, lam: float, separable: bool) -> None:
    pairs, weight, _, _ = problem(seed, separable=separable)
    P, mean = lam * np.eye(5), np.zeros(5)
    theta = slow_twins.minimise(pairs, weight, P, mean)
    args = (pairs, weight, P, mean)
    other = minimize(
        slow_twins.pair_loss, np.ones(5), args, "trust-exact", slow_twins.pair_gradient,
        lambda t, pairs, weight, P, mean: logistic.pair_hessian(t, pairs, weight, P), options={"gtol": 1e-10},
    )  # fmt: skip
    assert np.isfinite(theta).all()
    np.testing.assert_allclose(theta, other.x, atol=1e-6)


def test_minimiser_survives_huge_features_and_a_far_start() -> None:
    pairs, weight, P, mean = problem(1)
    near = slow_twins.minimise(1e4 * pairs, weight, P, mean)
    far = slow_twins.minimise(1e4 * pairs, weight, P, mean, start=np.full(5, 3.0))
    np.testing.assert_allclose(near, far, atol=1e-8)
    assert np.linalg.norm(slow_twins.pair_gradient(near, 1e4 * pairs, weight, P, mean)) < 1e-5


def image_distance(theta: np.ndarray, point: np.ndarray, pairs: np.ndarray, weight: np.ndarray, P: np.ndarray) -> float:
    M = P + pairs.T @ (weight[:, None] * pairs)
    g = [pairs.T @ (weight / (1 + np.exp(-pairs @ t))) + P @ t for t in (theta, point)]
    return float((g[0] - g[1]) @ np.linalg.solve(M, g[0] - g[1]))


@pytest.mark.parametrize("seed", range(6))
def test_projection_is_the_nearest_image_in_the_ball(seed: int) -> None:
    pairs, weight, P, _ = problem(seed, n=40, d=3)
    M = P + pairs.T @ (weight[:, None] * pairs)
    theta = 4.0 * np.random.default_rng(seed).normal(size=3)
    theta *= 3.0 / np.linalg.norm(theta)
    point = logistic.project(theta, pairs, weight, P, M, 1.0)
    assert np.linalg.norm(point) <= 1.0 + 1e-9
    best = image_distance(theta, point, pairs, weight, P)
    rng = np.random.default_rng(seed)
    others = rng.normal(size=(4000, 3))
    others /= np.maximum(np.linalg.norm(others, axis=1, keepdims=True), 1.0)
    near = point + 0.05 * rng.normal(size=(4000, 3))
    near /= np.maximum(np.linalg.norm(near, axis=1, keepdims=True), 1.0)
    assert all(image_distance(theta, o, pairs, weight, P) >= best - 1e-9 for o in [*others, *near])


def test_projection_leaves_admissible_models_alone() -> None:
    pairs, weight, P, _ = problem(0, d=3)
    theta = np.array([0.1, -0.2, 0.3])
    assert logistic.project(theta, pairs, weight, P, P, 1.0) is theta
