"""MGD: towards the mean of the winners, with either kind of multileaving."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from documents import ranging
from pairrank.checks import CHECKS, Check
from pairrank.errors import OptionError
from pairrank.rankers import multileaving
from pairrank.rankers.mgd import MGD
from pairrank.rng import Purpose, generator


def team_draft(n_features: int, seed: int = 0, **options: Any) -> MGD:
    return MGD(n_features, seed=seed, multileaving="team-draft", n_candidates=9, **options)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_team_draft_keeps_the_contract(check: Check) -> None:
    check(lambda n_features, seed: team_draft(n_features, seed))


def test_probabilistic_moves_to_the_mean_of_those_that_beat_theta() -> None:
    rng = np.random.default_rng(0)
    ranker = MGD(4, learning_rate=0.5, n_candidates=6)
    winners_seen = set()
    for _ in range(40):
        X = ranging(rng, 7, 4)
        theta = ranker.weights
        impression = ranker.rank(X, 5)
        clicks = rng.random(5) < 0.4
        u = ranker._directions(impression.memory["key"])[1:]
        lots = generator(ranker.seed, impression.number, Purpose.RANK)
        lots.integers(2**63, size=1)  # the key
        ranks = multileaving.ranks(np.vstack([theta, theta + u]) @ X.T, lots)
        credit = multileaving.assignments(ranks, impression.ranking, tau=3.0)[:, clicks].sum(axis=1)
        winners = [i for i in range(6) if credit[1 + i] > credit[0] + 1e-12]
        winners_seen.add(len(winners))
        ranker.learn(impression, clicks)
        step = np.mean([u[i] for i in winners], axis=0) if winners else np.zeros(4)
        np.testing.assert_allclose(ranker.weights - theta, 0.5 * step, atol=1e-12)
    assert len(winners_seen) > 2


def test_team_draft_moves_to_the_mean_of_clicked_teams_unless_theta_was_clicked() -> None:
    rng = np.random.default_rng(1)
    ranker = team_draft(4, learning_rate=0.5)
    theta_clicked = 0
    for _ in range(60):
        theta = ranker.weights
        impression = ranker.rank(ranging(rng, 12, 4), 10)
        clicks = rng.random(10) < 0.3
        teams = impression.memory["teams"]
        assert sorted(teams.tolist()) == list(range(10))  # ten rankers, ten places: one each
        u = ranker._directions(impression.memory["key"])[1:]
        clicked = teams[clicks]
        ranker.learn(impression, clicks)
        moves = 0 not in clicked and len(clicked) > 0
        theta_clicked += 0 in clicked
        step = np.mean(u[clicked - 1], axis=0) if moves else np.zeros(4)
        np.testing.assert_allclose(ranker.weights - theta, 0.5 * step, atol=1e-12)
    assert 0 < theta_clicked < 60


@pytest.mark.parametrize("kind", ["probabilistic", "team-draft"])
def test_the_rate_decays_with_every_update(kind: str) -> None:
    ranker = MGD(3, learning_rate=0.5, decay=0.7, n_candidates=4, multileaving=kind)
    rng = np.random.default_rng(0)
    updates = 0
    for _ in range(20):
        before = ranker.weights
        ranker.learn(ranker.rank(rng.random((6, 3))), [0, 0, 1, 0, 0, 0])
        updates += not np.array_equal(before, ranker.weights)
    assert updates > 3
    assert ranker.state["rate"] == pytest.approx(0.5 * 0.7**updates)


@pytest.mark.parametrize("kind", ["probabilistic", "team-draft"])
def test_it_finds_the_way_with_perfect_users(kind: str) -> None:
    rng = np.random.default_rng(5)
    ideal = np.array([1.0, -1.0, 0.5])
    ranker = MGD(3, learning_rate=0.05, n_candidates=9, multileaving=kind)
    for _ in range(300):
        X = rng.random((8, 3))
        impression = ranker.rank(X, 5)
        ranker.learn(impression, impression.features @ ideal > np.median(X @ ideal))
    cosine = ranker.weights @ ideal / np.linalg.norm(ranker.weights) / np.linalg.norm(ideal)
    assert cosine > 0.9


@pytest.mark.parametrize(
    "options", [{"n_candidates": 0}, {"n_candidates": 2.5}, {"n_candidates": True}, {"multileaving": "optimised"}]
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        MGD(2, **options)
