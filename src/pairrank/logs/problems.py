"""What can be wrong with a log, counted and with examples, so that nothing is lost silently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pairrank.errors import LogError

EXAMPLES = 5


class Reason(StrEnum):
    """Why a row (or a whole file) was not taken as it came."""

    UNREADABLE = "unreadable"
    MISSING_COLUMN = "missing-column"
    WRONG_TYPE = "wrong-type"
    MISSING_VALUE = "missing-value"
    LENGTHS_DIFFER = "lengths-differ"
    WRONG_WIDTH = "wrong-width"
    NOT_FINITE = "not-finite"
    DUPLICATE = "duplicate"
    CLICK_WITHOUT_IMPRESSION = "click-without-impression"
    CLICK_ELSEWHERE = "click-elsewhere"
    CLICK_TOO_EARLY = "click-too-early"
    NO_FEATURES = "no-features"
    OUT_OF_ORDER = "out-of-order"


MEANINGS: Mapping[Reason, str] = {
    Reason.UNREADABLE: "truncated, damaged or not what its name says; left out",
    Reason.MISSING_COLUMN: "a column or field that must be there is not; left out",
    Reason.WRONG_TYPE: "a column or field is of another type than the schema says; left out",
    Reason.MISSING_VALUE: "a value is null or a list is empty; left out",
    Reason.LENGTHS_DIFFER: "documents, features and clicks are not of one length; left out",
    Reason.WRONG_WIDTH: "a document has more or fewer features than the first had; left out",
    Reason.NOT_FINITE: "features or gains hold NaN, infinity or absurd sizes; left out",
    Reason.DUPLICATE: "an impression's id came before; the first was taken",
    Reason.CLICK_WITHOUT_IMPRESSION: "a click on a list that the log does not have; left out",
    Reason.CLICK_ELSEWHERE: "a click on a document that the list did not show; left out",
    Reason.CLICK_TOO_EARLY: "a click before its list was shown; the list was left out with all its clicks",
    Reason.NO_FEATURES: "no features are known for a shown document; the list was left out",
    Reason.OUT_OF_ORDER: "an earlier time than the row before; taken all the same, since order does not matter here",
}


@dataclass
class Problems:
    """Counts by reason, and the first few places of each."""

    counts: dict[Reason, int] = field(default_factory=dict)
    examples: dict[Reason, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, reason: Reason, place: str, count: int = 1) -> None:
        """Note ``count`` rows at ``place``, a file and a row in words."""
        self.counts[reason] = self.counts.get(reason, 0) + count
        places = self.examples.setdefault(reason, [])
        if len(places) < EXAMPLES:
            places.append(place)

    def merge(self, other: Problems) -> None:
        """Add what ``other`` has noted."""
        for reason, count in other.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            places = self.examples.setdefault(reason, [])
            places += other.examples[reason][: EXAMPLES - len(places)]

    def stop(self) -> None:
        """Raise `LogError` if there is anything at all."""
        if self.counts:
            raise LogError(f"the log has bad rows, and none were to be passed over:\n{self.text()}")

    def text(self) -> str:
        """One line a reason: the count, what it means, and where it happened first."""
        lines = []
        for reason in Reason:
            if reason in self.counts:
                places = "; ".join(self.examples[reason])
                more = "; …" if self.counts[reason] > len(self.examples[reason]) else ""
                lines.append(f"  {self.counts[reason]:>8}  {reason}: {MEANINGS[reason]}\n            {places}{more}")
        return "\n".join(lines) or "  no bad rows"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            reason.value: {
                "count": self.counts[reason],
                "meaning": MEANINGS[reason],
                "examples": self.examples[reason],
            }
            for reason in Reason
            if reason in self.counts
        }
