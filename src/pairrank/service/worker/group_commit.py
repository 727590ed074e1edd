"""Group commit: one thread that writes what all requests of a worker hand it, in as few transactions as it can.

While one transaction is on its way to the disk the next batch gathers, so a thousand feedbacks a second need only as
many flushes as the disk can do. A request's future is resolved once its batch is committed, or with what went wrong.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pairrank.errors import StorageError
from pairrank.service.store.database import BusyError
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import Event, Feedback, Served, Verdict

MAX_BATCH = 512
MAX_WAITING = 20_000
AILING_SECONDS = 5.0


class _Job(NamedTuple):
    kind: str
    item: Any
    future: asyncio.Future[Any]


class GroupCommit:
    """The write side of one worker. Made, used and closed in the event loop; only `_run` is in the thread."""

    def __init__(
        self, store: SqlStore, clock: Callable[[], float] = time.time, *, at_once: SqlStore | None = None
    ) -> None:
        self._store = store
        self._at_once = at_once
        self._served: list[_Job] = []
        self._clock = clock
        self._failure: tuple[float, StorageError] | None = None  # when the last write failed, and why
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def serve(self, item: Served) -> asyncio.Future[None]:
        """Keep an impression; resolved once everybody can see it.

        With ``at_once``, a connection that never waits, the lists of one turn of the event loop are written there and
        then: they need no flush, and a hand-over to the thread and back costs more. The thread takes what comes while
        somebody else writes.
        """
        if self._at_once is None:
            return self._submit("serve", item)
        future: asyncio.Future[None] = self._loop.create_future()
        if not self._served:
            self._loop.call_soon(self._serve_at_once)
        self._served.append(_Job("serve", item, future))
        return future

    def feedback(self, item: Feedback) -> asyncio.Future[Verdict]:
        """Log feedback; resolved once it is on disk."""
        return self._submit("feedback", item)

    def events(self, items: Sequence[Event]) -> asyncio.Future[list[Verdict]]:
        """Collect events; resolved once they are on disk."""
        return self._submit("events", items)

    @property
    def failure(self) -> StorageError | None:
        """Why the last write failed, for some seconds: then what comes shows whether the store can be written."""
        since, problem = self._failure or (-AILING_SECONDS, None)
        return problem if time.monotonic() - since < AILING_SECONDS else None

    def _look_at(self, answer: Any) -> None:
        self._failure = (time.monotonic(), answer) if isinstance(answer, StorageError) else None

    async def close(self) -> None:
        """Write what waits, then stop."""
        self._serve_at_once()
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve_at_once(self) -> None:
        jobs, self._served = self._served, []
        if not jobs or self._at_once is None:
            return
        answers: Sequence[Any] = [None] * len(jobs)
        try:
            self._at_once.serve([job.item for job in jobs])
        except BusyError:
            for job in jobs:
                self._jobs.put(job)
            return
        except Exception as problem:  # a request answers with it, never the event loop
            answers = [problem] * len(jobs)
            self._look_at(problem)
        _resolve([job.future for job in jobs], answers)

    def _submit(self, kind: str, item: Any) -> asyncio.Future[Any]:
        if self._jobs.qsize() > MAX_WAITING:
            raise StorageError("the store cannot keep up: too many writes are waiting")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put(_Job(kind, item, future))
        return future

    def _run(self) -> None:
        ended = False
        while not ended:
            batch: list[_Job | None] = []
            size = 0  # in events, of which one request may bring many
            while not batch or (size < MAX_BATCH and not self._jobs.empty()):
                job = self._jobs.get()
                batch.append(job)
                size += len(job.item) if job is not None and job.kind == "events" else 1
            jobs = [job for job in batch if job is not None]
            ended = len(jobs) < len(batch)
            # Impressions first: they need no flush, and feedback on them may be in the same batch.
            for kind in ("serve", "feedback", "events"):
                some = [job for job in jobs if job.kind == kind]
                if some:
                    answers = self._write(kind, [job.item for job in some])
                    self._look_at(answers[0])
                    self._loop.call_soon_threadsafe(_resolve, [job.future for job in some], answers)

    def _write(self, kind: str, items: list[Any]) -> Sequence[Any]:
        try:
            if kind == "serve":
                self._store.serve(items)
                return [None] * len(items)
            if kind == "feedback":
                return self._store.feedback(items, self._clock())
            verdicts = iter(self._store.events([event for group in items for event in group], self._clock()))
            return [[next(verdicts) for _ in group] for group in items]
        except Exception as problem:  # the thread must outlive anything; the request answers 500
            return [problem] * len(items)


def _resolve(futures: list[asyncio.Future[Any]], answers: Sequence[Any]) -> None:
    for future, answer in zip(futures, answers, strict=True):
        if future.done():  # the client has gone
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
