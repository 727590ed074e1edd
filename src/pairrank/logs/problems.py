"""What can be wrong with a log, counted and with examples, so that nothing is lost silently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pairrank.errors import LogError

EXAMPLES = 5

Progress = Callable[[str, int, int], None]  # what is going on, how much of it is done, and of how much


class Reason(StrEnum):
    """Why a row (or a whole file) was not taken as it came, and what became of it."""

    meaning: str

    def __new__(cls, name: str, meaning: str = "") -> Reason:
        made = str.__new__(cls, name)
        made._value_, made.meaning = name, meaning
        return made

    UNREADABLE = "unreadable", "truncated, damaged or not what its name says; left out"
    MISSING_COLUMN = "missing-column", "a column or field that must be there is not; left out"
    WRONG_TYPE = "wrong-type", "a column or field is of another type than the schema says; left out"
    MISSING_VALUE = "missing-value", "a value is null (features: see missing=) or a list is empty; left out"
    LENGTHS_DIFFER = "lengths-differ", "documents, features and clicks are not of one length; left out"
    WRONG_WIDTH = "wrong-width", "a document has more or fewer features than the first had; left out"
    NOT_FINITE = "not-finite", "features or gains hold infinity, absurd sizes, or NaN and no missing= for it; left out"
    DUPLICATE = "duplicate", "an impression's id came before; the first was taken"
    SHOWN_TWICE = "shown-twice", "a list has a document twice; its upper place was taken"
    CLICK_WITHOUT_IMPRESSION = "click-without-impression", "a click on a list that the log does not have; left out"
    CLICK_ELSEWHERE = "click-elsewhere", "a click on a document that the list did not show; left out"
    CLICK_TOO_EARLY = "click-too-early", "a click before its list was shown; the list was left out with all its clicks"
    NO_FEATURES = "no-features", "no features are known for a shown document; the list was left out"
    OUT_OF_ORDER = (
        "out-of-order",
        "an earlier time than the row before; taken all the same, since order does not matter here",
    )


@dataclass
class Problems:
    """Counts by reason, and the first few places of each."""

    counts: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, reason: Reason, place: str, count: int = 1) -> None:
        """Note ``count`` rows at ``place``, a file and a row in words."""
        self.merge(Problems(Counter({reason: count}), {reason: [place]}))

    def merge(self, other: Problems) -> None:
        """Add what ``other`` has noted."""
        self.counts.update(other.counts)
        for reason, found in other.examples.items():
            places = self.examples.setdefault(reason, [])
            places += found[: EXAMPLES - len(places)]

    def check(self, on_error: str) -> None:
        """Raise `LogError` if there is anything at all and ``on_error`` is "stop"."""
        if self.counts and on_error == "stop":
            raise LogError("the log has bad rows, and none were to be passed over", self)

    def text(self) -> str:
        """One line a reason: the count, what it means, and where it happened first."""
        lines = []
        for reason in Reason:
            if reason in self.counts:
                places = "; ".join(self.examples[reason])
                more = "; …" if self.counts[reason] > len(self.examples[reason]) else ""
                lines.append(f"  {self.counts[reason]:>8}  {reason}: {reason.meaning}\n            {places}{more}")
        return "\n".join(lines) or "  no bad rows"

    def to_json(self) -> dict[str, Any]:
        return {
            reason.value: {"count": self.counts[reason], "meaning": reason.meaning, "examples": self.examples[reason]}
            for reason in Reason
            if reason in self.counts
        }
