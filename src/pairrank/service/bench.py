"""`pairrank bench serve`: how fast the service is, as ratios of things measured in the same run.

Rank throughput against an empty FastAPI endpoint that parses the same body and returns the same answer; the 99th
percentile of rank latency while learning against the same load with learning off; durable feedback a second; memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pairrank.errors import MissingExtraError, StorageError

RANKER = "bench"
ARROW = "application/vnd.apache.arrow.stream"
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: ``value`` in ``unit``, a ``reference`` of the same unit, and what is wanted of the ratio."""

    name: str
    value: float
    unit: str
    reference: float | None = None
    ratio: float | None = None
    wanted: str = ""
    met: bool | None = None


class Connection:
    """Enough of HTTP to send requests that were written beforehand, at little cost for what is measured."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        body = await self._reader.readexactly(int(found[1])) if found else b""
        return int(head[9:12]), body

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def request(method: str, path: str, body: bytes, kind: str = "application/json") -> bytes:
    """A whole HTTP request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def rank_bodies(n_documents: int, n_features: int, k: int, count: int) -> tuple[list[bytes], list[bytes]]:
    """Rank requests for random documents, in JSON and in Arrow."""
    import pyarrow as pa

    draw = np.random.default_rng(0)
    ids = [f"document-{number}" for number in range(n_documents)]
    texts, streams = [], []
    for _ in range(count):
        X = draw.random((n_documents, n_features)).round(6)
        documents = [{"id": name, "features": row} for name, row in zip(ids, X.tolist(), strict=True)]
        body = json.dumps({"documents": documents, "k": k}).encode()
        texts.append(request("POST", f"/v1/rankers/{RANKER}/rank", body))
        features = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel().astype(np.float32)), n_features)
        table = pa.table({"id": pa.array(ids), "features": features})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        streams.append(request("POST", f"/v1/rankers/{RANKER}/rank?k={k}", sink.getvalue().to_pybytes(), ARROW))
    return texts, streams


async def closed_loop(port: int, requests: list[bytes], seconds: float, clients: int) -> float:
    """Answers a second when so many clients each wait for their answer before they ask again."""
    connections = [Connection(port) for _ in range(clients)]
    for connection in connections:
        await connection.open()
    done, end = 0, time.perf_counter() + seconds

    async def one(connection: Connection, offset: int) -> None:
        nonlocal done
        place = offset
        while time.perf_counter() < end:
            status, body = await connection.ask(requests[place % len(requests)])
            if status != 200:
                raise StorageError(f"the service answered {status}: {body[:200]!r}")
            done, place = done + 1, place + 1

    started = time.perf_counter()
    await asyncio.gather(*(one(connection, 7 * number) for number, connection in enumerate(connections)))
    for connection in connections:
        connection.close()
    return done / (time.perf_counter() - started)


async def visitors(port: int, requests: list[bytes], seconds: float, rate: float, clients: int) -> list[float]:
    """Rank latencies when visitors come ``rate`` times a second; each clicks on the first document of its list."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(clients):
        connection = Connection(port)
        await connection.open()
        free.put_nowait(connection)
    latencies: list[float] = []

    async def visit(number: int, due: float) -> None:
        connection = await free.get()
        status, body = await connection.ask(requests[number % len(requests)])
        latencies.append(time.perf_counter() - due)  # from when the visitor came, not from when a line was free
        if status == 200:
            shown = json.loads(body)
            clicks = {"impression_id": shown["impression_id"], "clicks": [shown["ranking"][0]["id"]]}
            path = f"/v1/rankers/{RANKER}/feedback"
            await connection.ask(request("POST", path, json.dumps(clicks).encode()))
        free.put_nowait(connection)

    tasks, start = [], time.perf_counter()
    for number in range(int(seconds * rate)):
        due = start + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(visit(number, due)))
    await asyncio.gather(*tasks)
    return latencies


async def feedback_rate(port: int, requests: list[bytes], count: int, clients: int) -> float:
    """Durable feedbacks a second: lists are served first, then all their feedback is sent."""
    connections = [Connection(port) for _ in range(clients)]
    for connection in connections:
        await connection.open()
    waiting: list[bytes] = []

    async def serve(connection: Connection, share: int) -> None:
        for number in range(share):
            _, body = await connection.ask(requests[number % len(requests)])
            shown = json.loads(body)
            clicks = {"impression_id": shown["impression_id"], "clicks": [shown["ranking"][1]["id"]]}
            waiting.append(request("POST", f"/v1/rankers/{RANKER}/feedback", json.dumps(clicks).encode()))

    async def send(connection: Connection) -> None:
        while waiting:
            status, body = await connection.ask(waiting.pop())
            if status != 200:
                raise StorageError(f"the service answered {status}: {body[:200]!r}")

    await asyncio.gather(*(serve(connection, count // clients) for connection in connections))
    sent, started = len(waiting), time.perf_counter()
    await asyncio.gather(*(send(connection) for connection in connections))
    elapsed = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return sent / elapsed


@contextmanager
def service(folder: Path, workers: int, store: str | None = None) -> Iterator[int]:
    """`pairrank serve` with a new store (or a given one); its port."""
    place = store or f"sqlite:///{folder / 'bench.db'}"
    command = [sys.executable, "-m", "pairrank", "serve", "--port", "0", "--store", place, "--workers", str(workers)]
    with _process(command) as (process, line):
        found = re.search(r":(\d+),", line)
        if found is None:
            raise StorageError(f"the service did not start: {line!r}")
        yield int(found[1])
        process.send_signal(signal.SIGTERM)
        process.wait(120)


@contextmanager
def empty_endpoint() -> Iterator[int]:
    """A FastAPI application that only parses the body and returns an answer like the service's; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with _process([sys.executable, "-m", "pairrank.service.floor", str(port)]) as _:
        yield port


@contextmanager
def _process(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    from pairrank.service.supervisor import THREADS

    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | THREADS)
    try:
        yield process, process.stdout.readline() if process.stdout else ""
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def run_bench(
    *,
    n_documents: int = 100,
    n_features: int = 136,
    k: int = 10,
    seconds: float = 5.0,
    clients: int = 8,
    workers: int = 1,
    rate: float = 60.0,
    feedbacks: int = 4000,
    memory_feedbacks: int = 0,
    report: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """All measurements, as rows; ``memory_feedbacks`` 1,000,000 takes long and is for by hand."""
    try:
        import uvicorn  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtraError("uvicorn", "serve") from None
    texts, streams = rank_bodies(n_documents, n_features, k, 20)
    with tempfile.TemporaryDirectory() as name:
        rows = _throughput(Path(name), texts, streams, n_features, seconds, clients, workers, report)
    with tempfile.TemporaryDirectory() as name:
        rows += _latency(Path(name), streams, n_features, seconds, rate, clients, workers, report)
        rows += _feedback(Path(name), streams, feedbacks, workers, report)
    if memory_feedbacks:
        with tempfile.TemporaryDirectory() as name:
            rows += _memory(Path(name), memory_feedbacks, report)
    return [asdict(row) for row in rows]


def _ratio(name: str, value: float, reference: float, unit: str, least: float, report: Callable[[str], None]) -> Row:
    row = Row(name, value, unit, reference, value / reference, f">= {least}", value / reference >= least)
    report(f"{name}: {value:.0f} {unit} of {reference:.0f}, ratio {value / reference:.2f} (wanted {row.wanted})")
    return row


def _create(port: int, n_features: int) -> None:
    from pairrank.client import Client

    with Client(f"http://127.0.0.1:{port}", retries=20) as client:
        client.create(RANKER, n_features)


def _throughput(
    folder: Path,
    texts: list[bytes],
    streams: list[bytes],
    n_features: int,
    seconds: float,
    clients: int,
    workers: int,
    report: Callable[[str], None],
) -> list[Row]:
    """Service and empty endpoint in turns, so that a machine that slows down slows both."""
    with service(folder, workers) as port, empty_endpoint() as empty:
        _create(port, n_features)
        _run(visitors(port, streams, 2.0, 50.0, clients))  # a model that has seen something
        rows = []
        for kind, requests in (("JSON", texts), ("Arrow", streams)):
            rates: dict[int, list[float]] = {port: [], empty: []}
            for place in (port, empty):
                _run(closed_loop(place, requests, 0.5, clients))
            for _ in range(4):
                for place in (port, empty):
                    rates[place].append(_run(closed_loop(place, requests, seconds / 4, clients)))
            own, floor = float(np.median(rates[port])), float(np.median(rates[empty]))
            rows.append(_ratio(f"rank throughput, {kind}", own, floor, "requests/s", 0.6, report))
    return rows


def _latency(
    folder: Path,
    requests: list[bytes],
    n_features: int,
    seconds: float,
    rate: float,
    clients: int,
    workers: int,
    report: Callable[[str], None],
) -> list[Row]:
    from pairrank.client import Client

    p99: dict[bool, list[float]] = {True: [], False: []}
    with service(folder, workers) as port:
        _create(port, n_features)
        _run(visitors(port, requests, 1.0, rate, clients))
        with Client(f"http://127.0.0.1:{port}") as client:
            for _ in range(3):
                for learning in (False, True):
                    client.freeze(RANKER, not learning)
                    client.ranker(RANKER)
                    latencies = _run(visitors(port, requests, seconds, rate, clients))
                    p99[learning].append(1e3 * float(np.quantile(latencies, 0.99)))
    off, on = float(np.median(p99[False])), float(np.median(p99[True]))
    report(f"rank p99 at {rate:.0f} visitors/s: {on:.1f} ms while learning, {off:.1f} ms with learning off")
    return [Row("rank p99 while learning", on, "ms", off, on / off, "<= 2", on / off <= 2)]


def _feedback(
    folder: Path, requests: list[bytes], count: int, workers: int, report: Callable[[str], None]
) -> list[Row]:
    with service(folder, workers) as port:
        rate = _run(feedback_rate(port, requests, count, 64))
    report(f"durable feedback: {rate:.0f} /s with 64 clients (wanted >= 1000)")
    return [Row("durable feedback", rate, "feedbacks/s", 1000.0, rate / 1000, ">= 1", rate >= 1000)]


def _memory(folder: Path, count: int, report: Callable[[str], None]) -> list[Row]:
    """Resident memory of all processes after a tenth of the feedback, and after all of it."""
    texts, _ = rank_bodies(10, 10, 5, 50)
    with service(folder, 1) as port:
        _create(port, 10)
        sizes = []
        for part in range(10):
            _run(feedback_rate(port, texts, count // 10, 64))
            sizes.append(_resident())
            report(f"after {(part + 1) * count // 10} feedbacks: {sizes[-1]:.0f} MiB in all processes")
    growth = sizes[-1] / sizes[0]
    return [Row(f"memory after {count} feedbacks", sizes[-1], "MiB", sizes[0], growth, "<= 1.1", growth <= 1.1)]


def _resident() -> float:
    """MiB of the workers and the learner: the children of this process's child."""
    total = 0.0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "status").read_text()
            parent = int(re.findall(r"PPid:\s+(\d+)", status)[0])
            above = int(re.findall(r"PPid:\s+(\d+)", Path(f"/proc/{parent}/status").read_text())[0])
            if above == os.getpid():
                total += int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024
        except (OSError, IndexError):
            continue
    return total


def _run(work: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await work

    return asyncio.run(main())
