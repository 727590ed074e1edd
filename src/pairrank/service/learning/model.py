"""A model and its place in the log.

`Model.apply` is the only place where a log entry changes a model. It is a function of (model, entry), so a model
restored from any published version and taken through the rest of the log is, bit for bit, the model of the log. That
holds for entries that make a ranker fail, too: they are set aside, by number and with a reason, and change nothing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pairrank import rankers
from pairrank.errors import FileFormatError
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import Aside, Entry, RankerRow, Snapshot
from pairrank.types import BoolArray, Impression

logger = logging.getLogger("pairrank.model")

BATCH = 500


class Log:
    """One ranker's log and kept versions, as `Model.apply` reads them again when it must.

    met : versions that are already in memory; they are taken before stored ones.
    """

    def __init__(self, store: SqlStore, ranker_id: int) -> None:
        self._store, self._ranker_id = store, ranker_id
        self.met: dict[int, Snapshot] = {}

    def version(self, version: int) -> Snapshot:
        """The version that a rollback names."""
        snapshot = self.met.get(version) or self._store.snapshot(self._ranker_id, version)
        if snapshot is None:
            raise FileFormatError(f"version {version}, which the log goes back to, is missing")
        return snapshot

    def entries(self, after: int, upto: int) -> Iterator[Entry]:
        """The entries after number ``after``, up to and with number ``upto``."""
        while after < upto:
            entries = self._store.log(self._ranker_id, after, min(BATCH, upto - after))
            if not entries:
                raise FileFormatError(f"the log ends at entry {after}; the model has seen {upto}")
            yield from entries
            after = entries[-1].seq

    def learned(self, upto: int) -> Iterator[tuple[Impression, BoolArray]]:
        """What was fed back up to entry ``upto``, newest first, as far back as the log goes."""
        while upto > 0 and (entries := self._store.log_before(self._ranker_id, upto, BATCH)):
            yield from (_shown(entry) for entry in entries if entry.kind == "feedback")
            upto = entries[-1].seq - 1


@dataclass(slots=True)
class Model:
    """A ranker and where in its log it stands.

    version : the last entry that changed it.
    applied : the last entry that was looked at.
    learned, skipped : entries that taught it something, and entries that did not.
    aside : entries that it refused or failed on, since `snapshot` was last taken.
    """

    ranker: rankers.Ranker
    version: int
    applied: int
    learned: int
    skipped: int
    aside: list[Aside] = field(default_factory=list)

    @classmethod
    def restore(cls, snapshot: Snapshot, applied: int | None = None) -> Model:
        """The model of a snapshot; one that does not have its digest is refused."""
        ranker = rankers.from_bytes(snapshot.body, source=f"version {snapshot.version}")
        # Versions that were published before an upgrade have the digest of their bytes as they were then.
        if snapshot.digest not in (ranker.digest(), hashlib.sha256(snapshot.body).hexdigest()):
            raise FileFormatError(f"version {snapshot.version} is damaged: its digest does not match")
        at = snapshot.version if applied is None else applied
        return cls(ranker, snapshot.version, at, snapshot.learned, snapshot.skipped)

    def snapshot(self, now: float) -> Snapshot:
        """The model as it is now, without the lists that it keeps: the log has them."""
        body = self.ranker.to_bytes(history=False)
        digest = hashlib.sha256(body).hexdigest()
        return Snapshot(self.version, self.learned, self.skipped, digest, now, False, body)

    def apply(self, entry: Entry, log: Log) -> None:
        """Take one entry; ``log`` finds the version that a rollback names."""
        if entry.seq != self.applied + 1:
            raise FileFormatError(f"the log goes from entry {self.applied} to {entry.seq}; it is damaged")
        if entry.kind == "rollback":
            old = Model.restore(log.version(int(entry.target or 0)))
            self.ranker, self.learned, self.version = old.ranker, old.learned, entry.seq
        elif entry.kind == "feedback" and self._take(entry, log):
            self.learned += 1
            self.version = entry.seq
        self.applied = entry.seq

    def read_back(self, log: Log) -> bool:
        """Read the lists back that a published version leaves out; whether all of them were there."""
        return self.ranker.recall(log.learned(self.applied))

    def _take(self, entry: Entry, log: Log) -> bool:
        """Whether the entry taught the ranker something."""
        self.read_back(log)
        try:
            learned = self.ranker.learn(*_shown(entry))
        except (FileFormatError, MemoryError, OSError):  # not decided by (model, entry) alone
            raise
        except Exception as problem:  # the ranker is as it was: `learn` does all of its work or none
            learned = False
            reason = f"{type(problem).__name__}: {' '.join(str(problem).split())}"[:200]
            self.aside.append(Aside(entry.seq, reason))
            logger.warning("entry %d is set aside: %s", entry.seq, reason)
        self.skipped += not learned
        return learned


def _shown(entry: Entry) -> tuple[Impression, BoolArray]:
    """The impression of a log entry and its clicks."""
    if entry.body is None or entry.clicks is None:
        raise FileFormatError(f"entry {entry.seq} of the log has no impression; it is damaged")
    return Impression.from_bytes(entry.body), np.frombuffer(entry.clicks, dtype=np.bool_)


def load_version(store: SqlStore, row: RankerRow, version: int, applied: int | None = None) -> Model:
    """A version of a ranker's model that must be there."""
    snapshot = store.snapshot(row.id, version)
    if snapshot is None:
        raise FileFormatError(f"version {version} of ranker {row.name!r} is missing")
    return Model.restore(snapshot, applied)


def load_head(store: SqlStore, row: RankerRow) -> Model:
    """The published model of a ranker."""
    return load_version(store, row, row.version, row.applied)
