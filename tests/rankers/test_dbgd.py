"""DBGD: the step, its direction and its length."""

from __future__ import annotations

import numpy as np
import pytest

from documents import ranging
from pairrank.errors import OptionError
from pairrank.rankers import multileaving
from pairrank.rankers.dbgd import DBGD
from pairrank.rng import Purpose, generator


def test_theta_moves_along_the_candidate_exactly_when_it_wins() -> None:
    rng = np.random.default_rng(0)
    ranker = DBGD(4, learning_rate=0.25, delta=2.0)
    outcomes = set()
    for _ in range(60):
        X = ranging(rng, 7, 4)
        theta = ranker.weights
        impression = ranker.rank(X, 5)
        clicks = rng.random(5) < 0.4
        u = ranker._directions(impression.memory["key"])[1:]
        assert np.linalg.norm(u) == pytest.approx(1)
        lots = generator(ranker.seed, impression.number, Purpose.RANK)
        lots.integers(2**63, size=1)  # the key
        ranks = multileaving.ranks(np.array([X @ theta, X @ (theta + 2.0 * u[0])]), lots)
        current, candidate = multileaving.assignments(ranks, impression.ranking, tau=3.0)[:, clicks].sum(axis=1)
        ranker.learn(impression, clicks)
        wins = bool(candidate > current)
        outcomes.add(wins)
        np.testing.assert_allclose(ranker.weights - theta, 0.25 * u[0] * wins, atol=1e-12)
    assert outcomes == {True, False}


def test_directions_are_uniform_on_the_sphere() -> None:
    ranker = DBGD(3)
    X = np.eye(3)
    u = np.array([ranker._directions(ranker.rank(X).memory["key"])[1] for _ in range(3000)])
    np.testing.assert_allclose(u.mean(axis=0), 0, atol=4 / np.sqrt(3 * 3000))
    np.testing.assert_allclose(u.T @ u / 3000, np.eye(3) / 3, atol=0.03)


def test_nothing_is_learned_without_a_click() -> None:
    ranker = DBGD(3)
    for _ in range(20):
        ranker.learn(ranker.rank(np.eye(3)), [0, 0, 0])
    assert not ranker.weights.any()


def test_the_rate_decays_with_every_update() -> None:
    ranker = DBGD(3, learning_rate=0.5, decay=0.8)
    X = ranging(np.random.default_rng(2), 6, 3)
    updates = 0
    for _ in range(30):
        before = ranker.weights
        ranker.learn(ranker.rank(X), [1, 0, 0, 0, 0, 0])
        step = float(np.linalg.norm(ranker.weights - before))
        if step:
            assert step == pytest.approx(0.5 * 0.8**updates)
            updates += 1
    assert updates > 3
    assert ranker.state["rate"] == pytest.approx(0.5 * 0.8**updates)


def test_it_finds_the_way_with_perfect_users() -> None:
    rng = np.random.default_rng(5)
    ideal = np.array([1.0, -1.0, 0.5])
    ranker = DBGD(3, learning_rate=0.05)
    for _ in range(400):
        X = rng.random((8, 3))
        impression = ranker.rank(X, 5)
        ranker.learn(impression, impression.features @ ideal > np.median(X @ ideal))
    cosine = ranker.weights @ ideal / np.linalg.norm(ranker.weights) / np.linalg.norm(ideal)
    assert cosine > 0.8


@pytest.mark.parametrize("options", [{"delta": 0.0}, {"tau": -1.0}, {"decay": 2.0}, {"learning_rate": -0.1}])
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        DBGD(2, **options)
