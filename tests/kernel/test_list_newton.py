"""One list's pairs taken in: lists of any length, by whichever equations are fewer."""

from __future__ import annotations

import time
from unittest import mock

import numpy as np
import pytest

from pairrank.kernel import list_newton
from pairrank.kernel.logistic import sigmoid, slope
from pairrank.kernel.pairs import Pairs, shown
from pairrank.types import FloatArray

Arguments = tuple[FloatArray, Pairs, FloatArray, FloatArray]


def _list(k: int, d: int, n_clicks: int, size: float = 1.0) -> Arguments:
    rng = np.random.default_rng(k + d)
    clicks = np.zeros(k, dtype=np.bool_)
    clicks[rng.choice(k, n_clicks, replace=False)] = True
    root = rng.normal(size=(d, d))
    return size * rng.normal(size=(k, d)), shown(clicks), rng.normal(size=d), root @ root.T / d + 0.1 * np.eye(d)


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
@pytest.mark.parametrize(("k", "d", "n_clicks"), [(257, 1, 1), (300, 7, 1), (300, 7, 40), (260, 40, 90)])
def test_a_long_list_is_taken_in_exactly(k: int, d: int, n_clicks: int, size: float) -> None:
    D, pairs, theta, inverse = _list(k, d, n_clicks, size)
    found = list_newton.take_in(D, pairs, theta, inverse)
    H, x = np.linalg.inv(inverse), D[pairs.winner] - D[pairs.loser]
    move = found.theta - theta
    gradient = H @ move - (pairs.weight * sigmoid(-x @ found.theta)) @ x
    assert gradient @ inverse @ gradient <= 1e-6 * (move @ H @ move)
    assert found.moved == pytest.approx(move @ H @ move, rel=1e-3)
    curvature = x.T @ ((pairs.weight * slope(x @ found.theta))[:, None] * x)
    # It is of where the last step began, which is short.
    np.testing.assert_allclose(D.T @ found.L.dot(D), curvature, atol=0.02 * np.abs(curvature).max())
    assert np.array_equal(found.inverse, found.inverse.T)
    exact = np.linalg.inv(H + D.T @ found.L.dot(D))
    np.testing.assert_allclose(found.inverse, exact, atol=1e-7 * np.abs(exact).max())


def test_long_lists_are_taken_in_as_shorter_ones_are() -> None:
    arguments = _list(257, 7, 20)
    found = list_newton.take_in(*arguments)
    with mock.patch.object(list_newton, "LONG", 257):
        expected = list_newton.take_in(*arguments)
    for got, wanted in zip(found, expected, strict=True):
        wanted = np.asarray(wanted)
        got = got.toarray() if hasattr(got, "toarray") else got
        np.testing.assert_allclose(got, wanted, atol=1e-9 * np.abs(wanted).max())


def test_the_cost_of_a_long_list_is_that_of_its_pairs() -> None:
    def cost(k: int) -> float:
        arguments, costs = _list(k, 20, 20), []
        for _ in range(3):
            begin = time.process_time()
            list_newton.take_in(*arguments)
            costs.append(time.process_time() - begin)
        return min(costs)

    assert cost(2400) < 16 * cost(600)  # 64 times, were it cubic
