"""The options against bias, repetition, contradiction, overconfidence and change, each against its formula."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pairrank
from pairrank.errors import OptionError
from pairrank.kernel import exploration, logistic, partition
from pairrank.kernel.pairs import Pairs
from pairrank.rankers.candidates import Candidates, Whole
from pairrank.rankers.posterior import Posterior
from pairrank.rankers.trust import PSEUDO_PAIRS, Confirmation, Repeats, Surprise, discount_contradiction


def play(ranker: pairrank.PairRank, rounds: int, seed: int = 0, theta: np.ndarray | None = None) -> None:
    rng = np.random.default_rng(seed)
    d = ranker.n_features
    theta = rng.normal(size=d) * 3 if theta is None else theta
    for _ in range(rounds):
        impression = ranker.rank(rng.random((12, d)), 6)
        ranker.learn(impression, rng.random(6) < 1 / (1 + np.exp(-(impression.features - 0.5) @ theta)))


def chance(certain: np.ndarray, order: tuple[int, ...], n: int) -> float:
    """The probability that a list begins with ``order``, position by position."""
    left, probability = set(range(n)), 1.0
    for document in order:
        free = [d for d in left if not any(certain[p, d] for p in left)]
        probability *= (document in free) / len(free)
        left.remove(document)
    return probability


@given(st.integers(0, 100_000), st.integers(2, 6))
def test_propensities_are_the_chances_of_the_exchanged_list(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.normal(size=n))[::-1]
    certain = scores[:, None] - scores > rng.choice([0.3, 1.0, 9.0])  # transitive
    k = int(rng.integers(1, n + 1))
    ends = partition.block_ends(partition.reaches(certain))
    shown = next(order for order in permutations(rng.permutation(n).tolist(), k) if chance(certain, order, n) > 0)
    weight = exploration.propensities(certain, np.array(shown), partition.block_numbers(ends, n))
    usual = chance(certain, shown, n)
    for a in range(k):
        for b in range(a + 1, k):
            other = list(shown)
            other[a], other[b] = other[b], other[a]
            swapped = chance(certain, tuple(other), n)
            assert weight[a, b] == weight[b, a] == pytest.approx(2 * swapped / (usual + swapped))


def test_repeated_pairs_weigh_less_each_time() -> None:
    repeats, documents = Repeats(0.5), np.eye(3)
    pairs = Pairs(np.array([0, 1]), np.array([1, 2]), np.array([1.0, 0.5]))
    for time in range(1, 5):
        assert repeats.weigh(documents, pairs).weight == pytest.approx(pairs.weight / np.sqrt(time))
    turned = Pairs(np.array([1]), np.array([0]), np.ones(1))  # the same two documents the other way round
    assert repeats.weigh(documents, turned).weight == pytest.approx(1 / np.sqrt(5))
    assert Repeats(0.0).weigh(documents, pairs) is pairs


def test_surprise_is_one_for_a_model_that_is_right_and_more_for_one_too_sure() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=20_000)
    won = rng.random(len(truth)) < logistic.sigmoid(truth)
    oriented = np.where(won, truth, -truth)
    right, sure = Surprise(), Surprise()
    right.watch(oriented, np.ones(len(truth)))
    sure.watch(3 * oriented, np.ones(len(truth)))
    assert right.factor == pytest.approx(1.0, abs=0.02)
    assert sure.factor > 1.15
    assert Surprise().factor == 1.0
    assert PSEUDO_PAIRS > 0


def watched(slope: float, position: float) -> Confirmation:
    """What 20,000 pairs in a fair order and as many in a fixed one show, of users who favour what stands higher."""
    rng = np.random.default_rng(0)
    margins = rng.normal(size=40_000)  # of the upper document
    settled = np.arange(40_000) % 2 == 1
    margins = np.where(settled, np.abs(margins), 0.1 * margins)  # the model is sure of fixed orders alone
    drawn = np.where(settled, slope, 1.0) * margins + position
    won = rng.random(len(margins)) < logistic.sigmoid(drawn)
    confirmation = Confirmation(None)
    for part in np.split(np.arange(40_000), 40):
        oriented = np.where(won, margins, -margins)[part]
        confirmation.watch(oriented, won[part], np.ones(len(part)), settled[part].astype(float))
    return confirmation


@pytest.mark.parametrize(("slope", "share"), [(0.5, 0.0), (1.0, 0.0), (1.3, 0.3), (3.0, 1.0)])
@pytest.mark.parametrize("position", [0.0, 0.8])
def test_confirmation_is_what_clicks_add_to_the_model_and_to_position(
    slope: float, share: float, position: float
) -> None:
    confirmation = watched(slope, position)
    assert confirmation.lead == pytest.approx(position, abs=0.05)
    assert confirmation.share == pytest.approx(share, abs=0.1)


def test_confirmation_needs_evidence_and_forgets_with_the_pairs() -> None:
    assert Confirmation(None).share == Confirmation(None).lead == 0.0
    confirmation, forgetful = Confirmation(None), Confirmation(1.0)
    lead, upper = np.array([1.0]), np.array([True])
    for each in (confirmation, forgetful):
        each.watch(lead, upper, np.ones(1), np.ones(1))
    assert 0.0 < confirmation.share < 0.1  # one pair is not much
    before = forgetful.share
    forgetful.watch(lead, upper, np.zeros(1), np.zeros(1))
    assert forgetful.share == pytest.approx(0.5 * before, rel=0.05)
    other = Confirmation(None)
    other.restore(confirmation.state())
    assert other.state() == confirmation.state()


def test_settled_orders_that_clicks_confirm_count_more() -> None:
    """With users who do as the model says, only more so, pairs in a fixed order become worth learning from."""
    moved = {}
    for confirm in (False, True):
        ranker = pairrank.PairRank(2, confirm=confirm)
        ranker.set_prior([1.0, 0.0], np.diag([50.0, 50.0]))
        for _ in range(300):
            impression = ranker.rank(np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]))
            ranker.learn(impression, impression.features[:, 0] > 0.5)
        moved[confirm] = float(ranker.weights[0])
    assert 1.0 < moved[False] < moved[True]


def test_contradictions_are_discounted_and_agreement_is_not() -> None:
    margins = np.array([-2.0, 0.0, 2.0])
    assert discount_contradiction(margins, 1.0) == pytest.approx([2 / (1 + np.exp(2.0)), 1.0, 1.0])
    assert discount_contradiction(margins, 0.0).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("estimator", ["incremental", "exact"])
def test_forgetting_minimises_the_decayed_loss(estimator: str) -> None:
    ranker = pairrank.PairRank(5, half_life=16, lam=1.0, estimator=estimator, tolerance=0.001)
    seen: list[tuple[np.ndarray, Pairs]] = []
    add = ranker._posterior.add
    ranker._posterior.add = lambda D, pairs: (seen.append((D, pairs)), add(D, pairs))[1]  # type: ignore[method-assign, assignment]
    play(ranker, 150)
    every, n = 16 // 8, len(seen)
    # Forgetting comes after every other list, and takes all lists so far.
    ages = [n // every - i // every for i in range(n)]
    x = np.concatenate([D[p.winner] - D[p.loser] for D, p in seen])
    w = np.concatenate([p.weight * 0.5 ** (age / 8) for (_, p), age in zip(seen, ages, strict=True)])
    expected = logistic.minimise(x, w, np.eye(5), np.zeros(5))
    # Lists older than ten half-lives are dropped: a thousandth of their weight.
    assert np.linalg.norm(ranker.weights - expected) < 0.01 * np.linalg.norm(expected)
    assert ranker._posterior.history.n_lists <= 160 + every


def test_forgetting_without_history_follows_a_change_that_memory_resists() -> None:
    theta = np.array([4.0, 0.0, 0.0])
    kept, forgot = (pairrank.PairRank(3, estimator="bounded", half_life=h, lam=1.0) for h in (None, 30.0))
    for ranker in (kept, forgot):
        play(ranker, 300, 1, theta)
        play(ranker, 120, 2, -theta)
    assert forgot.weights[0] < kept.weights[0]
    assert forgot.weights[0] < 0


def test_the_sandwich_is_the_formula() -> None:
    rng = np.random.default_rng(0)
    posterior = Posterior(3, 2.0, mean_loss=False, tolerance=0.0, capacity=10**6, sandwich=True)
    spread = 2.0 * np.eye(3)
    for _ in range(20):
        D = rng.random((4, 3))
        pairs = Pairs(np.array([0, 0, 1]), np.array([2, 3, 2]), np.array([0.5, 1.0, 0.5]))
        x = D[pairs.winner] - D[pairs.loser]
        # The list's gradient where it was taken in: against the quadratic model of all before it.
        H = np.linalg.inv(posterior.inverse)
        theta0 = posterior.theta.copy()
        theta = logistic.minimise(x, pairs.weight, H, theta0)
        gradient = x.T @ (pairs.weight * logistic.sigmoid(-(x @ theta)))
        spread += np.outer(gradient, gradient)
        posterior.add(D, pairs)
    expected = posterior.inverse @ spread @ posterior.inverse
    assert posterior.covariance == pytest.approx(expected, rel=0.02, abs=1e-4)


def test_evidence_finds_the_scale_of_the_weights() -> None:
    theta = np.array([6.0, -6.0, 3.0, 0.0])
    strong, weak = (pairrank.PairRank(4, lam=lam, evidence=True, learn_from="all") for lam in (100.0, 0.01))
    for ranker in (strong, weak):
        play(ranker, 800, 3, theta)
    lams = [ranker.lam_t for ranker in (strong, weak)]
    assert lams[0] < 20.0  # from a hundred
    assert lams[1] > 0.02  # from a hundredth
    assert max(lams) < 5 * min(lams)


def test_caution_is_wide_at_first_and_fades() -> None:
    ranker = pairrank.PairRank(4, caution=99.0)
    assert ranker.alpha_t == pytest.approx(0.2 * 10)
    play(ranker, 100)
    n = ranker._posterior.n_pairs
    assert ranker.alpha_t == pytest.approx(0.2 * np.sqrt(1 + 99 / (1 + n)))


@given(st.integers(0, 10_000))
def test_stakes_fall_with_the_place_of_the_upper_document_however_it_is_compared(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, z, stake = 12, 0.5, 1.0
    X, theta = rng.normal(size=(n, 2)), rng.normal(size=2)
    whole, lazy = (
        kind(X, X @ theta, np.eye(2, dtype=np.float32), partition.certain_by_score, z, stake)
        for kind in (Whole, Candidates)
    )
    D = X[whole.order]
    s = D @ theta
    width = np.linalg.norm(D[:, None] - D, axis=2)
    limit = z * width / np.log2(np.arange(n) + 2.0)[:, None] ** stake
    clear = np.abs((s[:, None] - s) - limit) > 1e-4
    expected = s[:, None] - s > limit
    for found in (whole.certain, lazy.certain_rows(0, n), lazy._predecessors(np.arange(n), slice(0, n)).T):
        assert (found == expected)[clear].all()


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": "bounded", "evidence": True},
        {"loss": "mean", "half_life": 10.0},
        {"preset": "paper", "calibrate": True},
        {"preset": "paper", "covariance": "sandwich"},
        {"half_life": 0.5},
        {"robust": -1.0},
        {"evidence": 1},
        {"learn_from": "nothing"},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        pairrank.PairRank(3, **options)  # type: ignore[arg-type]


def test_scaled_lambda_makes_the_unit_of_features_irrelevant() -> None:
    plain, large = pairrank.PairRank(4, seed=3), pairrank.PairRank(4, seed=3)
    rng = np.random.default_rng(0)
    for _ in range(200):
        X = rng.random((12, 4))
        shown, also = plain.rank(X, 6), large.rank(1000 * X, 6)
        assert shown.ranking.tolist() == also.ranking.tolist()
        clicks = rng.random(6) < X[shown.ranking, 0]
        plain.learn(shown, clicks)
        large.learn(also, clicks)
    assert large.lam_t == pytest.approx(1e6 * plain.lam_t)
    assert 1000 * large.weights == pytest.approx(plain.weights, rel=0.01)


@pytest.mark.parametrize("estimator", ["incremental", "exact", "bounded"])
def test_scaled_lambda_is_three_times_the_mean_squared_distance(estimator: str) -> None:
    ranker = pairrank.PairRank(5, estimator=estimator)
    rng = np.random.default_rng(1)
    seen: list[float] = []
    while len(seen) < 70:
        impression = ranker.rank(rng.random((9, 5)), 6)
        clicks = rng.random(6) < 0.5
        ranker.learn(impression, clicks)
        if clicks.any() and not clicks.all():
            D = impression.features
            distances = ((D[:, None] - D) ** 2).sum(axis=2)
            seen.append(distances.sum() / (6 * 5))
    assert ranker.lam_t == pytest.approx(3 * np.mean(seen[:64]))
    assert np.diagonal(ranker._posterior.P).min() >= ranker.lam_t * (1 - 1e-9)


def test_a_prior_keeps_its_lambda() -> None:
    ranker = pairrank.PairRank(3)
    ranker.set_prior(np.ones(3), 7 * np.eye(3))
    play(ranker, 30)
    assert pytest.approx(7 * np.eye(3)) == ranker._posterior.P


def test_equal_documents_leave_lambda_positive() -> None:
    ranker = pairrank.PairRank(2)
    impression = ranker.rank(np.ones((4, 2)))
    ranker.learn(impression, [True, False, False, False])
    assert ranker.lam_t > 0
    assert ranker.rank(np.eye(2)).n_docs == 2
