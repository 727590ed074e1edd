"""model="additive": exact, replayable, and a line until there is evidence for more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import slow_twins
from pairrank import PairRank, rankers, simulate
from pairrank.errors import FeatureError, NoWeightsError, OptionError, UnknownNameError
from pairrank.estimator import evidence
from pairrank.features.additive import Additive
from pairrank.features.linear import LISTS
from pairrank.kernel.logistic import sigmoid, slope
from pairrank.rankers import Ranker, pairwise, priors
from pairrank.rankers.monotone import projected
from pairrank.types import BoolArray, FloatArray, Impression

D = 5


def candidates(number: int, n: int = 12) -> FloatArray:
    X = np.random.default_rng([3, number]).random((n, D))
    X[:, 3] = np.floor(3 * X[:, 3])
    X[:, 4] = X[:, 4] > 0.5
    return X


def clicks_of(impression: Impression) -> BoolArray:
    """Clicks on documents whose first feature is neither low nor high."""
    x = impression.features[:, 0]
    return np.random.default_rng([5, impression.number]).random(len(impression)) < 0.1 + 3.2 * x * (1 - x)


def turn(ranker: Ranker, number: int) -> Impression:
    impression = ranker.rank(candidates(number), 6)
    ranker.learn(impression, clicks_of(impression))
    return impression


def taught(n: int = 150, **options: Any) -> PairRank:
    ranker = PairRank(D, model="additive", **options)
    for number in range(n):
        turn(ranker, number)
    return ranker


def test_the_estimate_is_that_of_an_independent_optimiser() -> None:
    """θ̂ on inputs that are mapped here, by the formula, with the prior that the evidence has set."""
    ranker, seen = PairRank(D, model="additive", tolerance=0.0), []
    for number in range(150):
        impression = turn(ranker, number)
        seen.append((impression, clicks_of(impression)))
    units = ranker._units
    rows, weights = [], []
    for impression, clicks in seen:
        if not clicks.any():
            continue
        columns = units.columns(impression.features) / units.units
        design = np.column_stack([columns - columns.mean(axis=0), -np.log(np.arange(1.0, 7.0))])
        found = pairwise.preferred("shown", impression, clicks)
        rows.append(design[found.winner] - design[found.loser])
        weights.append(found.weight)
    x, w = np.concatenate(rows), np.concatenate(weights)
    precision = np.full(ranker.n_inputs + 1, float(ranker.lam))
    precision[-1] = 1.0
    for stiff, block in zip(units.stiffness, units.blocks(), strict=True):
        precision[block[block >= 0]] *= stiff
    assert len(set(precision)) > 2
    args = (x, w, np.diag(precision), np.zeros(len(precision)))
    other = minimize(slow_twins.pair_loss, args[3], args, "BFGS", slow_twins.pair_gradient, options={"gtol": 1e-9})
    np.testing.assert_allclose(ranker._posterior.theta, other.x, atol=1e-5)
    H = slow_twins.pair_hessian(ranker._posterior.theta, x, w, args[2])
    ranker._posterior._rebuild()
    np.testing.assert_allclose(ranker._posterior.inverse, np.linalg.inv(H), rtol=1e-6, atol=1e-9)


def test_widths_and_blocks_are_those_of_the_slow_twin() -> None:
    ranker = taught()
    units, inverse = ranker._units, ranker._posterior.inverse[: ranker.n_inputs, : ranker.n_inputs]
    for number in range(200, 220):
        X = candidates(number)
        phi = units.columns(X) / units.units
        looked = ranker.inspect(X)
        scores = phi @ ranker._weights
        np.testing.assert_allclose(np.subtract.outer(scores, scores), np.subtract.outer(looked.scores, looked.scores))
        difference = phi[:, None] - phi[None]
        width = ranker.z * np.sqrt(np.einsum("ijk,kl,ijl->ij", difference, inverse, difference))
        np.testing.assert_allclose(looked.width, width, rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(looked.probability, sigmoid(np.subtract.outer(scores, scores)))
        clear = np.abs(np.abs(np.subtract.outer(scores, scores)) - width) > 1e-4 * width
        assert np.array_equal(looked.certain[clear], (np.subtract.outer(scores, scores) > width)[clear])
        # A block ends where everything above is certainly before everything below.
        order = np.argsort(-scores, kind="stable")
        certain = looked.certain[np.ix_(order, order)]
        cuts = [p for p in range(1, len(X)) if certain[:p, p:].all()]
        assert np.array_equal(looked.blocks[order], np.searchsorted(cuts, np.arange(len(X)), side="right"))


@pytest.mark.parametrize("name", [n for n in rankers.names() if n not in ("offline-ranknet", "olranknet")])
def test_replay_and_files_give_the_same_bits(name: str) -> None:
    straight, broken = (rankers.make(name, n_features=D, seed=1, model="additive") for _ in range(2))
    # Saved before the pieces are fixed, in the list that fixes them, and after.
    for number in range(LISTS + 12):
        impression = turn(straight, number)
        if number in (LISTS - 30, LISTS - 2, LISTS - 1, LISTS + 5):
            broken = type(broken).from_bytes(broken.to_bytes())
        assert turn(broken, number).to_bytes() == impression.to_bytes()
    units = straight._units  # type: ignore[attr-defined]
    assert units.n_inputs + units.n_asleep == D + 2 * 3 + 3 + 1
    assert straight.to_bytes() == broken.to_bytes()


def test_lists_out_while_the_pieces_are_fixed_are_learned() -> None:
    one, two = (rankers.make("mgd", n_features=D, model="additive") for _ in range(2))
    for ranker in (one, two):
        early = [ranker.rank(candidates(900 + n), 6) for n in range(3)]
        for number in range(LISTS + 3):
            turn(ranker, number)
        for impression in early:
            ranker.learn(Impression.from_bytes(impression.to_bytes()), clicks_of(impression))
    assert one.digest() == two.digest()


def test_history_is_read_back_from_a_log() -> None:
    for n in (LISTS - 10, LISTS + 30):
        whole, entries = PairRank(D, model="additive"), []
        for number in range(n):
            impression = turn(whole, number)
            entries.append((impression, clicks_of(impression)))
        light = PairRank.from_bytes(whole.to_bytes(history=False))
        light.recall(reversed(entries))
        for number in range(n, n + 40):
            assert turn(whole, number).to_bytes() == turn(light, number).to_bytes()
        assert whole.digest() == light.digest()


def test_it_bends_where_there_is_evidence() -> None:
    ranker, line = taught(300), PairRank(D)
    for number in range(300):
        turn(line, number)
    assert ranker._units.stiffness[0] < 1.0
    assert (ranker._units.stiffness[1:4] == evidence.STIFF[0]).all()
    X = candidates(1000, 300)
    truth = X[:, 0] * (1 - X[:, 0])
    assert np.corrcoef(ranker.score(X), truth)[0, 1] > 0.8 > 0.3 > np.corrcoef(line.score(X), truth)[0, 1]


def test_lines_stay_lines_and_show_what_the_linear_ranker_shows() -> None:
    """Where the truth is a line, and clicks flatten out at its ends."""
    ranker, line, rng = PairRank(D, model="additive"), PairRank(D), np.random.default_rng(1)
    for number in range(260):
        impression, other = ranker.rank(candidates(number), 6), line.rank(candidates(number), 6)
        np.testing.assert_array_equal(impression.ranking, other.ranking)
        clicks = rng.random(6) < np.clip(2.0 * impression.features[:, 0] - 0.5, 0.1, 0.9)
        ranker.learn(impression, clicks)
        line.learn(other, clicks)
    assert ranker._units.fixed
    assert (ranker._units.stiffness == evidence.STIFF[0]).all()
    assert ranker.effect(0).value[-1] > ranker.effect(0).value[0]


@pytest.mark.parametrize("name", ["pairrank", "posterior-sampling"])
def test_until_a_function_bends_it_is_the_linear_ranker(name: str) -> None:
    """To the last bit: the same lists, and the same learned from them."""
    ranker, line = (rankers.make(name, n_features=D, seed=1, model=model) for model in ("additive", "linear"))
    number = 0
    while ranker.n_inputs == D:  # type: ignore[attr-defined]
        assert np.array_equal(ranker._weights, line._weights)  # type: ignore[attr-defined]
        assert np.array_equal(ranker._covariance(), line._covariance())  # type: ignore[attr-defined]
        assert np.array_equal(turn(ranker, number).ranking, turn(line, number).ranking)
        number += 1
    assert number >= LISTS


def test_functions_that_sleep_are_asked_as_if_they_were_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps = taught(300, half_life=400.0)
    monkeypatch.setattr(PairRank, "_sleeps", False)
    awake = taught(300, half_life=400.0)
    assert sleeps.n_inputs == D + 3 < D + sleeps._units.n_asleep == awake.n_inputs - 3
    np.testing.assert_array_equal(sleeps._units.stiffness, awake._units.stiffness)
    X = candidates(1000, 300)
    np.testing.assert_allclose(sleeps.score(X), awake.score(X), atol=1e-5)


def test_what_one_feature_explains_another_need_not() -> None:
    """Two blocks of the same columns, each of which would do: one bends, the other stays a line."""
    rng, lam = np.random.default_rng(0), 2.0
    x, e = rng.normal(size=(400, 3)), 0.1 * rng.normal(size=(400, 3))
    X = np.column_stack([x, x + e, rng.normal(size=(400, 3))])
    y, columns = x @ [0.3, 0.3, 0.3] + rng.normal(size=400), np.arange(9).reshape(3, 3)
    start = np.full(3, evidence.LINE)
    inverse = np.linalg.inv(X.T @ X + lam * evidence.LINE * np.eye(9))
    nothing = evidence.Powers(np.zeros((9, 2)), np.zeros((2, 2)), np.zeros(2), 0.0)
    after = evidence.stiffness(columns, start, lam, inverse @ X.T @ y, inverse, nothing)
    assert sorted(after == evidence.LINE) == [False, True, True]
    assert after[2] == evidence.LINE
    # θ̂ and H⁻¹ on the way are those of the new prior.
    P = np.diag(np.repeat(lam * after, 3))
    block = columns[after < evidence.LINE][0]
    change = lam * (after.min() - evidence.LINE)
    theta, found = evidence.stiffened(inverse @ X.T @ y, inverse, block, change)
    np.testing.assert_allclose(found, np.linalg.inv(X.T @ X + P), atol=1e-9)
    np.testing.assert_allclose(theta, np.linalg.solve(X.T @ X + P, X.T @ y), atol=1e-9)


@pytest.mark.parametrize("name", ["pairrank", "p2linrank", "posterior-sampling"])
def test_products_are_asked_about_on_request(name: str) -> None:
    ranker = rankers.make(name, n_features=D, model="additive", interactions=2)
    line, rng = rankers.make(name, n_features=D, model="additive"), np.random.default_rng(2)
    for number in range(140):
        for one in (ranker, line):
            shown = one.rank(candidates(number), 6)
            x = shown.features - 0.5
            one.learn(shown, rng.random(6) < sigmoid(24 * x[:, 0] * x[:, 2]))
    assert isinstance(ranker, pairwise.PairwiseRanker)
    assert [0, 2] in ranker._units.products.tolist()
    X = candidates(1000, 300)
    truth = (X[:, 0] - 0.5) * (X[:, 2] - 0.5)
    assert np.corrcoef(ranker.score(X), truth)[0, 1] > 0.7 > 0.4 > np.corrcoef(line.score(X), truth)[0, 1]
    assert ranker.settings.interactions == 2
    assert "interactions" not in line.settings
    again = type(ranker).from_bytes(ranker.to_bytes())
    assert again.digest() == ranker.digest()


def test_where_products_are_refused() -> None:
    for options in (
        {"interactions": 0},
        {"interactions": 2, "monotone": {0: 1}},
        {"interactions": 2, "preset": "paper"},
    ):
        with pytest.raises(OptionError, match="interactions"):
            PairRank(D, model="additive", **options)
    for wrong in ({"interactions": 2}, {"interactions": 2, "model": "linear"}):
        with pytest.raises(OptionError, match="interactions"):
            PairRank(D, **wrong)
    with pytest.raises(OptionError, match="look for no interactions"):
        priors.settings_of(PairRank(D, model="additive", interactions=2))


def test_gains_of_evidence_are_those_of_the_integral() -> None:
    """Against ∫ N(y; θ, V) N(θ; 0, 1/p) dθ, written out for a Gaussian likelihood."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 6))
    L, y = A @ A.T + 0.1 * np.eye(6), rng.normal(size=6)  # the likelihood's precision and its maximiser
    block, lam = np.array([1, 3, 4]), 2.0

    def log_evidence(p: float) -> float:
        prior = np.full(6, lam)
        prior[block] = p
        total = np.linalg.inv(L) + np.diag(1 / prior)
        return float(-0.5 * np.linalg.slogdet(total)[1] - 0.5 * y @ np.linalg.solve(total, y))

    before = np.full(6, lam)
    before[block] = 5.0
    inverse = np.linalg.inv(L + np.diag(before))
    theta = inverse @ L @ y
    blocks = (inverse[np.ix_(block, block)][None], theta[block][None], np.array([3]))
    wanted = np.array([0.5, 5.0, 500.0])
    expected = [log_evidence(p) - log_evidence(5.0) for p in wanted]
    np.testing.assert_allclose(evidence.gains(*blocks, np.array([5.0]), wanted)[0], expected, atol=1e-9)


def test_beside_a_polynomial_of_the_score() -> None:
    """The posterior with two more columns, against the same built with those columns in it."""
    ranker = taught(100, tolerance=0.0)
    posterior, n = ranker._posterior, ranker.n_inputs
    posterior._rebuild()
    score = np.append(posterior.theta[:n], 0.0)
    powers = posterior.history.of_powers(posterior.theta, score)
    x, w = posterior.history.differences()
    s = np.asarray(posterior.history._documents.rows)[:, :n] @ posterior.theta[:n]
    left, right = s[posterior.history._winner.rows], s[posterior.history._loser.rows]
    P = np.zeros((n + 3, n + 3))
    P[:-2, :-2] = posterior.P
    start = np.append(posterior.theta, np.zeros(2))
    wide = np.column_stack([x, left**2 - right**2, left**3 - right**3])
    H = slow_twins.pair_hessian(start, wide, w, P)
    after = start - np.linalg.solve(H, slow_twins.pair_gradient(start, wide, w, P, np.zeros(n + 3)))
    theta, inverse = evidence.beside(posterior.theta, posterior.inverse, powers._replace(plain=np.inf))
    np.testing.assert_allclose(theta, after[:-2], atol=1e-7)
    np.testing.assert_allclose(inverse, np.linalg.inv(H)[:-2, :-2], atol=1e-9)
    # A hill would turn pairs round; but the powers add no more to their differences than is there, in root mean square.
    added = after[-2] * (left + right) + after[-1] * (left**2 + left * right + right**2)
    h = w * slope(x @ posterior.theta) * (left - right) ** 2
    share = np.sqrt(h @ added**2 / h.sum())
    assert share > 1.0
    held, _ = evidence.beside(posterior.theta, posterior.inverse, powers)
    np.testing.assert_allclose(held - posterior.theta, (theta - posterior.theta) / share, atol=1e-7)


def test_a_heavy_feature_that_rises_and_falls_bends() -> None:
    """A hill on the heaviest feature looks like the square of a score that is turned round, and is none."""
    ranker = PairRank(20, model="additive")
    simulate("synthetic:additive", ranker=ranker, clicks="perfect", rounds=260, schedule="every:260", panel=0, ideal="")
    assert ranker.n_inputs > 20


def test_missing_values_have_a_weight_of_their_own() -> None:
    ranker = PairRank(2, model="additive")
    rng = np.random.default_rng(0)
    for _ in range(200):
        X = rng.random((8, 2))
        X[rng.random(8) < 0.4, 0] = np.nan
        impression = ranker.rank(X, 6)
        ranker.learn(impression, np.isnan(impression.features[:, 0]) & (rng.random(6) < 0.8))
    scores = ranker.score([[np.nan, 0.5], [0.1, 0.5], [0.9, 0.5]])
    assert scores[0] > max(scores[1:])
    before = ranker.digest()
    for wrong in ([[0.1, np.nan]], [[np.inf, 0.5]], [[np.nan, -np.inf]], [[np.nan, np.nan]]):
        with pytest.raises(FeatureError, match="expected finite numbers"):
            ranker.rank(wrong)
    assert ranker.digest() == before


@pytest.mark.parametrize("n_without", [0, 70])
def test_the_unit_of_a_feature_that_differs_only_from_its_gaps_does_not_matter(n_without: int) -> None:
    scores = []
    for unit in (1.0, 2.0**20, 2.0**-20):
        rng, ranker = np.random.default_rng(0), PairRank(2, model="additive")
        for number in range(n_without + 100):
            X = np.column_stack([rng.random(8), np.full(8, unit * rng.integers(9))])
            X[rng.random(8) < (0.4 if number >= n_without else number == 0), 1] = np.nan
            impression = ranker.rank(X)
            ranker.learn(impression, impression.features[:, 0] + rng.random(8) > 1.0)
        X[:, 1] = [unit, 5.0 * unit, *[np.nan] * 6]
        scores.append(ranker.score(X))
    assert scores[1] == pytest.approx(scores[0])
    assert scores[2] == pytest.approx(scores[0])


def test_a_linear_model_knows_no_missing_values() -> None:
    with pytest.raises(FeatureError, match=r"is nan; expected finite numbers from -1e\+13 to 1e\+13; for missing"):
        PairRank(2).rank([[np.nan, 1.0]])


def test_what_an_additive_model_has_not() -> None:
    ranker = PairRank(D, model="additive")
    with pytest.raises(NoWeightsError, match="effect"):
        _ = ranker.weights
    assert getattr(ranker, "weights", None) is None
    with pytest.raises(NoWeightsError):
        ranker.uncertainty()
    with pytest.raises(OptionError, match="weights alone tell of no pieces"):
        ranker.set_prior(np.zeros(D), np.eye(D))
    with pytest.raises(OptionError, match="model is 'trees'"):
        PairRank(D, model="trees")
    assert PairRank(D).fingerprint != ranker.fingerprint
    assert ranker.settings.model == "additive"


def test_labels_are_learned_too() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((600, 3))
    grades = np.floor(8 * X[:, 0] * (1 - X[:, 0])).astype(int)
    offsets = np.arange(0, 601, 20)
    ranker = rankers.make("offline-ranknet", n_features=3, model="additive")
    ranker.fit(X, grades, offsets)  # type: ignore[attr-defined]
    assert np.corrcoef(ranker.score(X), X[:, 0] * (1 - X[:, 0]))[0, 1] > 0.95
    again = type(ranker).from_bytes(ranker.to_bytes())
    assert np.array_equal(again.score(X), ranker.score(X))


@pytest.mark.parametrize("model", ["linear", "additive"])
@pytest.mark.parametrize("name", ["pairrank", "pdgd"])
def test_explanations_add_up(name: str, model: str) -> None:
    ranker = rankers.make(name, n_features=D, model=model)
    for number in range(80):
        turn(ranker, number)
    X = candidates(1001)
    told, scores = ranker.explain(X), ranker.score(X)  # type: ignore[attr-defined]
    assert told.contribution.shape == X.shape
    np.testing.assert_allclose(told.contribution.sum(axis=1), scores - scores.mean(), atol=1e-10)
    assert (np.diff(scores[told.order]) <= 0).all()
    np.testing.assert_allclose(told.gap, -np.diff(scores[told.order]), atol=1e-10)
    if (looked := ranker.inspect(X)) is None:
        assert np.isnan(told.width).all()
        assert not told.certain.any()
    else:
        for i, (upper, lower) in enumerate(zip(told.order[:-1], told.order[1:], strict=True)):
            assert (told.width[i], told.certain[i]) == (looked.width[upper, lower], looked.certain[upper, lower])


@pytest.mark.parametrize("model", ["linear", "additive"])
def test_an_effect_is_the_difference_that_the_feature_makes(model: str) -> None:
    ranker = PairRank(feature_names=["a", "b", "c", "d", "e"], model=model)
    for number in range(150):
        turn(ranker, number)
    for f, name in enumerate("abcde"):
        told = ranker.effect(name)
        assert np.array_equal(ranker.effect(f).value, told.value)
        X = np.full((len(told.x) + 1, D), 0.3)
        X[:, f] = np.append(told.x, told.reference)
        scores = ranker.score(X)
        np.testing.assert_allclose(told.value, scores[:-1] - scores[-1], atol=1e-10)
        # A score's standard deviation is a width over z; of two documents that differ in this feature alone.
        widths = ranker.inspect(X).width[:-1, -1] / ranker.z
        np.testing.assert_allclose(told.sd, widths, rtol=1e-3, atol=1e-6)
    if model == "linear":
        np.testing.assert_allclose(ranker.effect("b", [0.0, 2.0]).value, [0.0, 2.0 * ranker.weights[1]])
    assert np.isnan(rankers.make("pdgd", n_features=2).effect(1).sd).all()  # type: ignore[attr-defined]


def test_features_that_do_not_exist() -> None:
    ranker = PairRank(feature_names=["price", "rating"], model="additive")
    for wrong in ("prize", 2, -1, 0.5, True):
        with pytest.raises(UnknownNameError):
            ranker.effect(wrong)  # type: ignore[arg-type]
    with pytest.raises(FeatureError, match="no finite number"):
        ranker.effect("price", [np.nan])


@pytest.mark.parametrize(("name", "model"), [("pairrank", "linear"), ("pairrank", "additive"), ("pdgd", "additive")])
def test_monotone_functions_only_rise_or_only_fall(name: str, model: str) -> None:
    """The truth is a hump; told to rise or to fall, the function does, beyond its ends too."""
    for sign in (1, -1):
        ranker = rankers.make(name, n_features=D, model=model, monotone={0: sign, 2: 1})
        for number in range(100):
            turn(ranker, number)
            if number in (30, 70):
                ranker = type(ranker).from_bytes(ranker.to_bytes())
        values = ranker.effect(0, np.linspace(-3.0, 4.0, 200)).value  # type: ignore[attr-defined]
        assert (sign * np.diff(values) >= -1e-6).all()
        assert (np.diff(ranker.effect(2, np.linspace(-1.0, 2.0, 50)).value) >= -1e-6).all()  # type: ignore[attr-defined]
        assert name != "pairrank" or ranker.settings.monotone == {"0": sign, "2": 1}


@pytest.mark.parametrize("name", ["pairrank", "p2linrank", "pdgd"])
@pytest.mark.parametrize("model", ["linear", "additive"])
def test_of_documents_that_differ_in_the_price_alone_the_dearer_never_stands_above(name: str, model: str) -> None:
    """Whatever people click, and not by a hair either: there is nothing else to go by."""
    ranker = rankers.make(name, n_features=3, model=model, monotone={0: -1, 1: 1})
    for number in range(90):
        shown = ranker.rank(np.random.default_rng(number).random((12, 3)), k=8)
        ranker.learn(shown, shown.features[:, 0] > 0.5)  # people like what costs more
        if number > 5:
            dearer = np.column_stack([np.linspace(-1.0, 2.0, 40), np.full((40, 2), 0.5)])
            assert (np.diff(ranker.score(dearer)) <= 0.0).all()
    assert ranker.rank([[0.9, 0.5, 0.5], [0.2, 0.5, 0.5]], explore=False).ranking.tolist() == [1, 0]


@pytest.mark.parametrize("name", ["pairrank", "p2linrank", "posterior-sampling", "pdgd", "dbgd"])
@pytest.mark.parametrize("sign", [1, -1])
def test_monotone_holds_before_anything_is_learned(name: str, sign: int) -> None:
    for seed in range(5):
        lower, higher = rankers.make(name, n_features=2, seed=seed, monotone={0: sign}).score([[0.0, 1.0], [1e6, 1.0]])
        assert sign * (higher - lower) >= 0.0


def test_the_order_in_which_monotone_features_are_told_changes_no_bit() -> None:
    """Files hold them sorted: a ranker that was loaded goes on as the one that was not."""
    one, other = (PairRank(D, monotone=dict.fromkeys(order, -1)) for order in ((2, 0, 1), (0, 1, 2)))
    for number in range(20):
        turn(one, number)
        turn(other, number)
    assert one.to_bytes() == other.to_bytes()


@pytest.mark.parametrize("name", ["pairrank", "p2linrank", "posterior-sampling", "pdgd"])
def test_a_gap_in_flight_while_the_pieces_are_fixed_counts_as_the_mean_of_its_list(name: str) -> None:
    ranker, rng = rankers.make(name, n_features=2, model="additive"), np.random.default_rng(0)
    shown = [ranker.rank(rng.random((6, 2)), 4) for _ in range(64)]
    gap = ranker.rank([[np.nan, 1.0], [0.5, 0.5], [1.0, 0.0]])
    log = [(impression, impression.features[:, 0] > np.median(impression.features[:, 0])) for impression in shown]
    for entry in log:
        ranker.learn(*entry)
    loaded, plain = (type(ranker).from_bytes(ranker.to_bytes()) for _ in range(2))
    plain.learn(gap.with_features(np.nan_to_num(gap.features, nan=0.75)), [True, False, False])
    for one in (loaded, ranker):
        assert one.learn(gap, [True, False, False])
        assert one.to_bytes() == plain.to_bytes()
        light = type(one).from_bytes(one.to_bytes(history=False))
        assert light.recall([(gap, np.array([True, False, False])), *reversed(log)])
        assert light.to_bytes() == plain.to_bytes()
        for wrong in (np.inf, -np.inf):
            unsound = gap.with_features(np.nan_to_num(gap.features, nan=wrong))
            with pytest.raises(FeatureError, match="expected finite numbers"):
                one.learn(unsound, [True, False, False])


@pytest.mark.parametrize("name", ["pairrank", "pairrank-c", "pdgd"])
def test_one_wrong_value_among_the_first_leaves_a_monotone_feature_that_can_be_learned(name: str) -> None:
    """The last piece is 1e9 times as long as the others, whose rises beside it are nothing but rounding."""
    rng, ranker = np.random.default_rng(0), rankers.make(name, n_features=2, model="additive", monotone={0: -1})
    assert isinstance(ranker, rankers.LinearRanker)
    for number in range(120):
        X = rng.normal(size=(10, 2))
        X[0, 0] = 1e9 if number == 5 else X[0, 0]
        impression = ranker.rank(X)
        ranker.learn(impression, rng.random(10) < 1 / (1 + np.exp(-3 * np.abs(impression.features[:, 0]))))
    x = np.linspace(-3.0, 3.0, 50)
    assert (np.diff(ranker.effect(0, x).value) <= 0.0).all()
    assert ranker.effect(1, x).value.any()


def test_weights_move_no_further_than_they_must() -> None:
    rng = np.random.default_rng(0)
    B = rng.normal(size=(4, 4))
    covariance, theta = B @ B.T + 0.1 * np.eye(4), rng.normal(size=4)
    A = np.concatenate([rng.normal(size=(2, 4)), -rng.normal(size=(1, 4))])
    found, H = projected(theta, A, covariance), np.linalg.inv(covariance)
    rules = {"type": "ineq", "fun": lambda t: A @ t}
    other = minimize(lambda t: (t - theta) @ H @ (t - theta), np.zeros(4), constraints=rules, tol=1e-14).x
    np.testing.assert_allclose(found, other, atol=1e-4)
    assert not (A @ theta >= 0).all()


def test_monotone_names_what_exists() -> None:
    for wrong in ({"prize": 1}, {7: 1}, {"7": 1}):
        with pytest.raises(UnknownNameError):
            PairRank(feature_names=["price", "rating"], monotone=wrong)
    with pytest.raises(OptionError, match="expected 1 or -1"):
        PairRank(2, monotone={0: 2})
    assert PairRank(feature_names=["price", "rating"], monotone={"price": -1}).settings.monotone == {"price": -1}
    assert "monotone" not in PairRank(2).settings
    odd: list[tuple[Any, str]] = [([1, 0], "expected 1 or -1"), ({0: 1, "price": -1}, "names a feature twice")]
    for bad, told in odd:
        with pytest.raises(OptionError, match=told):
            PairRank(feature_names=["price", "rating"], monotone=bad)


def test_a_monotone_feature_stays_the_same_when_names_are_numbers() -> None:
    ranker = PairRank(feature_names=["1", "2", "3"], monotone={1: -1})
    rng = np.random.default_rng(0)
    for _ in range(40):
        shown = ranker.rank(rng.random((10, 3)), 5)
        ranker.learn(shown, shown.features.sum(axis=1) > 1.6)
    for one in (ranker, PairRank.from_bytes(ranker.to_bytes())):
        assert one.settings.monotone == {"2": -1}
        assert one.weights[0] > 1.0
        assert abs(one.weights[1]) < 1e-6


def test_a_wrong_value_among_the_first_hides_no_product() -> None:
    found = []
    for wrong in (None, 1e9):
        rng, ranker = np.random.default_rng(0), PairRank(4, model="additive", interactions=1)
        for number in range(LISTS + 10):
            X = rng.standard_normal((8, 4))
            clicked = rng.random(8) < sigmoid(3.0 * X[:, 0] * X[:, 1] - 1.0)
            X[3, 0] = wrong if wrong and number == 7 else X[3, 0]
            impression = ranker.rank(X)
            ranker.learn(impression, clicked[impression.ranking])
        units = ranker._units
        assert isinstance(units, Additive)
        found.append(units)
    clean, spoilt = found
    assert spoilt.products.tolist() == clean.products.tolist() == [[0, 1]]
    np.testing.assert_allclose(spoilt.knots, clean.knots, atol=0.1)
    np.testing.assert_allclose(spoilt.tilts, clean.tilts, atol=0.02)
