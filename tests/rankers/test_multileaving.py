"""Multileaving against enumeration of every assignment and every list."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.rankers import multileaving
from pairrank.types import FloatArray, IntArray

seeds = st.integers(0, 2**32)


def drawing_probability(ranks: IntArray, x: int, shown: tuple[int, ...], place: int, tau: float) -> float:
    """P_x(document at ``place`` | the documents above it), as the formula reads."""
    left = [d for d in range(ranks.shape[1]) if d not in shown[:place]]
    return float(ranks[x, shown[place]] ** -tau / sum(ranks[x, d] ** -tau for d in left))


def random_ranks(rng: np.random.Generator, r: int, n: int) -> IntArray:
    return multileaving.ranks(rng.random((r, n)), rng)


def test_ranks_count_from_one_and_ties_are_broken_by_lot() -> None:
    scores = np.array([[0.1, 0.9, 0.5], [0.0, 0.0, 0.0], [1.0, 2.0, 2.0]])
    found = [multileaving.ranks(scores, np.random.default_rng(seed)).tolist() for seed in range(600)]
    assert all(first == [3, 1, 2] for first, _, _ in found)
    counts = Counter(tuple(second) for _, second, _ in found)
    assert set(counts) == set(permutations((1, 2, 3)))
    assert sum((c - 100) ** 2 / 100 for c in counts.values()) < 20.5  # 99.9 % point, 5 degrees of freedom
    # One lot for all rankers: where they agree on a tie, they agree on its order.
    assert all((second[1] < second[2]) == (third[1] < third[2]) for _, second, third in found)


@given(seed=seeds, r=st.integers(1, 4), n=st.integers(2, 5), tau=st.sampled_from([0.0, 1.0, 3.0]))
def test_credits_equal_the_mean_over_all_assignments(seed: int, r: int, n: int, tau: float) -> None:
    rng = np.random.default_rng(seed)
    ranks = random_ranks(rng, r, n)
    k = int(rng.integers(1, n + 1))
    shown = tuple(rng.permutation(n)[:k].tolist())
    clicks = rng.random(k) < 0.5

    credit, total = np.zeros(r), 0.0
    for assigned in product(range(r), repeat=k):
        joint = float(np.prod([drawing_probability(ranks, x, shown, p, tau) for p, x in enumerate(assigned)]))
        credit += joint * np.bincount(np.array(assigned)[clicks], minlength=r)
        total += joint
    posterior = multileaving.assignments(ranks, np.array(shown), tau=tau)
    np.testing.assert_allclose(multileaving.expected_credits(posterior, clicks), credit / total, atol=1e-12)


def test_lists_are_drawn_with_their_exact_probabilities() -> None:
    rng = np.random.default_rng(8)
    ranks = np.array([[1, 2, 3, 4], [3, 1, 4, 2]])
    n, tau, k = 12_000, 1.5, 3
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(n):
        shown = tuple(multileaving.probabilistic(ranks, k, rng, tau=tau).tolist())
        counts[shown] = counts.get(shown, 0) + 1
    chi2 = 0.0
    for shown in permutations(range(4), k):
        means = [np.mean([drawing_probability(ranks, x, shown, p, tau) for x in (0, 1)]) for p in range(k)]
        expected = n * float(np.prod(means))
        chi2 += (counts.get(shown, 0) - expected) ** 2 / expected
    assert chi2 < 49.8  # the 99.9 % point with 23 degrees of freedom


def test_equal_rankers_share_long_lists_equally() -> None:
    ranks = np.repeat(random_ranks(np.random.default_rng(0), 1, 3000), 3, axis=0)
    ranking = np.random.default_rng(1).permutation(3000)
    posterior = multileaving.assignments(ranks, ranking, tau=3.0)
    np.testing.assert_allclose(posterior, np.full((3, 3000), 1 / 3), rtol=1e-12)
    credit = multileaving.expected_credits(posterior, np.ones(3000, dtype=bool))
    assert credit[0] == credit[1] == credit[2]


def test_long_lists_keep_their_digits_to_the_end() -> None:
    # With the second ranker the reverse of the first, the last two documents shown are in opposite places.
    n = 20_000
    up = np.arange(1, n + 1)
    posterior = multileaving.assignments(np.array([up, up[::-1]]), np.arange(n), tau=3.0)
    # Left are ranks n-1 and n of the first, ranks 2 and 1 of the second; the former draws n-1.
    mine, other = (n - 1.0) ** -3 / ((n - 1.0) ** -3 + float(n) ** -3), 2.0**-3 / (2.0**-3 + 1)
    assert posterior[0, n - 2] == pytest.approx(mine / (mine + other), rel=1e-9)
    assert posterior[0, n - 1] == pytest.approx(0.5)


@given(seed=seeds, r=st.integers(1, 5), n=st.integers(1, 8))
def test_every_team_drafts_its_best_and_once_a_round(seed: int, r: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    scores: FloatArray = np.round(rng.random((r, n)), 1)  # rounded, so that there are ties
    k = int(rng.integers(1, n + 1))
    given_scores = scores.copy()
    ranking, teams = multileaving.team_draft(scores, k, rng)
    np.testing.assert_array_equal(scores, given_scores)
    for start in range(0, k, r):
        drafted = teams[start : start + r].tolist()
        assert len(set(drafted)) == len(drafted)
    left = list(range(n))
    for row, team in zip(ranking.tolist(), teams.tolist(), strict=True):
        assert scores[team, row] == scores[team, left].max()
        left.remove(row)


def test_every_order_of_teams_is_as_likely() -> None:
    rng = np.random.default_rng(3)
    scores = rng.random((3, 6))
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(3000):
        _, teams = multileaving.team_draft(scores, 3, rng)
        counts[tuple(teams.tolist())] = counts.get(tuple(teams.tolist()), 0) + 1
    assert set(counts) == set(permutations(range(3)))
    assert sum((c - 500) ** 2 / 500 for c in counts.values()) < 20.5  # 99.9 % point, 5 degrees of freedom


def test_team_credits_count_clicks() -> None:
    teams = np.array([2, 0, 1, 0])
    clicks = np.array([True, True, False, True])
    assert multileaving.team_credits(teams, clicks, 4).tolist() == [2, 0, 1, 0]
