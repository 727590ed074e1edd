"""RankNet: gradients against finite differences, the offline fit against a slow twin and on real data."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize

from documents import ranging
from pairrank.errors import DataError, FeatureError, OptionError
from pairrank.kernel.pairs import Pairs
from pairrank.rankers import ranknet
from pairrank.rankers.ranknet import OfflineRankNet, SGDRankNet, ascent
from pairrank.types import FloatArray, IntArray

Labelled = tuple[FloatArray, IntArray, IntArray]


def labelled(seed: int, n_queries: int = 8, n_features: int = 3, noise: float = 0.5) -> Labelled:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 9, size=n_queries)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.random((offsets[-1], n_features))
    ideal = np.linspace(-1, 1, n_features)
    grades = np.digitize(X @ ideal + noise * rng.normal(size=len(X)), [-0.3, 0.0, 0.3])
    return X, grades, offsets


def slow_loss(theta: FloatArray, data: Labelled, l2: float) -> float:
    """The objective as the formula reads: a loop over all pairs."""
    X, grades, offsets = data
    losses = [
        np.logaddexp(0, (X[j] - X[i]) @ theta)
        for start, end in pairwise(offsets)
        for i in range(start, end)
        for j in range(start, end)
        if grades[i] > grades[j]
    ]
    return float(np.mean(losses) + l2 / 2 * theta @ theta)


def test_ascent_is_the_gradient_of_the_log_likelihood() -> None:
    rng = np.random.default_rng(0)
    X, theta = rng.random((5, 4)), rng.normal(size=4)
    i, j, worth = np.array([0, 0, 3, 3]), np.array([1, 2, 1, 2]), np.array([1.0, 0.5, 2.0, 0.0])

    def likelihood(weights: FloatArray) -> float:
        return float(-worth @ np.logaddexp(0, (X[j] - X[i]) @ weights))

    found = Pairs(i, j, worth)
    np.testing.assert_allclose(ascent(X, theta, found), approx_fprime(theta, likelihood), rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        ("adjacent", [(1, 0, 1.0), (2, 3, 1.0)]),
        ("all", [(1, 0, 1.0), (1, 3, 1.0), (2, 0, 1.0), (2, 3, 1.0)]),
        ("averaged", [(1, 0, 0.5), (1, 3, 0.5), (2, 0, 0.5), (2, 3, 0.5)]),
    ],
)
def test_sgd_steps_along_the_pairs(kind: str, pairs: list[tuple[int, int, float]]) -> None:
    ranker = SGDRankNet(3, learning_rate=0.5, pairs=kind)
    impression = ranker.rank(ranging(np.random.default_rng(1), 6, 3))
    X = impression.features
    ranker.learn(impression, [0, 1, 1, 0, 0, 0])  # examined are positions 0 to 3
    expected = 0.5 * 0.5 * sum(worth * (X[i] - X[j]) for i, j, worth in pairs)
    np.testing.assert_allclose(ranker.weights, expected)


def test_sgd_matches_every_clicked_document_once() -> None:
    X = np.eye(6)
    steps = set()
    for seed in range(20):
        ranker = SGDRankNet(6, learning_rate=1.0, pairs="matched", seed=seed)
        impression = ranker.rank(X)
        ranker.learn(impression, [0, 1, 0, 0, 0, 0])  # positions 0 and 2 are examined, one of them is drawn
        steps.add(tuple(ranker.weights[impression.ranking].tolist()))
    assert steps == {tuple(0.5 * (X[1] - X[loser])) for loser in (0, 2)}


def test_sgd_refuses_unknown_pairs() -> None:
    with pytest.raises(OptionError, match="pairs"):
        SGDRankNet(2, pairs="some")


def test_sgd_shows_the_best_first_and_every_position_is_a_block() -> None:
    ranker = SGDRankNet(1)
    ranker._restore(ranker._state() | {"weights": np.array([2.0])})
    shown = [ranker.rank(np.array([[0.1], [0.7], [0.4], [0.7]]), 3) for _ in range(100)]
    assert {tuple(impression.ranking.tolist()) for impression in shown} == {(1, 3, 2), (3, 1, 2)}  # ties by lot
    impression = shown[0]
    assert impression.blocks.tolist() == [0, 1, 2]
    assert not impression.explored


def test_sgd_learns_nothing_without_a_click_or_when_all_are_clicked() -> None:
    ranker = SGDRankNet(2)
    X = np.random.default_rng(0).random((4, 2))
    ranker.learn(ranker.rank(X), [0, 0, 0, 0])
    ranker.learn(ranker.rank(X), [1, 1, 1, 1])
    assert not ranker.weights.any()


@given(seed=st.integers(0, 2**32), part=st.sampled_from([1, 3, 2**20]))
def test_pair_loss_and_slope_equal_the_loop_over_pairs(seed: int, part: int) -> None:
    X, grades, offsets = data = labelled(seed)
    query = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((-grades, query))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranknet, "_MATRIX", part)
        spans = ranknet._spans(grades[order], offsets)
    if not spans:
        return
    theta = np.array([0.5, -2.0, 1.0])
    loss, slope = ranknet._pair_loss(X[order] @ theta, spans)
    assert loss == pytest.approx(slow_loss(theta, data, 0.0))
    numeric = approx_fprime(theta, lambda t: slow_loss(t, data, 0.0))
    np.testing.assert_allclose(slope @ X[order], numeric, atol=1e-6)


def test_fit_finds_the_minimum() -> None:
    X, grades, offsets = data = labelled(3)
    ranker = OfflineRankNet(3, l2=0.01).fit(*data)
    unit = np.max([np.ptp(X[start:end], axis=0) for start, end in pairwise(offsets) if end > start], axis=0)
    slow = minimize(slow_loss, np.zeros(3), args=((X / unit, grades, offsets), 0.01), options={"gtol": 1e-7})
    np.testing.assert_allclose(ranker.weights * unit, slow.x, atol=1e-3)


def test_fit_recovers_the_ideal_direction_and_repeats_itself() -> None:
    data = labelled(0, n_queries=200, n_features=5, noise=0.0)
    ranker = OfflineRankNet(5).fit(*data)
    ideal = np.linspace(-1, 1, 5)
    assert ranker.weights @ ideal / np.linalg.norm(ranker.weights) / np.linalg.norm(ideal) > 0.99
    again = OfflineRankNet(5)
    again._restore(again._state() | {"weights": np.full(5, 9.0)})
    np.testing.assert_array_equal(again.fit(*data).weights, ranker.weights)


def test_a_gap_has_the_mean_of_its_own_query() -> None:
    """Queries that each lie elsewhere are the same queries."""
    X, query = np.random.default_rng(0).random((400, 3)), np.repeat(np.arange(40), 10)
    grades, gaps = (3 * X[:, 0]).astype(np.int64), X > 0.9
    near, far = (np.where(gaps, np.nan, X + step * query[:, None]) for step in (0.0, 1024.0))
    fitted = [OfflineRankNet(3, missing="mean").fit(rows, grades, np.arange(0, 401, 10)) for rows in (near, far)]
    np.testing.assert_allclose(fitted[1].weights, fitted[0].weights, rtol=1e-3)


def test_offline_ranknet_ignores_clicks() -> None:
    ranker = OfflineRankNet(2)
    X = np.random.default_rng(0).random((4, 2))
    assert not ranker.weights.any()
    assert {int(ranker.rank(X).ranking[0]) for _ in range(100)} == {0, 1, 2, 3}  # all are tied
    assert ranker.learn(ranker.rank(X), [0, 1, 0, 0])
    assert not ranker.weights.any()


def test_wrong_labels_are_refused_and_change_nothing() -> None:
    X, grades, offsets = labelled(1)
    ranker = OfflineRankNet(3).fit(X, grades, offsets)
    before = ranker.digest()
    wrong: list[tuple[type[Exception], object, object, object]] = [
        (FeatureError, X[:, :2], grades, offsets),
        (DataError, X, grades[:-1], offsets),
        (DataError, X, grades + 0.5, offsets),
        (DataError, X, grades, offsets[:-1]),
        (DataError, X, grades, offsets[::-1]),
        (DataError, X, grades, offsets[:1]),
        (DataError, X, grades, offsets.astype(float)),
        (DataError, X, np.zeros_like(grades), offsets),
    ]
    for error, *arguments in wrong:
        with pytest.raises(error):
            ranker.fit(*arguments)  # type: ignore[arg-type]
    assert ranker.digest() == before
    with pytest.raises(OptionError):
        OfflineRankNet(3, l2=0.0)
    with pytest.raises(OptionError):
        SGDRankNet(3, learning_rate=0.0)


@pytest.mark.parametrize(("name", "least"), [("MQ2008", 0.70), ("MSLR-sample", 0.36)])
def test_fit_reaches_the_ceiling_on_real_data(name: str, least: float, real_data: Path) -> None:
    from pairrank.data import load

    train = load(real_data / name, "train", cache=False)
    test = load(real_data / name, "test", cache=False)
    ranker = OfflineRankNet(train.n_features).fit(train.features, train.grades, train.offsets)
    values = []
    for q in range(test.n_queries):
        X, grades = test.query(q)
        discount = 1 / np.log2(np.arange(2, 2 + min(10, len(grades))))
        ideal = (2.0 ** np.sort(grades)[::-1][: len(discount)] - 1) @ discount
        if ideal:
            shown = ranker.rank(X, 10).ranking
            values.append((2.0 ** grades[shown] - 1) @ discount / ideal)
    assert np.mean(values) > least
