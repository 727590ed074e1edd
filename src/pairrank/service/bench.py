"""`pairrank bench serve`: how fast the service is, as ratios of things measured in the same run.

Rank throughput against empty FastAPI endpoints that parse the same body and return the same answer; the 99th percentile
of rank latency while learning against the same load with learning off; durable feedback a second; memory.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pairrank.errors import MissingExtraError
from pairrank.service.load import (
    RANKER,
    Target,
    children,
    closed_loop,
    empty_endpoint,
    feedback_rate,
    rank_bodies,
    resident,
    service,
    visitors,
)

FLOORS = ("plain", "models", "tuned")
# One turn of each thing that is compared, in seconds: short, so that a machine that slows down slows all of them.
TURN = 0.5


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
    _, streams = rank_bodies(n_documents, n_features, k, 20)
    with tempfile.TemporaryDirectory() as name:
        rows = _throughput(Path(name), (n_documents, n_features, k), seconds, clients, workers, report)
    with tempfile.TemporaryDirectory() as name:
        rows += _latency(Path(name), streams, n_features, seconds, rate, clients, workers, report)
        rows += _feedback(Path(name), streams, feedbacks, workers, report)
    if memory_feedbacks:
        with tempfile.TemporaryDirectory() as name:
            rows += _memory(Path(name), memory_feedbacks, report)
    return [asdict(row) for row in rows]


def _create(port: int, n_features: int) -> None:
    from pairrank.client import Client

    with Client(f"http://127.0.0.1:{port}", retries=20) as client:
        client.create(RANKER, n_features)


def _throughput(
    folder: Path,
    shape: tuple[int, int, int],
    seconds: float,
    clients: int,
    workers: int,
    report: Callable[[str], None],
) -> list[Row]:
    """Service and empty endpoints in turns.

    Requests by second of the processor time of whoever answers: what a core can do, whatever else the machine does.
    Where the system does not tell processor time, requests by second.
    """
    from pairrank.service.floor import ARROW_PATH

    own, empty = rank_bodies(*shape, 20), rank_bodies(*shape, 20, ARROW_PATH)
    rows = []
    with ExitStack() as stack:
        served = stack.enter_context(service(folder, workers))
        targets = {"service": served} | {kind: stack.enter_context(empty_endpoint(kind)) for kind in FLOORS}
        _create(served.port, shape[1])
        _run(visitors(served.port, own[1], 2.0, 50.0, clients))  # a model that has seen something
        for kind, place in (("JSON", 0), ("Arrow", 1)):
            rates: dict[str, list[tuple[float, float]]] = {name: [] for name in targets}
            for turn in range(1 + max(1, round(seconds / TURN))):
                for name, target in targets.items():
                    measured = _rate(target, (own if name == "service" else empty)[place], min(seconds, TURN), clients)
                    if turn:  # the first is for warming up
                        rates[name].append(measured)
            medians = {name: np.median(found, axis=0) for name, found in rates.items()}
            for floor in FLOORS:
                rows.append(_compared(kind, floor, medians["service"], medians[floor], report))
    return rows


def _rate(target: Target, requests: list[bytes], seconds: float, clients: int) -> tuple[float, float]:
    """Requests by second of processor time, and by second."""
    spent, started = target.spent(), time.perf_counter()
    rate = _run(closed_loop(target.port, requests, seconds, clients))
    elapsed, now = time.perf_counter() - started, target.spent()
    return (rate if spent is None or now is None else rate * elapsed / (now - spent)), rate


def _compared(kind: str, floor: str, own: Any, empty: Any, report: Callable[[str], None]) -> Row:
    (value, by_clock), (reference, empty_by_clock) = own.tolist(), empty.tolist()
    # The plain endpoint is what is meant by an empty one; the others say how far FastAPI itself can be driven.
    wanted, met = (">= 0.6", value / reference >= 0.6) if floor == "plain" else ("", None)
    report(
        f"rank throughput, {kind}, over the {floor} endpoint: {value:.0f} / {reference:.0f} requests by second of "
        f"processor time = {value / reference:.2f}{f' (wanted {wanted})' if wanted else ''}; "
        f"by the clock {by_clock:.0f} / {empty_by_clock:.0f} = {by_clock / empty_by_clock:.2f}"
    )
    return Row(
        f"rank throughput, {kind}, over the {floor} endpoint",
        value,
        "requests/CPU-s",
        reference,
        value / reference,
        wanted,
        met,
    )


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
    with service(folder, workers) as target:
        port = target.port
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
    with service(folder, workers) as target:
        rate = _run(feedback_rate(target.port, requests, count, 64))
    report(f"durable feedback: {rate:.0f} /s with 64 clients (wanted >= 1000)")
    return [Row("durable feedback", rate, "feedbacks/s", 1000.0, rate / 1000, ">= 1", rate >= 1000)]


def _memory(folder: Path, count: int, report: Callable[[str], None]) -> list[Row]:
    """Resident memory of all processes after a tenth of the feedback, and after all of it."""
    texts, _ = rank_bodies(10, 10, 5, 50)
    with service(folder, 1) as target:
        (supervisor,) = children(os.getpid(), "serve")
        _create(target.port, 10)
        sizes = []
        for part in range(10):
            _run(feedback_rate(target.port, texts, count // 10, 64))
            sizes.append(resident(supervisor))
            report(f"after {(part + 1) * count // 10} feedbacks: {sizes[-1]:.0f} MiB in all processes")
    growth = sizes[-1] / sizes[0]
    return [Row(f"memory after {count} feedbacks", sizes[-1], "MiB", sizes[0], growth, "<= 1.1", growth <= 1.1)]


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)
