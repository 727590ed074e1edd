"""Fail the n-th system call of a store, or cut the power there, for every n, and look what is left.

One life is a short run of a worker's two writing connections and a learner on SQLite, step by step in one process, so
that the n-th call is the same one every time. `disk.c` lets one call fail (a write, a flush, a change of length, a
rename; EIO or ENOSPC), or several in a row, or cuts the power. Afterwards, on what had reached the disk:

- every feedback and every event that was acknowledged is there, once, and the store is whole;
- what was learned is what the log says, once each, bit for bit by a replay;
- after a fault that passed, the same connections serve again; what was refused was refused with one sentence.

By hand: ``python tests/service/sweep.py`` for every n, ``--power 1000`` for cuts, ``--every 50`` for some.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from preload import compiled
from scene import Scene

from pairrank.errors import StorageError
from pairrank.features import linear
from pairrank.service.learning import learner
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.replay import replay
from pairrank.service.learning.verify import verify
from pairrank.service.store import SqlStore, open_impatient, open_store, sqlite
from pairrank.service.store.transfer import backup

RANKER = "dbgd"  # learns in no time
ROLES = ("worker", "learner", "backup")
KINDS = ("write", "sync", "truncate", "rename")
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
AFTER = 15  # rounds that are lived after a fault
PATIENCE = 40  # tries until a store must be back after a fault
learner.COUNT_SECONDS = 0.0  # old versions go whenever it tends the store
linear.LISTS = 4  # lists that are kept whole in every version; here they would be most of the work
sqlite.RENEW_SECONDS = 0.002  # a fault here lasts for a call, not for minutes


class Fault(NamedTuple):
    """What goes wrong in a life; ``at`` 0: nothing."""

    role: str = "worker"
    kind: str = "write"
    at: int = 0
    times: int = 1
    error: str = "EIO"
    rounds: int = 80  # lists served
    power: int = 0  # the call of all at which the power goes
    power_after: int = 0  # how many calls after the fault it goes
    seed: int = 0


# After these a store was damaged once: the power went while a checkpoint copied what a failed flush had left out.
# They hold for this course of a life; after a change, find others while `SqliteDatabase._write_wal_again` does nothing.
FOUND = (
    Fault(kind="sync", at=24, power_after=5, seed=2405, rounds=25),
    Fault(kind="sync", at=25, power_after=6, seed=2506, rounds=25),
    Fault(kind="sync", at=29, power_after=7, seed=2907, rounds=25),
)


def patient(work: Callable[[], Any], say: Callable[..., None]) -> Any:
    """Try until it works, as clients and supervisors do."""
    for _ in range(PATIENCE):
        try:
            return work()
        except StorageError as problem:
            say("refused", str(problem))
            time.sleep(sqlite.RENEW_SECONDS)
    say("gone")
    os._exit(1)


class Life:
    """One run; what clients are told goes out by ``say`` at once."""

    def __init__(self, disk: ctypes.CDLL, folder: Path, fault: Fault, say: Callable[..., None]) -> None:
        self._disk, self._say, self._folder = disk, say, folder
        disk.disk_folder(str(folder).encode())
        disk.disk_fail(ROLES.index(fault.role), KINDS.index(fault.kind), fault.at, fault.times, ERRORS[fault.error])
        disk.disk_power(fault.power, fault.power_after, fault.seed)
        self._rounds = fault.rounds
        path = folder / "store.db"
        self._writing: SqlStore = patient(lambda: open_store(path), say)
        self._at_once: SqlStore = patient(lambda: open_impatient(path), say)
        self._scene: Scene = patient(lambda: Scene(self._writing, ranker=RANKER), say)
        self._list = self._scene.ranker.rank([[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]])
        self._role("learner")
        self._learning: SqlStore = patient(lambda: open_store(path), say)
        self._learner = Learner(self._learning, clock=lambda: self._scene.now)

    def run(self) -> None:
        left = self._rounds
        for number in range(self._rounds):
            if self._disk.disk_fired():
                left = min(left, AFTER)
            if left == 0:
                break
            left -= 1
            self._scene.now += 1.0
            self._role("worker")
            self._serve(number)
            self._role("learner")
            learner.TEND_SECONDS = 0.0 if number % 4 == 3 else math.inf
            self._learn()
        self._role("backup")
        copy = self._folder / "copy.db"
        try:
            backup(self._writing, copy)
        except StorageError as problem:
            self._say("refused", str(problem))
        except OSError as problem:
            self._say("refused", problem.strerror)
        else:
            self._say("copied")
        self._role("worker")
        patient(lambda: self._serve(0, quiet=False), self._say)
        self._role("learner")
        patient(lambda: self._learn(quiet=False), self._say)
        self._say("calls", *(self._disk.disk_calls(r, k) for r in range(len(ROLES)) for k in range(len(KINDS))))

    def _role(self, name: str) -> None:
        self._disk.disk_role(ROLES.index(name))

    def _serve(self, number: int, *, quiet: bool = True) -> None:
        """Show a list and send feedback, or an event; as a worker does it, on two connections."""
        scene = self._scene
        try:
            row = self._writing.ranker(scene.name)
            item = scene._served(row, replace(self._list, number=self._writing.allocate(row.id, 1)))
            self._at_once.serve([item])
            name = f"{item.number}-{item.token}"
            if number % 4 == 3:
                self._say("event", scene.event(item, "e").status.value, name)
            else:
                self._say("feedback", scene.feedback([item])[0].status.value, name)
        except StorageError as problem:
            self._say("refused", str(problem))
            if not quiet:
                raise

    def _learn(self, *, quiet: bool = True) -> None:
        try:
            self._learner.step(publish=True)
        except StorageError as problem:
            self._learner = Learner(self._learning, clock=lambda: self._scene.now)  # as `Learner.run` forgets
            self._say("refused", str(problem))
            if not quiet:
                raise


def live(disk: ctypes.CDLL, folder: Path, fault: Fault) -> list[list[Any]]:
    """One life in a process of its own; what it said."""
    reading, writing = os.pipe()
    (folder / "disk").mkdir()
    child = os.fork()
    if not child:
        code = 1
        try:
            Life(disk, folder, fault, lambda *said: os.write(writing, json.dumps(said).encode() + b"\n") and None).run()
            code = 0
        except BaseException as problem:
            os.write(writing, json.dumps(("broke", repr(problem))).encode() + b"\n")
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = [json.loads(line) for line in pipe]
    os.waitpid(child, 0)
    return lines


def judge(folder: Path, said: list[list[Any]], fault: Fault) -> list[str]:
    """What is wrong after a life."""
    faults = [f"broke: {line[1]}" for line in said if line[0] == "broke"]
    power = fault.power or fault.power_after
    if not power and said[-1][0] != "calls":
        faults.append("it did not come back")
    told = {kind: [line[2] for line in said if line[:2] == [kind, "accepted"]] for kind in ("feedback", "event")}
    if any(line[0] == "refused" and not str(line[1]).strip() for line in said):
        faults.append("refused without a word")
    disk = folder / "after"  # what a power cut at the end would leave
    disk.mkdir()
    for name in ("store.db", "store.db-wal"):
        with suppress(FileNotFoundError):
            shutil.move(folder / "disk" / name, disk / name)
    if not told["feedback"] and power:
        return faults  # the power went before anything was promised
    faults += [f"after a power cut: {text}" for text in look(disk / "store.db", told)]
    if ["copied"] in said and fault.role == "backup":
        whole = {kind: [name for name in names if name not in _after_copy(said)] for kind, names in told.items()}
        faults += [f"the copy: {text}" for text in look(folder / "copy.db", whole)]
    if ["copied"] not in said and (folder / "copy.db").exists():
        faults.append("a copy is there that was not said to be")
    return faults


def _after_copy(said: list[list[Any]]) -> set[str]:
    return {line[2] for line in said[said.index(["copied"]) :] if line[0] in ("feedback", "event")}


def look(path: Path, told: dict[str, list[str]]) -> list[str]:
    """Faults of a store that must hold what was acknowledged."""
    try:
        with closing(open_store(path)) as store:
            faults = verify(store)
            if not store.rankers():
                return [*faults, *(f"no ranker, and {len(names)} {kind} lost" for kind, names in told.items())]
            last = Learner(store, clock=lambda: 1e9)  # closes every window
            while last.step(publish=True):  # on a busy machine one step may not be enough
                pass
            row = store.rankers()[0]
            logged = store.database.all("SELECT number, token, clicks FROM log")
            names = [f"{number}-{token}" for number, token, _ in logged]
            lost = (set(told["feedback"]) | set(told["event"])) - set(names)
            faults += [f"acknowledged and lost: {name}" for name in sorted(lost)]
            clicked = {f"{number}-{token}" for number, token, clicks in logged if 1 in clicks}
            faults += [f"its click was lost: {name}" for name in sorted(set(told["event"]) & set(names) - clicked)]
            if not row.learned == row.applied == row.log_seq == len(set(names)) == len(names):
                faults.append(f"{len(names)} logged, {row.applied} applied, {row.learned} learned")
            if not replay(store, row).same:  # the last model and every version that is kept
                faults.append("the model is not the log's")
            return faults
    except StorageError as problem:
        return [str(problem)]


def faults_of(counts: list[int], every: int, times: int) -> Iterator[Fault]:
    """Every ``every``-th call of each role and kind, with each error."""
    place = 0
    for role in ROLES:
        for kind in KINDS:
            for at in range(1, counts[place] + 1):
                for number, error in enumerate(ERRORS):
                    # One of the two goes on, after the other the power goes soon.
                    # After a flush that failed, a cut while the store mends itself is what hurts.
                    cut = 0 if (at // 2 + number) % 2 else 1 + at * 7 % (15 if kind == "sync" else 100)
                    if (at + number * (every // 2)) % every == 0:
                        yield Fault(role, kind, at, times, error, power_after=cut, seed=at)
            place += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only every so many-th call")
    parser.add_argument("--times", type=int, default=1, help="how many calls in a row fail")
    parser.add_argument("--rounds", type=int, default=80, help="how long a life is, in lists served")
    parser.add_argument("--role", choices=ROLES, help="calls of this part only")
    parser.add_argument("--kind", choices=KINDS, help="calls of this kind only")
    parser.add_argument("--first", type=int, default=1, help="begin with this call")
    parser.add_argument("--power", type=int, default=0, help="cut the power this often at random calls, and fail none")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        if "SWEEP" not in os.environ:
            library = compiled("disk", Path(name))
            environment = os.environ | {"SWEEP": "1", "LD_PRELOAD": str(library), "PAIRRANK_COMPILED": "0"}
            return os.spawnve(os.P_WAIT, sys.executable, [sys.executable, *sys.argv], environment)
        disk = ctypes.CDLL(None)
        disk.disk_calls.restype = ctypes.c_long
        disk.disk_fail.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_int]
        disk.disk_power.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_uint]
        counts = _live_and_judge(disk, Path(name) / "sound", Fault(rounds=args.rounds))
        assert counts is not None
        if args.power:
            chance = random.Random(args.seed)
            total = sum(counts)
            plans = [
                Fault(rounds=args.rounds, power=chance.randint(1, total), seed=chance.randrange(2**31))
                for _ in range(args.power)
            ]
        else:
            plans = [
                fault._replace(rounds=args.rounds)
                for fault in faults_of(counts, args.every, args.times)
                if args.role in (None, fault.role) and args.kind in (None, fault.kind) and fault.at >= args.first
            ]
        started, bad = time.monotonic(), 0
        plans = [*FOUND, *plans]
        for number, fault in enumerate(plans):
            bad += _live_and_judge(disk, Path(name) / str(number), fault) is None
            if number % 250 == 249:
                print(f"{number + 1} of {len(plans)}", flush=True)
        named = [f"{role} {kind}" for role in ROLES for kind in KINDS]
        print(", ".join(f"{count} {what}" for count, what in zip(counts, named, strict=True) if count))
        print(f"{len(plans)} lives with a fault in {time.monotonic() - started:.0f} s: {bad} failed")
    return 1 if bad else 0


def _live_and_judge(disk: ctypes.CDLL, folder: Path, fault: Fault) -> list[int] | None:
    """The number of calls of each role and kind; None when something was wrong, which is printed."""
    folder.mkdir()
    said = live(disk, folder, fault)
    faults = judge(folder, said, fault)
    shutil.rmtree(folder)
    if faults:
        print(fault, *faults[:4], sep="\n  ", flush=True)
        return None
    return [int(count) for count in said[-1][1:]] if said and said[-1][0] == "calls" else []


if __name__ == "__main__":
    sys.exit(main())
