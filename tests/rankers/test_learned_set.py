from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.errors import ExpiredImpressionError
from pairrank.rankers.learned_set import LearnedSet


@given(st.lists(st.integers(0, 500), max_size=60), st.integers(8, 200))
def test_ledger_is_a_set_over_a_window(numbers: list[int], window: int) -> None:
    ledger, plain = LearnedSet(window), set()
    for number in numbers:
        try:
            known = number in ledger
        except ExpiredImpressionError:
            # Only numbers that left the window are unknown; eight at a time may leave.
            assert number <= max(plain) - window + 8
            continue
        assert known == (number in plain)
        ledger.add(number)
        plain.add(number)
    twin = LearnedSet.from_array(ledger.to_array())
    for number in range(max(plain, default=0) - window + 8, max(plain, default=0) + 20):
        if number >= 0:
            assert (number in twin) == (number in plain)


@pytest.mark.parametrize("newest", range(1000, 1008))
def test_what_has_left_the_window_is_refused(newest: int) -> None:
    ledger = LearnedSet(64)
    ledger.add(newest)
    for number in range(newest - 80, newest + 1):
        if number <= newest - 64:
            with pytest.raises(ExpiredImpressionError):
                _ = number in ledger
        elif number > newest - 64 + 7:  # numbers leave eight at a time
            assert (number in ledger) == (number == newest)


def test_memory_is_bounded() -> None:
    ledger = LearnedSet(1000)
    for number in range(0, 10_000_000, 997):
        ledger.add(number)
    assert len(ledger.to_array()) <= 8 + 1000 // 8 + 1
    with pytest.raises(ExpiredImpressionError):
        _ = 5 in ledger
