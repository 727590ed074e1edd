"""What the service does when more is asked of it than it can do: goodput, latency, memory and health.

    python benchmarks/overload.py [--seconds 3] [--turns 5] [--times 1 2 10] [--connections 6000] [--idle 10000]

Capacity is what eight clients get that each wait for their answer, in lists per second of the worker's processor time.
Then visitors come so many times as often, whether or not anybody has been answered, each on a connection that waits for
nothing; who is refused does not come again. The two take turns, since a machine's speed drifts within seconds: a turn's
capacity is the mean of just before and just after, and the figure is the median of the turns. The first second of a
flood is not counted, so that as many lists are half made at its end as were at its beginning.

The visitors are one process that sends bytes written beforehand and looks at statuses alone, so that it costs little.
Those that find no connection free are counted under 0. Since they share the machine's cores with the worker, and so
does other work, all is counted by the worker's processor time: ten times means ten requests for each list that it could
have made in the time that it got, and goodput is the share that it made.

--idle connections are opened first that never ask for anything, and --slow ones that send a part of a request.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import select
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pairrank.bench.http_load import RANKER, Target, closed_loop, rank_bodies, request, service
from pairrank.client import Client

HEALTH_SECONDS = 0.05
LEAD_SECONDS = 1.0


class Outcome(NamedTuple):
    statuses: Counter[int]
    seconds: float
    spent: float  # seconds of the worker's processor time
    latencies: list[float]  # of lists
    refusals: list[float]
    health: list[float]

    @property
    def sent(self) -> int:
        return sum(count for status, count in self.statuses.items() if status)


class Line:
    """A connection that sends what it is told and notes when the answer came."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self._rest, self._answer, self.started = b"", b"", 0.0

    def ask(self, asked: bytes) -> None:
        self._rest, self._answer, self.started = asked, b"", time.perf_counter()
        self.write()

    def write(self) -> None:
        if self._rest:
            try:
                self._rest = self._rest[self.socket.send(self._rest) :]
            except BlockingIOError:
                return

    def read(self) -> int | None:
        """The status, once all of the answer is there; -1 when the service has hung up."""
        try:
            more = self.socket.recv(65_536)
        except BlockingIOError:
            return None
        if not more:
            return -1
        self._answer += more
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0] or 0)
        return int(head[9:12]) if blank and len(body) >= size else None


def settle(target: Target) -> None:
    """Wait until the worker has done with connections that come and go."""
    spent = -1.0
    while (now := target.spent() or 0.0) - spent > 0.01:
        spent = now
        time.sleep(0.3)


def capacity(target: Target, requests: list[bytes], seconds: float) -> float:
    """Lists per second of the worker's processor time, for eight clients that each wait for their answer."""
    settle(target)
    before, started = target.spent() or 0.0, time.perf_counter()
    rate = asyncio.run(closed_loop(target.port, requests, seconds, 8))
    return rate * (time.perf_counter() - started) / ((target.spent() or 0.0) - before)


def flood(
    target: Target, requests: list[bytes], seconds: float, rate: float, count: int, by_time_spent: float = 0.0
) -> Outcome:
    """``rate`` visitors per second, and ``by_time_spent`` more per second of the worker's processor time; counted after
    ``LEAD_SECONDS``, for so many seconds."""
    lines = {line.socket.fileno(): line for line in (Line(target.port) for _ in range(count + 1))}
    watcher, *others = lines.values()
    free = deque(others)
    settle(target)
    outcome, counted = Outcome(Counter(), 0.0, 0.0, [], [], []), False
    poll = select.epoll()
    for number in lines:
        poll.register(number, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    healthy, visits = True, 0
    before, start = target.spent() or 0.0, time.perf_counter()
    while (now := time.perf_counter()) < start + LEAD_SECONDS + seconds:
        if not counted and now >= start + LEAD_SECONDS:
            outcome, counted = Outcome(Counter(), now, target.spent() or 0.0, [], [], []), True
        if healthy and now > watcher.started + HEALTH_SECONDS:
            healthy = False
            watcher.ask(request("GET", "/healthz", b""))
        due = int((now - start) * rate + ((target.spent() or 0.0) - before) * by_time_spent)
        for visit in range(visits, due):
            if free:
                free.popleft().ask(requests[visit % len(requests)])
            else:
                outcome.statuses[0] += 1
        visits = due
        for number, _ in poll.poll(0.002):
            line = lines[number]
            line.write()
            status = line.read()
            if status is None:
                continue
            took = time.perf_counter() - line.started
            if line is watcher:
                assert status == 200
                healthy = True
                outcome.health.append(took)
            else:
                outcome.statuses[status] += 1
                if status < 0:
                    continue
                (outcome.latencies if status == 200 else outcome.refusals).append(took)
                free.append(line)
    spent = (target.spent() or 0.0) - outcome.spent
    for line in lines.values():
        line.socket.close()
    return outcome._replace(seconds=time.perf_counter() - outcome.seconds, spent=spent)


class Turn(NamedTuple):
    """One flood, and what the worker could have made in the same time, in lists."""

    outcome: Outcome
    could: float

    @property
    def goodput(self) -> float:
        return len(self.outcome.latencies) / self.could

    @property
    def beyond(self) -> float:
        """Milliseconds that a refusal has cost: of the time spent, what the lists do not explain."""
        found = self.outcome
        return 1e3 * found.spent * (1.0 - self.goodput) / max(len(found.refusals), 1)


def report(kind: str, times: float, turns: list[Turn]) -> str:
    outcomes = [turn.outcome for turn in turns]
    goodput = [turn.goodput for turn in turns]
    latencies = [took for outcome in outcomes for took in outcome.latencies]
    refusals = [took for outcome in outcomes for took in outcome.refusals]
    health = [took for outcome in outcomes for took in outcome.health]
    could = sum(turn.could for turn in turns)
    spent = sum(outcome.spent for outcome in outcomes)
    return (
        f"{kind}, {times:g} times: goodput {np.median(goodput):.2f} ({min(goodput):.2f} to {max(goodput):.2f}) of "
        f"{could / spent:.0f} lists per second of processor time; "
        f"{sum(outcome.sent for outcome in outcomes) / could:.1f} times sent, "
        f"{spent / sum(outcome.seconds for outcome in outcomes):.2f} of a core, beyond the lists "
        f"{np.median([turn.beyond for turn in turns]):.3f} ms a refusal; lists p50 {_ms(latencies, 50)}, "
        f"p99 {_ms(latencies, 99)}; refusals p50 {_ms(refusals, 50)}, p99 {_ms(refusals, 99)}; health p99 "
        f"{_ms(health, 99)}, longest {_ms(health, 100)}; {dict(sum((one.statuses for one in outcomes), Counter()))}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--times", type=float, nargs="+", default=[1.0, 2.0, 10.0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--connections", type=int, default=6000)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--slow", type=int, default=0)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--features", type=int, default=136)
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    texts, streams = rank_bodies(args.documents, args.features, 10, 20)
    serve = [sys.executable, "-m", "pairrank", "serve"]
    with tempfile.TemporaryDirectory() as name, service(serve, Path(name), args.workers) as target:
        Client(f"http://127.0.0.1:{target.port}").create(RANKER, args.features)
        if args.idle or args.slow:
            print(f"{_memory(target):.0f} MiB")
            crowd = [Line(target.port) for _ in range(args.idle + args.slow)]
            for line in crowd[args.idle :]:
                line.ask(texts[0][: len(texts[0]) // 2])
            alone = flood(target, texts, 2.0, 20.0, 8)
            print(
                f"{args.idle} idle and {args.slow} slow connections: {_memory(target):.0f} MiB; lists p50 "
                f"{_ms(alone.latencies, 50)}, p99 {_ms(alone.latencies, 99)}; health p99 {_ms(alone.health, 99)}"
            )
        for kind, requests in (("JSON", texts), ("Arrow", streams)):
            asyncio.run(closed_loop(target.port, requests, 1.0, 8))
            for times in args.times:
                turns, before = [], capacity(target, requests, args.seconds)
                for _ in range(args.turns):
                    # The first part is a push: nobody comes by the time spent while none is spent.
                    found = flood(target, requests, args.seconds, 50.0, args.connections, times * before)
                    after = capacity(target, requests, args.seconds)
                    turns.append(Turn(found, found.spent * (before + after) / 2))
                    before = after
                print(f"{report(kind, times, turns)}; {_memory(target):.0f} MiB", flush=True)
    return 0


def _ms(values: list[float], percent: float) -> str:
    return f"{1e3 * float(np.percentile(values, percent)):.0f} ms" if values else "-"


def _memory(target: Target) -> float:
    texts = [Path(f"/proc/{process}/status").read_text() for process in target.processes]
    return sum(int(text.split("VmRSS:")[1].split()[0]) for text in texts) / 1024


if __name__ == "__main__":
    sys.exit(main())
