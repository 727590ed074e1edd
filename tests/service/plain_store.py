"""What a store should hold, in dictionaries and lists: slow, in memory, plain enough to be believed.

`PlainStore` does to itself what each writing method of a store does to its tables. `History` is one ranker's log as it
should be learned: by a ranker that is never saved, published, restored or read back.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pairrank.rankers import Ranker
from pairrank.service.store import SqlStore
from pairrank.service.store.values import Aside, Config, Event, Feedback, RankerRow, Served, Snapshot, Status
from pairrank.types import Impression


class Logged(NamedTuple):
    """An entry of the log; its number is its place."""

    kind: str
    number: int | None = None
    token: str | None = None
    clicks: bytes | None = None
    body: bytes | None = None
    target: int | None = None


class Version(NamedTuple):
    digest: str
    learned: int
    before: int  # the version that it was learned from


@dataclass
class History:
    """A log, and the models that it gives."""

    config: Config
    log: list[Logged] = field(default_factory=list)
    applied: int = 0
    versions: dict[int, Version] = field(default_factory=dict)
    _ranker: Ranker | None = None

    def model(self, upto: int) -> tuple[int, str, int]:
        """Version, digest and number of learned lists after entry ``upto``."""
        if not self.versions:
            self.versions[0] = Version(self.config.make().digest(), 0, 0)
        ranker = self._ranker or self._taught(next(reversed(self.versions)))
        for seq in range(self.applied + 1, upto + 1):
            entry, before = self.log[seq - 1], next(reversed(self.versions))
            if entry.kind == "rollback":
                assert entry.target is not None
                ranker, before = self._taught(entry.target), entry.target
                self.versions[seq] = self.versions[before]._replace(before=before)
            elif entry.kind == "feedback":
                self._teach(ranker, entry)
                self.versions[seq] = Version(ranker.digest(), self.versions[before].learned + 1, before)
        self._ranker, self.applied = ranker, max(upto, self.applied)
        version = max(version for version in self.versions if version <= upto)
        return version, *self.versions[version][:2]

    def _taught(self, version: int) -> Ranker:
        """A new ranker that has learned what a version has."""
        ranker, path = self.config.make(), []
        while version:
            if self.log[version - 1].kind == "feedback":
                path.append(version)
            version = self.versions[version].before
        for seq in reversed(path):
            self._teach(ranker, self.log[seq - 1])
        return ranker

    @staticmethod
    def _teach(ranker: Ranker, entry: Logged) -> None:
        assert entry.body is not None
        assert entry.clicks is not None
        ranker.learn(Impression.from_bytes(entry.body), np.frombuffer(entry.clicks, dtype=np.bool_))

    def __deepcopy__(self, memo: dict[int, Any]) -> History:
        return History(self.config, self.log[:], self.applied, self.versions.copy())


@dataclass
class Waiting:
    token: str
    closes: float
    expires: float
    ids: list[str]
    body: bytes
    events: dict[str, int] = field(default_factory=dict)

    def mask(self, positions: Iterable[int]) -> bytes:
        return bytes(place in set(positions) for place in range(len(self.ids)))


@dataclass
class PlainRanker:
    name: str
    secret: str
    history: History
    frozen: bool = False
    head: tuple[int, int, str, int] = (0, 0, "", 0)  # version, applied, digest, learned
    waiting: dict[int, Waiting] = field(default_factory=dict)
    logged: dict[int, str] = field(default_factory=dict)

    def append(self, number: int, positions: Iterable[int]) -> None:
        one = self.waiting.pop(number)
        kind = "frozen" if self.frozen else "feedback"
        self.history.log.append(Logged(kind, number, one.token, one.mask(positions), one.body))
        self.logged[number] = one.token


class PlainStore:
    """Methods have the names and arguments of a store's; what they answer is what the store should have answered."""

    def __init__(self) -> None:
        self.rankers: dict[int, PlainRanker] = {}
        self.issued: dict[str, set[tuple[int, str]]] = {}  # ids ever made, by secret: a restore does not undo that

    def copy(self) -> PlainStore:
        other = PlainStore()
        other.rankers, other.issued = copy.deepcopy(self.rankers), self.issued
        return other

    def create(self, row: RankerRow) -> None:
        self.rankers[row.id] = PlainRanker(row.name, row.secret, History(row.config), head=(0, 0, row.digest, 0))

    def delete(self, name: str, now: float, actor: str) -> bool:
        found = [ranker_id for ranker_id, ranker in self.rankers.items() if ranker.name == name]
        for ranker_id in found:
            del self.rankers[ranker_id]
        return bool(found)

    def set_frozen(self, name: str, frozen: bool, now: float, actor: str) -> None:
        self.named(name).frozen = frozen

    def roll_back(self, name: str, version: int, now: float, actor: str) -> int:
        log = self.named(name).history.log
        log.append(Logged("rollback", target=version))
        return len(log)

    def named(self, name: str) -> PlainRanker:
        return next(ranker for ranker in self.rankers.values() if ranker.name == name)

    def serve(self, items: Sequence[Served]) -> None:
        for item in items:
            if item.ranker_id in self.rankers:
                ids = json.loads(item.ids)
                self.rankers[item.ranker_id].waiting[item.number] = Waiting(
                    item.token, item.closes, item.expires, ids, item.body
                )

    def _find(self, item: Feedback | Event, now: float) -> Waiting | Status:
        ranker = self.rankers.get(item.ranker_id)
        if ranker is None:
            return Status.UNKNOWN
        one = ranker.waiting.get(item.number)
        if one is not None and one.token == item.token:
            return one if now < one.expires else Status.EXPIRED
        if ranker.logged.get(item.number) == item.token:
            return Status.DUPLICATE
        known = (item.number, item.token) in self.issued.get(ranker.secret, ())
        return Status.EXPIRED if known else Status.UNKNOWN

    def feedback(self, items: Sequence[Feedback], now: float) -> list[Status]:
        return [self._feedback(item, now) for item in items]

    def _feedback(self, item: Feedback, now: float) -> Status:
        found = self._find(item, now)
        if isinstance(found, Status):
            return found
        if not item.clicks <= set(found.ids):
            return Status.FOREIGN
        self.rankers[item.ranker_id].append(item.number, [found.ids.index(name) for name in item.clicks])
        return Status.ACCEPTED

    def events(self, items: Sequence[Event], now: float) -> list[Status]:
        return [self._event(item, now) for item in items]

    def _event(self, item: Event, now: float) -> Status:
        found = self._find(item, now)
        if isinstance(found, Status):
            return found
        if item.document_id not in found.ids:
            return Status.FOREIGN
        if found.closes <= now:
            return Status.LATE
        place = found.ids.index(item.document_id)
        if item.event_id in found.events or place in found.events.values():
            return Status.DUPLICATE
        found.events[item.event_id] = place
        return Status.ACCEPTED

    def close_windows(self, now: float) -> int:
        closed = 0
        for ranker in self.rankers.values():
            due = sorted((one.closes, n) for n, one in ranker.waiting.items() if one.events and one.closes <= now)
            for _, number in due:
                ranker.append(number, ranker.waiting[number].events.values())
            closed += len(due)
        return closed

    def expire(self, now: float) -> int:
        gone = 0
        for ranker in self.rankers.values():
            due = [number for number, one in ranker.waiting.items() if not one.events and one.expires <= now]
            for number in due:
                del ranker.waiting[number]
            gone += len(due)
        return gone

    def publish(
        self, ranker_id: int, snapshot: Snapshot, applied: int, aside: Sequence[Aside] = (), *_: object
    ) -> None:
        ranker = self.rankers.get(ranker_id)
        if ranker is not None and applied > ranker.head[1]:
            assert snapshot.version >= ranker.head[0], "a version goes back"
            found = (snapshot.version, snapshot.digest, snapshot.learned)
            assert found == ranker.history.model(applied), f"version {snapshot.version} is not what the log gives"
            assert not aside, f"entries were set aside: {aside}"
            ranker.head = (snapshot.version, applied, snapshot.digest, snapshot.learned)


def kept_history(store: SqlStore, row: RankerRow) -> tuple[History, list[str]]:
    """A ranker's log as a store has it, whole from its first entry; and what is wrong with it or with its model."""
    rows = store.database.all(
        "SELECT seq, kind, number, token, clicks, body, target FROM log WHERE ranker_id = ? ORDER BY seq", (row.id,)
    )
    history = History(row.config, [Logged(*values) for _, *values in rows])
    faults = [] if [one[0] for one in rows] == list(range(1, row.log_seq + 1)) else ["the log has gaps"]
    numbers = [entry.number for entry in history.log if entry.number is not None]
    if len(set(numbers)) != len(numbers):
        faults.append("an impression is in the log twice")
    if not faults and history.model(row.applied) != (row.version, row.digest, row.learned):
        faults.append(f"the model at entry {row.applied} is not what the log gives")
    return history, faults
