"""The impression's state machine, drawn in ``store/impressions.py`` and in docs/operations.md, against a slow twin."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scene import RETENTION, SHOWN, WINDOW, Scene

from pairrank import rankers
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.replay import replay
from pairrank.service.learning.verify import verify
from pairrank.service.store import open_store
from pairrank.service.store.values import Served, Status
from pairrank.types import Impression


@dataclass
class Twin:
    """What an impression should be, kept in plain Python."""

    served: Served
    state: str = "open"
    events: dict[str, int] = field(default_factory=dict)

    def age(self, now: float) -> None:
        """What time alone does, once somebody sweeps."""
        if self.state == "open" and self.served.expires <= now:
            self.state = "expired"


class ImpressionStates(RuleBasedStateMachine):
    """Serve, click, wait, sweep, learn, freeze, roll back, and lose processes, in any order."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.url = str(Path(self.folder.name) / "store.db")
        self.scene = Scene(open_store(self.url))
        self.learner = self.new_learner()
        self.twins: list[Twin] = []
        self.log: list[tuple[str, int, bytes]] = []  # kind, number (or version to go back to), clicks
        self.frozen = False
        self.counter = 0

    def new_learner(self) -> Learner:
        return Learner(self.scene.store, clock=lambda: self.scene.now)

    def append(self, twin: Twin, positions: set[int]) -> None:
        mask = bytes(int(position in positions) for position in range(SHOWN))
        self.log.append(("frozen" if self.frozen else "feedback", twin.served.number, mask))
        twin.state = "logged"

    @rule(count=st.integers(1, 3))
    def serve(self, count: int) -> None:
        self.twins += [Twin(item) for item in self.scene.serve(count)]

    @precondition(lambda self: self.twins)
    @rule(data=st.data(), position=st.none() | st.integers(0, SHOWN - 1), times=st.integers(1, 2))
    def feedback(self, data: st.DataObject, position: int | None, times: int) -> None:
        twin = data.draw(st.sampled_from(self.twins))
        for _ in range(times):
            self.answer(twin, position)

    def answer(self, twin: Twin, position: int | None) -> None:
        verdict = self.scene.feedback([twin.served], position)[0]
        if twin.state == "logged":
            assert verdict.status is Status.DUPLICATE
        elif twin.state == "expired" or twin.served.expires <= self.scene.now:
            assert verdict.status is Status.EXPIRED
        else:
            assert verdict.status is Status.ACCEPTED
            assert verdict.late == (twin.served.closes <= self.scene.now)
            self.append(twin, set() if position is None else {position})

    @precondition(lambda self: self.twins)
    @rule(data=st.data(), moment=st.sampled_from(["closes", "expires"]), early=st.sampled_from([0.0, 0.001]))
    def answer_at(self, data: st.DataObject, moment: str, early: float) -> None:
        """Feedback at the very moment that the window closes or the retention passes, or just before."""
        twin = data.draw(st.sampled_from(self.twins))
        self.scene.now = max(self.scene.now, getattr(twin.served, moment) - early)
        self.answer(twin, 0)

    @precondition(lambda self: self.twins)
    @rule(data=st.data(), position=st.integers(0, SHOWN - 1), again=st.booleans())
    def event(self, data: st.DataObject, position: int, again: bool) -> None:
        twin = data.draw(st.sampled_from(self.twins))
        self.counter += 1
        name = next(iter(twin.events)) if again and twin.events else f"e{self.counter}"
        status = self.scene.event(twin.served, name, position).status
        if twin.state == "logged":
            assert status is Status.DUPLICATE
        elif twin.state == "expired" or twin.served.expires <= self.scene.now:
            assert status is Status.EXPIRED
        elif twin.served.closes <= self.scene.now:
            assert status is Status.LATE
        elif name in twin.events or position in twin.events.values():  # the document's click has come, under any id
            assert status is Status.DUPLICATE
        else:
            assert status is Status.ACCEPTED
            twin.events[name] = position
            twin.state = "collecting"

    @rule(seconds=st.sampled_from([1.0, WINDOW / 2, WINDOW, RETENTION / 2, RETENTION]))
    def wait(self, seconds: float) -> None:
        self.scene.now += seconds

    @rule()
    def sweep(self) -> None:
        closed = self.scene.store.close_windows(self.scene.now)
        self.scene.store.expire(self.scene.now)
        assert closed == self.swept()

    def swept(self) -> int:
        """Do to the twins what a sweep does; how many windows it closes."""
        due = [t for t in self.twins if t.state == "collecting" and t.served.closes <= self.scene.now]
        for twin in sorted(due, key=lambda t: (t.served.closes, t.served.number)):
            self.append(twin, set(twin.events.values()))
        for twin in self.twins:
            twin.age(self.scene.now)
        return len(due)

    @rule(frozen=st.booleans())
    def freeze(self, frozen: bool) -> None:
        self.scene.store.set_frozen("a", frozen, self.scene.now, "test")
        self.frozen = frozen

    @rule(place=st.integers(0, 1000))
    def roll_back(self, place: int) -> None:
        kept = [item.version for item in self.scene.store.versions(self.scene.row.id)]
        version = kept[place % len(kept)]  # how many are kept depends on how quick this machine is
        self.scene.store.roll_back("a", version, self.scene.now, "test")
        self.log.append(("rollback", version, b""))

    @rule(publish=st.booleans())
    def learn(self, publish: bool) -> None:
        self.sweep()  # a learner sweeps by itself now and then: it finds nothing to do
        self.learner.step(publish=publish)

    @rule(publish=st.booleans())
    def lose_the_learner(self, publish: bool) -> None:
        """A new one sweeps first of all."""
        self.learner = self.new_learner()
        self.learner.step(publish=publish)
        self.swept()

    @rule()
    def lose_everything(self) -> None:
        self.scene.store.close()
        self.scene.store = open_store(self.url)
        self.learner = self.new_learner()

    @invariant()
    def the_log_is_what_was_accepted(self) -> None:
        rows = self.scene.store.database.all("SELECT kind, coalesce(number, target), clicks FROM log ORDER BY seq")
        assert [(kind, number, clicks or b"") for kind, number, clicks in rows] == self.log
        row = self.scene.row
        assert row.log_seq == len(self.log)
        assert row.feedback_count == sum(kind != "rollback" for kind, _, _ in self.log)
        assert row.applied <= row.log_seq

    @invariant()
    def every_impression_is_in_its_state(self) -> None:
        found = {item.number: item.state for item in self.scene.store.impressions(self.scene.row.id, 10_000)}
        for twin in self.twins:
            state = found.get(twin.served.number, "expired")
            assert {"learned": "logged"}.get(state, state) == twin.state

    def teardown(self) -> None:
        if not hasattr(self, "scene"):
            return
        learner = self.new_learner()
        learner.step()
        self.swept()
        while learner.step(publish=True):
            pass
        row = self.scene.row
        assert row.digest == self.slow_model().digest()
        assert replay(self.scene.store, row).same
        assert verify(self.scene.store) == []
        self.scene.store.close()
        self.folder.cleanup()

    def slow_model(self) -> rankers.Ranker:
        """The log, applied by hand; every version is kept as bytes."""
        model = self.scene.row.config.make()
        bodies = {twin.served.number: twin.served.body for twin in self.twins}
        past = {0: model.to_bytes()}
        for seq, (kind, number, clicks) in enumerate(self.log, 1):
            if kind == "rollback":
                model = rankers.from_bytes(past[number])
            elif kind == "feedback":
                model.learn(Impression.from_bytes(bodies[number]), list(clicks))
            past[seq] = model.to_bytes()
        return model


TestImpressionStates = ImpressionStates.TestCase
TestImpressionStates.settings = settings(max_examples=20, stateful_step_count=30)
