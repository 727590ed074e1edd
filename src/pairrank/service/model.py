"""A model and its place in the log.

`Model.apply` is the only place where a log entry changes a model. It is a function of (model, entry), so a model
restored from any published version and taken through the rest of the log is, bit for bit, the model of the log.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pairrank import rankers
from pairrank.errors import FileFormatError, InputError
from pairrank.service.store.base import Entry, RankerRow, Snapshot
from pairrank.service.store.log import SqlStore
from pairrank.types import Impression

logger = logging.getLogger("pairrank.model")


@dataclass(slots=True)
class Model:
    """A ranker and where in its log it stands.

    version : the last entry that changed it.
    applied : the last entry that was looked at.
    learned, skipped : entries that taught it something, and entries that the ranker refused.
    """

    ranker: rankers.Ranker
    version: int
    applied: int
    learned: int
    skipped: int

    @classmethod
    def restore(cls, snapshot: Snapshot, applied: int | None = None) -> Model:
        """The model of a snapshot; one whose bytes do not have their digest is refused."""
        if hashlib.sha256(snapshot.body).hexdigest() != snapshot.digest:
            raise FileFormatError(f"version {snapshot.version} is damaged: its digest does not match")
        ranker = rankers.from_bytes(snapshot.body, source=f"version {snapshot.version}")
        at = snapshot.version if applied is None else applied
        return cls(ranker, snapshot.version, at, snapshot.learned, snapshot.skipped)

    def snapshot(self, now: float) -> Snapshot:
        """The model as it is now."""
        body = self.ranker.to_bytes()
        digest = hashlib.sha256(body).hexdigest()
        return Snapshot(self.version, self.learned, self.skipped, digest, now, False, body)

    def apply(self, entry: Entry, past: Callable[[int], Snapshot]) -> None:
        """Take one entry; ``past`` finds the version that a rollback names."""
        if entry.seq != self.applied + 1:
            raise FileFormatError(f"the log goes from entry {self.applied} to {entry.seq}; it is damaged")
        if entry.kind == "rollback":
            target = past(int(entry.target or 0))
            old = Model.restore(target)
            self.ranker, self.learned, self.version = old.ranker, old.learned, entry.seq
        elif entry.kind == "feedback" and self._learn(entry):
            self.learned += 1
            self.version = entry.seq
        self.applied = entry.seq

    def _learn(self, entry: Entry) -> bool:
        if entry.body is None or entry.clicks is None:
            raise FileFormatError(f"entry {entry.seq} of the log has no impression; it is damaged")
        try:
            impression = Impression.from_bytes(entry.body)
            learned = self.ranker.learn(impression, np.frombuffer(entry.clicks, dtype=np.uint8))
        except InputError as problem:  # decided by (model, entry) alone, so a replay skips the same entries
            logger.warning("entry %d teaches nothing: %s", entry.seq, problem)
            learned = False
        self.skipped += not learned
        return learned


def finder(store: SqlStore, ranker_id: int) -> Callable[[int], Snapshot]:
    """What `Model.apply` needs to roll back: kept versions from the store."""

    def past(version: int) -> Snapshot:
        snapshot = store.snapshot(ranker_id, version)
        if snapshot is None:
            raise FileFormatError(f"version {version}, which the log goes back to, is missing")
        return snapshot

    return past


def load_head(store: SqlStore, row: RankerRow) -> Model:
    """The published model of a ranker."""
    snapshot = store.snapshot(row.id, row.version)
    if snapshot is None:
        raise FileFormatError(f"version {row.version} of ranker {row.name!r}, its newest, is missing")
    return Model.restore(snapshot, row.applied)
