"""`pairrank bench serve`: how fast the service is, as ratios of things measured in the same run.

Rank throughput against empty FastAPI endpoints that parse the same body and return the same answer; the 99th percentile
of rank latency while learning against the same load with learning off; durable feedback per second.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pairrank.bench.http_load import (
    RANKER,
    Target,
    closed_loop,
    empty_endpoint,
    feedback_rate,
    rank_bodies,
    service,
    visitors,
)
from pairrank.bench.measure import Row, ratio
from pairrank.checking import import_extra
from pairrank.client import Client

# One turn of each thing that is compared, in seconds: short, so that a machine that slows down slows all of them.
TURN = 0.5


@dataclass(frozen=True)
class Load:
    """How the service is loaded.

    n_documents, n_features, k : of a rank request. seconds, clients : how long, by how many. workers : of the service.
    rate : visitors per second while latency is taken. feedbacks : how many are sent.
    """

    n_documents: int = 100
    n_features: int = 136
    k: int = 10
    seconds: float = 5.0
    clients: int = 8
    workers: int = 1
    rate: float = 60.0
    feedbacks: int = 4000


QUICK = Load(seconds=1.0, feedbacks=200)


def measure(serve: Sequence[str], load: Load) -> Iterator[Row]:
    """All rows; ``serve`` is the command that starts the service, handed in: faces do not import each other."""
    import_extra("uvicorn", "serve")
    _, streams = rank_bodies(load.n_documents, load.n_features, load.k, 20)
    with tempfile.TemporaryDirectory() as name:
        yield from _throughput(serve, Path(name), load)
    with tempfile.TemporaryDirectory() as name:
        yield _latency(serve, Path(name), streams, load)
        with service(serve, Path(name), load.workers) as target:
            rate = asyncio.run(feedback_rate(target.port, streams, load.feedbacks, 64))
        yield Row("serve", "64 clients", "durable feedbacks per second", rate, rate, rate, limit=1000.0, at_least=True)


def _throughput(serve: Sequence[str], folder: Path, load: Load) -> Iterator[Row]:
    """Service and empty endpoints in turns.

    Requests by second of the processor time of whoever answers: what a core can do, whatever else the machine does.
    Where the system does not tell processor time, requests by second.
    """
    from pairrank.bench.http_baseline import ARROW_PATH

    shape = (load.n_documents, load.n_features, load.k, 20)
    own, empty = rank_bodies(*shape), rank_bodies(*shape, ARROW_PATH)
    with service(serve, folder, load.workers) as served, empty_endpoint() as floor:
        with Client(f"http://127.0.0.1:{served.port}") as client:
            client.create(RANKER, load.n_features)
        asyncio.run(visitors(served.port, own[1], 2.0, 50.0, load.clients))  # a model that has seen something
        for kind, place in (("JSON", 0), ("Arrow", 1)):
            turns = [
                [_rate(target, bodies[place], load) for target, bodies in ((served, own), (floor, empty))]
                for _ in range(1 + max(1, round(load.seconds / TURN)))
            ]
            # (turns, service and floor, by processor time and by clock); the first turn is for warming up.
            rates = np.array(turns[1:])
            ours, theirs = np.median(rates[:, :, 0], axis=0).tolist()
            by_clock = np.median(rates[:, 0, 1]) / np.median(rates[:, 1, 1])
            detail = {"service": ours, "empty": theirs, "ratio_by_clock": float(by_clock)}
            case = f"rank, {kind}, {load.n_documents} x {load.n_features}"
            figure = "requests per CPU second over those of an empty FastAPI endpoint"
            found = ratio(rates[:, 0, 0], rates[:, 1, 0])
            yield Row("serve", case, figure, *found, limit=0.6, at_least=True, detail=detail)


def _rate(target: Target, requests: list[bytes], load: Load) -> tuple[float, float]:
    """Requests by second of processor time, and by second."""
    spent, started = target.spent(), time.perf_counter()
    rate = asyncio.run(closed_loop(target.port, requests, min(load.seconds, TURN), load.clients))
    elapsed, now = time.perf_counter() - started, target.spent()
    return (rate if spent is None or now is None else rate * elapsed / (now - spent)), rate


def _latency(serve: Sequence[str], folder: Path, requests: list[bytes], load: Load) -> Row:
    p99: dict[bool, list[float]] = {True: [], False: []}

    def visited(port: int, seconds: float) -> Coroutine[Any, Any, list[float]]:
        return visitors(port, requests, seconds, load.rate, load.clients)

    with service(serve, folder, load.workers) as target, Client(f"http://127.0.0.1:{target.port}") as client:
        client.create(RANKER, load.n_features)
        asyncio.run(visited(target.port, 1.0))
        for _ in range(3):
            for learning in (False, True):
                client.freeze(RANKER, not learning)
                client.ranker(RANKER)
                p99[learning].append(1e3 * float(np.quantile(asyncio.run(visited(target.port, load.seconds)), 0.99)))
    took = {"learning_ms": float(np.median(p99[True])), "off_ms": float(np.median(p99[False]))}
    case = f"rank, Arrow, {load.rate:.0f} visitors per second"
    figure = "99th percentile while learning over that with learning off"
    return Row("serve", case, figure, *ratio(p99[True], p99[False]), limit=2.0, detail=took)
