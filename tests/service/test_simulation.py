"""Some runs of the simulation in which all is well, and some over faults that were put in, which it must find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from simulation import STEPS, minimised, run, steps_of

from pairrank.service.learning.model import Model
from pairrank.service.store import impressions
from pairrank.service.store.impressions import ImpressionTables
from pairrank.service.store.values import Feedback, Verdict
from pairrank.service.supervisor import Supervisor
from pairrank.service.worker import models

SEEDS = range(20)
_feedback = ImpressionTables.feedback


def test_all_is_well_and_one_seed_is_one_course() -> None:
    outcomes = [run(seed, steps_of(seed, STEPS)) for seed in range(3)]
    assert [(seed, one.failed, one.why) for seed, one in enumerate(outcomes) if one.why] == []
    counts = sum((one.counts for one in outcomes), outcomes[0].counts.__class__())
    for what in (
        "feedback accepted",
        "feedback duplicate",
        "feedback expired",
        "events accepted",
        "restore",
        "power cut",
    ):
        assert counts[what] > 0, what
    again = [run(0, steps_of(0, 1000)).counts for _ in range(2)]
    assert again[0] == again[1]


def not_flushed(self: ImpressionTables, items: Sequence[Feedback], now: float) -> list[Verdict]:
    begin = self.database._begin
    self.database._begin = lambda flush: begin(False)  # type: ignore[method-assign]
    try:
        return _feedback(self, items, now)
    finally:
        del self.database._begin


def start_once(self: Supervisor, child: Any) -> None:
    if child.process is None:
        child.process = self._start(child.role)


FAULTS: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "feedback is answered before it is on disk": (ImpressionTables, "feedback", not_flushed, "acknowledged"),
    "a learner goes on without its history": (Model, "read_back", lambda self, _: self.ranker.recall([]), "log gives"),
    "lists are told apart by number alone": (impressions, "_equal", lambda *_: True, "should say"),
    "ids are the same again after a restore": (models, "new_batch", lambda: "0" * 12, "given out twice"),
    "nothing ever expires": (ImpressionTables, "expire", lambda *_: 0, "lists wait"),
    "what died stays dead": (Supervisor, "_tend", start_once, "not started again"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, what, wrong, message = FAULTS[name]
    monkeypatch.setattr(where, what, wrong)
    assert any(message in run(seed, steps_of(seed, STEPS)).why for seed in SEEDS)


def test_a_failing_run_becomes_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impressions, "_judge", lambda *_: Verdict(impressions.Status.UNKNOWN))
    steps = steps_of(4, STEPS)
    failed = run(4, steps).failed
    assert failed is not None
    fewest = minimised(4, steps[: failed + 1], least=32)
    assert run(4, fewest).failed == len(fewest) - 1
    assert len(fewest) < 0.7 * failed
