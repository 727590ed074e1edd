"""What all endpoints of a worker share: the store's two connections, the models, the group commit, the metrics."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from pairrank.errors import PairRankError, StorageError
from pairrank.service import telemetry
from pairrank.service.answers import RefusalError
from pairrank.service.auth import authorise
from pairrank.service.learning.learner import Learner
from pairrank.service.reports import Reports
from pairrank.service.settings import Settings
from pairrank.service.store import open_impatient, open_store
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import RankerRow
from pairrank.service.worker.admission import Admission
from pairrank.service.worker.group_commit import GroupCommit
from pairrank.service.worker.metrics import Metrics
from pairrank.service.worker.models import Models
from pairrank.service.worker.recent_candidates import Recent

logger = logging.getLogger("pairrank.requests")

AGAIN_SECONDS = 0.5


class WorkerState:
    """One worker's state. ``learner`` True also learns, in a thread: everything in one process."""

    def __init__(
        self, url: str | Path, settings: Settings, *, clock: Callable[[], float] = time.time, learner: bool = False
    ) -> None:
        self.url, self.settings, self.clock = str(url), settings, clock
        self.metrics = Metrics()
        self.recent = Recent()
        # Ranking takes the processor, so few at once are as quick as many; a write waits for the disk beside others.
        self.ranking, self.writing = Admission(settings.max_ranking), Admission(settings.max_writing)
        self.stopping = False
        self._learner = learner
        told = "the service was not started: an application around it has to run its lifespan, too"
        self.away: RefusalError | None = RefusalError(503, "store", told)  # what is told while there is no store
        self.store: SqlStore
        self.models: Models
        self.writer: GroupCommit
        self.reports: Reports

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connect, start the threads; drain and stop them at the end.

        A worker beside others lives without its store, too, and opens it when it is there.
        """
        async with AsyncExitStack() as opened:
            await self._try_to_open(opened)  # others serve meanwhile, however long it takes
            opening = asyncio.create_task(self._open_at_last(opened))
            try:
                yield
            finally:
                opening.cancel()
                await asyncio.wait([opening])

    async def _open_at_last(self, opened: AsyncExitStack) -> None:
        while self.away is not None:
            await asyncio.sleep(AGAIN_SECONDS)
            await self._try_to_open(opened)

    async def _try_to_open(self, opened: AsyncExitStack) -> None:
        try:
            await self._open(opened)
            self.away = None
        except PairRankError as problem:
            await opened.aclose()
            if self._learner:
                raise
            if str(problem) != str(self.away):
                logger.error("%s", problem)
            self.away = RefusalError(503, "store", str(problem))

    async def _open(self, opened: AsyncExitStack) -> None:
        async def connect() -> SqlStore:
            # Beside others the supervisor has made it; who deleted it wants no empty one.
            store = await asyncio.to_thread(open_store, self.url, create=self._learner)
            opened.callback(store.close)
            return store

        self.store, writing = await connect(), await connect()
        at_once = open_impatient(self.url)
        if at_once is not None:
            opened.callback(at_once.close)
        self.models = Models(self.store, self.metrics.keep)
        opened.push_async_callback(self.models.close)
        self.reports = Reports(self.store, self.models, self.clock)
        if self._learner:
            stop, learner = threading.Event(), Learner(await connect(), self.clock)
            thread = threading.Thread(target=learner.run, args=(stop,), daemon=True)
            opened.push_async_callback(asyncio.to_thread, thread.join)
            opened.callback(stop.set)
            thread.start()
        self.writer = GroupCommit(writing, self.clock, at_once=at_once)
        opened.push_async_callback(self.writer.close)
        await self.models.start()

    def allow(self, request: Request, role: str | None) -> str:
        """Who asks: the key's name, or "local" where none are needed; raises when the role is missing."""
        if self.settings.loopback and not self.models.keys:
            return "local"
        return authorise(self.models.keys, request.headers.get("authorization"), role)

    async def body(self, request: Request) -> bytes:
        """The request's body, if it is small enough and comes in time."""
        limit = self.settings.max_body_bytes
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > limit:
            raise RefusalError(413, "too-large", f"the body is larger than {limit} bytes")
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > limit:
                        raise RefusalError(413, "too-large", f"the body is larger than {limit} bytes")
                    if chunk:  # the last one is empty, and to join but one copies nothing
                        chunks.append(chunk)
        except TimeoutError:
            raise RefusalError(408, "slow", "the body took too long to arrive") from None
        except ClientDisconnect:
            raise RefusalError(400, "gone", "the client left before the body had arrived") from None
        return b"".join(chunks)

    def account(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answered request, and note it in the log where there is need."""
        self.metrics.answered(status)
        telemetry.answered(scope, status, seconds)
        # 503 is told to the client, by the metrics and by what is behind it; a line for each would be load on load.
        if self.settings.access_log or (status >= 500 and status != 503) or scope["method"] in ("PUT", "DELETE"):
            fields = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "milliseconds": round(1e3 * seconds, 3),
            }
            logger.info("request", extra={"fields": fields})

    async def ranker(self, name: str) -> RankerRow:
        return await self.models.read(self.store.ranker, name)

    async def administer(self, work: Callable[..., Any], *args: Any) -> Any:
        """Do an administrative act and show its effect in this worker at once; others see it within a moment."""
        result = await self.models.read(work, *args)
        with suppress(StorageError):
            await self.models.refresh()
        return result
