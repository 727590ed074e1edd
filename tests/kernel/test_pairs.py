from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.kernel import pairs

clicks_of = st.lists(st.booleans(), min_size=1, max_size=12).map(np.array)


def brute_examined(clicks: np.ndarray) -> int:
    n = 0
    for position, clicked in enumerate(clicks):
        if clicked:
            n = min(position + 2, len(clicks))
    return n


@given(clicks_of)
def test_examined_is_down_to_the_last_click_and_one_more(clicks: np.ndarray) -> None:
    assert pairs.examined(clicks) == brute_examined(clicks)


@given(clicks_of)
def test_adjacent_pairs_are_disjoint_positions_with_one_click(clicks: np.ndarray) -> None:
    expected = set()
    for i in range(0, brute_examined(clicks) - 1, 2):
        if clicks[i] != clicks[i + 1]:
            expected.add((i, i + 1) if clicks[i] else (i + 1, i))
    found = pairs.adjacent(clicks)
    assert set(zip(found.winner.tolist(), found.loser.tolist(), strict=True)) == expected
    assert (found.weight == 1).all()


@given(clicks_of)
def test_all_pairs_are_all(clicks: np.ndarray) -> None:
    n = brute_examined(clicks)
    expected = {(i, j) for i in range(n) for j in range(n) if clicks[i] and not clicks[j]}
    found = pairs.all_pairs(clicks)
    assert set(zip(found.winner.tolist(), found.loser.tolist(), strict=True)) == expected
    assert len(found.weight) == len(expected)


@given(clicks_of, st.integers(0, 1000))
def test_matched_pairs_use_each_position_once(clicks: np.ndarray, seed: int) -> None:
    n = brute_examined(clicks)
    found = pairs.matched(clicks, np.random.default_rng(seed))
    used = [*found.winner.tolist(), *found.loser.tolist()]
    assert len(used) == len(set(used)) == 2 * min(clicks[:n].sum(), n - clicks[:n].sum())
    assert clicks[found.winner].all()
    assert not clicks[found.loser].any()
    assert all(position < n for position in used)


def test_averaged_is_the_expectation_of_matched() -> None:
    clicks = np.array([False, True, False, True, False, False])
    examined = 5
    winners, losers = [1, 3], [0, 2, 4]
    expectation: Counter[tuple[int, int]] = Counter()
    orders = list(permutations(losers))
    for order in orders:  # shuffling one side is as good as both
        for pair in zip(winners, order, strict=False):
            expectation[pair] += 1 / len(orders)  # type: ignore[assignment]
    assert pairs.examined(clicks) == examined
    found = pairs.averaged(clicks)
    weights = dict(zip(zip(found.winner.tolist(), found.loser.tolist(), strict=True), found.weight, strict=True))
    assert weights == pytest.approx(dict(expectation))


@given(clicks_of, st.integers(0, 1000))
def test_low_rank_rows_give_the_sum_over_pairs(clicks: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents = rng.normal(size=(len(clicks), 4))
    found = pairs.all_pairs(clicks)
    scale = rng.random(len(found.weight))
    rows = pairs.low_rank(documents, found, scale)
    x = documents[found.winner] - documents[found.loser]
    np.testing.assert_allclose(rows.T @ rows, x.T @ (scale[:, None] * x), atol=1e-9)
    assert len(rows) <= max(len(documents), 1)


def test_rows_of_a_long_list_are_as_few_as_its_features() -> None:
    rng = np.random.default_rng(0)
    documents, clicks = rng.normal(size=(300, 4)), rng.random(300) < 0.1
    found = pairs.shown(clicks)
    rows = pairs.low_rank(documents, found, found.weight)
    x = documents[found.winner] - documents[found.loser]
    np.testing.assert_allclose(rows.T @ rows, x.T @ (found.weight[:, None] * x), rtol=1e-9)
    assert rows.shape == (4, 4)


def test_laplacian_adds_up_pairs_that_come_twice() -> None:
    doubled = pairs.Pairs(np.array([0, 0, 2]), np.array([1, 1, 1]), np.array([1.0, 2.0, 4.0]))
    L = pairs.laplacian(pairs.preferences(*doubled, 3))
    s = np.array([0.3, -1.0, 2.0])
    assert s @ L @ s == pytest.approx(3 * (s[0] - s[1]) ** 2 + 4 * (s[2] - s[1]) ** 2)
    assert L.sum(axis=0) == pytest.approx(np.zeros(3))


@given(clicks_of)
def test_all_that_was_shown_whoever_wins(clicks: np.ndarray) -> None:
    def by_pair(clicks: np.ndarray) -> dict[tuple[int, int], float]:
        found = pairs.shown(clicks)
        keys = zip(found.winner.tolist(), found.loser.tolist(), strict=True)
        return dict(zip(keys, found.weight.tolist(), strict=True))

    found, n_clicked = by_pair(clicks), int(clicks.sum())
    assert set(found) == {(i, j) for i in range(len(clicks)) for j in range(len(clicks)) if clicks[i] and not clicks[j]}
    for winner, loser in found:
        exchanged = clicks.copy()
        exchanged[[winner, loser]] = exchanged[[loser, winner]]
        assert by_pair(exchanged)[loser, winner] == found[winner, loser]
        seen = max(winner, loser, *np.flatnonzero(clicks & exchanged).tolist()) + 1
        assert found[winner, loser] == pytest.approx(1 / max(n_clicked, seen - n_clicked))


def test_taking_all_that_was_shown_favours_neither_side_where_examined_pairs_do() -> None:
    """Users who read on whatever they click, and two equal documents in a fixed order."""
    rng = np.random.default_rng(0)
    lists = rng.random((20_000, 6)) < 0.3
    upper, lower = 1, 4

    def balance(kind: Callable[[np.ndarray], pairs.Pairs]) -> tuple[float, float]:
        sides = np.zeros(2)
        for clicks in lists:
            found = kind(clicks)
            between = (np.minimum(found.winner, found.loser) == upper) & (found.winner + found.loser == upper + lower)
            sides += [(between & (found.winner == side)).sum() for side in (upper, lower)]
        return (sides[1] - sides[0]) / sides.sum(), 1 / np.sqrt(sides.sum())

    lean, error = balance(pairs.all_pairs)
    assert lean > 10 * error  # the lower one wins more often: its click always ends an examined part that holds both
    lean, error = balance(pairs.shown)
    assert abs(lean) < 4 * error
