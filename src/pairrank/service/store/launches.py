"""Launches: what users have decided, what the learner has made of it, and what workers need to know.

A decision is an entry of the ranker's log, so that the state of a launch is a function of the log. The row in
``launches`` is what acts: mode and share, brought up by the learner.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pairrank.errors import InputError
from pairrank.service.store.experiments import ExperimentTables

# Workers use a share no longer than this after it was worked out, which is done four times a second.
STALE_SECONDS = 5.0


class Flight(NamedTuple):
    """Lists of a guarded launch that were served and have not been counted.

    waiting, at_stake : how many have not come back, and the sum of their shares. lag : entries of the log that have not
        been applied. recent : lists served in the last `STALE_SECONDS`: about as many may get the share of now.
    """

    waiting: int
    at_stake: float
    lag: int
    recent: int


class Move(NamedTuple):
    """Where the log has brought a launch: the mode of epoch ``epoch``, and the last version that did no harm."""

    epoch: int
    mode: str
    good: int
    detail: Mapping[str, Any]


class LaunchTables(ExperimentTables):
    """Launches of rankers."""

    def launch(self, name: str, wanted: Mapping[str, Any], now: float, actor: str) -> bool:
        """Begin a mode; False when it was decided like that before and still holds. Counting begins anew."""
        text = json.dumps(dict(wanted), sort_keys=True)
        with self.database.transaction():
            found = self.ranker(name, lock=True)
            if wanted["mode"] != "free" and not found.config.make().any_list:
                raise InputError(
                    f"ranker {name!r} ({found.config.ranker}) cannot learn from lists that it did not draw alone, so "
                    "it cannot be launched from the present order"
                )
            if found.launch is not None and found.launch.decided == text and found.launch.mode != "frozen":
                return False
            seq = self._log_act(found, "launch", now, version=found.served_version, trial=text)
            decided = {"mode": wanted["mode"], "epoch": seq, "most_lost": wanted["most_lost"], "decided": text}
            anew = ", ".join(f"{name} = excluded.{name}" for name in decided)
            self.database.insert(
                "launches",
                {"ranker_id": found.id, **decided},
                f"ON CONFLICT (ranker_id) DO UPDATE SET {anew}, share = 0",
            )
            self._record(now, actor, "launch", name, text)
            return True

    def _move_launch(self, ranker_id: int, move: Move, now: float) -> None:
        """Let a mode that the log has come to act; a breach freezes the ranker and pins the last good version."""
        # The ranker's lock first, as `launch` takes it.
        row = self.database.one("UPDATE rankers SET log_seq = log_seq WHERE id = ? RETURNING name", (ranker_id,))
        changed = self.database.all(
            "UPDATE launches SET mode = ?, share = 0, breaches = breaches + ? "
            "WHERE ranker_id = ? AND epoch = ? AND mode <> ? RETURNING epoch",
            (move.mode, int(move.mode == "frozen"), ranker_id, move.epoch, move.mode),
        )
        if not changed or row is None:
            return
        detail: dict[str, Any] = {"mode": move.mode, **move.detail}
        if move.mode == "frozen":
            kept = self.database.one(
                "SELECT max(version) FROM snapshots WHERE ranker_id = ? AND version <= ?", (ranker_id, move.good)
            )
            version = None if kept is None else kept[0]
            if version is not None:
                self.database.all(
                    "UPDATE snapshots SET kept = 1 WHERE ranker_id = ? AND version = ?", (ranker_id, version)
                )
            self.database.all("UPDATE rankers SET frozen = 1, pinned = ? WHERE id = ?", (version, ranker_id))
            detail["pinned"] = version
        self._record(now, "learner", "breach" if move.mode == "frozen" else "launch", row[0], json.dumps(detail))

    def flight(self, ranker_id: int, applied: int, now: float) -> Flight:
        """What is on its way, of one moment; asked four times a second, so an index has all that it needs."""
        row = self.database.one(
            "SELECT count(i.share), coalesce(sum(i.share), 0), max(r.log_seq), "
            "coalesce(sum(CASE WHEN i.created > ? THEN 1 ELSE 0 END), 0) FROM rankers r "
            "LEFT JOIN impressions i ON i.ranker_id = r.id AND i.share IS NOT NULL WHERE r.id = ?",
            (now - STALE_SECONDS, ranker_id),
        )
        waiting, at_stake, log_seq, recent = row or (0, 0.0, None, 0)
        return Flight(int(waiting), float(at_stake), int(log_seq or applied) - applied, int(recent))

    def put_share(self, ranker_id: int, epoch: int, share: float, now: float) -> None:
        """The probability with which workers show ours, until they are told another."""
        with self.database.transaction(flush=False):
            self.database.all(
                "UPDATE launches SET share = ?, looked = ? WHERE ranker_id = ? AND epoch = ?",
                (share, now, ranker_id, epoch),
            )
