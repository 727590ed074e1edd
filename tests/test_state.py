"""State that grows and that can be taken back."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pairrank import state
from pairrank.state import Growing, checkpoint

sizes = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=60)


@given(sizes, st.integers(1, 50))
def test_a_growing_array_holds_what_was_appended_or_forgets_it(steps: list[tuple[int, bool]], step: int) -> None:
    numbers, expected, count = Growing(np.empty((0, 2))), np.empty((0, 2)), 0
    with mock.patch.object(state, "STEP", step):
        for n, kept in steps:
            back = checkpoint(numbers)
            for _ in range(2):  # two appends that stand or fall together
                count += 1
                numbers.extend(n)[:] = count
            if kept:
                expected = np.concatenate([expected, np.full((n, 2), count - 1), np.full((n, 2), count)])
            else:
                back()
            np.testing.assert_array_equal(numbers.rows, expected)


def test_no_append_moves_more_than_a_step() -> None:
    """Rows that are moved at once would make a list wait, the longer the more there are."""
    moved: list[int] = []
    numbers, before = Growing(np.empty(0)), 0
    with mock.patch.object(state, "STEP", 64):
        for _ in range(20_000):
            room, before = numbers._room, numbers._moved
            numbers.extend(3)[:] = 1.0
            swapped = numbers._room is not room
            moved.append((len(numbers) - 3 if swapped else numbers._moved) - before if numbers._moved or swapped else 0)
    assert len(numbers) == 60_000
    assert max(moved) <= 64 + 2
    assert sum(moved) > 50_000


def test_state_may_be_none_at_first_and_an_array_or_a_thing_with_state_later() -> None:
    class Late(state.Saved):
        SAVED = ("value",)

        def __init__(self) -> None:
            self.value: object = None

    late = Late()
    for value in (None, np.ones(2), Growing(np.ones(3)), np.zeros(2)):
        late.value = value
        back = checkpoint(late)
        late.value = 5.0
        back()
        assert late.value is value
