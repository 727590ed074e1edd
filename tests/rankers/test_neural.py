"""olRankNet, where PyTorch is installed: against formulas by hand, and that it learns what no line can."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pairrank import rankers
from pairrank.errors import OptionError
from pairrank.rankers.neural import OlRankNet
from pairrank.types import FloatArray

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pairrank[neural]'")

D = 3


def scores_of(ranker: OlRankNet, theta: FloatArray, X: FloatArray) -> FloatArray:
    """f(x; θ) by numpy alone."""
    out, start = np.column_stack([X, np.ones(len(X))]), 0
    for rows, columns in ranker._shapes:
        W = theta[start : start + rows * columns].reshape(rows, columns)
        start += rows * columns
        out = out @ W.T
        if rows > 1:
            out = np.maximum(out, 0.0)
    return np.asarray(math.sqrt(ranker.width) * out[:, 0])


def taught(n: int = 8, **options: object) -> OlRankNet:
    ranker = OlRankNet(D, seed=1, **{"width": 6, "alpha": 0.05, **options})  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    for _ in range(n):
        shown = ranker.rank(rng.random((8, D)), 5)
        ranker.learn(shown, shown.features[:, 0] > 0.5)
    return ranker


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_scores_widths_and_certain_orders_are_those_of_the_formulas(layers: int) -> None:
    ranker = taught(layers=layers)
    X = np.random.default_rng(5).random((7, D))
    scores = scores_of(ranker, ranker._theta, X)
    np.testing.assert_allclose(ranker.score(X), scores, rtol=1e-12)
    h = 1e-6 * np.eye(len(ranker._theta))
    slopes = [scores_of(ranker, ranker._theta + e, X) - scores_of(ranker, ranker._theta - e, X) for e in h]
    g = np.array(slopes).T / 2e-6 / math.sqrt(ranker.width)
    widths = np.sqrt((((g[:, None] - g) ** 2) / ranker._A).sum(axis=2))
    looked = ranker.inspect(X)
    np.testing.assert_allclose(looked.width, ranker.alpha * widths, rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(looked.certain, looked.probability - looked.width > 0.5)
    assert looked.certain.any()
    assert not looked.certain.all()


def test_it_starts_at_nothing_and_nothing_is_certain() -> None:
    ranker = OlRankNet(D, seed=0)
    X = np.random.default_rng(0).random((9, D))
    np.testing.assert_allclose(ranker.score(X), 0.0, atol=1e-12)
    assert ranker.inspect(X).block_sizes.tolist() == [9]


def test_information_is_the_sum_over_pairs_of_squared_gradients() -> None:
    before = taught(1)
    shown = before.rank(np.random.default_rng(9).random((6, D)), 4)
    clicks = np.array([True, False, False, True])  # adjacent pairs: (0, 1) and (3, 2)
    after = OlRankNet.from_bytes(before.to_bytes())
    after.learn(shown, clicks)
    h = 1e-6 * np.eye(len(before._theta))
    X = shown.features
    g = np.array([scores_of(before, before._theta + e, X) - scores_of(before, before._theta - e, X) for e in h]).T
    g /= 2e-6 * math.sqrt(before.width)
    expected = (g[0] - g[1]) ** 2 + (g[3] - g[2]) ** 2
    np.testing.assert_allclose(after._A - before._A, expected, rtol=1e-5, atol=1e-9)


def test_training_goes_down_the_loss() -> None:
    def loss(ranker: OlRankNet) -> float:
        gap = scores_of(ranker, ranker._theta, ranker._losers.rows) - scores_of(
            ranker, ranker._theta, ranker._winners.rows
        )
        away = ranker._theta - ranker._start
        return float(np.logaddexp(0.0, gap).sum() + ranker.width * ranker.lam / 2 * away @ away)

    short, long = taught(steps=1), taught(steps=100)
    n = len(short._worth)
    assert loss(short) < n * math.log(2.0)
    assert loss(long) / len(long._worth) < loss(short) / n


def test_it_learns_what_no_line_can() -> None:
    def wanted(X: FloatArray) -> FloatArray:
        return -np.abs(X[:, 0] - 0.5)  # the middle of a feature is best

    net = rankers.make("olranknet", n_features=1, seed=0, width=40, lam=0.01, learning_rate=0.01)
    line = rankers.make("pairrank", n_features=1, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(80):
        X = rng.random((10, 1))
        for ranker in (net, line):
            shown = ranker.rank(X, 6)
            ranker.learn(shown, wanted(shown.features) > -0.2)
    X = rng.random((300, 1))
    right = {r.name: np.corrcoef(r.score(X), wanted(X))[0, 1] for r in (net, line)}
    assert right["olranknet"] > 0.8
    assert right["pairrank"] < 0.5


@pytest.mark.parametrize("options", [{"width": 5}, {"width": 0}, {"layers": 0}, {"device": "abacus"}, {"lam": 1e-20}])
def test_wrong_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        rankers.make("olranknet", n_features=D, **options)
