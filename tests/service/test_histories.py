"""Which records of a list the plain store explains, and which it does not."""

from __future__ import annotations

import pytest
from histories import Call, Record, explained

ACCEPTED = Call("feedback", ["a"], 1, 2, "accepted")
CLICKED = Call("event", ["e0", "b"], 1, 2, "accepted")
CLOSES = 10.0
A, B, NONE = b"\1\0", b"\0\1", b"\0\0"


@pytest.mark.parametrize(
    ("calls", "logged"),
    [
        ([], None),
        ([ACCEPTED], A),
        ([ACCEPTED, Call("feedback", [], 1.5, 3, "duplicate")], A),
        ([Call("feedback", [], 1, 3, "duplicate"), Call("feedback", ["a"], 2, 4, "accepted")], A),  # they overlap
        ([Call("feedback", ["a"], 1), Call("feedback", ["a"], 2, 3, "duplicate")], A),  # the first answer was lost
        ([Call("feedback", ["a"], 1)], None),
        ([Call("feedback", ["a"], 1)], A),
        ([Call("feedback", ["a", "c"], 1, 2, "foreign")], None),
        ([CLICKED], B),  # when the window closed
        ([CLICKED, Call("event", ["e0", "b"], 3, 4, "duplicate")], B),
        ([CLICKED, Call("event", ["e1", "a"], 9, 11, "late")], B),
        ([CLICKED, Call("event", ["e1", "a"], 11, 12, "duplicate")], B),  # the list was in the log by then
        ([CLICKED, Call("feedback", [], 3, 4, "accepted")], NONE),  # feedback is final
    ],
)
def test_what_can_be(calls: list[Call], logged: bytes | None) -> None:
    assert explained(Record("1-t", ["a", "b"], 0, 0, calls), CLOSES, logged)


@pytest.mark.parametrize(
    ("calls", "logged"),
    [
        ([ACCEPTED], None),
        ([ACCEPTED], B),
        ([ACCEPTED, ACCEPTED], A),
        ([], A),
        ([Call("feedback", [], 1, 2, "duplicate"), Call("feedback", ["a"], 3, 4, "accepted")], A),
        ([Call("feedback", ["a"], 3), Call("feedback", ["a"], 1, 2, "duplicate")], A),
        ([Call("feedback", ["a"], 1, 2, "expired")], None),
        ([CLICKED], None),
        ([CLICKED, Call("event", ["e1", "a"], 3, 4, "late")], B),  # the window was open
        ([CLICKED, Call("event", ["e1", "a"], 11, 12, "accepted")], b"\1\1"),
        ([CLICKED, Call("event", ["e0", "b"], 3, 4, "accepted")], B),
    ],
)
def test_what_cannot_be(calls: list[Call], logged: bytes | None) -> None:
    assert not explained(Record("1-t", ["a", "b"], 0, 0, calls), CLOSES, logged)


def test_a_list_can_be_lost_until_something_is_said_of_it() -> None:
    lost = Call("feedback", ["a"], 3, 4, "expired")
    assert explained(Record("1-t", ["a", "b"], 0, 0, [lost]), CLOSES, None, forgetful=True)
    assert not explained(Record("1-t", ["a", "b"], 0, 0, [CLICKED, lost]), CLOSES, None, forgetful=True)


def test_requests_without_an_answer_may_be_many() -> None:
    unknown = [Call("event", [f"e{i % 2}", "ab"[i % 3 == 0]], 1 + i / 100) for i in range(60)]
    feedback = [Call("feedback", ["a"], 1 + i / 100) for i in range(60)]
    assert explained(Record("1-t", ["a", "b"], 0, 0, [*unknown, *feedback]), CLOSES, b"\1\1")
    assert not explained(Record("1-t", ["a", "b"], 0, 0, [*unknown, *feedback, ACCEPTED]), CLOSES, NONE)
