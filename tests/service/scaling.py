"""What scaling out gives and costs, measured on a private PostgreSQL; by hand, the figures are in docs/scaling.md.

``python tests/service/scaling.py PART…``, where PART is

takeover  how long until another learner has the rankers of one that was killed, and of one that was paused
fair      1,000 rankers over two learners, one ranker with a third of all feedback: each ranker's lag
busy      feedbacks per second of one learner on one ranker
hosts     lists per second of processor time with 1, 2 and 4 services, each in a network namespace (as root)
polls     what looking for work costs, by the number of rankers
start     how long a service takes to start with 10,000 rankers
big       serving and feedback with --rows impressions in the store, over the same with 10,000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from cluster import Postgres, postgres_bin, running, until
from hosts import Host, Network, network
from tree import Tree

from pairrank.bench.http_load import Target, children, closed_loop, rank_bodies, wait_until_ready
from pairrank.kernel import jit
from pairrank.service.learning.learner import Learner
from pairrank.service.store import SqlStore, open_store
from pairrank.service.store.postgres import LEARNER_LOCK
from pairrank.service.store.values import Config, Feedback, Limits, Served, new_batch, token_of

SHOWN = 10
BATCH = 50


class Rankers:
    """Rankers of a store, and lists that are shown and answered without HTTP."""

    def __init__(self, url: str, count: int, n_features: int = 2) -> None:
        self.store, self._batch, self._rng = open_store(url), new_batch(), np.random.default_rng(0)
        config = Config(n_features, options={})
        with self.store.database.transaction():  # one for all, to be quick
            first = self.store.create("r0", config, Limits(), time.time(), "scaling")[0]
            for table, columns in (
                ("rankers", "config, limits, secret, created"),
                ("snapshots", "version, learned, skipped, digest, created, kept, body"),
                ("heads", "version, applied, learned, skipped, digest, updated"),
            ):
                key, name = ("name", "'r' || n") if table == "rankers" else ("ranker_id", f"{first.id} + n")
                here = "id" if table == "rankers" else "ranker_id"
                self.store.database.all(
                    f"INSERT INTO {table} ({key}, {columns}) SELECT {name}, {columns} FROM {table}, "
                    f"generate_series(1, {count - 1}) n WHERE {table}.{here} = {first.id} ORDER BY n"
                )
            self.store.database.bump()
        self.ids = self.store.ranker_ids()
        self.next: dict[int, int] = {}  # numbers of impressions; nobody else gives them out
        self._secret, self._ranker = first.secret, config.make()
        self._n_features = n_features

    def shown(self, ranker_id: int, count: int) -> list[Served]:
        """Lists that nobody has written yet."""
        now, first, made = time.time(), self.next.get(ranker_id, 0), []
        self.next[ranker_id] = first + count
        for number in range(first, first + count):
            X = self._rng.random((SHOWN, self._n_features))
            body = self._ranker.rank(X, SHOWN, number=number).to_bytes()
            token = token_of(self._secret, number, self._batch)
            ids = json.dumps([f"d{place}" for place in range(SHOWN)])
            made.append(Served(ranker_id, number, token, now, now + 600, now + 86400, 0, None, ids, body))
        return made

    def answer(self, lists: list[Served]) -> None:
        clicks = [frozenset([f"d{self._rng.integers(SHOWN)}"]) for _ in lists]
        sent = [Feedback(one.ranker_id, one.number, one.token, c) for one, c in zip(lists, clicks, strict=True)]
        assert {verdict.status.value for verdict in self.store.feedback(sent, time.time())} == {"accepted"}

    def visit(self, ranker_ids: Sequence[int], count: int = 1) -> None:
        """Show and answer lists of each; ``next`` is then how many each has had."""
        lists = [one for ranker_id in ranker_ids for one in self.shown(ranker_id, count)]
        self.store.serve(lists)
        self.answer(lists)


@contextmanager
def learning(url: str, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    learners = [learner(url) for _ in range(count)]
    try:
        yield learners
    finally:
        for process in learners:
            process.kill()
            process.wait()


def learner(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "learner", "--url", url], stderr=subprocess.DEVNULL)


def behind(store: SqlStore, ids: list[int]) -> bool:
    heads = store.heads()
    return any(heads[number].applied < heads[number].log_seq for number in ids)


def takeover(server: Postgres, times: int) -> None:
    url = server.new_database()
    rankers = Rankers(url, 20)
    with learning(url, 2) as learners:
        _takeover(url, rankers, learners, times)


def _takeover(url: str, rankers: Rankers, learners: list[subprocess.Popen[bytes]], times: int) -> None:
    for name, number in (("kill -9", signal.SIGKILL), ("SIGSTOP", signal.SIGSTOP)):
        took = []
        for _ in range(times):
            until(lambda: rankers.store.database.locks()[0, LEARNER_LOCK] == 2)
            rankers.visit(rankers.ids)
            until(lambda: not behind(rankers.store, rankers.ids))
            time.sleep(1.0 + random.random())  # now both hold their share
            gone = learners.pop(0)
            os.kill(gone.pid, number)
            began = time.monotonic()
            rankers.visit(rankers.ids)
            until(lambda: not behind(rankers.store, rankers.ids))
            took.append(time.monotonic() - began)
            if number == signal.SIGSTOP:
                os.kill(gone.pid, signal.SIGCONT)
                learners.append(gone)
            else:
                gone.wait()
                learners.append(learner(url))
        print(f"{name}: all 20 rankers learned on after {statistics.median(took):.2f} s, at most {max(took):.2f} s")


def fair(server: Postgres, seconds: float) -> None:
    url = server.new_database()
    rankers = Rankers(url, 1000)
    with learning(url, 2):
        _fair(rankers, open_store(url), seconds)


def _fair(rankers: Rankers, follower: SqlStore, seconds: float) -> None:
    rankers.visit(rankers.ids)  # all models are in memory before it is counted
    until(lambda: not behind(rankers.store, rankers.ids), 300)
    waiting: list[tuple[int, int, float]] = []
    lags: dict[int, list[float]] = {one: [] for one in rankers.ids}
    chance = random.Random(0)
    began, sent = time.monotonic(), 0
    order = [one for one in rankers.ids for _ in range(3)]
    chance.shuffle(order)
    while waiting or order:
        if order and time.monotonic() - began < seconds and len(waiting) < 500:
            chosen = [order.pop() for _ in range(min(20, len(order)))]
            rankers.visit(rankers.ids[:1], 10)
            rankers.visit(chosen)
            waiting += [(one, rankers.next[one], time.monotonic()) for one in (rankers.ids[0], *chosen)]
            sent += 10 + len(chosen)
        elif time.monotonic() - began >= seconds:
            order.clear()
        heads, now, still = follower.heads(), time.monotonic(), []
        for one, seq, at in waiting:
            if heads[one].applied >= seq:
                lags[one].append(now - at)
            else:
                still.append((one, seq, at))
        waiting = still
    means = sorted(statistics.fmean(of) for of in lags.values() if of)
    median = statistics.median(means)
    print(
        f"{sent} feedbacks of {len(means)} rankers in {time.monotonic() - began:.0f} s: lag, median of rankers "
        f"{median:.2f} s, largest {means[-1]:.2f} s ({means[-1] / median:.1f} times), "
        f"of the busy one {statistics.fmean(lags[rankers.ids[0]]):.2f} s"
    )


def busy(server: Postgres, count: int) -> None:
    for n_features in (16, 136):
        rankers = Rankers(server.new_database(), 1, n_features)
        backend = Target(0, tuple(rankers.store.database.all("SELECT pg_backend_pid()")[0]))
        written = backend.spent() or 0.0
        for _ in range(count // BATCH):
            rankers.visit(rankers.ids, BATCH)
        written = (backend.spent() or 0.0) - written
        at_work, cpu, database = Learner(rankers.store), time.process_time(), backend.spent() or 0.0
        while at_work.step(publish=True):
            pass
        cpu, database = time.process_time() - cpu, (backend.spent() or 0.0) - database
        assert rankers.store.rankers()[0].learned == count
        print(
            f"{n_features} features, lists of {SHOWN}: {count / cpu:.0f} feedbacks per second of the learner's "
            f"processor, {count / database:.0f} of the database's for it; "
            f"writing a list and its feedback took the database {1e6 * written / count:.0f} µs, {BATCH} at a time"
        )


def spent(server: Postgres) -> float:
    """Processor seconds of the database."""
    main = server._server.pid
    return Target(0, (main, *children(main))).spent() or 0.0


def hosts(server: Postgres, net: Network, seconds: float) -> None:
    """Four services are there all the time; one, two or all of them get lists, by turns, since the machine drifts."""
    requests, _ = rank_bodies(50, 16, SHOWN, 20)
    store = server.new_database()
    trees = [Tree(store, prefix=host.prefix) for host in net.hosts]
    net.hosts[0].do(lambda: trees[0].client.create("bench", 16))
    for host, tree in zip(net.hosts, trees, strict=True):
        host.do(partial(wait_until_ready, tree._port))
    workers = [tree.children("worker")[0] for tree in trees]
    learners = [tree.children("learner")[0] for tree in trees]

    def visit(host: Host, tree: Tree) -> float:
        return host.do(lambda: asyncio.run(closed_loop(tree._port, requests, 3.0, 4))) * 3.0

    def load(count: int) -> float:
        with ThreadPoolExecutor() as pool:
            return sum(pool.map(visit, net.hosts[:count], trees[:count]))

    load(4)  # warm
    costs: dict[int, list[tuple[float, float, float]]] = {1: [], 2: [], 4: []}
    for _ in range(int(seconds / 9)):
        for count, found in costs.items():
            parts = [Target(0, tuple(workers[:count])), Target(0, tuple(learners)), None]
            before = [spent(server) if part is None else part.spent() or 0.0 for part in parts]
            done = load(count)
            after = [spent(server) if part is None else part.spent() or 0.0 for part in parts]
            worker, learner, database = ((now - then) / done for now, then in zip(after, before, strict=True))
            found.append((worker, learner, database))
    for count, found in costs.items():
        ratio = statistics.median(one[0] / here[0] for one, here in zip(costs[1], found, strict=True))
        whole = statistics.median(sum(one) / sum(here) for one, here in zip(costs[1], found, strict=True))
        parts_of = " µs, ".join(f"{1e6 * statistics.median(part):.0f}" for part in zip(*found, strict=True))
        print(
            f"{count} hosts: {count * ratio:.2f} times the lists of one for as much processor time of each worker, "
            f"{count * whole:.2f} with learners and database; a list takes {parts_of} µs"
        )
    for tree in trees:
        tree.stop()


def polls(server: Postgres) -> None:
    for count in (10, 1000, 10_000):
        rankers = Rankers(server.new_database(), count)
        store = rankers.store
        few = rankers.ids[:100]
        for name, work in (
            ("a worker of all looks for newer models", partial(store.heads, rankers.ids)),
            ("a worker of 100 looks for newer models", partial(store.heads, few)),
            ("a learner of all looks for work", store.due),
            ("a learner of 100 looks for work", partial(store.due, few)),
            ("a learner takes its share", partial(store.database.hold, [0, *rankers.ids])),
        ):
            for _ in range(10):
                work()
            ours, theirs, times = time.process_time(), spent(server), 30
            for _ in range(times):
                work()
            ours, theirs = (time.process_time() - ours) / times, (spent(server) - theirs) / times
            print(f"{count} rankers, {name}: {1e3 * ours:.2f} ms, and {1e3 * theirs:.2f} ms of the database")
        store.close()


def start(server: Postgres) -> None:
    for count in (1, 10_000):
        url = server.new_database()
        Rankers(url, count).store.close()
        began = time.monotonic()
        tree = Tree(url)
        wait_until_ready(tree._port)
        print(f"{count} rankers: ready after {time.monotonic() - began:.1f} s")
        tree.stop()


def big(server: Postgres, rows: int) -> None:
    """Of the rows nine in ten are in the log and one waits, over ten rankers; bodies have 200 bytes."""
    stores = {}
    for count in (10_000, rows):
        began = time.monotonic()
        rankers = stores[count] = Rankers(server.new_database(), 10)
        database, now = rankers.store.database, time.time()
        database.all("SET statement_timeout = 0")
        for one in rankers.ids:
            each = count // 10
            value = f"lpad(n::text, 22, '0'), {now}, 0, '[]', decode(repeat('ab', 200), 'hex')"
            database.all(
                "INSERT INTO log (ranker_id, seq, kind, number, token, created, version, ids, body) "
                f"SELECT {one}, n, 'feedback', n, {value} FROM generate_series(1, {each * 9 // 10}) n"
            )
            database.all(
                "INSERT INTO impressions (ranker_id, number, closes, expires, token, created, version, ids, body) "
                f"SELECT {one}, n, {now + 600}, {now + 86400}, {value} "
                f"FROM generate_series({each * 9 // 10 + 1}, {each}) n"
            )
            rankers.next[one] = each + 1
            database.all(f"UPDATE rankers SET log_seq = {each * 9 // 10} WHERE id = {one}")
            database.all(f"UPDATE heads SET applied = {each * 9 // 10} WHERE ranker_id = {one}")
        for table in ("log", "impressions"):
            database.all(f"VACUUM ANALYZE {table}")
        size = database.all("SELECT pg_database_size(current_database())")[0][0] / 1e9
        print(f"{count} impressions, {size:.2f} GB, after {time.monotonic() - began:.0f} s", flush=True)
    took: dict[tuple[int, str], list[float]] = {}
    for turn in range(300):
        for count, rankers in stores.items():
            lists = rankers.shown(rankers.ids[turn % 10], 8)
            for name, work in (("serve", rankers.store.serve), ("feedback", rankers.answer)):
                began = time.perf_counter()
                work(lists)
                took.setdefault((count, name), []).append(time.perf_counter() - began)
    for name in ("serve", "feedback"):
        small, large = (statistics.median(took[count, name][30:]) for count in stores)
        print(f"{name} of 8 lists: {1e3 * small:.2f} ms, {1e3 * large:.2f} ms with {rows}: {large / small:.2f} times")
    for work in (lambda s: s.count_open(1), lambda s: s.expire(time.time()), lambda s: s.close_windows(time.time())):
        began = time.perf_counter()
        work(stores[rows].store)
        print(f"{work.__code__.co_names[-1]}: {1e3 * (time.perf_counter() - began):.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+")
    parser.add_argument("--url")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    given = parser.parse_args()
    if given.parts == ["learner"]:
        jit.load()  # as `pairrank.service.process` does
        Learner(open_store(given.url)).run(threading.Event())
        return
    binaries = postgres_bin() or Path()
    works: dict[str, Callable[[Postgres], None]] = {
        "takeover": lambda server: takeover(server, given.times),
        "fair": lambda server: fair(server, given.seconds),
        "busy": lambda server: busy(server, given.count),
        "polls": polls,
        "start": start,
        "big": lambda server: big(server, given.rows),
    }
    if "hosts" in given.parts:
        with network(4) as net, running(binaries, host=net.address) as server:
            hosts(server, net, given.seconds)
    with running(binaries) as server:
        for part in given.parts:
            if part != "hosts":
                works[part](server)


if __name__ == "__main__":
    main()
