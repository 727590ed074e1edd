"""What clients of the real service were told, held against the plain store.

A list's requests overlap, are tried again and may never be answered, since processes are killed meanwhile. The record
of a list is explained if its requests can be put in an order in which the plain store gives the same answers and ends
with the same log. A request that was answered before another was sent comes before that one; one without an answer may
have had its effect at any time after it was sent, or never.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from plain_store import History, PlainRanker, PlainStore, Waiting

from pairrank.client import Client, ServiceError, UnreachableError
from pairrank.service.http.ranking import parse_impression
from pairrank.service.store import SqlStore
from pairrank.service.store.values import Config, Event, Feedback

SECRET, RANKER_ID = "secret", 1
REFUSALS = {404: "unknown", 410: "expired", 422: "foreign"}
TOGETHER = 3  # requests of one list at a time


class Call(NamedTuple):
    """One attempt of a request. ``what``: the clicks of a feedback, or an event's id and its document."""

    kind: str
    what: list[str]
    began: float
    ended: float = math.inf
    answer: str | None = None  # None: nobody knows what became of it


class Record(NamedTuple):
    """A list, when it was asked for and came, and what was sent about it."""

    impression_id: str
    ids: list[str]
    asked: float
    came: float
    calls: list[Call]


def play(port: int, notes: Path, ranker: str, seed: int) -> None:
    """Ask for lists, send some requests about each, together and one after another, and note what was answered."""
    chance = random.Random(seed)
    patient, hasty = (Client(f"http://127.0.0.1:{port}", timeout=2.0, retries=retries) for retries in (1000, 0))
    with open(notes, "a") as file, ThreadPoolExecutor(TOGETHER) as pool:
        while True:
            record = _play_list(patient, hasty, ranker, chance, pool)
            file.write(json.dumps(record) + "\n")
            file.flush()


def _play_list(patient: Client, hasty: Client, ranker: str, chance: random.Random, pool: ThreadPoolExecutor) -> Record:
    asked = time.time()
    shown = patient.rank(ranker, {f"d{i}": [chance.random(), chance.random()] for i in range(5)}, k=3)
    came = time.time()
    plans: list[tuple[str, list[str], float]] = []
    for number in range(chance.randint(1, 4)):
        names = [name for name in (*shown.ids, "foreign") if chance.random() < 0.3]
        event = [f"e{number % 2}", chance.choice(shown.ids)]
        kind, what = ("event", event) if chance.random() < 0.4 else ("feedback", names)
        plans.append((kind, what, chance.choice((0.0, 0.0, 0.1, 0.4))))

    def send(plan: tuple[str, list[str], float]) -> list[Call]:
        kind, what, pause = plan
        time.sleep(pause)
        calls, answer = list[Call](), None
        for _ in range(50):
            began = time.time()
            try:
                if kind == "event":
                    answer = hasty.click(ranker, shown.impression_id, what[1], event_id=what[0])
                else:
                    answer = hasty.feedback(ranker, shown.impression_id, what)
            except (ServiceError, UnreachableError) as problem:
                answer = REFUSALS.get(getattr(problem, "status", 0))
            if answer is not None:
                return [*calls, Call(kind, what, began, time.time(), answer)]
            calls.append(Call(kind, what, began))
            time.sleep(0.02)
        return calls

    calls = [call for found in pool.map(send, plans) for call in found]
    return Record(shown.impression_id, list(shown.ids), asked, came, calls)


def read(notes: Path) -> Iterator[Record]:
    """Records that `play` has noted down."""
    for line in notes.read_text().splitlines():
        record = Record(*json.loads(line))
        yield record._replace(calls=[Call(*call) for call in record.calls])


def check(store: SqlStore, ranker: str, records: Iterable[Record], window: float, forgetful: bool) -> list[str]:
    """Say which records of a ranker's lists cannot be explained by what the store has logged."""
    row = store.ranker(ranker)
    logged = {
        number: (served, clicks)
        for number, served, clicks in store.database.all(
            "SELECT number, served, clicks FROM log WHERE ranker_id = ?", (row.id,)
        )
    }
    faults = []
    for record in records:
        number, _ = parse_impression(record.impression_id)
        served, clicks = logged.get(number, (None, None))
        times = (record.asked, record.came) if served is None else (served,)
        if not any(explained(record, time + window, clicks, forgetful) for time in times):
            faults.append(f"cannot be explained with {clicks} in the log: {record}")
    return faults


def explained(record: Record, closes: float, logged: bytes | None, forgetful: bool = False) -> bool:
    """Whether some order of the calls gives their answers and the clicks in the log, None where the list is not in it.

    ``forgetful``: a list that nothing was said about may be lost.
    """
    number, token = parse_impression(record.impression_id)
    plain = PlainStore()
    plain.rankers[RANKER_ID] = PlainRanker("", SECRET, History(Config(1)))
    plain.rankers[RANKER_ID].waiting[number] = Waiting(token, closes, math.inf, record.ids, b"")
    plain.issued[SECRET] = {(number, token)}
    states, seen = [(plain, tuple(record.calls))], set()
    while states:
        plain, left = states.pop()
        ranker = plain.rankers[RANKER_ID]
        waiting, clicks = ranker.waiting.get(number), ranker.history.log[0].clicks if ranker.history.log else None
        collecting = waiting is not None and bool(waiting.events)  # then it would be in the log in the end
        if clicks == logged and not collecting and all(call.answer is None for call in left):
            return True
        state = (str(left), clicks, str(waiting))
        if state in seen:
            continue
        seen.add(state)
        first = min((call.ended for call in left), default=math.inf)
        if waiting is not None and first >= closes:
            closed = plain.copy()
            closed.close_windows(closes)
            states.append((closed, left))
        if forgetful and waiting is not None and not waiting.events:
            lost = plain.copy()
            del lost.rankers[RANKER_ID].waiting[number]
            states.append((lost, left))
        for place, call in enumerate(left):
            if call.began <= first:
                for now in (call.began, min(call.ended, max(call.began, closes))):
                    other = plain.copy()
                    answer = _answer(other, call, number, token, now)
                    if call.answer is None:  # it stays: a second time it does nothing, and what is left stays small
                        states.append((other, left))
                    elif answer == call.answer:
                        states.append((other, left[:place] + left[place + 1 :]))
    return False


def _answer(plain: PlainStore, call: Call, number: int, token: str, now: float) -> str:
    if call.kind == "event":
        return plain.events([Event(RANKER_ID, number, token, *call.what)], now)[0].value
    return plain.feedback([Feedback(RANKER_ID, number, token, frozenset(call.what))], now)[0].value
