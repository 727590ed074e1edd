"""Impressions from the list that was shown to the entry in the log: the state machine, in transactions.

::

    open ──feedback──────────────▶ logged ──learner──▶ learned
      │ ╲                            ▲
      │  ╲──event──▶ collecting ─────┤  the window closes, or whole feedback comes
      │
      └──retention passes──▶ expired

An impression that waits is a row of ``impressions`` (``collecting`` = 1 once an event has come). Logging it moves the
row into ``log``, where (ranker, number) is unique: the database itself refuses a second time. An id is that of a row
when both number and token are the row's. The token proves by itself that the id was served (`proves`), so one that is
in neither table has expired.

Lists whose value is compared (a split's, a guarded launch's) are ``held``: they are collecting from the start, whole
feedback waits in the row, and all are logged when their window closes, in the order in which they were served, with or
without a click. Logged when a click comes, those that were liked would count sooner.
"""

from __future__ import annotations

import hmac
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pairrank.service.store.database import marks
from pairrank.service.store.launches import LaunchTables
from pairrank.service.store.values import Event, Feedback, ImpressionRow, Served, Status, Verdict, proves


class _Waiting(NamedTuple):
    """The columns of a row that decide what becomes of it."""

    number: int
    token: str
    closes: float
    expires: float
    ids: list[str]
    held: int
    collecting: int
    clicks: bytes | None  # whole feedback that waits for the window
    experiment_id: int
    client: int | None  # of a split
    trial: str | None

    @property
    def above(self) -> int:
        """How many documents earlier pages of the list have shown."""
        return 0 if self.trial is None else len(json.loads(self.trial).get("before", ()))


class _LockedRanker(NamedTuple):
    """One ranker and the impressions that a batch names, read under the ranker's lock."""

    log_seq: int
    frozen: int
    secret: str
    waiting: dict[int, _Waiting]
    logged: dict[int, str]  # tokens by number

    def find(self, number: int, token: str, now: float) -> _Waiting | Status:
        """The impression, or why there is none."""
        waiting = self.waiting.get(number)
        if waiting is not None and _equal(token, waiting.token):
            return Status.EXPIRED if waiting.expires <= now else waiting
        if number in self.logged and _equal(token, self.logged[number]):
            return Status.DUPLICATE
        return Status.EXPIRED if proves(self.secret, number, token) else Status.UNKNOWN


class ImpressionTables(LaunchTables):
    """Serving, feedback, events, windows and expiry."""

    def allocate(self, ranker_id: int, count: int) -> int:
        """The first of ``count`` impression numbers that nobody else will get, not even after a power cut."""
        with self.database.transaction():
            row = self.database.one(
                "UPDATE rankers SET next_number = next_number + ? WHERE id = ? RETURNING next_number",
                (count, ranker_id),
            )
            return int(row[0]) - count if row else -1

    def serve(self, impressions: Sequence[Served]) -> None:
        """Keep impressions until they are logged or expire; those of rankers deleted meanwhile are dropped."""
        with self.database.transaction(flush=False):
            ids = sorted({item.ranker_id for item in impressions})
            living = {row[0] for row in self.database.all(f"SELECT id FROM rankers WHERE id IN {marks(ids)}", ids)}
            rows = [(*item, item.held) for item in impressions if item.ranker_id in living]
            columns = (*Served._fields, "collecting")
            self.database.many(f"INSERT INTO impressions ({', '.join(columns)}) VALUES {marks(columns)}", rows)

    def feedback(self, items: Sequence[Feedback], now: float) -> list[Verdict]:
        """Log whole feedback, each impression once; an answer for each item, in order, once all is on disk."""
        verdicts: list[Verdict] = [Verdict(Status.UNKNOWN)] * len(items)
        with self.database.transaction():
            for ranker_id, locked, places in self._locked([(item.ranker_id, item.number) for item in items]):
                accepted: dict[int, bytes] = {}
                for place in places:
                    verdict = _judge(locked, items[place], now)
                    if items[place].number in accepted and verdict.status in (Status.ACCEPTED, Status.FOREIGN):
                        verdict = Verdict(Status.DUPLICATE)
                    elif verdict.status is Status.ACCEPTED:
                        accepted[items[place].number] = _mask(verdict.shown, verdict.positions)
                    verdicts[place] = verdict
                held = [number for number in accepted if locked.waiting[number].held]
                self.database.many(
                    "UPDATE impressions SET clicks = ? WHERE ranker_id = ? AND number = ?",
                    [(accepted.pop(number), ranker_id, number) for number in held],
                )
                self._append(ranker_id, locked, accepted, now)
        return verdicts

    def events(self, items: Sequence[Event], now: float) -> list[Verdict]:
        """Keep clicks and other signals until an impression's window closes; an answer for each once all is on disk."""
        verdicts: list[Verdict] = [Verdict(Status.UNKNOWN)] * len(items)
        with self.database.transaction():
            for ranker_id, locked, places in self._locked([(item.ranker_id, item.number) for item in items]):
                for place in places:
                    verdicts[place] = self._collect(ranker_id, locked, items[place], now)
        return verdicts

    def _locked(self, keys: Sequence[Sequence[int]]) -> Iterator[tuple[int, _LockedRanker, list[int]]]:
        """Each ranker that is there, locked, and the places of its ``keys`` (ranker, impression); in one order, so that
        locks never cross."""
        places: dict[int, list[int]] = defaultdict(list)
        for place, (ranker_id, _) in enumerate(keys):
            places[ranker_id].append(place)
        for ranker_id in sorted(places):
            locked = self._lock(ranker_id, [keys[place][1] for place in places[ranker_id]])
            if locked is not None:
                yield ranker_id, locked, places[ranker_id]

    def _collect(self, ranker_id: int, locked: _LockedRanker, item: Event, now: float) -> Verdict:
        found = locked.find(item.number, item.token, now)
        if isinstance(found, Status):
            return Verdict(found)
        if item.document_id is not None and item.document_id not in found.ids:
            return Verdict(Status.FOREIGN)
        if found.closes <= now:
            return Verdict(Status.LATE)
        if found.clicks is not None and item.kind == "click":  # whole feedback has come
            return Verdict(Status.DUPLICATE)
        place = -1 if item.document_id is None else found.ids.index(item.document_id)
        one = (ranker_id, item.number, item.kind, place)
        new = self.database.all(
            "INSERT INTO events (ranker_id, number, kind, position, event_id, created) SELECT ?, ?, ?, ?, ?, ? "
            # What came before under another id says nothing new: so a list has a row a kind and document at most.
            "WHERE NOT EXISTS (SELECT 1 FROM events WHERE ranker_id = ? AND number = ? AND kind = ? AND position = ?) "
            "ON CONFLICT (ranker_id, number, event_id) DO NOTHING RETURNING position",
            (*one, item.event_id, now, *one),
        )
        if not new:
            return Verdict(Status.DUPLICATE)
        self.database.all(
            "UPDATE impressions SET collecting = 1 WHERE ranker_id = ? AND number = ? AND collecting = 0",
            (ranker_id, item.number),
        )
        return Verdict(Status.ACCEPTED, positions=(int(new[0][0]),), shown=len(found.ids))

    def close_windows(self, now: float) -> int:
        """Log the impressions that collect and whose window is over, in the order of that; how many there were."""
        due = self.database.all(
            "SELECT ranker_id, number FROM impressions WHERE collecting = 1 AND closes <= ? "
            "ORDER BY closes, number LIMIT 500",
            (now,),
        )
        if not due:
            return 0
        closed = 0
        with self.database.transaction():
            for ranker_id, locked, places in self._locked(due):
                waiting = [number for number in (due[place][1] for place in places) if number in locked.waiting]
                came = self._came(ranker_id, waiting)
                masks = {n: _mask(len(locked.waiting[n].ids), came[n].get("click", ())) for n in waiting}
                self._append(ranker_id, locked, {n: locked.waiting[n].clicks or mask for n, mask in masks.items()}, now)
                closed += len(waiting)
        return closed

    def _came(self, ranker_id: int, numbers: Sequence[int]) -> dict[int, dict[str, list[int]]]:
        """What single events have said of each of some lists: by kind the positions, none for one of the whole list."""
        came: dict[int, dict[str, list[int]]] = {number: {} for number in numbers}
        rows = self.database.all(
            "SELECT DISTINCT number, kind, position FROM events WHERE ranker_id = ? "
            f"AND number IN {marks(numbers)} ORDER BY number, kind, position",
            (ranker_id, *numbers),
        )
        for number, kind, position in rows:
            came[number].setdefault(kind, []).extend([position] * (position >= 0))
        return came

    def expire(self, now: float, limit: int = 5000) -> int:
        """Forget impressions whose retention has passed without feedback; how many there were."""
        with self.database.transaction(flush=False):
            due = self.database.all(
                "SELECT ranker_id, number FROM impressions WHERE expires <= ? AND collecting = 0 LIMIT ?", (now, limit)
            )
            self.database.many("DELETE FROM impressions WHERE ranker_id = ? AND number = ? AND collecting = 0", due)
            return len(due)

    def _lock(self, ranker_id: int, numbers: Sequence[int]) -> _LockedRanker | None:
        # The update takes the ranker's lock, so that the log's numbers are given out in the order of commits.
        head = self.database.one(
            "UPDATE rankers SET log_seq = log_seq WHERE id = ? RETURNING log_seq, frozen, secret", (ranker_id,)
        )
        if head is None:
            return None
        among, values = f"number IN {marks(numbers)}", (ranker_id, *numbers)
        rows = self.database.named(
            f"SELECT {', '.join(_Waiting._fields)} FROM impressions WHERE ranker_id = ? AND {among}", values
        )
        waiting = {row["number"]: _Waiting(**row | {"ids": json.loads(row["ids"])}) for row in rows}
        logged = self.database.all(f"SELECT number, token FROM log WHERE ranker_id = ? AND {among}", values)
        log_seq, frozen, secret = head
        return _LockedRanker(log_seq, frozen, secret, waiting, dict(logged))

    def _append(self, ranker_id: int, locked: _LockedRanker, clicks: Mapping[int, bytes], now: float) -> None:
        """Move waiting impressions into the log, in the order given; ``clicks`` is what `_mask` gave of each."""
        if not clicks:
            return
        kind = "frozen" if locked.frozen else "feedback"
        collecting = [number for number in clicks if locked.waiting[number].collecting]
        came = self._came(ranker_id, collecting) if collecting else {}
        rows = []
        for seq, (number, mask) in enumerate(clicks.items(), locked.log_seq + 1):
            waiting = locked.waiting[number]
            counts = None if waiting.client is None else self._is_first(waiting.experiment_id, waiting.client)
            signals = {name: positions for name, positions in came.get(number, {}).items() if name != "click"}
            rows.append((seq, kind, now, mask, json.dumps(signals) if signals else None, counts, ranker_id, number))
        self.database.many(
            "INSERT INTO log (ranker_id, seq, kind, created, number, token, served, version, query_id, ids, clicks, "
            "signals, counts, body, experiment_id, trial, candidates) "
            "SELECT ranker_id, ?, ?, ?, number, token, created, version, query_id, ids, ?, "
            "?, ?, body, experiment_id, trial, candidates FROM impressions WHERE ranker_id = ? AND number = ?",
            rows,
        )
        keys = [row[-2:] for row in rows]
        self.database.many("DELETE FROM impressions WHERE ranker_id = ? AND number = ?", keys)
        self.database.many("DELETE FROM events WHERE ranker_id = ? AND number = ?", keys)
        self.database.all(
            "UPDATE rankers SET log_seq = log_seq + ?, feedback_count = feedback_count + ? WHERE id = ?",
            (len(rows), len(rows), ranker_id),
        )

    def log_twins(self, twins: Sequence[tuple[int, int, bytes]], now: float) -> None:
        """Log other rankers' impressions of lists that were logged: (ranker, number, clicks); those that are logged
        already, have expired or are of rankers deleted meanwhile are passed over."""
        masks = {(ranker_id, number): clicks for ranker_id, number, clicks in twins}
        with self.database.transaction(flush=False):
            for ranker_id, locked, _ in self._locked(list(masks)):
                clicks = {n: mask for (of, n), mask in masks.items() if of == ranker_id and n in locked.waiting}
                self._append(ranker_id, locked, clicks, now)

    def _is_first(self, experiment_id: int, client: int) -> int:
        """1 when this list is the client's first in a split, the one that counts."""
        new = self.database.all(
            "INSERT INTO clients (experiment_id, client) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING client",
            (experiment_id, client),
        )
        return len(new)

    def page(self, ranker_id: int, number: int, token: str) -> tuple[list[str], dict[str, Any]] | Status:
        """What a list showed and what its next page needs to know of it, or why there is none."""
        with self.database.reading():
            for table in ("impressions", "log"):
                row = self.database.one(
                    f"SELECT token, ids, trial FROM {table} WHERE ranker_id = ? AND number = ?", (ranker_id, number)
                )
                if row is not None and _equal(token, row[0]):
                    return json.loads(row[1]), json.loads(row[2] or "{}")
            secret = self.database.one("SELECT secret FROM rankers WHERE id = ?", (ranker_id,))
        return Status.EXPIRED if secret and proves(secret[0], number, token) else Status.UNKNOWN

    def impressions(self, ranker_id: int, limit: int = 50, number: int | None = None) -> list[ImpressionRow]:
        """The newest impressions, waiting or logged (or the one with this number, with its features)."""
        where, values = ("number >= 0", ()) if number is None else ("number = ?", (number,))
        column = "NULL" if number is None else "body"
        waiting = (
            "SELECT number, token, CASE collecting WHEN 1 THEN 'collecting' ELSE 'open' END AS state, "
            "created AS time, version AS model_version, query_id, ids, clicks, NULL AS log_entry, "
            f"{column} AS body, closes FROM impressions WHERE ranker_id = ? AND {where} ORDER BY number DESC LIMIT ?"
        )
        logged = (
            "SELECT l.number, l.token, CASE WHEN l.kind = 'frozen' THEN 'logged' WHEN l.seq <= h.applied THEN "
            "'learned' ELSE 'logged' END AS state, l.served AS time, l.version AS model_version, l.query_id, l.ids, "
            f"l.clicks, l.seq AS log_entry, {column} AS body, NULL AS closes "
            "FROM log l JOIN heads h ON h.ranker_id = l.ranker_id "
            f"WHERE l.ranker_id = ? AND l.{where} ORDER BY l.number DESC LIMIT ?"
        )
        with self.database.reading():
            rows = self.database.named(waiting, (ranker_id, *values, limit))
            collecting = [row["number"] for row in rows if row["state"] == "collecting"]
            came = self._came(ranker_id, collecting)
            rows += self.database.named(logged, (ranker_id, *values, limit))
        rows.sort(key=lambda row: -int(row["number"]))
        return [_impression(row, came.get(row["number"])) for row in rows[:limit]]


def _impression(row: dict[str, Any], came: Mapping[str, Sequence[int]] | None) -> ImpressionRow:
    """A row of `ImpressionTables.impressions`; ``came`` is what single events say of one that still collects."""
    ids, mask = tuple(json.loads(row["ids"])), row["clicks"]
    if came is not None and mask is None:
        mask = _mask(len(ids), came.get("click", ()))
    clicks = None if mask is None else tuple(byte == 1 for byte in mask)
    return ImpressionRow(**row | {"ids": ids, "clicks": clicks})


def _mask(n_shown: int, positions: Iterable[int]) -> bytes:
    """One byte per shown position, 1 where it was clicked."""
    clicked = frozenset(positions)
    return bytes(place in clicked for place in range(n_shown))


def _equal(given: str, kept: str) -> bool:
    return hmac.compare_digest(given.encode(), kept.encode())


def _judge(locked: _LockedRanker, item: Feedback, now: float) -> Verdict:
    found = locked.find(item.number, item.token, now)
    if isinstance(found, Status):
        return Verdict(found)
    if foreign := item.clicks.difference(found.ids):
        return Verdict(Status.FOREIGN, foreign=min(foreign))
    if found.clicks is not None:
        return Verdict(Status.DUPLICATE)
    positions = tuple(place for place, name in enumerate(found.ids) if name in item.clicks)
    late, shown = found.closes <= now, len(found.ids)
    return Verdict(Status.ACCEPTED, late=late, positions=positions, shown=shown, above=found.above)
