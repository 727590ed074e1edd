"""A million feedbacks through a store and its learner, which is killed with SIGKILL on the way.

The learner is a process of its own, as in the service; this process draws lists with the newest published model and
writes them and their clicks to the store, without HTTP. With 32 features the history is full after a quarter of a
million lists, so that most of the run folds. Every tenth of it prints a row: the learner's memory, the size of the
newest published version and of the store. At the end the log is replayed in one go, without any restart: it must give
the stored model, bit for bit, and all versions that are kept.

By hand: ``python tests/service/million.py FOLDER`` takes about half an hour and 4 GB of FOLDER. ``--history-mib 4
--feedbacks 40000`` folds as much in a minute.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from pairrank.estimator import posterior
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.model import load_head
from pairrank.service.learning.replay import replay
from pairrank.service.store import SqlStore, open_store
from pairrank.service.store.values import Config, Feedback, Limits, RankerRow, Served, new_batch, token_of

DOCUMENTS, K = 12, 10
BATCH = 250
MAX_LAG = 5000  # entries that the learner may be behind
KILLED = (0.35, 0.75)  # of the feedbacks


def learn(path: Path) -> None:
    """The learner of a store, until it is killed."""
    Learner(open_store(path)).run(threading.Event())


def started(path: Path) -> subprocess.Popen[bytes]:
    mib = str(posterior.HISTORY_BYTES // 2**20)
    return subprocess.Popen([sys.executable, __file__, str(path), "--learn", "--history-mib", mib])


class Users:
    """Draws lists of random documents and clicks on them."""

    def __init__(self, store: SqlStore, n_features: int) -> None:
        self._store, self._rng, self._batch = store, np.random.default_rng(0), new_batch()
        self._taste = self._rng.normal(size=n_features) * 4.0 / n_features**0.5

    def visit(self, row: RankerRow, count: int) -> None:
        """``count`` lists, shown and answered."""
        ranker, rng, now = load_head(self._store, row).ranker, self._rng, time.time()
        first = self._store.allocate(row.id, count)
        shown, answers = [], []
        for number in range(first, first + count):
            X = rng.random((DOCUMENTS, len(self._taste)))
            impression = ranker.rank(X, K, number=number)
            clicks = rng.random(K) < 1.0 / (1.0 + np.exp(1.5 - (impression.features - 0.5) @ self._taste))
            ids = [str(place) for place in impression.ranking.tolist()]
            token, body = token_of(row.secret, number, self._batch), impression.to_bytes()
            times = (now, now + row.limits.window_seconds, now + row.limits.retention_seconds)
            shown.append(Served(row.id, number, token, *times, row.version, None, json.dumps(ids), body))
            answers.append(Feedback(row.id, number, token, frozenset(np.array(ids)[clicks].tolist())))
        self._store.serve(shown)
        assert all(verdict.status.value == "accepted" for verdict in self._store.feedback(answers, now))


def row_of(store: SqlStore) -> RankerRow:
    return store.ranker("a")


def report(store: SqlStore, path: Path, learner: int, began: float) -> None:
    row = row_of(store)
    snapshot = store.snapshot(row.id, row.version)
    status = Path(f"/proc/{learner}/status").read_text()
    now, peak = (int(re.findall(rf"{name}:\s+(\d+)", status)[0]) // 1024 for name in ("VmRSS", "VmHWM"))
    assert snapshot is not None
    disk = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    print(
        f"| {row.applied:,} | {now} | {peak} | {len(snapshot.body) / 1000:.0f} | {disk / 1e6:,.0f} "
        f"| {len(store.versions(row.id))} | {time.monotonic() - began:.0f} |",
        flush=True,
    )


def run(path: Path, feedbacks: int, n_features: int) -> bool:
    """Whether the log gives the model that was learned with interruptions."""
    store, began = open_store(path), time.monotonic()
    store.create("a", Config(n_features=n_features, options={}), Limits(), time.time(), "by hand")
    users, learner = Users(store, n_features), started(path)
    print("| feedbacks | learner, MiB | its peak | published version, kB | store, MB | versions kept | seconds |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    killed = [int(share * feedbacks) for share in KILLED]
    reported = 0
    while (row := row_of(store)).applied < feedbacks:
        assert learner.poll() is None
        if killed and row.applied >= killed[0]:
            killed.pop(0)
            learner.kill()
            assert learner.wait() == -signal.SIGKILL
            learner = started(path)
            print(f"killed and started again after entry {row.applied:,}", flush=True)
        if row.applied >= reported + feedbacks // 10:
            report(store, path, learner.pid, began)
            reported = row.applied
        if row.log_seq < feedbacks and row.log_seq - row.applied < MAX_LAG:
            users.visit(row, min(BATCH, feedbacks - row.log_seq))
        else:
            time.sleep(0.05)
    report(store, path, learner.pid, began)
    learner.terminate()
    learner.wait()
    began = time.monotonic()
    found = replay(store, row_of(store))
    verdict, took = "the same" if found.same else "NOT THE SAME", time.monotonic() - began
    print(f"replay of {found.entries:,} entries and {found.versions_checked} versions in {took:.0f} s: {verdict}")
    store.close()
    return found.same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("--feedbacks", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--history-mib", type=int, default=posterior.HISTORY_BYTES // 2**20)
    parser.add_argument("--learn", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    posterior.HISTORY_BYTES = args.history_mib * 2**20
    if args.learn:
        learn(args.folder)
        return 0
    args.folder.mkdir(parents=True, exist_ok=True)
    return 0 if run(args.folder / "store.db", args.feedbacks, args.features) else 1


if __name__ == "__main__":
    raise SystemExit(main())
