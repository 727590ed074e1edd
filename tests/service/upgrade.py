"""Replace the services on one store by those of this version, one after the other, under load, and count what is lost.

Two services of an earlier commit, each with a worker and a learner, share a store. The first is stopped and started
anew from this version, which brings the tables up to date beneath the other; both versions serve; then the second is
replaced. Clients go to either, as a balancer sends them, and away from one that does not answer. At the end every
acknowledged feedback is in the log once and has been learned once, and the store is whole.

By hand, in a clone with its history: ``python tests/service/upgrade.py COMMIT`` (and ``--postgres``).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from cluster import postgres_bin, running

from pairrank.bench.http_load import wait_until_ready
from pairrank.client import Client
from pairrank.errors import PairRankError
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.verify import verify
from pairrank.service.store import open_store

HERE = Path(__file__).parents[2]
RANKER = "a"
CLIENTS = 3


class Load:
    """Clients that never stop; what they were told, and by which version the list was."""

    def __init__(self) -> None:
        self.ports: dict[int, str] = {}  # of the services that are up, with their versions
        self.acknowledged: list[str] = []
        self.counts: Counter[str] = Counter()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(CLIENTS)]

    @contextmanager
    def going(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()

    def _send(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._stop.is_set():
            documents = {f"d{place}": [chance.random(), chance.random()] for place in range(5)}
            # The list by one service, the feedback by any: the other version may well get it.
            shown, version = self._ask(chance, "rank", documents, k=3)
            clicks = [name for name in shown.ids if chance.random() < documents[name][0]]
            status, other = self._ask(chance, "feedback", shown.impression_id, clicks)
            self.acknowledged.append(shown.impression_id)
            self.counts[f"list by {version}, feedback to {other}: {status}"] += 1

    def _ask(self, chance: random.Random, what: str, *args: Any, **more: Any) -> tuple[Any, str]:
        while True:
            port, version = chance.choice(list(self.ports.items()))
            try:
                with Client(f"http://127.0.0.1:{port}", timeout=20.0, retries=0) as client:
                    return getattr(client, what)(RANKER, *args, **more), version
            except PairRankError as problem:
                self.counts[f"again: {str(problem)[:60]}"] += 1
                time.sleep(0.05)


@contextmanager
def served(source: Path, url: str, load: Load, version: str) -> Iterator[None]:
    """A service from ``source``; a balancer sends clients there from when it is ready until it is told to stop."""
    environment = os.environ | {"PYTHONPATH": str(source), "PAIRRANK_PORT": "0", "PAIRRANK_STORE": url}
    command = [sys.executable, "-m", "pairrank", "serve"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://[^:]+:(\d+)", process.stdout.readline())
        assert found is not None, "it did not start"
        port = int(found[1])
        wait_until_ready(port)
        load.ports[port] = version
        try:
            yield
        finally:
            del load.ports[port]
            process.send_signal(signal.SIGTERM)


def run(old: Path, url: str, seconds: float) -> int:
    load, new = Load(), HERE / "src"
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(served(old, url, load, "old"))
        Client(f"http://127.0.0.1:{next(iter(load.ports))}").create(RANKER, 2)
        second.enter_context(served(old, url, load, "old"))
        with load.going():
            for stack in (first, second):
                time.sleep(seconds)
                stack.close()
                stack.enter_context(served(new, url, load, "new"))
            time.sleep(seconds)
    for what, count in sorted(load.counts.items()):
        print(f"{count:6} {what}")
    faults = judged(url, load.acknowledged)
    print(f"{len(load.acknowledged)} acknowledged", *(faults or ["no fault"]), sep="; ")
    return 1 if faults else 0


def judged(url: str, acknowledged: list[str]) -> list[str]:
    """What is wrong with the store after a last learner has learned what is left."""
    with closing(open_store(url)) as store:
        learner = Learner(store)
        while learner.step(publish=True):
            pass
        row, faults = store.rankers()[0], verify(store)
        logged = Counter(f"{number}-{token}" for number, token in store.database.all("SELECT number, token FROM log"))
    if lost := set(acknowledged) - logged.keys():
        faults.append(f"{len(lost)} acknowledged and lost")
    if not row.log_seq == row.applied == row.learned == len(logged):
        faults.append(f"{len(logged)} lists in {row.log_seq} entries, {row.applied} applied, {row.learned} learned")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the earlier version")
    parser.add_argument("--postgres", action="store_true", help="on a private PostgreSQL")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each of the three parts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        archive = subprocess.run(["git", "archive", args.commit, "src"], cwd=HERE, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", name], input=archive.stdout, check=True)
        url = f"sqlite:///{name}/store.db"
        if args.postgres:
            binaries = postgres_bin()
            if binaries is None:
                parser.error("no PostgreSQL server binaries")
            url = stack.enter_context(running(binaries)).new_database()
        return run(Path(name) / "src", url, args.seconds)


if __name__ == "__main__":
    sys.exit(main())
