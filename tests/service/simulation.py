"""Workers, learners, supervisors, clients, network, clock and store as steps under one seeded scheduler.

Everything that could happen at the same time is a step: one callback of a worker's event loop, one job of its reading
thread, one batch of its writing thread, one round of a learner, one look of a supervisor at its processes, the delivery
of one message, a tick of the clock. The code is the service's own (`ranking.show`, `Models`, `GroupCommit`, `Learner`,
`Supervisor`, `SqlStore`); only threads, time and the network are played. Messages are reordered, lost and doubled,
answers are lost. Commits fail before or after they were made, processes die there until their supervisor starts others,
whole hosts die, the power is cut, which takes back what was not flushed, and backups are restored.

What each write answers is compared with `plain_store.py`, and every so many steps all tables are. A seed that fails is
printed with the fewest of its steps that still fail.

By hand: ``python tests/service/simulation.py --steps 10000000``; one seed again with ``--steps 1 --seed 7``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from plain_store import PlainStore
from played import Host, KilledError, LearnerProcess, PowerCutError, Store, Worker, WrongError

from pairrank.errors import PairRankError, StorageError
from pairrank.service import supervisor as supervisor_module
from pairrank.service.http.rank_request import Query
from pairrank.service.http.ranking import parse_impression
from pairrank.service.learning import learner as learner_module
from pairrank.service.learning.replay import replay
from pairrank.service.learning.verify import verify
from pairrank.service.store.transfer import backup, restore
from pairrank.service.store.values import Config, Limits, Served, Status
from pairrank.service.worker import group_commit
from pairrank.service.worker import models as models_module

# How often each step comes, of a thousand or so.
WEIGHTS = {
    "turn": 560,  # one callback of a worker's event loop
    "read": 80,  # one job of its reading thread
    "write": 60,  # one batch of its writing thread
    "deliver": 160,  # one message reaches a worker, or not
    "ask": 60,
    "click": 50,
    "event": 40,
    "learn": 40,
    "tend": 30,  # a supervisor looks after its processes
    "tick": 12,
    "fault": 3,  # of the next commit
    "kill": 1,
    "crash": 0.3,  # of a host
    "create": 3,
    "freeze": 1,
    "roll_back": 1,
    "delete": 0.2,
    "backup": 1,
    "restore": 0.6,
    "power": 5,  # could be cut before the next flush but one, and sometimes is
}
STEPS = 3000  # of one run
COMPARE = 250  # steps from one comparison of all tables to the next
NAMES = ("a", "b")
RANKERS = ("pairrank", "pairrank", "pairrank-c", "pdgd", "epsilon-greedy")
HOSTS = 2  # with a worker and a learner each
IDS = ["d0", "d1", "d2", "d3"]
LIMITS = Limits(window_seconds=10.0, retention_seconds=30.0)


class Step(NamedTuple):
    """A kind of step, and a number from which everything in it is chosen."""

    kind: str
    choice: int


class Shown(NamedTuple):
    name: str
    secret: str
    number: int
    token: str
    ids: tuple[str, ...]  # and one that the list did not show


class World:
    """All of it. Each kind of step is a method that takes the step's choice."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed, self._files = folder, seed, 0
        self._now = 1e6
        self.path = self._new_path()
        self.plain = PlainStore()
        self.fault: tuple[BaseException, str] | None = None
        self.cutting = self.cuts = False
        self.saved: tuple[Path, PlainStore] | None = None
        self._kept: tuple[Path, PlainStore] | None = None  # a backup
        self._mail: list[tuple[str, str, tuple[Any, ...]]] = []  # kind, secret of the ranker, arguments
        self._shown: deque[Shown] = deque(maxlen=60)
        self._acknowledged: set[tuple[str, int, str]] = set()
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> World:
        thread = SimpleNamespace(start=lambda: None)  # of the writer: its batches are steps
        self._played = ExitStack()
        for module, name, value in (
            (group_commit, "threading", SimpleNamespace(Thread=lambda **_: thread)),
            (learner_module, "time", SimpleNamespace(monotonic=self.clock)),
            (models_module, "time", SimpleNamespace(monotonic=self.clock, thread_time=self.clock)),
            (models_module, "NUMBERS", 10),  # so that a worker often asks for more
            (supervisor_module, "time", SimpleNamespace(monotonic=self.clock)),
            (supervisor_module, "print", lambda *_, **__: None),
        ):
            self._played.enter_context(mock.patch.object(module, name, value, create=name == "print"))
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._played.close()
        self.close()

    def clock(self) -> float:
        return self._now

    def _new_path(self) -> Path:
        self._files += 1
        return self._folder / f"{self._files}.db"

    def _start(self) -> None:
        self._admin = Store(self)
        self._hosts = [Host(self) for _ in range(HOSTS)]

    def close(self) -> None:
        for one in (self._admin, *self._hosts):
            one.close()

    @property
    def _workers(self) -> list[Worker]:
        """Those that live."""
        return [one for host in self._hosts for one in host.living if isinstance(one, Worker)]

    @property
    def _learners(self) -> list[LearnerProcess]:
        return [one for host in self._hosts for one in host.living if isinstance(one, LearnerProcess)]

    def _begin_again(self, path: Path, plain: PlainStore) -> None:
        self.close()
        for old in self._folder.glob(f"{self.path.name}*"):
            old.unlink()
        self.path, self.plain, self.saved, self.cutting, self.fault = path, plain, None, False, None
        self._start()

    def do(self, step: Step) -> None:
        """One step, and what dies in it."""
        kind, choice = step
        actors = self._actors(kind)
        actor: Worker | LearnerProcess | None = None
        try:
            if actors is not None:
                first, done = choice % max(len(actors), 1), False
                for actor in actors[first:] + actors[:first]:
                    if done := getattr(actor, kind)(choice):
                        break
            else:
                done = getattr(self, f"_{kind}")(choice) is not False
            self.counts[kind if done else "idle"] += 1
        except KilledError:
            if actor is not None:
                self._end(actor)
        except PowerCutError:
            assert self.saved is not None
            self.counts["power cut"] += 1
            self._begin_again(*self.saved)
            self.check_acknowledged()
        except PairRankError:
            if actor is not None:  # a process has a sentence for everything, and goes on
                raise

    def _actors(self, kind: str) -> list[Any] | None:
        return self._learners if kind == "learn" else self._workers if kind in ("turn", "read", "write") else None

    def _end(self, actor: Worker | LearnerProcess) -> None:
        self.counts["death"] += 1
        actor.close()

    # The network and the clients.

    def _deliver(self, choice: int) -> bool:
        workers = [worker for worker in self._workers if worker.started.done()]
        if not self._mail or not workers:
            return False
        worker = workers[choice % len(workers)]
        fate, place = (choice >> 8) % 16, (choice >> 16) % len(self._mail)
        kind, secret, args = self._mail[place] if fate == 0 else self._mail.pop(place)  # 0: it will come again
        if fate == 1:
            return True  # lost
        task = worker.loop.create_task(getattr(worker, kind)(*args))
        if fate != 2:  # else its answer is lost
            task.add_done_callback(lambda done: self._answered(kind, secret, args, done))
        return True

    def _answered(self, kind: str, secret: str, args: tuple[Any, ...], done: asyncio.Task[Any]) -> None:
        problem = done.exception()
        if problem is not None:
            if not isinstance(problem, PairRankError):
                raise problem
            return
        answer, name = done.result(), args[0]
        self.counts["list" if kind == "rank" else f"{kind} {answer}"] += 1
        if kind == "rank":
            number, token = parse_impression(answer["impression_id"])
            owners = [secret for secret, made in self.plain.issued.items() if (number, token) in made]
            ids = (*(one["id"] for one in answer["ranking"]), *["foreign"][: number % 16 == 0])
            self._shown.extend(Shown(name, secret, number, token, ids) for secret in owners)
        elif kind == "feedback" and answer in (Status.ACCEPTED, Status.DUPLICATE):
            self._acknowledged.add((secret, *args[1:3]))
            self.check_acknowledged()

    def issue(self, items: Sequence[Served]) -> None:
        """Note the ids that a worker makes up."""
        for item in items:
            if ranker := self.plain.rankers.get(item.ranker_id):
                made = self.plain.issued.setdefault(ranker.secret, set())
                if (item.number, item.token) in made:
                    raise WrongError("an id is given out twice")
                made.add((item.number, item.token))

    def check_acknowledged(self) -> None:
        """What clients were told is in the log of its ranker, if that was not deleted, even if the power goes now."""
        left = self.plain if self.saved is None else self.saved[1]
        by_secret = {ranker.secret: ranker for ranker in left.rankers.values()}
        for secret, number, token in self._acknowledged:
            if secret in by_secret and by_secret[secret].logged.get(number) != token:
                raise WrongError(f"impression {number} was acknowledged and is not in the log")

    def _ask(self, choice: int) -> None:
        features = np.array([choice >> shift & 15 for shift in range(0, 32, 4)], dtype=float).reshape(4, 2) / 15
        self._mail.append(("rank", "", (NAMES[choice >> 40 & 1], Query(None, IDS, features, 3))))

    def _some_list(self, choice: int) -> Shown | None:
        """A list that a client has seen, mostly one of the newest."""
        lists = list(self._shown)[0 if choice & 3 == 0 else -6 :]
        return lists[(choice >> 2) % len(lists)] if lists else None

    def _click(self, choice: int) -> bool:
        one = self._some_list(choice)
        if one is not None:
            clicks = frozenset(name for place, name in enumerate(one.ids) if choice >> (8 + place) & 1)
            self._mail.append(("feedback", one.secret, (one.name, one.number, one.token, clicks)))
        return one is not None

    def _event(self, choice: int) -> bool:
        one = self._some_list(choice)
        if one is not None:
            event = (f"e{choice >> 8 & 3}", one.ids[(choice >> 16) % len(one.ids)])
            self._mail.append(("events", one.secret, (one.name, one.number, one.token, *event)))
        return one is not None

    # Time, faults and administration.

    def _tick(self, choice: int) -> None:
        self._now += choice % 1000 / 200

    def _fault(self, choice: int) -> None:
        problem = KilledError() if choice & 1 else StorageError("the store cannot be used right now: a fault")
        self.fault = (problem, "before" if choice & 2 else "after")

    def _tend(self, choice: int) -> None:
        self._hosts[choice % HOSTS].tend()

    def _kill(self, choice: int) -> bool:
        living = [*self._learners, *self._workers]
        if living:
            self._end(living[choice % len(living)])
        return bool(living)

    def _crash(self, choice: int) -> None:
        """A supervisor dies, and with it its processes, whose pipe it held."""
        self._hosts[choice % HOSTS].close()
        self._hosts[choice % HOSTS] = Host(self)

    def _power(self, choice: int) -> None:
        if self.saved is None:
            self.cutting, self.cuts = True, choice % 5 == 0

    def save(self) -> None:
        """Keep what the disk has now: what a power cut before the next flush leaves of it."""
        path = self._new_path()
        self._admin.database.copy_to(path)
        self.saved, self.cutting = (path, self.plain.copy()), False

    def _create(self, choice: int) -> bool:
        name, kind = NAMES[choice & 1], RANKERS[(self._seed + (choice & 1)) % len(RANKERS)]
        if self._admin.find(name) is not None:
            return False
        try:
            self._admin.create(name, Config(2, kind, seed=choice >> 8 & 3), LIMITS, self._now, "simulation")
        finally:
            if row := self._admin.find(name):
                self.plain.create(row)
        return True

    def _freeze(self, choice: int) -> None:
        self._admin.set_frozen(NAMES[choice & 1], not choice & 6, self._now, "simulation")

    def _roll_back(self, choice: int) -> bool:
        row = self._admin.find(NAMES[choice & 1])
        if row is not None:
            versions = self._admin.versions(row.id)
            self._admin.roll_back(row.name, versions[(choice >> 8) % len(versions)].version, self._now, "simulation")
        return row is not None

    def _delete(self, choice: int) -> None:
        self._admin.delete(NAMES[choice & 1], self._now, "simulation")

    def _backup(self, choice: int) -> None:
        self._kept = (self._new_path(), self.plain.copy())
        backup(self._admin, self._kept[0])

    def _restore(self, choice: int) -> bool:
        if self._kept is None:
            return False
        path, plain = self._new_path(), self._kept[1].copy()
        restore(str(self._kept[0]), f"sqlite:///{path}")
        self._begin_again(path, plain)
        kept = {(r.secret, number, token) for r in plain.rankers.values() for number, token in r.logged.items()}
        self._acknowledged &= kept
        return True

    # What must hold.

    def compare(self) -> None:
        """All tables with the plain store's."""
        self.check_acknowledged()
        rows, ask = {row.id: row for row in self._admin.rankers()}, self._admin.database.all
        if rows.keys() != self.plain.rankers.keys():
            raise WrongError(f"rankers are {sorted(rows)}, should be {sorted(self.plain.rankers)}")
        for key, plain in self.plain.rankers.items():
            row, log = rows[key], plain.history.log
            waiting = plain.waiting.items()
            events = [(number, event, place) for number, one in waiting for event, place in one.events.items()]
            for what, sql, wanted in (
                (
                    "open",
                    "number, token, collecting FROM impressions",
                    [(n, w.token, bool(w.events)) for n, w in waiting],
                ),
                ("collected", "number, event_id, position FROM events", events),
                (
                    "logged",
                    "seq, kind, number, token, clicks, body, target FROM log",
                    [(seq, *entry) for seq, entry in enumerate(log, 1)],
                ),
            ):
                found = ask(f"SELECT {sql} WHERE ranker_id = ? ORDER BY 1, 2", (key,))
                if found != sorted(wanted):
                    raise WrongError(f"{what} of {row.name}: {len(found)} rows, should be {len(wanted)}, or others")
            if (row.version, row.applied, row.digest, row.learned) != plain.head or row.log_seq != len(log):
                raise WrongError(f"the head of {row.name} is not what was published")

    def finish(self) -> None:
        """Let all windows close and a last learner learn all there is, and hold the models against a replay."""
        self.fault, self.saved, self.cutting = None, None, False
        self._now += LIMITS.retention_seconds + 1
        for _ in range(2):  # a look to see who died, and one after the longest wait
            for host in self._hosts:
                host.tend()
            self._now += 5.0
        for host in self._hosts:
            host.check()
        last, *others = self._learners
        for one in others:
            one.close()
        while last.learn(3 << 8) and any(h.applied < h.log_seq for h in self._admin.heads().values()):
            pass
        self.compare()
        faults = verify(self._admin) + [row.name for row in self._admin.rankers() if not replay(self._admin, row).same]
        faults += [f"{ranker.name}: lists wait" for ranker in self.plain.rankers.values() if ranker.waiting]
        if faults:
            raise WrongError(f"at the end: {faults}")


class Outcome(NamedTuple):
    counts: Counter[str]
    failed: int | None = None  # the step
    why: str = ""

    @property
    def steps(self) -> int:
        """Those that had something to do."""
        return sum(self.counts[kind] for kind in WEIGHTS)


def steps_of(seed: int, count: int) -> list[Step]:
    chance = random.Random(seed)
    kinds = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    return [Step("create", 0), Step("create", 1), *(Step(kind, chance.getrandbits(48)) for kind in kinds)]


def run(seed: int, steps: Sequence[Step]) -> Outcome:
    """Take the steps; whether and where something was wrong."""
    memory, place = Path("/dev/shm"), 0
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        World(Path(folder), seed) as world,
    ):
        try:
            for place, step in enumerate(steps):
                world.do(step)
                if place % COMPARE == 0:
                    world.compare()
            world.finish()
        except (Exception, WrongError) as problem:
            return Outcome(world.counts, place, f"{type(problem).__name__}: {problem}")
        return Outcome(world.counts)


def minimised(seed: int, steps: Sequence[Step], least: int = 1) -> list[Step]:
    """Steps that fail, without those that they fail without: whole kinds, then halves, quarters, to ``least``."""
    kept = list(steps)

    def without(fewer: list[Step]) -> bool:
        nonlocal kept
        failed = run(seed, fewer).failed
        if failed is not None:
            kept = fewer[: failed + 1]
        return failed is not None

    for kind in WEIGHTS:
        without([step for step in kept if step.kind != kind])
    size = len(kept)
    while (size := size // 2) >= least:
        place = 0
        while place < len(kept):
            if not without(kept[:place] + kept[place + size :]):
                place += size
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="of all runs")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; the next has the next")
    args = parser.parse_args()
    logging.disable()
    started, seed, total = time.monotonic(), args.seed, Outcome(Counter())
    while total.steps < args.steps:
        steps = steps_of(seed, STEPS)
        outcome = run(seed, steps)
        if seed == args.seed:
            gc.freeze()  # the modules: an eighth of the time went into looking through them, over and over
        total.counts.update(outcome.counts)
        if outcome.failed is not None:
            print(f"seed {seed} fails at step {outcome.failed}: {outcome.why}", flush=True)
            for step in minimised(seed, steps[: outcome.failed + 1]):
                print(f"    {step}")
            return 1
        seed += 1
        if seed % 50 == 0:
            rate = total.steps / (time.monotonic() - started)
            print(f"{total.steps} steps, {rate:.0f} per second, seeds {args.seed} to {seed - 1}", flush=True)
    print(f"{total.steps} steps, seeds {args.seed} to {seed - 1}: {dict(total.counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
