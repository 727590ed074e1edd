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

from pairrank.bench.http_load import (
    Target,
    children,
    closed_loop,
    connected,
    rank_bodies,
    request,
    wait_until_ready,
)
from pairrank.kernel import jit
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.model import load_head
from pairrank.service.store import SqlStore, open_store
from pairrank.service.store.postgres import LEARNER_LOCK
from pairrank.service.store.values import Config, Feedback, Limits, Served, new_batch, token_of

SHOWN = 10
BATCH = 50
DAY = 86_400.0


class Rankers:
    """Rankers of a store, and lists that are shown and answered without HTTP."""

    def __init__(self, url: str, count: int, n_features: int = 2) -> None:
        self.store, self._batch, self._rng = open_store(url), new_batch(), np.random.default_rng(0)
        config = Config(n_features, options={})
        self._ranker = config.make()  # the first takes its time, which a transaction has not
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
        self._secret, self._n_features = first.secret, n_features

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
    learners = [child("learner", url) for _ in range(count)]
    try:
        yield learners
    finally:
        for process in learners:
            process.kill()
            process.wait()


def child(part: str, url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, part, "--url", url], stderr=subprocess.DEVNULL)


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
            until(lambda: rankers.store.database.locks()[LEARNER_LOCK] == 2)
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
                learners.append(child("learner", url))
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


def fill(server: Postgres, count: int) -> Rankers:
    """A store with ``count`` impressions of 20 rankers, nine in ten in the log and one that waits, bodies of 100 bytes.

    Indexes are made afterwards, and references are not checked, to be quick.
    """
    began, rankers = time.monotonic(), Rankers(server.new_database(), 20)
    database, now, each = rankers.store.database, time.time(), count // 20
    logged = each * 9 // 10
    database.all("SET statement_timeout = 0")
    database.all("SET session_replication_role = replica")
    database.all("SET maintenance_work_mem = '1GB'")
    made = "conrelid IN ('log'::regclass, 'impressions'::regclass) AND contype IN ('p', 'u')"
    keys = database.all(
        f"SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE {made}"
    )
    for table, name, _ in keys:
        database.all(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    indexes = database.all("SELECT indexname, indexdef FROM pg_indexes WHERE tablename IN ('log', 'impressions')")
    for name, _ in indexes:
        database.all(f"DROP INDEX {name}")
    rows = "SELECT r, n, lpad(n::text, 22, '0'), {now}, 0, '[]', decode(repeat('ab', 100), 'hex'), {more}"
    rows += " FROM generate_series({first}, {last}) n, unnest(ARRAY{ids}) r"
    columns = "ranker_id, number, token, created, version, ids, body"
    for table, more, values, begin, end in (
        ("log", "seq, kind", "n, 'feedback'", 1, logged),
        # What waits expires in the course of a day, beginning in a day.
        (
            "impressions",
            "closes, expires",
            f"{now + 600}, {now + DAY} + {DAY}::float8 * (n - {logged}) / {each - logged}",
            logged + 1,
            each,
        ),
    ):
        for first in range(begin, end + 1, 50_000):
            last = min(first + 49_999, end)
            some = rows.format(now=now, more=values, first=first, last=last, ids=rankers.ids)
            database.all(f"INSERT INTO {table} ({columns}, {more}) {some}")
    print(f"{count} impressions loaded after {time.monotonic() - began:.0f} s", flush=True)
    for table, name, text in keys:
        database.all(f"ALTER TABLE {table} ADD CONSTRAINT {name} {text}")
    for _, text in indexes:
        database.all(text)
    database.all(f"UPDATE rankers SET log_seq = {logged}, next_number = {each + 1}")
    database.all(f"UPDATE heads SET applied = {logged}, version = {logged}")
    database.all(f"UPDATE snapshots SET version = {logged}")
    for table in ("log", "impressions"):
        database.all(f"VACUUM ANALYZE {table}")
    rankers.next = dict.fromkeys(rankers.ids, 10**9)  # not those that the service gives out
    print(f"{count} impressions, {_gigabytes(rankers)} GB, after {time.monotonic() - began:.0f} s", flush=True)
    return rankers


def _gigabytes(rankers: Rankers) -> str:
    sizes = "pg_database_size(current_database()), pg_total_relation_size('log'), pg_total_relation_size('impressions')"
    whole, log, waiting = rankers.store.database.all(f"SELECT {sizes}")[0]
    return f"{whole / 1e9:.2f} (log {log / 1e9:.2f}, waiting {waiting / 1e9:.2f})"


def big(server: Postgres, rows: int) -> None:
    measure_big({count: fill(server, count) for count in (10_000, rows)})


def measure_big(stores: dict[int, Rankers]) -> None:
    """Everything with the larger store over the same with the smaller one, by turns; then what retention does to it."""
    large = stores[max(stores)]
    _compare("", stores, 300)
    for name, work in (("count_open", lambda s: s.count_open(1)), ("close_windows", lambda s: s.close_windows(0.0))):
        began = time.perf_counter()
        work(large.store)
        print(f"{name}: {1e3 * (time.perf_counter() - began):.1f} ms", flush=True)
    started: dict[tuple[int, str], list[float]] = {}
    for count, rankers in [*stores.items()] * 3:
        began = time.monotonic()
        tree = Tree(rankers.store.database.url)
        wait_until_ready(tree._port)
        started.setdefault((count, "start to ready"), []).append(time.monotonic() - began)
        tree.stop()
    _print_ratios(started)
    trees = {count: Tree(rankers.store.database.url) for count, rankers in stores.items()}
    for tree in trees.values():
        wait_until_ready(tree._port)
    requests = [text.replace(b"/bench/", b"/r0/") for text in rank_bodies(20, 2, SHOWN, 20)[0]]
    took: dict[tuple[int, str], list[float]] = {}
    for _ in range(12):
        for count, tree in trees.items():
            for name, found in asyncio.run(_visits(tree._port, requests)).items():
                took.setdefault((count, name), []).extend(found)
            rate = asyncio.run(closed_loop(tree._port, requests, 1.0, 8))
            took.setdefault((count, "rank, eight at a time"), []).append(1 / rate)
    _print_ratios(took)
    for tree in trees.values():
        tree.stop()
    _retention(stores)


async def _visits(port: int, requests: list[bytes]) -> dict[str, list[float]]:
    """Seconds of lists over HTTP, and of their feedback, one after the other."""
    took: dict[str, list[float]] = {"rank over HTTP": [], "feedback over HTTP": []}
    async with connected(port, 1) as (connection,):
        for asked in requests:
            began = time.perf_counter()
            shown = json.loads((await connection.ask(asked))[1])
            then = time.perf_counter()
            clicks = {"impression_id": shown["impression_id"], "clicks": [shown["ranking"][0]["id"]]}
            status, _ = await connection.ask(request("POST", "/v1/rankers/r0/feedback", json.dumps(clicks).encode()))
            assert status == 200
            took["rank over HTTP"].append(then - began)
            took["feedback over HTTP"].append(time.perf_counter() - then)
    return took


def _compare(when: str, stores: dict[int, Rankers], turns: int, go_on: Callable[[], bool] = lambda: True) -> None:
    took: dict[tuple[int, str], list[float]] = {}
    for turn in range(turns):
        for count, rankers in stores.items():
            lists = rankers.shown(rankers.ids[turn % 20], 8)
            for name, work in (("writing", rankers.store.serve), ("feedback", rankers.answer)):
                began = time.perf_counter()
                work(lists)
                took.setdefault((count, f"{name} of 8 lists{when}"), []).append(time.perf_counter() - began)
        if not go_on():
            break
    _print_ratios(took)


def _print_ratios(took: dict[tuple[int, str], list[float]]) -> None:
    small, large = dict.fromkeys(count for count, _ in took)
    for name in dict.fromkeys(name for _, name in took):
        one, other = (1e3 * statistics.median(took[count, name]) for count in (small, large))
        tail = [1e3 * statistics.quantiles(took[count, name], n=20)[-1] for count in (small, large)]
        print(
            f"{name}: {one:.2f} ms, {other:.2f} with {large}: {other / one:.2f} times "
            f"(p95 {tail[0]:.1f}, {tail[1]:.1f}; {len(took[small, name])} times)",
            flush=True,
        )


def _retention(stores: dict[int, Rankers]) -> None:
    """What waits expires, as fast as it can be; then one ranker's log is dropped. Meanwhile others go on."""
    large = stores[max(stores)]
    for name in ("expire", "compact"):
        at_work = child(name, large.store.database.url)
        _compare(f" beside {name}", stores, 1_000_000, lambda at_work=at_work: at_work.poll() is None)
        print(f"then {_gigabytes(large)} GB", flush=True)
    large.store.database.vacuum()
    print(f"after a vacuum {_gigabytes(large)} GB", flush=True)


def expire(url: str, seconds: float) -> None:
    """As a learner does it, without its half seconds of rest."""
    store, gone, began = open_store(url), 0, time.monotonic()
    while (found := store.expire(time.time() + 1.5 * DAY)) and time.monotonic() - began < seconds:
        gone += found
    took = time.monotonic() - began
    print(f"expire: {gone} rows in {took:.1f} s, {gone / took:.0f} per second", flush=True)


def compact(url: str) -> None:
    """Drop the longest log, as `pairrank store compact` does."""
    store, began = open_store(url), time.monotonic()
    row = max(store.rankers(), key=lambda row: row.log_seq - row.base)
    gone = store.compact(row, load_head(store, row).ranker, time.time(), "scaling")
    took = time.monotonic() - began
    print(f"compact: {gone} rows in {took:.1f} s, {gone / took:.0f} per second", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+")
    parser.add_argument("--url")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    given = parser.parse_args()
    if given.url is not None:  # a child of ours
        jit.load()  # as `pairrank.service.process` does
        {
            "learner": lambda: Learner(open_store(given.url)).run(threading.Event()),
            "expire": lambda: expire(given.url, given.seconds),
            "compact": lambda: compact(given.url),
        }[given.parts[0]]()
        return
    works: dict[str, Callable[[Postgres], None]] = {
        "takeover": lambda server: takeover(server, given.times),
        "fair": lambda server: fair(server, given.seconds),
        "busy": lambda server: busy(server, given.count),
        "polls": polls,
        "start": start,
        "big": lambda server: big(server, given.rows),
    }
    if "hosts" in given.parts:
        with network(4) as net, running(postgres_bin() or Path(), host=net.address) as server:
            hosts(server, net, given.seconds)
    with running(postgres_bin() or Path()) as server:
        for part in given.parts:
            if part != "hosts":
                works[part](server)


if __name__ == "__main__":
    main()
