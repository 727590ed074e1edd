"""PDGD against its paper, by enumerating every list and every pattern of clicks."""

from __future__ import annotations

from itertools import combinations, permutations, product
from math import exp, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents import ranging
from pairrank.errors import OptionError
from pairrank.rankers import pdgd
from pairrank.rankers.pdgd import PDGD, reversal_weights
from pairrank.types import FloatArray, Impression

List = tuple[int, ...]


def probability(shown: List, scores: FloatArray) -> float:
    """The Plackett-Luce probability of a list, as the formula reads."""
    left = set(range(len(scores)))
    result = 1.0
    for d in shown:
        result *= exp(scores[d]) / sum(exp(scores[e]) for e in left)
        left.remove(d)
    return result


def exchanged(shown: List, i: int, j: int) -> List:
    return tuple({i: j, j: i}.get(d, d) for d in shown)


def cascade(shown: List, clicks: tuple[bool, ...], attraction: FloatArray) -> float:
    """The probability of a pattern of clicks by users who stop after half of their clicks."""
    result, looking = 1.0, 1.0
    for place, clicked in enumerate(clicks):
        a = attraction[shown[place]]
        if clicked:
            result, looking = result * a * looking, 0.5
        elif any(clicks[place:]):
            result, looking = result * (1 - a) * looking, 1.0
        else:  # either no longer there, or there and never clicking again
            return result * (1 - looking + looking * prod(1 - attraction[d] for d in shown[place:]))
    return result


def examined(clicks: tuple[bool, ...]) -> int:
    return min(len(clicks), max(p for p, c in enumerate(clicks) if c) + 2) if any(clicks) else 0


@given(
    scores=st.lists(st.floats(-3, 3), min_size=4, max_size=6),
    k=st.integers(2, 6),
    data=st.data(),
)
def test_reversal_weights_are_the_odds_of_the_two_lists(scores: list[float], k: int, data: st.DataObject) -> None:
    f = np.array(scores)
    k = min(k, len(f))
    i, j = data.draw(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)).filter(lambda p: p[0] != p[1]))
    shown = tuple(range(k))
    here, there = probability(shown, f), probability(exchanged(shown, i, j), f)
    rest = np.log(np.exp(f[k:]).sum()) if k < len(f) else -np.inf
    rho = reversal_weights(np.append(f[:k], rest), np.array([i, j]), np.array([j, i]))
    np.testing.assert_allclose(rho, there / (here + there), rtol=1e-9)


@pytest.mark.parametrize("rest", [-np.inf, 3.0])
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 30.0, 300.0])
def test_long_lists_have_the_reversal_weights_of_short_ones(
    spread: float, rest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = np.append(spread * np.random.default_rng(0).normal(size=60), rest)
    i, j = (np.array(side) for side in zip(*combinations(range(60), 2), strict=True))
    i, j = np.append(i, j), np.append(j, i)
    short = reversal_weights(scores, i, j)
    monkeypatch.setattr(pdgd, "_PART", 1600)
    np.testing.assert_allclose(reversal_weights(scores, i, j), short, rtol=1e-10, atol=1e-300)


def test_a_long_list_is_learned() -> None:
    """Thousands of documents, half of them clicked: a term for each position between two of them would take minutes."""
    ranker, X = PDGD(2), np.random.default_rng(0).random((2000, 2))
    impression = ranker.rank(X)
    assert ranker.learn(impression, X[impression.ranking, 0] > 0.5)
    assert ranker.weights[0] > 10 * abs(ranker.weights[1])


def test_reversal_weights_of_scores_far_apart_stay_exact() -> None:
    # Exchanging the first two of (a, b, c), all shown: odds are (e^b + e^c) / (e^a + e^c), whatever the size.
    for a, b, c in [(800.0, -800.0, 0.0), (-800.0, 800.0, 0.0), (1e6, 1e6 - 1, -1e6)]:
        odds = np.logaddexp(b, c) - np.logaddexp(a, c)
        rho = reversal_weights(np.array([a, b, c, -np.inf]), np.array([0]), np.array([1]))
        np.testing.assert_allclose(rho, 1 / (1 + np.exp(np.clip(-odds, -700, 700))), rtol=1e-9, atol=1e-300)


def with_weights(weights: FloatArray, **options: float) -> PDGD:
    ranker = PDGD(len(weights), **options)
    state = PDGD(len(weights), **options)._state()
    ranker._restore(state | {"weights": weights})
    return ranker


def test_lists_are_drawn_from_the_plackett_luce_model() -> None:
    theta = np.array([0.9, -0.4])
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    ranker = with_weights(theta)
    n = 6000
    counts: dict[List, int] = {}
    for _ in range(n):
        shown = tuple(ranker.rank(X, 2).ranking.tolist())
        counts[shown] = counts.get(shown, 0) + 1
    chi2 = 0.0
    for shown in permutations(range(3), 2):
        expected = n * probability(shown, X @ theta)
        chi2 += (counts.get(shown, 0) - expected) ** 2 / expected
    assert chi2 < 20.5  # the 99.9 % point with 5 degrees of freedom


@pytest.mark.parametrize("k", [3, 4])
def test_the_expected_step_is_unbiased_in_the_sense_of_the_paper(k: int) -> None:
    """E[step] = Σ α_ij (x_i − x_j), α_ij > 0 exactly where i is the more relevant, 0 where they are alike."""
    rng = np.random.default_rng(4)
    X, theta = ranging(rng, 4, 5), rng.normal(size=5)
    attraction = np.array([0.2, 0.9, 0.5, 0.5])
    scores = X @ theta
    ranker = with_weights(theta, learning_rate=1.0)
    seen: dict[List, Impression] = {}
    while len(seen) < len(list(permutations(range(4), k))):
        impression = ranker.rank(X, k)
        seen.setdefault(tuple(impression.ranking.tolist()), impression)

    alpha, step = np.zeros((4, 4)), np.zeros(5)
    patterns = list(product([False, True], repeat=k))
    for shown, impression in seen.items():
        here = probability(shown, scores)
        assert sum(cascade(shown, clicks, attraction) for clicks in patterns) == pytest.approx(1)
        for clicks in patterns:
            chance = here * cascade(shown, clicks, attraction)
            for a, b in permutations(range(examined(clicks)), 2):
                if clicks[a] and not clicks[b]:
                    i, j = shown[a], shown[b]
                    there = probability(exchanged(shown, i, j), scores)
                    p = 1 / (1 + exp(scores[j] - scores[i]))
                    alpha[i, j] += chance * there / (here + there) * p * (1 - p)
            learner = with_weights(theta, learning_rate=1.0)
            learner.learn(impression, np.array(clicks))
            step += chance * (learner.weights - theta)

    net = alpha - alpha.T
    np.testing.assert_allclose(step, sum(alpha[i, j] * (X[i] - X[j]) for i, j in permutations(range(4), 2)))
    assert net[2, 3] == pytest.approx(0, abs=1e-15)
    for i, j in permutations(range(4), 2):
        if attraction[i] > attraction[j]:
            assert net[i, j] > 1e-4


def test_late_clicks_are_weighed_by_the_scores_of_their_list() -> None:
    rng = np.random.default_rng(1)
    X, theta = ranging(rng, 6, 3), rng.normal(size=3)
    ranker = with_weights(theta, learning_rate=0.7)
    late, other = ranker.rank(X, 4), ranker.rank(ranging(rng, 5, 3))
    ranker.learn(other, np.array([False, True, False, False, False]))
    before = ranker.weights
    assert not np.array_equal(before, theta)
    ranker.learn(late, np.array([False, True, False, False]))

    shown = tuple(late.ranking.tolist())
    expected = np.zeros(3)
    for loser in (shown[0], shown[2]):
        winner = shown[1]
        here, there = (probability(r, X @ theta) for r in (shown, exchanged(shown, winner, loser)))
        p = 1 / (1 + exp((X[loser] - X[winner]) @ before))
        expected += there / (here + there) * p * (1 - p) * (X[winner] - X[loser])
    rate = 0.7 * ranker.decay
    np.testing.assert_allclose(ranker.weights - before, rate * expected, rtol=1e-9)


def test_the_rate_decays_with_every_update_and_only_then() -> None:
    ranker = PDGD(2, learning_rate=0.5, decay=0.9)
    X = np.array([[0.0, 1.0], [1.0, 0.0], [0.3, 0.3]])
    for updates in range(1, 4):
        ranker.learn(ranker.rank(X), [0, 0, 0])
        ranker.learn(ranker.rank(X), [0, 1, 0])
        assert ranker.state["rate"] == pytest.approx(0.5 * 0.9**updates)
    assert PDGD.from_bytes(ranker.to_bytes()).state["rate"] == ranker.state["rate"]


def test_what_an_impression_remembers_does_not_grow_with_the_candidates() -> None:
    X = np.random.default_rng(0).random((500, 3))
    memory = PDGD(3).rank(X, 10).memory
    assert {name: array.size for name, array in memory.items()} == {"scores": 10, "rest": 1, "ranges": 3}


@pytest.mark.parametrize(
    "options", [{"learning_rate": 0.0}, {"learning_rate": float("nan")}, {"decay": 1.1}, {"decay": 0}]
)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        PDGD(2, **options)
