"""Rankers, their limits and versions, keys and the audit, in SQL that both databases speak."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pairrank.errors import InputError, UnknownNameError
from pairrank.rankers import Ranker
from pairrank.service.store.database import Database
from pairrank.service.store.values import (
    Aside,
    Config,
    Head,
    Key,
    LaunchHead,
    Limits,
    RankerExistsError,
    RankerRow,
    VersionError,
)
from pairrank.state import state_of

_LAUNCH = ", ".join(f"c.{name} AS launch_{name}" for name in LaunchHead._fields)
# The columns have the names of `RankerRow`'s fields.
_RANKER = f"""
    SELECT r.id, r.name, r.config, r.limits, r.secret, r.frozen, r.pinned, r.next_number, r.log_seq, r.base,
           r.feedback_count, r.created, h.version, h.applied, h.learned, h.skipped, h.digest, h.updated, h.open_count,
           h.set_aside, h.stopped, a.seq AS aside_seq, a.reason AS aside_reason, {_LAUNCH}
    FROM rankers r JOIN heads h ON h.ranker_id = r.id LEFT JOIN launches c ON c.ranker_id = r.id
    LEFT JOIN set_aside a ON a.ranker_id = r.id AND a.seq = (SELECT max(seq) FROM set_aside WHERE ranker_id = r.id)
"""


class RankerTables:
    """What is done to rankers as wholes. Every act writes its line into the audit, in the same transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def close(self) -> None:
        self.database.close()

    def create(
        self, name: str, config: Config, limits: Limits, now: float, actor: str, *, start: Ranker | None = None
    ) -> tuple[RankerRow, bool]:
        """The ranker of this name and whether it is new; another configuration under the name is refused.

        ``start`` is a model of that configuration that has learned elsewhere; impressions are numbered on from its own.
        """
        empty = start or replace(config, prior=None).make()  # in no time: neither bytes nor a prior's matrices are made
        size = sum(np.asarray(value).nbytes for value in state_of(empty).values())
        if size > self.database.MOST_BYTES:
            most = f"this store takes {self.database.MOST_BYTES:,} for one: use fewer features"
            raise InputError(f"a model of {config.n_features} features is {size:,} bytes; {most}")
        model = start or config.make()
        body, digest = model.to_bytes(), model.digest()
        with self.database.transaction():
            made = {"name": name, "config": config.to_json(), "limits": limits.to_json(), "created": now}
            numbered = {"secret": secrets.token_hex(16), "next_number": model.n_ranked}
            new = "ON CONFLICT (name) DO NOTHING RETURNING id"  # somebody else may be making it at this moment
            ids = [] if self.find(name) else self.database.insert("rankers", made | numbered, new)
            if not ids:
                found = self.ranker(name)
                if found.config != Config.from_json(config.to_json()):
                    raise RankerExistsError(
                        f"ranker {name!r} exists with another configuration, and configurations are frozen: "
                        "choose another name, or delete it first"
                    )
                return found, False
            ((ranker_id,),) = ids
            head = {"ranker_id": ranker_id, "version": 0, "learned": 0, "skipped": 0, "digest": digest}
            self.database.insert("snapshots", head | {"created": now, "kept": 1, "body": body})
            self.database.insert("heads", head | {"applied": 0, "updated": now})
            self._record(now, actor, "create", name, config.to_json())
            return self.ranker(name), True

    def ranker(self, name: str, *, lock: bool = False) -> RankerRow:
        """The ranker of this name, which must be there; ``lock`` as in `find`."""
        found = self.find(name, lock=lock)
        if found is None:
            raise UnknownNameError(f"no ranker is called {name[:70]!r}")
        return found

    def find(self, name: str, *, lock: bool = False) -> RankerRow | None:
        """The ranker of this name, or None; ``lock``: nobody else changes it before the transaction ends."""
        if lock:  # so that the log's numbers are given out in the order of commits
            self.database.all("UPDATE rankers SET log_seq = log_seq WHERE name = ?", (name,))
        rows = self.database.named(f"{_RANKER} WHERE r.name = ?", (name,))
        return _row(rows[0]) if rows else None

    def rankers(self, among: Collection[int] | None = None) -> list[RankerRow]:
        return [_row(row) for row in self.database.named(f"{_RANKER} WHERE {_of(among)} ORDER BY r.name")]

    def chosen(self, name: str | None) -> list[RankerRow]:
        """The ranker of this name, which must be there; without a name all rankers."""
        return self.rankers() if name is None else [self.ranker(name)]

    def ranker_by_id(self, ranker_id: int) -> RankerRow | None:
        rows = self.database.named(f"{_RANKER} WHERE r.id = ?", (ranker_id,))
        return _row(rows[0]) if rows else None

    def set_limits(self, name: str, values: Mapping[str, Any], now: float, actor: str) -> None:
        """Change some limits; impressions served before keep the times they were served with."""
        with self.database.transaction():
            limits = self.ranker(name, lock=True).limits.changed(values).to_json()
            self._set(name, "limits", limits)
            self._record(now, actor, "limits", name, limits)

    def set_frozen(self, name: str, frozen: bool, now: float, actor: str) -> None:
        """Stop or resume learning; feedback that comes while frozen is logged and never learned."""
        with self.database.transaction():
            self._set(name, "frozen", int(frozen))
            self._record(now, actor, "freeze" if frozen else "unfreeze", name, "{}")

    def pin(self, name: str, version: int | None, now: float, actor: str) -> None:
        """Serve one kept version while learning goes on; None serves the newest again."""
        with self.database.transaction():
            found = self._set(name, "pinned", version)
            if version is not None:
                self._keep(found, version)
            self._record(now, actor, "pin", name, json.dumps({"version": version}))

    def roll_back(self, name: str, version: int, now: float, actor: str) -> int:
        """Log an order to go on learning from a kept version; the answer is its number in the log."""
        with self.database.transaction():
            found = self.ranker(name, lock=True)
            self._keep(found, version)
            seq = self._log_act(found, "rollback", now, target=version)
            self._record(now, actor, "rollback", name, json.dumps({"version": version, "seq": seq}))
            return seq

    def epoch(self) -> int:
        """A number that grows whenever rankers, limits or keys change."""
        row = self.database.one("SELECT value FROM meta WHERE name = 'epoch'")
        return int(row[0]) if row else 0

    def ranker_ids(self) -> list[int]:
        return [int(row[0]) for row in self.database.all("SELECT id FROM rankers")]

    def due(self, among: Collection[int] | None = None) -> dict[int, Head]:
        """The heads of rankers that a learner has something to do for, of all or of some."""
        return self.heads(among, "(r.log_seq > h.applied OR c.mode = 'guarded')")

    def heads(self, among: Collection[int] | None = None, where: str = "true") -> dict[int, Head]:
        """Where each ranker stands, of all or of some, by its id."""
        rows = self.database.named(
            f"SELECT r.id, h.version, h.applied, r.log_seq, h.open_count, h.stopped, {_LAUNCH} FROM rankers r "
            f"JOIN heads h ON h.ranker_id = r.id LEFT JOIN launches c ON c.ranker_id = r.id "
            f"WHERE {where} AND {_of(among)}"
        )
        for row in rows:
            row["stopped"], row["launch"] = row["stopped"] is not None, _launch(row)
        return {row.pop("id"): Head(**row) for row in rows}

    # Keys and the audit.

    def access_keys(self) -> list[Key]:
        rows = self.database.all("SELECT name, roles, digest, created FROM keys ORDER BY name")
        return [Key(name, frozenset(roles.split(",")), digest, at) for name, roles, digest, at in rows]

    def put_key(self, key: Key, actor: str) -> None:
        """Add a key, or replace the one of its name."""
        with self.database.transaction():
            self.database.insert(
                "keys",
                key._asdict() | {"roles": ",".join(sorted(key.roles))},
                "ON CONFLICT (name) DO UPDATE SET roles = excluded.roles, digest = excluded.digest, "
                "created = excluded.created",
            )
            self._record(key.created, actor, "key", key.name, json.dumps({"roles": sorted(key.roles)}))

    def drop_key(self, name: str, now: float, actor: str) -> bool:
        """Revoke a key; False when there was none."""
        with self.database.transaction():
            gone = self.database.all("DELETE FROM keys WHERE name = ? RETURNING name", (name,))
            if gone:
                self._record(now, actor, "revoke", name, "{}")
            return bool(gone)

    def audit(self, limit: int = 100) -> list[dict[str, Any]]:
        """The newest administrative acts, newest first."""
        rows = self.database.named(
            "SELECT created AS time, actor, act, subject, detail FROM audit ORDER BY id DESC LIMIT ?", (limit,)
        )
        return [row | {"detail": json.loads(row["detail"])} for row in rows]

    def _record(self, now: float, actor: str, act: str, subject: str, detail: str) -> None:
        done = {"created": now, "actor": actor, "act": act, "subject": subject, "detail": detail}
        self.database.insert("audit", done)
        self.database.bump()

    def _log_act(self, ranker: RankerRow, kind: str, now: float, **columns: Any) -> int:
        """Log an entry that is no list, of a ranker that is locked; its number."""
        seq = ranker.log_seq + 1
        self.database.insert("log", {"ranker_id": ranker.id, "seq": seq, "kind": kind, "created": now, **columns})
        self.database.all("UPDATE rankers SET log_seq = ? WHERE id = ?", (seq, ranker.id))
        return seq

    def _set(self, name: str, column: str, value: Any) -> RankerRow:
        """Change one column of a ranker; the ranker as it was."""
        found = self.ranker(name)
        self.database.all(f"UPDATE rankers SET {column} = ? WHERE id = ?", (value, found.id))
        return found

    def _keep(self, ranker: RankerRow, version: int) -> None:
        marked = self.database.all(
            "UPDATE snapshots SET kept = 1 WHERE ranker_id = ? AND version = ? RETURNING version", (ranker.id, version)
        )
        if not marked:
            raise VersionError(f"version {version} of ranker {ranker.name!r} is not kept: list its versions")


def _of(among: Collection[int] | None) -> str:
    """The condition that a ranker is one of some, or any."""
    return "true" if among is None else f"r.id IN ({', '.join(map(str, among)) or 'NULL'})"


def _launch(row: dict[str, Any]) -> LaunchHead | None:
    """What a row says of a launch; its columns are taken out."""
    values = [row.pop(f"launch_{name}") for name in LaunchHead._fields]
    return None if values[0] is None else LaunchHead(*values)


def _row(row: dict[str, Any]) -> RankerRow:
    seq, reason = row.pop("aside_seq"), row.pop("aside_reason")
    row["config"], row["limits"] = Config.from_json(row["config"]), Limits(**json.loads(row["limits"]))
    row["frozen"], row["launch"] = bool(row["frozen"]), _launch(row)
    return RankerRow(**row, last_set_aside=None if seq is None else Aside(seq, reason))
