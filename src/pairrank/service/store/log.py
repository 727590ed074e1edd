"""The log as the learner reads it, and the models that it publishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pairrank import rankers
from pairrank.service.store.database import Row, marks
from pairrank.service.store.impressions import ImpressionTables
from pairrank.service.store.launches import Move
from pairrank.service.store.values import Aside, Entry, RankerRow, Snapshot

HOUR = 3600.0
NEWEST_KEPT = 10
DROPPED = 10_000  # entries at a time
_ENTRY = ", ".join(Entry._fields)
_VERSION = "version, learned, skipped, digest, created, kept"


class SqlStore(ImpressionTables):
    """A whole store over one database connection."""

    def log(self, ranker_id: int, after: int, limit: int) -> list[Entry]:
        """The entries that follow number ``after``, in order."""
        return self._entries("seq > ? ORDER BY seq", ranker_id, after, limit)

    def log_before(self, ranker_id: int, upto: int, limit: int) -> list[Entry]:
        """The entries up to number ``upto``, newest first."""
        return self._entries("seq <= ? ORDER BY seq DESC", ranker_id, upto, limit)

    def _entries(self, which: str, *values: int) -> list[Entry]:
        rows = self.database.named(f"SELECT {_ENTRY} FROM log WHERE ranker_id = ? AND {which} LIMIT ?", values)
        return [Entry(**row) for row in rows]

    def listed(self, ranker_id: int, upto: int) -> list[Row]:
        """For each logged list up to entry ``upto``: its entry, the version that served it, whether it was more than
        the ranker's own list, and whether its candidates are there."""
        return self.database.all(
            "SELECT seq, version, trial IS NOT NULL, candidates IS NOT NULL FROM log "
            "WHERE ranker_id = ? AND seq <= ? AND body IS NOT NULL ORDER BY seq",
            (ranker_id, upto),
        )

    def with_candidates(self, ranker_id: int, entries: Sequence[int]) -> list[Row]:
        """Clicks, impression and candidates of some entries, in order."""
        sql = f"SELECT clicks, body, candidates FROM log WHERE ranker_id = ? AND seq IN {marks(entries)} ORDER BY seq"
        return self.database.all(sql, (ranker_id, *entries))

    def rollback_targets(self, ranker_id: int) -> set[int]:
        """The versions that entries of the log go back to."""
        rows = self.database.all("SELECT target FROM log WHERE ranker_id = ? AND kind = 'rollback'", (ranker_id,))
        return {int(row[0]) for row in rows}

    def snapshot(self, ranker_id: int, version: int) -> Snapshot | None:
        found = self._snapshots(f"{_VERSION}, body", "AND version = ?", ranker_id, version)
        return found[0] if found else None

    def versions(self, ranker_id: int) -> list[Snapshot]:
        """The versions that are kept, newest first, without their bodies."""
        return self._snapshots(_VERSION, "ORDER BY version DESC", ranker_id)

    def _snapshots(self, columns: str, which: str, *values: int) -> list[Snapshot]:
        rows = self.database.named(f"SELECT {columns} FROM snapshots WHERE ranker_id = ? {which}", values)
        return [Snapshot(**row | {"kept": bool(row["kept"])}) for row in rows]

    def publish(
        self,
        ranker_id: int,
        snapshot: Snapshot,
        applied: int,
        aside: Sequence[Aside] = (),
        trials: Mapping[int, str] | None = None,
        move: Move | None = None,
    ) -> None:
        """Make a model the head, if the ranker is still there and nobody has gone further; with what was set aside
        since the last one, the states of experiments that have changed, and where the launch has come to."""
        reached = (snapshot.version, applied, snapshot.learned, snapshot.skipped, snapshot.digest, snapshot.created)
        with self.database.transaction(flush=False):
            moved = self.database.all(
                "UPDATE heads SET version = ?, applied = ?, learned = ?, skipped = ?, digest = ?, updated = ?, "
                "set_aside = set_aside + ?, stopped = NULL WHERE ranker_id = ? AND applied < ? RETURNING version",
                (*reached, len(aside), ranker_id, applied),
            )
            if not moved:
                return
            row = {"ranker_id": ranker_id, **snapshot._asdict(), "kept": 0}
            self.database.insert("snapshots", row, "ON CONFLICT (ranker_id, version) DO NOTHING")
            self.database.many(
                "INSERT INTO set_aside (ranker_id, seq, reason) VALUES (?, ?, ?)",
                [(ranker_id, item.log_entry, item.reason) for item in aside],
            )
            self._put_states(ranker_id, trials or {})
            if move is not None:
                self._move_launch(ranker_id, move, snapshot.created)

    def set_aside(self, ranker_id: int, after: int = 0) -> list[Aside]:
        """The entries after number ``after`` that were set aside, in order."""
        rows = self.database.all(
            "SELECT seq, reason FROM set_aside WHERE ranker_id = ? AND seq > ? ORDER BY seq", (ranker_id, after)
        )
        return [Aside(seq, reason) for seq, reason in rows]

    def stop(self, ranker_id: int, reason: str) -> None:
        """Note why a ranker's log is not followed; the next model that is published takes the note away."""
        with self.database.transaction(flush=False):
            self.database.all("UPDATE heads SET stopped = ? WHERE ranker_id = ?", (reason, ranker_id))

    def thin(self, ranker_id: int, now: float) -> None:
        """Drop versions that nobody needs: see `surplus`."""
        old = surplus([(s.version, s.created) for s in self.versions(ranker_id) if not s.kept], now)
        if not old:
            return
        with self.database.transaction(flush=False):
            head = self.database.one("SELECT version FROM heads WHERE ranker_id = ?", (ranker_id,))
            self.database.many(
                "DELETE FROM snapshots WHERE ranker_id = ? AND version = ? AND kept = 0",
                [(ranker_id, version) for version in old if head and version != head[0]],
            )

    def count_open(self, ranker_id: int) -> int:
        """Count the waiting impressions and note the number for the workers."""
        row = self.database.one(
            "SELECT open_count, (SELECT count(*) FROM impressions i WHERE i.ranker_id = h.ranker_id) FROM heads h "
            "WHERE ranker_id = ?",
            (ranker_id,),
        )
        known, count = row or (0, 0)
        if count != known:
            with self.database.transaction(flush=False):
                self.database.all("UPDATE heads SET open_count = ? WHERE ranker_id = ?", (count, ranker_id))
        return int(count)

    def oldest_pending(self, ranker_id: int, applied: int) -> float | None:
        """When the oldest entry that is not yet applied was logged."""
        row = self.database.one("SELECT created FROM log WHERE ranker_id = ? AND seq = ?", (ranker_id, applied + 1))
        return float(row[0]) if row else None

    def upgrade_models(self, now: float) -> None:
        """Let the log of each ranker begin at the model that an older program left, in today's form.

        That program learned in another way, so its log gives another model today. What it learned stays, and `replay`
        begins there; its log before that stays, too.
        """
        with self.database.transaction():
            self.database.all(self.database.BE_PATIENT)
            for row in self.rankers():
                old = self.snapshot(row.id, row.version)
                if old is not None:
                    ranker = rankers.from_bytes(old.body, source=f"version {row.version} of {row.name!r}")
                    self.database.all(
                        "UPDATE snapshots SET kept = 1, body = ?, digest = ? WHERE ranker_id = ? AND version = ?",
                        (ranker.to_bytes(), ranker.digest(), row.id, row.version),
                    )
                    self.database.all("UPDATE heads SET digest = ? WHERE ranker_id = ?", (ranker.digest(), row.id))
                    options = {name: v for name, v in row.config.options.items() if name != "estimator"}
                    if options.get("pairs") == "mirrored":
                        options["pairs"] = ranker.settings["pairs"]
                    self.database.all(
                        "UPDATE rankers SET base = ?, config = ? WHERE id = ?",
                        (row.version, replace(row.config, options=options).to_json(), row.id),
                    )
                    self._record(now, "upgrade", "upgrade", row.name, f'{{"base": {row.version}}}')

    def compact(self, ranker: RankerRow, head: rankers.Ranker, now: float, actor: str) -> int:
        """Make the model's head the new beginning of the truth and drop the log before it; entries dropped.

        ``head`` has the lists that it keeps, which the log will no longer have. Entries go some at a time, so that
        nobody waits; what an interrupted call leaves is dropped by the next one. Nothing is done for a ranker that was
        deleted, compacted or rolled back after ``head`` was read.
        """
        digest = head.digest()
        whole = {name: getattr(ranker, name) for name in ("version", "learned", "skipped")}
        whole |= {"ranker_id": ranker.id, "created": ranker.updated, "kept": 1}
        whole |= {"body": head.to_bytes(), "digest": digest}
        with self.database.transaction():
            # An older program published the digest of its own bytes. Whoever publishes takes this row first, too.
            published = "UPDATE heads SET digest = CASE version WHEN ? THEN ? ELSE digest END WHERE ranker_id = ?"
            self.database.all(published, (ranker.version, digest, ranker.id))
            found = self.find(ranker.name, lock=True)
            later = "SELECT 1 FROM log WHERE ranker_id = ? AND seq > ? AND kind = 'rollback'"
            if found is None or found.id != ranker.id or found.base > ranker.version:
                return 0
            if self.database.all(later, (ranker.id, ranker.version)):  # a learner may have read lists of before
                return 0
            shown = sorted({found.served_version, *self.arm_versions(ranker)})
            self._rebase_states(ranker.id)
            # A learner that has gone on meanwhile may have dropped this version: see `thin`.
            kept = "kept = 1, body = excluded.body, digest = excluded.digest"
            self.database.insert("snapshots", whole, f"ON CONFLICT (ranker_id, version) DO UPDATE SET {kept}")
            self.database.all(
                f"DELETE FROM snapshots WHERE ranker_id = ? AND version < ? AND version NOT IN {marks(shown)}",
                (ranker.id, ranker.version, *shown),
            )
            # Who has counted in a split matters as long as lists of it may come: entries say it for themselves.
            self.database.all(
                "DELETE FROM clients "
                "WHERE experiment_id IN (SELECT id FROM experiments WHERE ranker_id = ? AND ended < ?) "
                "AND experiment_id NOT IN (SELECT experiment_id FROM impressions WHERE experiment_id IS NOT NULL)",
                (ranker.id, now - HOUR),
            )
            self.database.all("UPDATE rankers SET base = ? WHERE id = ?", (ranker.version, ranker.id))
            self._record(now, actor, "compact", ranker.name, f'{{"base": {ranker.version}}}')
        first = self.database.all("SELECT min(seq) FROM log WHERE ranker_id = ?", (ranker.id,))[0][0]
        gone = 0
        for start in range(first or ranker.version + 1, ranker.version + 1, DROPPED):
            until = min(start + DROPPED - 1, ranker.version)
            with self.database.transaction(flush=False):
                dropped = "DELETE FROM log WHERE ranker_id = ? AND seq BETWEEN ? AND ? RETURNING seq"
                gone += len(self.database.all(dropped, (ranker.id, start, until)))
        return gone


def surplus(versions: list[tuple[int, float]], now: float) -> list[int]:
    """Versions to drop of (version, created): kept are the newest ten, then one a minute for an hour, one an hour
    for a day, one a day for a month."""
    drop: list[int] = []
    taken: set[tuple[float, float]] = set()
    for place, (version, created) in enumerate(sorted(versions, reverse=True)):
        age = now - created
        width = 60.0 if age < HOUR else HOUR if age < 24 * HOUR else 24 * HOUR
        slot = (width, created // width)
        if place >= NEWEST_KEPT and (slot in taken or age > 720 * HOUR):
            drop.append(version)
        taken.add(slot)
    return drop
