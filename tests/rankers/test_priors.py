"""Priors say what they mean: strength is counted in pairs, and exploration begins narrow only where they know."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

import pairrank
from pairrank import data, rankers
from pairrank.errors import DataError, FeatureError, OptionError
from pairrank.kernel import logistic
from pairrank.rankers import priors
from pairrank.sim.engine import Progress, play
from pairrank.sim.spec import RunSpec
from pairrank.sim.world import World
from slow_twins import minimise

LAM = 20.0


def even() -> float:
    """λ_f of features spread evenly over [0, 1]."""
    return LAM / 6


@pytest.mark.parametrize("size", [0.0, 0.3, 1.0, 5.0, 200.0])
def test_information_is_the_integral(size: float) -> None:
    def density(z: float) -> float:
        return float(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))

    def slope(z: float) -> float:
        return float(logistic.slope(np.array(size * z)))

    points = [-1 / max(size, 1), 0, 1 / max(size, 1)]
    across = quad(lambda z: slope(z) * density(z), -10, 10, points=points, limit=500)[0]
    along = quad(lambda z: slope(z) * z * z * density(z), -10, 10, points=points, limit=500)[0]
    assert priors.information(size) == pytest.approx((across, along), rel=1e-6, abs=1e-12)


def test_weights_are_worth_so_many_even_pairs() -> None:
    rng = np.random.default_rng(0)
    theta, variance = np.array([1.0, -2.0, 0.5]), np.array([0.2, 0.5, 1.0])
    found = priors.from_weights(theta, lam=LAM, strength=50.0, variance=variance)
    x = rng.normal(size=(400_000, 3)) * np.sqrt(variance)
    J = (x * logistic.slope(x @ theta)[:, None]).T @ x / len(x)
    penalty = np.diag(LAM * variance)
    np.testing.assert_allclose(found.precision, penalty + 50 * J, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(found.mean, np.linalg.solve(found.precision, 50 * J @ theta), rtol=0.03)
    np.testing.assert_allclose(found.M, penalty + 50 * np.diag(variance))


def test_narrow_where_known_and_wide_where_not() -> None:
    ranker = pairrank.PairRank(3)
    wide = np.full(3, even() ** -0.5)
    priors.from_weights([2.0, np.nan, -1.0], lam=LAM, strength=1e4).apply(ranker)
    narrow = ranker.uncertainty()
    assert ranker.weights[1] == 0.0
    assert narrow[1] == pytest.approx(wide[1])
    assert (narrow[[0, 2]] < 0.5 * wide[[0, 2]]).all()
    # Documents that differ where the prior knows have a certain order, others have none.
    known = ranker.inspect([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    unknown = ranker.inspect([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert known.certain.any()
    assert not unknown.certain.any()


def test_a_prior_of_no_strength_is_a_cold_start() -> None:
    weak = priors.from_weights([2.0, -1.0], lam=LAM, strength=1e-9)
    np.testing.assert_allclose(weak.precision, even() * np.eye(2), atol=1e-9)
    np.testing.assert_allclose(weak.mean, 0.0, atol=1e-9)
    strong = priors.from_weights([2.0, -1.0], lam=LAM, strength=1e9)
    np.testing.assert_allclose(strong.mean, [2.0, -1.0], rtol=1e-6)


def test_labels_are_worth_so_many_pairs() -> None:
    labelled = data.load("synthetic:tiny", "train", 1)
    found = priors.from_labels(labelled.features, labelled.grades, labelled.offsets, lam=LAM, strength=200.0)
    rows, squares, ranges = [], [], []
    for X, grades in labelled.queries():
        better, worse = np.nonzero(np.greater.outer(grades, grades))
        rows.append(X[better].astype(np.float64) - X[worse])
        ranges.append(np.ptp(X, axis=0))
        squares.append(np.mean([(y - z) ** 2 for y, z in combinations(X.astype(np.float64), 2)], axis=0))
    x, d = np.concatenate(rows), labelled.n_features
    spread = np.array([np.mean([square[f] for square in squares if square[f] > 0]) for f in range(d)])
    # RankNet, with weights in units of the largest range of a feature within a query.
    smooth = np.diag(1e-3 * np.max(ranges, axis=0) ** 2) * len(x)
    theta = minimise(x, np.ones(len(x)), smooth, np.zeros(d))
    J = (x * logistic.slope(x @ theta)[:, None]).T @ x / len(x)
    penalty = np.diag(LAM * spread)
    np.testing.assert_allclose(found.precision, penalty + 200 * J, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.M, penalty + 200 * x.T @ x / len(x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.mean, np.linalg.solve(found.precision, 200 * J @ theta), rtol=0.02, atol=1e-3)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-6, 6), min_size=4, max_size=4), st.sampled_from([0.0, 1e6, -1e8]))
def test_units_and_constants_do_not_matter(exponents: list[float], constant: float) -> None:
    rng, units = np.random.default_rng(1), 10.0 ** np.array(exponents)
    X, offsets = rng.normal(size=(60, 4)), np.arange(0, 61, 10)
    grades = (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=60) > 0.5).astype(np.int64)
    plain = priors.from_labels(X, grades, offsets)
    found = priors.from_labels((X + constant) * units, grades, offsets)
    np.testing.assert_allclose(found.mean * units, plain.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.precision / np.outer(units, units), plain.precision, rtol=1e-4, atol=1e-6)
    theta, variance = np.array([1.0, np.nan, 0.5, 0.0]), np.array([0.2, 0.5, 1.0, 2.0])
    plain = priors.from_weights(theta, strength=50.0, variance=variance)
    found = priors.from_weights(theta / units, strength=50.0, variance=variance * units**2)
    np.testing.assert_allclose(found.mean * units, plain.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.precision / np.outer(units, units), plain.precision, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("varies", [True, False])
def test_units_of_features_with_gaps_do_not_matter_to_labels(varies: bool) -> None:
    scores = []
    for unit in (1.0, 2.0**20, 2.0**-20):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((640, 2))
        if not varies:  # but from one query to the next
            X[:, 1] = np.repeat(rng.integers(9, size=80), 8)
        gaps = rng.random(640) < 0.3
        grades = (X[:, 0] + varies * X[:, 1] + 2.0 * gaps + rng.logistic(size=640) > 0.0).astype(np.int64)
        X[:, 1] = np.where(gaps, np.nan, unit * X[:, 1])
        ranker = pairrank.PairRank(2, model="additive")
        priors.from_labels(X, grades, np.arange(0, 641, 8), model="additive").apply(ranker)
        scores.append(ranker.score(X[:8]))
    assert scores[1] == pytest.approx(scores[0]) == scores[2]


@pytest.mark.parametrize("source", ["weights", "linear", "additive"])
def test_a_half_life_holds_for_what_a_prior_knows_too(source: str) -> None:
    """A thousand pairs that say the opposite count next to nothing after twenty half-lives."""
    if source == "weights":
        known = priors.from_weights([5.0, 0.0], strength=1000)
    else:
        X = np.random.default_rng(0).random((400, 2))
        grades = (4 * X[:, 0]).astype(np.int64)
        known = priors.from_labels(X, grades, np.arange(0, 401, 10), strength=1000, model=source)
    model = "linear" if source == "weights" else source
    cold, warm = (pairrank.PairRank(2, half_life=20, model=model, seed=3) for _ in range(2))
    known.apply(warm)
    ends = np.array([[0.0, 0.5], [1.0, 0.5]])
    told = []
    for ranker in (cold, warm):
        rng = np.random.default_rng(1)
        for _ in range(400):
            shown = ranker.rank(rng.random((10, 2)))
            ranker.learn(shown, np.arange(10) == shown.features[:, 0].argmin())
        told.append((ranker.score(ends) @ [1, -1], ranker.inspect(ends).width[0, 1]))
    assert told[1] == pytest.approx(told[0], rel=0.2)


def test_wrong_priors_are_refused() -> None:
    for weights in ([[1.0]], [np.inf], [1e300], [np.nan], ["a"], "ab", [1j], [[1.0], [1.0, 2.0]]):
        with pytest.raises(OptionError, match="weights"):
            priors.from_weights(weights, lam=1.0, strength=1.0)
    with pytest.raises(OptionError, match="strength"):
        priors.from_weights([1.0], lam=1.0, strength=0.0)
    with pytest.raises(OptionError, match="variance"):
        priors.from_weights([1.0], lam=1.0, strength=1.0, variance=-1.0)
    for variance in ("a", [1.0, 2.0]):
        with pytest.raises(OptionError, match="variance"):
            priors.from_weights([1.0], lam=1.0, strength=1.0, variance=variance)
    for features in ("a", [["a"]], [1.0, 2.0]):
        with pytest.raises(FeatureError, match="features"):
            priors.from_labels(features, [0, 1], [0, 2])
    with pytest.raises(FeatureError, match="row 1, column 0 of the features is -inf"):
        priors.from_labels([[1.0], [-np.inf]], [0, 1], [0, 2])
    for mean, precision in (("a", np.eye(1)), ([1.0], "a"), ([1j], np.eye(1))):
        with pytest.raises(OptionError, match="cannot be read as numbers"):
            pairrank.PairRank(1).set_prior(mean, precision)
    with pytest.raises(OptionError, match="cannot take a prior"):
        priors.from_weights([1.0], lam=1.0, strength=1.0).apply(rankers.make("pdgd", n_features=1))
    X, grades = np.eye(4), [0, 1, 0, 1]
    for lam in (0.0, 1e-13, -1.0, "a"):
        with pytest.raises(OptionError, match=r"^lam is .*; expected a number"):
            priors.from_weights([1.0], lam=lam, strength=1.0)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=r"^lam is .*; expected a number"):
            priors.from_labels(X, grades, [0, 4], lam=lam)  # type: ignore[arg-type]
    for offsets in ([2, 2], [0, 3], [0, 3, 2, 4], [0.0, 4.0]):
        with pytest.raises(DataError, match=r"^offsets (must rise|have shape)"):
            priors.from_labels(X, grades, offsets)
    for model in ("linear", "additive"):
        with pytest.raises(OptionError, match="the prior is of 4 features; expected 3"):
            priors.from_labels(X, grades, [0, 4], model=model).apply(pairrank.PairRank(3, model=model))
    with pytest.raises(OptionError, match="cannot take a prior"):
        priors.settings_of(rankers.make("pdgd", n_features=1))


def test_a_fit_takes_the_rankers_own_settings() -> None:
    assert priors.settings_of(pairrank.PairRank(2, lam=5.0, pairs="all")) == (5.0, "all", "linear")
    assert priors.settings_of(pairrank.PairRank(2)) == (6.0, "shown", "linear")
    matched = pairrank.PairRank(2, lam=3.0, pairs="matched", model="additive")
    assert priors.settings_of(matched) == (3.0, "averaged", "additive")


@pytest.mark.slow
def test_labels_replace_a_thousand_rounds_and_a_wrong_prior_is_unlearned(real_data: Path) -> None:
    """On MQ2008: warm after 50 rounds as good as cold after 1,000; turned around, it is overruled."""
    folder = str(real_data / "MQ2008")
    train, test = data.load(folder, "train", 1), data.load(folder, "test", 1)
    known = priors.from_labels(train.features, train.grades, train.offsets, strength=300.0)

    def held_out(start: priors.Prior | None, seed: int, rounds: int) -> float:
        spec = RunSpec(data=folder, ranker="pairrank", rounds=rounds, seed=seed, panel=0, ideal="")
        world = World(spec, train, test)
        ranker = rankers.make(spec.ranker, n_features=train.n_features, seed=seed)
        if start is not None:
            start.apply(ranker)
        progress = Progress.start(rounds)
        play(world, ranker, progress)
        return float(progress.columns["ndcg"][-1])

    cold = np.mean([held_out(None, seed, 1000) for seed in range(3)])
    warm = np.mean([held_out(known, seed, 50) for seed in range(3)])
    assert warm >= cold
    wrong = replace(known, mean=-known.mean)
    at_first, later = held_out(wrong, 0, 1), held_out(wrong, 0, 1500)
    assert at_first < 0.35
    assert later > cold - 0.05
