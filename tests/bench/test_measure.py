"""The arithmetic of benchmarks, on clocks and allocations of our own making."""

from __future__ import annotations

import numpy as np
import pytest

from pairrank.bench.measure import Row, amortised, interleaved, peak_bytes, ratio


def test_actions_take_turns() -> None:
    said: list[str] = []
    time = iter(range(100))
    taken = interleaved([lambda: said.append("a"), lambda: said.append("b")], 3, lambda: float(next(time)))
    assert said == ["a", "b"] * 3
    assert taken.shape == (3, 2)
    assert (taken == 1.0).all()


def test_a_ratio_is_of_medians_with_quartiles_turn_by_turn() -> None:
    upper, lower = np.array([2.0, 4.0, 100.0, 6.0, 8.0]), np.array([1.0, 2.0, 50.0, 2.0, 2.0])
    value, low, high = ratio(upper, lower)
    assert value == np.median(upper) / np.median(lower)
    assert (low, high) == tuple(np.quantile(upper / lower, (0.25, 0.75)))


def test_one_long_turn_counts_when_amortised_but_not_in_the_median() -> None:
    upper, lower = np.ones(100), np.ones(100)
    upper[17] = 101.0
    assert amortised(upper, lower)[0] == pytest.approx((99 + 101) / 100)
    assert ratio(upper, lower)[0] == 1.0


def test_peak_counts_what_was_held_and_let_go() -> None:
    n = 2**20

    def action() -> None:
        first = np.zeros(n, dtype=np.uint8)
        del first
        second = np.zeros(n // 2, dtype=np.uint8)
        del second

    assert n <= peak_bytes(action) < 1.2 * n


@pytest.mark.parametrize(
    ("limit", "at_least", "met"),
    [(None, False, None), (2.0, False, True), (1.0, False, False), (1.0, True, True), (2.0, True, False)],
)
def test_a_row_knows_whether_its_limit_is_kept(limit: float | None, at_least: bool, met: bool | None) -> None:
    row = Row("round", "case", "figure", 1.5, 1.4, 1.6, limit=limit, at_least=at_least)
    assert row.met is met
    assert row.to_json()["met"] is met
