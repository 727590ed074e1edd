"""Drive load through the service and kill its processes with SIGKILL at random points, over and over.

The server (the HTTP application of one rank worker), the learner and, with ``--postgres``, the database are each
killed after a random time, often while they start, and started again. They are forked from this process, which has
everything imported, so that a life costs milliseconds. Clients never stop sending. At the end:

- every feedback that was acknowledged is in the log, once;
- nothing was learned twice, and nothing that the log holds was left out;
- the model equals the replay of the log, bit for bit, and what a ranker learns of it that was never saved
  (`plain_store.py`); the store is whole;
- so do the verdicts of an interleaved experiment and a split and the state of a guarded launch, which run all the time;
- off-policy estimates are, bit for bit, those of a copy of the store in an SQLite file;
- what clients were told of some lists, with requests that overlap and are repeated, is what the plain store would have
  said (`histories.py`).

By hand: ``python tests/service/crash.py --kills 5000`` (and ``--postgres``).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import histories
import uvicorn
from fastapi import FastAPI
from plain_store import kept_history

from pairrank import client as client_module
from pairrank.client import Client, ServiceError
from pairrank.errors import StorageError
from pairrank.service.app import make_app
from pairrank.service.evaluation import Evaluation, evaluate
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.model import load_head
from pairrank.service.learning.replay import replay
from pairrank.service.learning.verify import verify
from pairrank.service.settings import Settings
from pairrank.service.store import SqlStore, open_store
from pairrank.service.store.sqlite import SqliteDatabase
from pairrank.service.store.transfer import backup
from pairrank.service.store.values import Config, Limits
from pairrank.trials.experiment import Definition

RANKER = "a"
OTHER = "b"  # learns from the lists of an experiment alone
PLAIN = "c"  # has neither experiment nor launch, and its lists keep their candidates: estimates are made from them
# The longest life of each victim, in seconds: about twice what it needs to start and do some work.
LIVES = {"server": 0.8, "learner": 0.3, "postgres": 3.0}
CLIENTS = 2
WINDOW = 0.3  # seconds: lists of the split and of the launch are logged then
EXPERIMENTS = (
    Definition(name="mixed", a=RANKER, b=OTHER, share=0.4),
    Definition(name="split", a=RANKER, b="as-sent", share=0.3, kind="split", signals=("purchase",)),
)
# With this margin there can be no breach, after which nothing would be learned.
LAUNCH = {"mode": "guarded", "margin": 1.0, "holdout": 0.05, "delta": 0.05, "most_lost": 0.5, "auto": False}
client_module.MAX_PAUSE = 0.1  # a crash here lasts milliseconds, not minutes


@dataclass
class Outcome:
    """What a run did and found."""

    kills: dict[str, int]
    acknowledged: int
    explained: int  # lists of which every answer was held against the plain store
    logged: int
    learned: int
    faults: list[str] = field(default_factory=list)


def fork(work: Callable[[], None]) -> int:
    """Run ``work`` in a child process; its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        work()
        code = 0
    except BaseException as problem:
        if not isinstance(problem, (StorageError, SystemExit)):
            print(f"{work}: {problem!r}", file=sys.stderr)
    finally:
        os._exit(code)


def serve(app: FastAPI, listener: socket.socket) -> None:
    config = uvicorn.Config(app, log_level="critical", lifespan="on", access_log=False)
    config.load()
    uvicorn.Server(config).run(sockets=[listener])


def learn(url: str) -> None:
    logging.disable()
    os.nice(5)
    Learner(open_store(url)).run(threading.Event())


def send(port: int, notes: Path, seed: int, forgetful: bool) -> None:
    """Rank and click until killed; note down what was acknowledged.

    ``forgetful``: a database that is killed may lose lists that were just served (never feedback): those are unknown.
    """
    chance = random.Random(seed)
    client = Client(f"http://127.0.0.1:{port}", timeout=2.0, retries=1000)
    with open(notes, "a") as file:
        while True:
            documents = {f"d{i}": [chance.random(), chance.random()] for i in range(5)}
            shown = client.rank(RANKER, documents, k=3, client_id=f"client {chance.randrange(500)}")
            clicks = [name for name in shown.ids if chance.random() < documents[name][0]]
            try:
                client.feedback(RANKER, shown.impression_id, clicks)
            except ServiceError as problem:
                if not (forgetful and problem.status in (404, 410)):
                    file.write(f"refused {shown.impression_id} {problem}\n")
            else:
                file.write(f"{shown.impression_id}\n")
                if clicks and client.event(RANKER, shown.impression_id, "purchase", clicks[0]) == "accepted":
                    file.write(f"bought:{shown.impression_id}\n")
                if chance.random() < 0.1 and client.feedback(RANKER, shown.impression_id, []) != "duplicate":
                    file.write(f"twice {shown.impression_id}\n")
            file.flush()


class Victims:
    """The processes that are killed and started again."""

    def __init__(self, start: dict[str, Callable[[], int]], kill: dict[str, Callable[[int], None]], seed: int) -> None:
        self._start, self._kill, self._chance = start, kill, random.Random(seed)
        self.kills = dict.fromkeys(start, 0)
        self._alive = {name: begin() for name, begin in start.items()}
        self._due = {name: self._life(name) for name in start}

    def _life(self, name: str) -> float:
        return time.monotonic() + self._chance.random() * LIVES[name]

    def run(self, kills: int) -> None:
        """Until so many have been killed."""
        while sum(self.kills.values()) < kills:
            name = min(self._due, key=lambda one: self._due[one])
            time.sleep(max(0.0, self._due[name] - time.monotonic()))
            self.end(name)
            self.kills[name] += 1
            self._alive[name] = self._start[name]()
            self._due[name] = self._life(name)

    def end(self, name: str) -> None:
        self._kill[name](self._alive[name])

    def end_all(self) -> None:
        for name in self._alive:
            if name != "postgres":
                self.end(name)


def end_process(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def run(url: str, kills: int, seed: int, folder: Path, postgres: object = None) -> Outcome:
    """Kill ``kills`` times, let everything come to rest, and look."""
    store = open_store(url)
    store.create(RANKER, Config(2, options={}), Limits(window_seconds=WINDOW), time.time(), "crash")
    store.create(OTHER, Config(2, options={}, seed=1), Limits(), time.time(), "crash")
    store.create(PLAIN, Config(2), Limits(window_seconds=WINDOW, keep_candidates=5), time.time(), "crash")
    for definition in EXPERIMENTS:
        store.define(definition, time.time(), "crash")
    store.launch(RANKER, LAUNCH, time.time(), "crash")
    load_head(store, store.rankers()[0]).ranker.rank([[0.0, 1.0], [1.0, 0.0]])  # imports what a first request would
    store.close()
    app = make_app(url, Settings(store=url))
    app.build_middleware_stack()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = listener.getsockname()[1]
    starts: dict[str, Callable[[], int]] = {
        "server": lambda: fork(lambda: serve(app, listener)),
        "learner": lambda: fork(lambda: learn(url)),
    }
    ends: dict[str, Callable[[int], None]] = {"server": end_process, "learner": end_process}
    if postgres is not None:
        starts["postgres"] = lambda: postgres.start() or 0  # type: ignore[attr-defined]
        ends["postgres"] = lambda _: postgres.kill()  # type: ignore[attr-defined]
        postgres.kill()  # type: ignore[attr-defined]
        starts = {"postgres": starts["postgres"], **starts}
    victims = Victims(starts, ends, seed)
    notes = [folder / f"client{number}" for number in range(CLIENTS)]
    clients = [fork(partial(send, port, path, number, postgres is not None)) for number, path in enumerate(notes)]
    told = folder / "told"
    clients.append(fork(partial(histories.play, port, told, PLAIN, seed)))
    try:
        while not told.exists() or len(told.read_text().splitlines()) < 5:  # later there may be none
            time.sleep(0.05)
        victims.run(kills)
        time.sleep(1.0)
    finally:
        for client in clients:
            end_process(client)
        victims.end_all()
        listener.close()
    lines = [line.split() for path in notes for line in path.read_text().splitlines()]
    return judge(url, lines, list(histories.read(told)), victims.kills)


def judge(url: str, lines: list[list[str]], records: list[histories.Record], kills: dict[str, int]) -> Outcome:
    """Let one last learner finish, then compare what clients were told with what the store holds."""
    store = open_store(url)
    try:
        while not store.database.hold([0]):
            time.sleep(0.05)
        faults = [" ".join(line) for line in lines if len(line) > 1]
        if not all(replay(store, before).same for before in store.rankers()):
            faults.append("after the last kill a stored model was not the log's")
        time.sleep(WINDOW)
        learner = Learner(store)
        while learner.step(publish=True):
            pass
        acknowledged = [line[0] for line in lines if len(line) == 1 and not line[0].startswith("bought:")]
        bought = {line[0].removeprefix("bought:") for line in lines if line[0].startswith("bought:")}
        kept = store.database.all("SELECT number, token FROM log WHERE signals IS NOT NULL")
        if lost := bought - {f"{number}-{token}" for number, token in kept}:
            faults.append(f"{len(lost)} of {len(bought)} acknowledged purchases are not in the log")
        faults += compare(store, acknowledged)
        if (told := evaluate(url, ranker=PLAIN)) != evaluate_copy(store):
            faults.append(f"the copy's estimates are not {told}")
        faults += histories.check(
            store, PLAIN, records, WINDOW, forgetful=not isinstance(store.database, SqliteDatabase)
        )
        row = store.rankers()[0]
        return Outcome(kills, len(acknowledged), len(records), row.log_seq, row.learned, faults)
    finally:
        store.close()


def compare(store: SqlStore, acknowledged: list[str]) -> list[str]:
    row = store.rankers()[0]
    history, faults = kept_history(store, row)
    logged = [f"{entry.number}-{entry.token}" for entry in history.log if entry.kind == "feedback"]
    faults += verify(store)
    if lost := set(acknowledged) - set(logged):
        faults.append(f"{len(lost)} acknowledged feedbacks are not in the log, such as {min(lost)}")
    decisions = 1  # the launch
    if not row.applied - decisions == row.learned == row.log_seq - decisions == row.feedback_count == len(logged):
        counts = f"{row.feedback_count} counted, {row.applied} applied, {row.learned} learned"
        faults.append(f"{len(logged)} logged, {counts}")
    found = replay(store, row)
    if not found.same:
        faults.append(f"the model is not the replay of the log, or these are not: {found.wrong_trials}")
    faults += twins(store, row.id)
    faults += [f"experiment {one.name} has counted nothing" for one in store.experiments() if not one.state]
    for one in store.experiments():
        counted = store.database.all(
            "SELECT count(*) FROM log WHERE experiment_id = ? AND coalesce(counts, 1) = 1", (one.id,)
        )
        if one.state and one.state["tally"]["lists"] != counted[0][0]:
            faults.append(f"experiment {one.name} has counted {one.state['tally']['lists']} of {counted[0][0]} lists")
    return faults


def evaluate_copy(store: SqlStore) -> Evaluation:
    """What the log tells once it has been copied into an SQLite file."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "copy.db"
        backup(store, copy)
        return evaluate(copy, ranker=PLAIN)


def twins(store: SqlStore, ranker_id: int) -> list[str]:
    """The other ranker has learned every list that it should, once; a database that was killed may have lost some."""
    other = store.rankers()[1]
    texts = store.database.all("SELECT trial FROM log WHERE ranker_id = ? AND trial LIKE ?", (ranker_id, "%twin%"))
    wanted = {json.loads(text)["twin"][1] for (text,) in texts}
    found = {number for (number,) in store.database.all("SELECT number FROM log WHERE ranker_id = ?", (other.id,))}
    faults = [] if replay(store, other).same else ["the other ranker's model is not the replay of its log"]
    if not found or found - wanted or (isinstance(store.database, SqliteDatabase) and found != wanted):
        faults.append(f"the other ranker's log has {len(found)} lists of {len(wanted)}")
    if not other.learned == other.log_seq == len(found):
        faults.append(f"the other ranker has learned {other.learned} lists of {len(found)}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="on a private PostgreSQL, which is killed too")
    parser.add_argument("--fsync", action="store_true", help="let PostgreSQL flush; only a machine that dies needs it")
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.postgres:
            from cluster import postgres_bin, running

            binaries = postgres_bin()
            if binaries is None:
                parser.error("no PostgreSQL server binaries")
            with running(binaries, fsync=args.fsync) as server:
                outcome = run(server.new_database(), args.kills, args.seed, folder, server)
        else:
            outcome = run(f"sqlite:///{folder / 'store.db'}", args.kills, args.seed, folder)
    print(f"{outcome} in {time.monotonic() - started:.0f} s")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
