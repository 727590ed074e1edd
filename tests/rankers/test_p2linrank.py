"""P²LinRank: the agreement rule by brute force, the models by exact fits, the lists by what is agreed on."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import slow_twins
from documents import ranging
from pairrank.errors import OptionError
from pairrank.kernel import logistic, pairs, partition
from pairrank.rankers import candidates
from pairrank.rankers.p2linrank import Agreement, P2LinRank
from pairrank.rng import Purpose, generator

WIDTH, LAM = 4, 5.0
IDEAL = np.array([2.0, -1.0, 0.5, 0.0])
few_scores = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 7)), elements=st.integers(-3, 3).map(float))


def taught(rounds: int = 80, kind: str = "all", **options: object) -> tuple[P2LinRank, list[tuple[np.ndarray, int]]]:
    """A ranker after some lists, and each list's differences with its impression's number."""
    ranker = P2LinRank(WIDTH, seed=3, lam=LAM, pairs=kind, **options)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(rounds):
        impression = ranker.rank(ranging(rng, 9, WIDTH), 6)
        clicks = rng.random(6) < logistic.sigmoid(impression.features @ IDEAL - 1)
        ranker.learn(impression, clicks)
        made = pairs.all_pairs(clicks)
        found.append((impression.features[made.winner] - impression.features[made.loser], impression.number))
    return ranker, found


def agreed(scores: np.ndarray, i: int, j: int) -> bool:
    return all(model[i] > model[j] for model in scores)


@given(few_scores)
def test_agreement_equals_brute_force(scores: np.ndarray) -> None:
    n = scores.shape[1]
    agreement = Agreement(scores)
    assert agreement.order.tolist() == sorted(range(n), key=lambda i: -scores.mean(axis=0)[i])
    certain = agreement.certain()
    assert certain.tolist() == [[agreed(scores, i, j) for j in agreement.order] for i in agreement.order]
    whole = partition.block_ends(partition.reaches(certain))
    for k in range(1, n + 1):
        assert agreement.ends(k).tolist() == whole[: np.searchsorted(whole, k - 1) + 1].tolist()
    for i, j, k in permutations(range(n), 3):
        assert not (certain[i, j] and certain[j, k]) or certain[i, k], "agreement is transitive"


@pytest.mark.parametrize("n_models", [1, 2, 5])
def test_blocks_are_the_components_of_disagreement(n_models: int) -> None:
    ranker, _ = taught(n_models=n_models, nu=0.6)
    for number in range(20):
        X = np.random.default_rng(number).random((8, WIDTH))
        scores = ranker.models @ ranker._units.inputs(X).T
        block = list(range(8))  # merged by hand, pair by pair
        for i, j in combinations(range(8), 2):
            if not agreed(scores, i, j) and not agreed(scores, j, i):
                block = [min(block[i], block[j]) if b in (block[i], block[j]) else b for b in block]
        seen = ranker.inspect(X)
        for i, j in combinations(range(8), 2):
            assert (seen.blocks[i] == seen.blocks[j]) == (block[i] == block[j])
            assert seen.certain[i, j] == agreed(scores, i, j)
            gaps = scores[:, i] - scores[:, j]
            assert seen.width[i, j] == pytest.approx((gaps.max() - gaps.min()) / 2)
        impression = ranker.rank(X)
        assert impression.blocks.tolist() == seen.blocks[impression.ranking].tolist()
        above = {(a, b) for a, b in combinations(impression.ranking.tolist(), 2)}
        assert not any(agreed(scores, b, a) for a, b in above), "a certain order was turned round"


def test_random_exploration_shuffles_blocks_whole() -> None:
    ranker, _ = taught(n_models=4, nu=0.8, exploration="random", rounds=40)
    X = np.random.default_rng(1).random((6, WIDTH))
    blocks = ranker.inspect(X).blocks
    size = int((blocks == blocks[ranker.inspect(X).order[0]]).sum())
    assert 2 <= size < 6
    first = [int(ranker.rank(X, 1).ranking[0]) for _ in range(2000)]
    counts = np.bincount(first, minlength=6)[blocks == 0]
    assert counts.sum() == 2000
    assert ((counts - 2000 / size) ** 2 / (2000 / size)).sum() < 21  # 99.9 % point, at most 5 degrees of freedom


def test_long_blocks_are_drawn_as_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = []
    for few, one_in in ((256, 16), (3, 0)):
        monkeypatch.setattr(candidates, "FEW", few)
        monkeypatch.setattr(candidates, "ONE_IN", one_in)
        ranker, _ = taught(nu=0.5)
        lists.append([ranker.rank(np.random.default_rng(t).random((90, WIDTH)), 7).to_bytes() for t in range(20)])
    assert lists[0] == lists[1]


def test_models_are_one_newton_step_from_the_exact_perturbed_fits() -> None:
    nu = 0.2
    ranker, found = taught(n_models=5, nu=nu)
    differences = np.concatenate([x for x, _ in found])
    weight, prior = np.ones(len(differences)), LAM * np.eye(WIDTH)
    centres = 2 * nu / np.sqrt(LAM) * generator(3, 0, Purpose.INIT).standard_normal((5, WIDTH))
    noise = [nu * generator(3, number, Purpose.NOISE).standard_normal((5, len(x))) for x, number in found]
    gamma = np.concatenate(noise, axis=1)
    plain = slow_twins.minimise(differences, weight, prior, np.zeros(WIDTH))
    H = slow_twins.pair_hessian(plain, differences, weight, prior)

    def norm(v: np.ndarray) -> float:
        return float(np.sqrt(v @ H @ v))

    for model, centre, g in zip(ranker.models, centres, gamma, strict=True):
        # The perturbed labels' loss is the plain loss less γ x·θ: a shift of the prior's mean, as far as fits go.
        exact = slow_twins.minimise(differences, weight, prior, centre + g @ differences / LAM)
        gradient = LAM * (exact - centre) - differences.T @ (1 + g - logistic.sigmoid(differences @ exact))
        assert np.abs(gradient).max() < 1e-6, "this is the minimiser with labels 1 + γ"
        assert norm(model - exact) < 0.1 * norm(exact - plain)
    assert ranker.weights == pytest.approx(ranker.models.mean(axis=0))


@pytest.mark.parametrize("model", ["linear", "additive"])
def test_what_is_shown_and_explained_is_as_monotone_as_the_scores(model: str) -> None:
    ranker = P2LinRank(WIDTH, seed=3, model=model, monotone={0: -1})
    rng = np.random.default_rng(0)
    for _ in range(100):
        impression = ranker.rank(ranging(rng, 9, WIDTH), 6)
        ranker.learn(impression, rng.random(6) < logistic.sigmoid(impression.features @ (2.0 * IDEAL)))
    documents = np.column_stack([np.linspace(-2.0, 2.0, 9), np.zeros((9, WIDTH - 1))])
    assert not np.tril(ranker.inspect(documents).certain, -1).any()  # none is above one with less of it
    told = ranker.explain(ranging(rng, 9, WIDTH))
    assert (told.gap >= 0.0).all()


def test_at_half_the_noise_of_a_click_the_models_are_draws_from_the_posterior() -> None:
    ranker = P2LinRank(WIDTH, n_models=1000, nu=0.5, lam=LAM, pairs="averaged")
    rng = np.random.default_rng(0)
    for _ in range(120):  # clicks that prefer nothing: σ' stays near ¼
        impression = ranker.rank(ranging(rng, 6, WIDTH))
        ranker.learn(impression, rng.random(6) < 0.5)
    root = np.linalg.cholesky(np.linalg.inv(ranker.state["posterior.inverse"]))
    standard = (ranker.models - ranker.state["posterior.theta"]) @ root
    assert np.abs(standard.T @ standard / 1000 - np.eye(WIDTH)).max() < 5 * np.sqrt(2 / 1000)
    assert np.linalg.norm(root) ** 2 > 1.5 * LAM * WIDTH  # what was learned is more than the prior


def test_without_noise_nothing_is_explored_but_ties() -> None:
    ranker, _ = taught(nu=0.0)
    X = np.random.default_rng(0).random((7, WIDTH))
    assert ranker.rank(X).ranking.tolist() == np.argsort(-ranker.score(X)).tolist()
    assert not ranker.rank(X).explored
    assert ranker.rank(np.ones((4, WIDTH))).blocks.tolist() == [0, 0, 0, 0]


def test_more_models_explore_more() -> None:
    X = np.random.default_rng(9).random((30, WIDTH))
    numbers = [taught(n_models=n, nu=0.5)[0].inspect(X).certain.sum() for n in (1, 3, 30)]
    assert numbers[0] == 30 * 29 / 2
    assert numbers[0] > numbers[1] > numbers[2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_models": 0},
        {"n_models": 2.5},
        {"n_models": True},
        {"nu": -0.1},
        {"lam": 1e-20},
        {"pairs": "some"},
        {"exploration": "wild"},
    ],
)
def test_impossible_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        P2LinRank(3, **wrong)  # type: ignore[arg-type]
