"""Posterior sampling: that scores have the stated law, and that what is learned is the stated posterior."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import kstest

import slow_twins
from documents import ranging
from pairrank.errors import OptionError
from pairrank.kernel import logistic, pairs
from pairrank.rankers.posterior_sampling import PosteriorSampling, square_root
from pairrank.rng import Purpose, generator

WIDTH, LAM = 5, 2.0
IDEAL = np.array([1.0, -1.0, 0.5, 0.0, 2.0])


def taught(kind: str = "adjacent", rounds: int = 60, **options: float) -> tuple[PosteriorSampling, np.ndarray]:
    """A ranker after some lists, and the differences that the pairs of its lists amount to."""
    ranker = PosteriorSampling(WIDTH, seed=3, lam=LAM, pairs=kind, **options)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(rounds):
        impression = ranker.rank(ranging(rng, 9, WIDTH), 6)
        clicks = rng.random(6) < logistic.sigmoid(impression.features @ IDEAL - 1)
        ranker.learn(impression, clicks)
        made = pairs.adjacent(clicks) if kind == "adjacent" else pairs.all_pairs(clicks)
        found.append(impression.features[made.winner] - impression.features[made.loser])
    return ranker, np.concatenate([np.empty((0, WIDTH)), *found])


@pytest.mark.parametrize("kind", ["adjacent", "all"])
def test_it_learns_the_laplace_posterior(kind: str) -> None:
    ranker, differences = taught(kind)
    prior, weight = LAM * np.eye(WIDTH), np.ones(len(differences))
    exact = slow_twins.minimise(differences, weight, prior, np.zeros(WIDTH))
    H = slow_twins.pair_hessian(exact, differences, weight, prior)
    away = ranker.weights - exact
    assert len(differences) > 30
    assert np.sqrt(away @ H @ away) < 0.02  # standard deviations
    np.testing.assert_allclose(ranker.state["posterior.inverse"], np.linalg.inv(H), atol=0.1 * np.linalg.inv(H).max())


@pytest.mark.parametrize("n", [WIDTH - 2, WIDTH + 4])  # through the root of the covariance, and through that of H⁻¹
def test_scores_have_the_stated_gaussian_law(n: int) -> None:
    ranker, _ = taught(v=0.7)
    X = ranker._units.inputs(np.random.default_rng(n).random((n, WIDTH)))
    drawn = np.array([ranker.draw_scores(X, generator(1, t, Purpose.RANK)) for t in range(4000)])
    mean, covariance = X @ ranker.weights, 0.7**2 * X @ ranker.state["posterior.inverse"] @ X.T
    directions = [*np.eye(n), *np.random.default_rng(1).normal(size=(6, n)), np.eye(n)[0] - np.eye(n)[1]]
    for a in directions:
        spread = np.sqrt(a @ covariance @ a)
        assert kstest((drawn - mean) @ a / spread, "norm").pvalue > 1e-4
    standard = (drawn - mean) / np.sqrt(np.diagonal(covariance))
    correlation = covariance / np.sqrt(np.outer(np.diagonal(covariance), np.diagonal(covariance)))
    assert np.abs(standard.T @ standard / len(drawn) - correlation).max() < 5 * np.sqrt(2 / len(drawn))


def test_a_pair_is_shown_in_its_order_as_often_as_the_posterior_says() -> None:
    ranker, _ = taught(v=1.0)
    X = np.random.default_rng(3).random((2, WIDTH))
    x, trials = X[0] - X[1], 4000
    p = ndtr(x @ ranker.weights / np.sqrt(x @ ranker.state["posterior.inverse"] @ x))
    assert 0.02 < p < 0.98
    first = np.mean([ranker.rank(X, 1).ranking[0] == 0 for _ in range(trials)])
    assert abs(first - p) < 4 * np.sqrt(p * (1 - p) / trials)


def test_without_spread_the_best_stands_first() -> None:
    ranker, _ = taught(v=0.0)
    X = np.random.default_rng(2).random((8, WIDTH))
    impression = ranker.rank(X)
    assert impression.ranking.tolist() == np.argsort(-ranker.score(X)).tolist()
    assert not impression.explored
    assert taught(v=0.5)[0].rank(X).explored


def test_lists_sharpen_as_pairs_come_in() -> None:
    X = np.random.default_rng(6).random((7, WIDTH))

    def spread(rounds: int) -> float:
        ranker, _ = taught(rounds=rounds, v=1.0)
        drawn = np.array([ranker.draw_scores(X, generator(0, t, Purpose.RANK)) for t in range(200)])
        return float(np.std(np.diff(drawn), axis=0).mean())

    assert spread(400) < 0.5 * spread(0)


def test_the_square_root_of_a_singular_covariance() -> None:
    X = np.random.default_rng(0).random((4, 3))
    for covariance in (X @ X.T, np.zeros((3, 3)), np.ones((5, 5)), np.diag([1.0, -1e-9])):
        R = square_root(covariance)
        np.testing.assert_allclose(R @ R.T, covariance, atol=1e-8)


@pytest.mark.parametrize("wrong", [{"v": -1.0}, {"v": float("nan")}, {"lam": 1e-20}, {"pairs": "some"}])
def test_impossible_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        PosteriorSampling(3, **wrong)  # type: ignore[arg-type]
