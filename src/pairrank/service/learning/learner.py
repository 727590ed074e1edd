"""A learner: it applies the logs of the rankers that it holds, in order, and publishes models for the rank workers.

A SQLite store has one learner; those of a PostgreSQL share its rankers (`Database.hold`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from pairrank import threads
from pairrank.errors import FileFormatError, StorageError
from pairrank.service import telemetry
from pairrank.service.learning.model import Log, Model
from pairrank.service.learning.replay import load_whole, rebuild_head
from pairrank.service.learning.trials import LAUNCH, Trials, twin_of
from pairrank.service.store.log import SqlStore
from pairrank.types import Impression

logger = logging.getLogger("pairrank.learner")

BATCH = 256
# A model is published at once when the last one is this old: fresh when traffic is thin, cheap when it is thick.
PUBLISH_SECONDS = 0.25
POLL_SECONDS = 0.02
# A round ends after this long, so that what is to be held is looked at; the next begins with who waits longest.
STEP_SECONDS = 0.5
HOLD_SECONDS = 0.25
TEND_SECONDS = 0.5
# Every ranker is counted once in this time; later where that would take more than a tenth of it, as it does with
# millions that wait. For no longer than so many seconds at a time.
COUNT_SECONDS = 5.0
COUNTING_SECONDS = 0.1
RETRY_SECONDS = 0.25
# What is done for the store as a whole is held like a ranker, under a number that none has.
HOUSEKEEPING = 0


class Learner:
    """Follows logs of a store: in `run` of the rankers that it holds, else of all. `step` does one round of work."""

    def __init__(self, store: SqlStore, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._models: dict[int, Model] = {}
        self._trials: dict[int, Trials] = {}
        self._changed: set[int] = set()  # rankers with something applied and not yet published
        self._published: dict[int, float] = {}
        self._shared: dict[int, float] = {}
        self._since: dict[int, float] = {}  # when a ranker was first seen to be due
        self._broken: set[int] = set()
        self._held: set[int] | None = None
        self._some: list[int] | None = None  # the rankers that are held, None when they are all
        self._uncounted: list[int] = []
        self._tended = self._counted = -COUNT_SECONDS
        self._count_again = 0.0
        self._poll_seconds = POLL_SECONDS

    def run(self, stop: threading.Event) -> None:
        """Learn what can be held until ``stop``, then apply what is left of that and publish it."""
        held_at = -HOLD_SECONDS
        while not stop.is_set():
            try:
                if not self._held or time.monotonic() - held_at >= HOLD_SECONDS:
                    self._hold()
                    held_at = time.monotonic()
                if not self._held:
                    stop.wait(RETRY_SECONDS)
                elif not self.step():
                    stop.wait(self._poll_seconds)
            except StorageError as problem:
                logger.error("%s", problem)
                self._keep(set())
                stop.wait(RETRY_SECONDS)
        try:
            while self._held and self.step(publish=True):
                pass
        except StorageError as problem:
            logger.error("stopped before the log was applied whole: %s", problem)

    def _hold(self) -> None:
        """Take or give back rankers. What was learned and not published is learned again by who has them next."""
        rankers = self._store.ranker_ids()
        held = self._store.database.hold([HOUSEKEEPING, *rankers])
        self._some = None if held.issuperset(rankers) else sorted(held)
        if len(held) != len(self._held or ()):
            logger.info("this learner holds %d of %d rankers", len(held - {HOUSEKEEPING}), len(rankers))
        self._keep(held)

    def _keep(self, held: set[int]) -> None:
        """Drop from memory what is not held: the store says where to go on from."""
        known: tuple[dict[int, Any], ...] = (self._models, self._trials, self._published, self._shared, self._since)
        for kept in known:
            for ranker_id in kept.keys() - held:
                del kept[ranker_id]
        self._changed &= held
        self._broken &= held
        self._held = held

    @threads.single()  # the same sums in the same order as a replay
    def step(self, *, publish: bool = False) -> bool:
        """Apply what is new, publish what is due, close windows; whether there was anything to apply."""
        self._tend()
        began = time.monotonic()
        heads = self._store.due(self._some)
        # A tenth of the time is enough for looking, where there are many rankers.
        self._poll_seconds = min(max(POLL_SECONDS, 9 * (time.monotonic() - began)), RETRY_SECONDS)
        busy = False
        for ranker_id in sorted(heads, key=lambda number: self._since.setdefault(number, began)):
            head = heads[ranker_id]
            guarded = head.launch is not None and head.launch.mode == "guarded"
            if ranker_id in self._broken:
                continue
            try:
                busy |= self._follow(ranker_id, head.log_seq)
            except StorageError:
                raise
            except Exception as problem:
                # One damaged ranker must not stop the others; `pairrank store verify` tells more.
                self._stop(ranker_id, problem)
                continue
            if publish or time.monotonic() - self._published.get(ranker_id, 0.0) >= PUBLISH_SECONDS:
                self._publish(ranker_id)
            if guarded and ranker_id in self._models:
                self._share(ranker_id)
            if ranker_id not in self._changed:
                del self._since[ranker_id]  # behind all that wait
            if time.monotonic() - began > STEP_SECONDS:  # after one at least, however slow the store is
                return True
        return busy

    def _follow(self, ranker_id: int, log_seq: int) -> bool:
        began = time.monotonic()
        model = self._models.get(ranker_id) or self._load(ranker_id)
        if model is None:
            return False
        if ranker_id not in self._models:
            states = self._store.trial_states(ranker_id)
            self._models[ranker_id], self._trials[ranker_id] = model, Trials.restore(self._store, ranker_id, states)
        if model.applied >= log_seq:
            return False
        log, trials = Log(self._store, ranker_id), self._trials[ranker_id]
        entries = self._store.log(ranker_id, model.applied, BATCH)
        # Before this log is seen as applied: a learner that takes over finds again what was not logged there.
        if twins := [twin for entry in entries if (twin := twin_of(entry)) is not None]:
            self._store.log_twins(twins, self._clock())
        for entry in entries:
            if entry.kind == "rollback":
                self._publish(ranker_id)  # so that the version before it can be gone back to
            model.apply(entry, log)
            trials.apply(entry)
            self._changed.add(ranker_id)
            if telemetry.active() and entry.kind == "feedback" and entry.body is not None:
                row = self._store.ranker_by_id(ranker_id)
                if row is not None:
                    telemetry.impression("learned", row.name, row.secret, Impression.from_bytes(entry.body).number)
            if time.monotonic() - began > STEP_SECONDS:
                break
        return True

    def _load(self, ranker_id: int) -> Model | None:
        row = self._store.ranker_by_id(ranker_id)
        if row is None:
            return None
        try:
            return load_whole(self._store, row)
        except FileFormatError as problem:
            if self._store.ranker_by_id(ranker_id) is None:  # deleted meanwhile
                return None
            logger.error("%s; building it again from the log", problem)
            return rebuild_head(self._store, row)

    def _publish(self, ranker_id: int) -> None:
        if ranker_id not in self._changed:
            return
        model, trials = self._models[ranker_id], self._trials[ranker_id]
        states = trials.texts(trials.changed)
        move = trials.launch.move() if trials.launch is not None and LAUNCH in trials.changed else None
        self._store.publish(ranker_id, model.snapshot(self._clock()), model.applied, model.aside, states, move)
        model.aside = []
        trials.changed.clear()
        self._changed.discard(ranker_id)
        self._published[ranker_id] = time.monotonic()

    def _share(self, ranker_id: int) -> None:
        """Say with which probability the next lists of a guarded launch get ours; what is on its way may be lost."""
        course, now = self._trials[ranker_id].launch, self._clock()
        if course is None or time.monotonic() - self._shared.get(ranker_id, 0.0) < PUBLISH_SECONDS:
            return
        self._shared[ranker_id] = time.monotonic()
        flight = self._store.flight(ranker_id, self._models[ranker_id].applied, now)
        at_stake = flight.at_stake + flight.lag * course.launch.guard.stages[-1]
        share = course.launch.share(flight.waiting + flight.lag, at_stake, among=flight.recent + 1)
        self._store.put_share(ranker_id, course.epoch, share, now)

    def _stop(self, ranker_id: int, problem: Exception) -> None:
        reason = f"{type(problem).__name__}: {' '.join(str(problem).split())}"[:200]
        logger.error("ranker %d stops learning: %s", ranker_id, reason)
        self._broken.add(ranker_id)
        if isinstance(problem, FileFormatError):  # found before the model was touched: what came before it is sound
            self._publish(ranker_id)
        self._models.pop(ranker_id, None)
        self._trials.pop(ranker_id, None)
        self._changed.discard(ranker_id)
        self._store.stop(ranker_id, reason)

    def _tend(self) -> None:
        if time.monotonic() - self._tended < TEND_SECONDS:
            return
        self._tended = time.monotonic()
        now = self._clock()
        if self._held is None or HOUSEKEEPING in self._held:
            while self._store.close_windows(now):
                pass
            self._store.expire(now)
            self._store.database.tend()
        if not self._uncounted and time.monotonic() - self._counted >= COUNT_SECONDS:
            self._counted = time.monotonic()
            self._uncounted = self._store.ranker_ids() if self._some is None else self._some[:]
        began = time.monotonic()
        while self._uncounted and began >= self._count_again:  # no longer, once that has been moved
            ranker_id = self._uncounted.pop()
            self._store.count_open(ranker_id)
            self._store.thin(ranker_id, now)
            if (taken := time.monotonic() - began) > COUNTING_SECONDS:
                self._count_again = began + 10 * taken
