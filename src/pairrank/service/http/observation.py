"""What the pages and the people who watch need: impressions, statistics, models, audit, a stream, metrics, health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from pairrank.errors import PairRankError, StorageError
from pairrank.service.answers import RefusalError, answer
from pairrank.service.auth import NoKeyError
from pairrank.service.http.administration import describe
from pairrank.service.http.endpoints import KEY, answers, reading
from pairrank.service.http.schemas import (
    ActAnswer,
    ImpressionAnswer,
    ReadyAnswer,
    StatisticsAnswer,
    StatusAnswer,
    WeightsAnswer,
    listed,
    shown,
)
from pairrank.service.worker.metrics import CONTENT_TYPE
from pairrank.service.worker.state import WorkerState

STREAM_SECONDS = 0.5
READY_SECONDS = 2.0
SCRAPE_SECONDS = 8.0  # Prometheus by itself waits for ten


class EventStream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"


class MetricsText(Response):
    """What Prometheus reads."""

    media_type = CONTENT_TYPE


class ModelFile(Response):
    """A ranker whole, as bytes."""

    media_type = "application/octet-stream"


def routes(worker: WorkerState) -> APIRouter:
    everybody = APIRouter(tags=["observation"])
    router = APIRouter(dependencies=[KEY])
    get, seen = reading(router, worker.allow), listed("impressions", ImpressionAnswer)

    @get("/v1/rankers/{name}/impressions", "The newest impressions", seen, role="admin")
    async def impressions(
        name: str, limit: Annotated[int, Query(ge=1, le=500)] = 50, offset: Annotated[int, Query(ge=0, le=500)] = 0
    ) -> Response:
        row = await worker.ranker(name)
        found = await worker.models.read(worker.store.impressions, row.id, offset + limit)
        brief = [shown(ImpressionAnswer, i, impression_id=f"{i.number}-{i.token}") for i in found[offset:]]
        return answer({"impressions": brief})

    told = "Clicks, exploration and kept orders over time, by the newest of the log"

    @get("/v1/rankers/{name}/statistics", told, StatisticsAnswer)
    async def statistics(name: str) -> Response:
        return answer(await worker.reports.statistics(await worker.ranker(name)))

    @get("/v1/rankers/{name}/weights", "The newest model's weights, heaviest first", WeightsAnswer)
    async def weights(name: str, limit: Annotated[int, Query(ge=1, le=100_000)] = 100) -> Response:
        return answer(await worker.reports.weights(await worker.ranker(name), limit))

    as_file = {"role": "admin", "response_class": ModelFile}

    @get("/v1/rankers/{name}/model", "A model, as pairrank.load reads it", None, **as_file)
    async def model(name: str, version: Annotated[int | None, Query(ge=0, lt=2**63)] = None) -> Response:
        row = await worker.ranker(name)
        body = await worker.reports.model_bytes(row, row.version if version is None else version)
        return ModelFile(body, headers={"Content-Disposition": f'attachment; filename="{row.name}.pairrank"'})

    @get("/v1/audit", "The newest administrative acts", listed("audit", ActAnswer), 422, role="admin")
    async def audit(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
        return answer({"audit": await worker.models.read(worker.store.audit, limit)})

    told = "Server-sent events: all rankers, twice a second when something changed"
    everything = _AllRankers(worker)

    @get("/v1/stream", told, None, response_class=EventStream)
    async def stream(request: Request) -> Response:
        return EventStream(_stream(worker, request, everything), headers={"Cache-Control": "no-store"})

    @everybody.get("/healthz", summary="The process answers", responses=answers(StatusAnswer, key=False))
    async def healthz() -> Response:
        return answer({"status": "ok"})

    @everybody.get(
        "/readyz",
        summary="The store answers and the log of before the start is applied",
        responses=answers(ReadyAnswer, 503, key=False),
    )
    async def readyz() -> Response:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await worker.models.refresh()
                library = await worker.models.read(lambda: worker.store.database.library)
                await worker.models.read(worker.store.database.check_writable)
        except TimeoutError:
            raise RefusalError(503, "slow", f"the store has not answered within {READY_SECONDS:g} seconds") from None
        if problem := worker.writer.failure:
            raise StorageError(str(problem))
        if worker.models.recovering:
            raise RefusalError(503, "recovering", "the learner still applies the log of before the start")
        return answer({"status": "ready", "store": library})

    @get("/metrics", "Prometheus metrics", None, response_class=MetricsText)
    async def metrics() -> Response:
        try:
            async with asyncio.timeout(SCRAPE_SECONDS):
                rows = await worker.models.read(worker.store.rankers)
                lags = {row.name: await worker.reports.lag_seconds(row) for row in rows}
        except (StorageError, TimeoutError):  # the counters are worth having above all when the store is in trouble
            rows, lags = [], {}
        return MetricsText(worker.metrics.render(rows, lags))

    everybody.include_router(router)
    return everybody


class _AllRankers:
    """All rankers as JSON, read once for all streams of a worker: twenty of them would leave its reader no other time.

    A tenth of the time is enough for that, where there are many rankers.
    """

    def __init__(self, worker: WorkerState) -> None:
        self._worker = worker
        self._found: asyncio.Task[bytes] | None = None
        self._due = 0.0

    async def found(self) -> bytes:
        """As they are now, or were a moment ago."""
        if self._found is None or (self._found.done() and time.monotonic() >= self._due):
            self._found = asyncio.create_task(self._worker.models.read(self._read))
        return await asyncio.shield(self._found)

    def _read(self) -> bytes:
        began = time.monotonic()
        try:
            return orjson.dumps([describe(row) for row in self._worker.store.rankers()])
        finally:
            self._due = began + max(STREAM_SECONDS, 10 * (time.monotonic() - began))


async def _stream(worker: WorkerState, request: Request, everything: _AllRankers) -> AsyncIterator[bytes]:
    last = b""
    while not worker.stopping and not await request.is_disconnected():
        try:
            worker.allow(request, None)
            rows = await everything.found()
        except NoKeyError:  # the key was revoked meanwhile, or keys are needed by now
            return
        except PairRankError as problem:
            yield b"event: problem\ndata: " + orjson.dumps({"message": str(problem)}) + b"\n\n"
        else:
            if rows != last:
                last = rows
                yield b'event: rankers\ndata: {"rankers":%b,"time":%b}\n\n' % (rows, orjson.dumps(worker.clock()))
            else:
                yield b": still here\n\n"
        await asyncio.sleep(STREAM_SECONDS)
