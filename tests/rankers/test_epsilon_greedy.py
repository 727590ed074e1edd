"""ε-greedy: how often chance chooses, and that the rest is best first."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from pairrank.errors import OptionError
from pairrank.rankers.epsilon_greedy import EpsilonGreedy
from pairrank.rankers.ranknet import SGDRankNet

X = np.array([[0.0, 0.0], [1.0, 0.0], [0.6, 0.0], [0.3, 0.0]])


def trained(epsilon: float) -> EpsilonGreedy:
    ranker = EpsilonGreedy(2, epsilon=epsilon)
    ranker._restore(ranker._state() | {"weights": np.array([1.0, 0.0])})
    return ranker


def test_without_chance_the_best_stands_first_and_ties_are_broken_by_lot() -> None:
    ranker, tied = trained(0.0), X[[0, 1, 2, 2]]
    impression = ranker.rank(X)
    assert impression.ranking.tolist() == [1, 2, 3, 0]
    assert not impression.explored
    second = [ranker.rank(tied).ranking.tolist() for _ in range(1000)]
    assert {tuple(ranking) for ranking in second} == {(1, 2, 3, 0), (1, 3, 2, 0)}
    assert abs(sum(ranking[1] == 2 for ranking in second) - 500) < 4 * np.sqrt(250)


def test_with_chance_alone_every_order_is_as_likely() -> None:
    ranker = trained(1.0)
    counts = dict.fromkeys(permutations(range(4), 2), 0)
    for _ in range(6000):
        counts[tuple(ranker.rank(X, 2).ranking.tolist())] += 1
    expected = 6000 / len(counts)
    assert sum((c - expected) ** 2 / expected for c in counts.values()) < 31.3  # 99.9 % point, 11 degrees of freedom


def test_every_position_is_left_to_chance_with_probability_epsilon() -> None:
    epsilon, n = 0.4, 6000
    ranker = trained(epsilon)
    lists = [ranker.rank(X, 2).ranking.tolist() for _ in range(n)]
    # First place: the best by choice or by luck. Second: given the best is gone, the same among three.
    for hits, total, p in [
        (sum(a == 1 for a, _ in lists), n, 1 - epsilon + epsilon / 4),
        (sum((a, b) == (1, 2) for a, b in lists), sum(a == 1 for a, _ in lists), 1 - epsilon + epsilon / 3),
        (sum((a, b) == (0, 1) for a, b in lists), sum(a == 0 for a, _ in lists), 1 - epsilon + epsilon / 3),
    ]:
        assert abs(hits / total - p) < 4 * np.sqrt(p * (1 - p) / total)


def test_explored_says_whether_chance_chose() -> None:
    ranker = trained(0.3)
    explored = np.array([ranker.rank(X, 2).explored for _ in range(2000)])
    p = 1 - 0.7**2
    assert abs(explored.mean() - p) < 4 * np.sqrt(p * (1 - p) / 2000)
    assert not ranker.rank(X[:1]).explored


def test_it_learns_what_sgd_ranknet_learns_from_the_same_list() -> None:
    ranker, plain = EpsilonGreedy(2, epsilon=0.0, learning_rate=0.3), SGDRankNet(2, learning_rate=0.3, pairs="all")
    for clicks in ([0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]):
        a, b = ranker.rank(X), plain.rank(X)
        assert a.ranking.tolist() == b.ranking.tolist()
        ranker.learn(a, clicks)
        plain.learn(b, clicks)
        np.testing.assert_array_equal(ranker.weights, plain.weights)
    assert ranker.weights.any()


@pytest.mark.parametrize("epsilon", [-0.1, 1.5, float("nan"), "half"])
def test_impossible_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(OptionError):
        EpsilonGreedy(2, epsilon=epsilon)
