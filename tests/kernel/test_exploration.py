from __future__ import annotations

from itertools import permutations
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from pairrank.kernel import exploration

ORDERS = {
    "nothing is certain": [],
    "one pair": [(0, 1)],
    "a chain": [(0, 1), (1, 2), (0, 2)],
    "two above two": [(0, 2), (0, 3), (1, 2), (1, 3)],
    "one above all": [(0, 1), (0, 2), (0, 3)],
    "a fork": [(0, 2), (1, 3)],
}


def matrix(n: int, orders: list[tuple[int, int]]) -> np.ndarray:
    certain = np.zeros((n, n), dtype=bool)
    for i, j in orders:
        certain[i, j] = True
    return certain


def scheme(certain: np.ndarray) -> dict[tuple[int, ...], float]:
    """The probability of every whole order: each position uniform among documents without a predecessor left."""
    n = len(certain)
    result = {}
    for order in permutations(range(n)):
        probability, left = 1.0, set(range(n))
        for document in order:
            free = [d for d in left if not any(certain[p, d] for p in left)]
            probability *= (document in free) / len(free)
            left.remove(document)
        result[order] = probability
    assert sum(result.values()) == pytest.approx(1.0)
    return result


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("orders", ORDERS.values(), ids=ORDERS)
def test_conservative_draws_follow_the_scheme(orders: list[tuple[int, int]], n: int) -> None:
    certain = matrix(n, [(i, j) for i, j in orders if max(i, j) < n])
    expected = scheme(certain)
    draws, n_draws = 6000, dict.fromkeys(expected, 0)
    rng = np.random.default_rng(n)
    for _ in range(draws):
        n_draws[tuple(exploration.draw_conservative(certain, n, rng).tolist())] += 1
    valid = [order for order in expected if expected[order] > 0]
    assert all(n_draws[order] > 0 for order in valid)  # every valid linear order appears
    assert all(n_draws[order] == 0 for order in expected if order not in valid)  # and no other
    if len(valid) > 1:
        observed = [n_draws[order] for order in valid]
        assert chisquare(observed, [draws * expected[order] for order in valid]).pvalue > 1e-4


def test_random_draws_are_uniform() -> None:
    rng = np.random.default_rng(0)
    counts = dict.fromkeys(permutations(range(4), 3), 0)
    for _ in range(12_000):
        counts[tuple(exploration.draw_random(4, 3, rng).tolist())] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-4


@given(st.integers(0, 100_000), st.integers(1, 40), st.integers(1, 10), st.sampled_from([1, 4, 64]))
def test_lazy_draws_equal_the_plain_ones_to_the_bit(seed: int, n: int, n_draws: int, leaders: int) -> None:
    rng = np.random.default_rng(seed)
    n_draws = min(n, n_draws)
    scores = np.sort(rng.normal(size=n))[::-1]
    certain = (scores[:, None] - scores) > rng.choice([0.1, 1.0, 3.0]) * rng.random((n, n))
    plain = exploration.draw_conservative(certain, n_draws, np.random.default_rng(seed))
    with mock.patch.object(exploration, "LEADERS", leaders):
        lazy = exploration.draw_conservative_lazily(
            lambda start, stop: certain[start:stop],
            lambda documents: certain[:, documents].T,
            n,
            n_draws,
            np.random.default_rng(seed),
        )
    assert plain.tolist() == lazy.tolist()


@pytest.mark.parametrize("certain_share", [0.0, 0.5, 0.98])
def test_lazy_draws_ask_for_little(certain_share: float) -> None:
    asked: list[int] = []
    size = 5000
    scores = np.linspace(1, 0, size)
    gap = 1.0 - certain_share  # who is further up than this is certainly above

    def predecessors(documents: np.ndarray) -> np.ndarray:
        asked.extend(documents.tolist())
        return scores - scores[documents, None] > gap

    exploration.draw_conservative_lazily(
        lambda start, stop: scores[start:stop, None] - scores > gap, predecessors, size, 10, np.random.default_rng(0)
    )
    assert len(asked) <= 120  # of five thousand
