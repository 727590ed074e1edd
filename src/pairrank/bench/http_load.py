"""The load of `pairrank bench serve`: processes to load, clients that send requests written beforehand, their cost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pairrank import threads
from pairrank.errors import StorageError

RANKER = "bench"
ARROW = "application/vnd.apache.arrow.stream"
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Target(NamedTuple):
    """Something to load: its port, and the processes that answer there."""

    port: int
    processes: tuple[int, ...]

    def spent(self) -> float | None:
        """Seconds of processor time that its processes have used, or None where the system does not tell."""
        try:
            threads = [task for pid in self.processes for task in Path(f"/proc/{pid}/task").iterdir()]
            return sum(int((task / "schedstat").read_bytes().split()[0]) for task in threads) / 1e9
        except OSError:
            return None


class Connection(NamedTuple):
    """Enough of HTTP to send requests that were written beforehand, at little cost for what is measured."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        body = await self.reader.readexactly(int(found[1])) if found else b""
        return int(head[9:12]), body


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncIterator[list[Connection]]:
    """So many connections."""
    connections = [Connection(*await asyncio.open_connection("127.0.0.1", port, limit=2**20)) for _ in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            connection.writer.close()
            with suppress(OSError):
                await connection.writer.wait_closed()


def request(method: str, path: str, body: bytes, kind: str = "application/json") -> bytes:
    """A whole HTTP request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def rank_bodies(
    n_documents: int, n_features: int, k: int, count: int, arrow_path: str = f"/v1/rankers/{RANKER}/rank"
) -> tuple[list[bytes], list[bytes]]:
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
        streams.append(request("POST", f"{arrow_path}?k={k}", sink.getvalue().to_pybytes(), ARROW))
    return texts, streams


async def closed_loop(port: int, requests: list[bytes], seconds: float, clients: int) -> float:
    """Answers a second when so many clients each wait for their answer before they ask again."""
    done, end = 0, 0.0

    async def one(connection: Connection, offset: int) -> None:
        nonlocal done
        place = offset
        while time.perf_counter() < end:
            await _expect(connection, requests[place % len(requests)])
            done, place = done + 1, place + 1

    async with connected(port, clients) as connections:
        started = time.perf_counter()
        end = started + seconds
        await asyncio.gather(*(one(connection, 7 * number) for number, connection in enumerate(connections)))
        return done / (time.perf_counter() - started)


async def _expect(connection: Connection, asked: bytes) -> bytes:
    status, body = await connection.ask(asked)
    if status != 200:
        raise StorageError(f"the service answered {status}: {body[:200]!r}")
    return body


def _clicks(shown: bytes, place: int) -> bytes:
    """Feedback with one click on a list."""
    found = json.loads(shown)
    clicks = {"impression_id": found["impression_id"], "clicks": [found["ranking"][place]["id"]]}
    return request("POST", f"/v1/rankers/{RANKER}/feedback", json.dumps(clicks).encode())


async def visitors(port: int, requests: list[bytes], seconds: float, rate: float, clients: int) -> list[float]:
    """Rank latencies when visitors come ``rate`` times a second; each clicks on the first document of its list."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    latencies: list[float] = []

    async def visit(number: int, due: float) -> None:
        connection = await free.get()
        status, body = await connection.ask(requests[number % len(requests)])
        latencies.append(time.perf_counter() - due)  # from when the visitor came, not from when a line was free
        if status == 200:
            await connection.ask(_clicks(body, 0))
        free.put_nowait(connection)

    async with connected(port, clients) as connections:
        for connection in connections:
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
    waiting: list[bytes] = []

    async def serve(connection: Connection, share: int) -> None:
        for number in range(share):
            waiting.append(_clicks(await _expect(connection, requests[number % len(requests)]), 1))

    async def send(connection: Connection) -> None:
        while waiting:
            await _expect(connection, waiting.pop())

    async with connected(port, clients) as connections:
        await asyncio.gather(*(serve(connection, count // clients) for connection in connections))
        sent, started = len(waiting), time.perf_counter()
        await asyncio.gather(*(send(connection) for connection in connections))
        return sent / (time.perf_counter() - started)


@contextmanager
def service(serve: Sequence[str], folder: Path, workers: int) -> Iterator[Target]:
    """The service that the command ``serve`` starts, with a new store: its rank workers, once they answer."""
    place = f"sqlite:///{folder / 'bench.db'}"
    settings = {"PAIRRANK_PORT": "0", "PAIRRANK_STORE": place, "PAIRRANK_WORKERS": str(workers)}
    with _process(serve, **settings) as (process, line):
        found = re.search(r":(\d+),", line)
        if found is None:
            raise StorageError(f"the service did not start: {line!r}")
        port = int(found[1])
        wait_until_ready(port)
        yield Target(port, tuple(children(process.pid, "worker")))


def wait_until_ready(port: int) -> None:
    """Return when the service at ``port`` says that it is ready, within a minute."""

    async def ready() -> bool:
        async with connected(port, 1) as (connection,):
            status, _ = await connection.ask(request("GET", "/readyz", b""))
        return status == 200

    deadline = time.monotonic() + 60.0
    while not asyncio.run(ready()):
        if time.monotonic() > deadline:
            raise StorageError("the service did not become ready")
        time.sleep(0.05)


def children(pid: int, role: str = "") -> list[int]:
    """The child processes of a process, those with ``role`` among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            arguments = (entry / "cmdline").read_bytes().split(b"\0")  # names and arguments may be in any encoding
        except OSError:
            continue
        if parent == pid and (not role or role.encode() in arguments):
            found.append(int(entry.name))
    return found


@contextmanager
def empty_endpoint() -> Iterator[Target]:
    """An empty FastAPI application: see `pairrank.bench.http_baseline`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with _process([sys.executable, "-m", "pairrank.bench.http_baseline", str(port)]) as (process, _):
        yield Target(port, (process.pid,))


@contextmanager
def _process(command: Sequence[str], **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    variables = os.environ | threads.ENVIRONMENT | environment
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            yield process, process.stdout.readline() if process.stdout else ""
        finally:
            process.terminate()
