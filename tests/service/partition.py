"""Pull the cable of one of two hosts on a PostgreSQL, put it back, and look what is left.

Each host is a network namespace with a service of its own; the database is outside. Without a cable nobody hears that a
connection has ended. Then the other host's learner must have all rankers within seconds, and the one that was cut off,
which still believes that it holds some, can publish nothing. With the cable back it must serve again within seconds,
however long it was away. In the end everything acknowledged is in the log, once, and models are those of the log.

By hand, as root: ``python tests/service/partition.py --cuts 5 --seconds 40``.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from cluster import Postgres, postgres_bin, running, until
from hosts import Host, Network, network
from tree import Tree

from pairrank.client import Client, ServiceError, UnreachableError
from pairrank.service.learning.replay import replay
from pairrank.service.learning.verify import verify
from pairrank.service.store import SqlStore, open_store

RANKERS = [f"r{number}" for number in range(12)]


class Outcome(NamedTuple):
    acknowledged: int
    taken_over: list[float]  # seconds from a cut until all rankers had learned something new
    back: list[float]  # seconds from the cable's return until feedback was acknowledged there
    faults: list[str]


class Visitor(threading.Thread):
    """Ranks and clicks on one host, without a pause, until told to stop."""

    def __init__(self, host: Host, port: int) -> None:
        super().__init__(daemon=True)
        self._host, self._port = host, port
        self.acknowledged: list[tuple[str, str, float]] = []  # ranker, list, when
        self.refused: Counter[str] = Counter()
        self.stop = threading.Event()

    def run(self) -> None:
        self._host.do(self._visit)

    def _visit(self) -> None:
        with Client(f"http://127.0.0.1:{self._port}", timeout=1.0, retries=0) as client:
            while not self.stop.wait(0.02):
                name = RANKERS[len(self.acknowledged) % len(RANKERS)]
                try:
                    shown = client.rank(name, {"a": [0.0, 1.0], "b": [1.0, 0.0]})
                    client.feedback(name, shown.impression_id, ["b"])
                except (ServiceError, UnreachableError) as problem:
                    self.refused[str(problem)] += 1
                    continue
                self.acknowledged.append((name, shown.impression_id, time.monotonic()))


def learned(store: SqlStore) -> dict[str, int]:
    return {row.name: row.applied for row in store.rankers()}


def _all_above(now: dict[str, int], before: dict[str, int]) -> bool:
    return all(now[name] > before[name] for name in now)


def run(server: Postgres, net: Network, cuts: int, seconds: float) -> Outcome:
    """Cut off the first host so often, each time for so long."""
    url = server.new_database()
    trees = [Tree(url, prefix=host.prefix) for host in net.hosts]
    visitors = [Visitor(host, tree._port) for host, tree in zip(net.hosts, trees, strict=True)]
    store, taken_over, back, faults = open_store(url), list[float](), list[float](), list[str]()
    try:
        for name in RANKERS:
            net.hosts[0].do(lambda name=name: trees[0].client.create(name, 2))  # type: ignore[misc]
        for visitor in visitors:
            visitor.start()
        for _ in range(cuts):
            until(lambda: all(visitor.acknowledged for visitor in visitors) and min(learned(store).values()) > 0)
            time.sleep(1.0)  # both learners hold their share
            net.hosts[0].cut()
            cut, before = time.monotonic(), learned(store)
            time.sleep(0.1)  # what was on its way
            taken_over.append(until(lambda before=before: _all_above(learned(store), before)))
            time.sleep(max(0.0, cut + seconds - time.monotonic()))
            net.hosts[0].mend(net.bridge)
            mended = time.monotonic()
            back.append(until(lambda mended=mended: visitors[0].acknowledged[-1][2] > mended))
    except TimeoutError as problem:
        told = [(len(visitor.acknowledged), visitor.refused) for visitor in visitors]
        faults.append(f"{problem}: applied {learned(store)}, acknowledged and refused {told}")
    finally:
        for visitor in visitors:
            visitor.stop.set()
            visitor.join()
        for host, tree in zip(net.hosts, trees, strict=True):
            host.mend(net.bridge)
            tree.stop()
    acknowledged = {(name, shown) for visitor in visitors for name, shown, _ in visitor.acknowledged}
    store.close()
    return Outcome(len(acknowledged), taken_over, back, [*faults, *judge(url, acknowledged)])


def judge(url: str, acknowledged: set[tuple[str, str]]) -> list[str]:
    """Whether everything is there, once, and learned."""
    store = open_store(url)
    faults, names = verify(store), {row.id: row.name for row in store.rankers()}
    rows = store.database.all("SELECT ranker_id, number, token FROM log")
    logged = [(names[key], f"{number}-{token}") for key, number, token in rows]
    if lost := acknowledged - set(logged):
        faults.append(f"{len(lost)} acknowledged feedbacks are not in the log, such as {min(lost)}")
    if len(set(logged)) < len(logged):
        faults.append("a list is in the log twice")
    for row in store.rankers():
        if row.learned != row.log_seq:
            faults.append(f"{row.name} has learned {row.learned} lists of {row.log_seq}")
        if not replay(store, row).same:
            faults.append(f"{row.name} is not what its log gives")
    store.close()
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    with network(2) as net, running(postgres_bin() or Path(), host=net.address) as server:
        outcome = run(server, net, args.cuts, args.seconds)
    print(outcome)
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
