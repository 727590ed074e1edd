"""What the service does when more is asked of it than it can do: goodput, latency and health.

    python benchmarks/overload.py [--seconds 5] [--times 1 2 10] [--workers 1]

Capacity is what eight clients get that each wait for their answer. Then visitors come so many times as often, whether
or not anybody has been answered, each on one of --connections; who is refused does not come again. A visitor that finds
no connection free is counted under 0. Goodput is lists per second of the worker's processor time, since the clients
share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pairrank.bench.http_load import (
    RANKER,
    Connection,
    Target,
    closed_loop,
    connected,
    rank_bodies,
    request,
    service,
)
from pairrank.client import Client


class Outcome(NamedTuple):
    statuses: Counter[int]
    seconds: float
    spent: float
    latencies: list[float]  # of lists
    refusals: list[float]
    health: list[float]


async def flood(target: Target, requests: list[bytes], seconds: float, rate: float, count: int) -> Outcome:
    free: asyncio.Queue[Connection] = asyncio.Queue()
    statuses: Counter[int] = Counter()
    latencies: list[float] = []
    refusals: list[float] = []
    health: list[float] = []

    async def visit(number: int) -> None:
        try:
            connection = free.get_nowait()
        except asyncio.QueueEmpty:
            statuses[0] += 1
            return
        started = time.perf_counter()
        status, _ = await connection.ask(requests[number % len(requests)])
        (latencies if status == 200 else refusals).append(time.perf_counter() - started)
        statuses[status] += 1
        free.put_nowait(connection)

    async def watch(connection: Connection) -> None:
        while True:
            started = time.perf_counter()
            status, _ = await connection.ask(request("GET", "/healthz", b""))
            assert status == 200
            health.append(time.perf_counter() - started)
            await asyncio.sleep(0.05)

    async with connected(target.port, count + 1) as (watcher, *connections):
        for connection in connections:
            free.put_nowait(connection)
        watching = asyncio.create_task(watch(watcher))
        tasks: list[asyncio.Task[None]] = []
        before, start = target.spent() or 0.0, time.perf_counter()
        while (now := time.perf_counter()) < start + seconds:
            due = int((now - start) * rate)
            tasks += [asyncio.create_task(visit(number)) for number in range(len(tasks), due)]
            await asyncio.sleep(0.002)
        elapsed, spent = time.perf_counter() - start, (target.spent() or 0.0) - before
        done = Outcome(statuses.copy(), elapsed, spent, latencies[:], refusals[:], health[:])
        await asyncio.gather(*tasks)
        watching.cancel()
        return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--times", type=float, nargs="+", default=[1.0, 2.0, 10.0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--connections", type=int, default=512)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--features", type=int, default=136)
    args = parser.parse_args()
    texts, streams = rank_bodies(args.documents, args.features, 10, 20)
    serve = [sys.executable, "-m", "pairrank", "serve"]
    with tempfile.TemporaryDirectory() as name, service(serve, Path(name), args.workers) as target:
        Client(f"http://127.0.0.1:{target.port}").create(RANKER, args.features)
        for kind, requests in (("JSON", texts), ("Arrow", streams)):
            asyncio.run(closed_loop(target.port, requests, 1.0, 8))
            before, started = target.spent() or 0.0, time.perf_counter()
            capacity = asyncio.run(closed_loop(target.port, requests, args.seconds, 8))
            spent = (target.spent() or 0.0) - before
            best = capacity * (time.perf_counter() - started) / spent
            print(f"{kind}: capacity {capacity:.0f} lists per second, {best:.0f} per second of processor time")
            for times in args.times:
                found = asyncio.run(flood(target, requests, args.seconds, times * capacity, args.connections))
                good = len(found.latencies) / found.spent
                sent = sum(count for status, count in found.statuses.items() if status) / found.seconds
                print(
                    f"  {times:g} times: {sent / capacity:.1f} times sent, goodput {good / best:.2f} "
                    f"(by the clock {len(found.latencies) / found.seconds / capacity:.2f}); "
                    f"lists p50 {_ms(found.latencies, 50)}, p99 {_ms(found.latencies, 99)}; "
                    f"refusals p50 {_ms(found.refusals, 50)}, p99 {_ms(found.refusals, 99)}; "
                    f"health p99 {_ms(found.health, 99)}, longest {_ms(found.health, 100)}; {dict(found.statuses)}; "
                    f"{_memory(target):.0f} MiB"
                )
    return 0


def _ms(values: list[float], percent: float) -> str:
    return f"{1e3 * float(np.percentile(values, percent)):.0f} ms" if values else "-"


def _memory(target: Target) -> float:
    texts = [Path(f"/proc/{process}/status").read_text() for process in target.processes]
    return sum(int(text.split("VmRSS:")[1].split()[0]) for text in texts) / 1024


if __name__ == "__main__":
    sys.exit(main())
