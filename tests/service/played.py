"""The service's processes for `simulation.py`: its own code, on event loops and threads that move when told to."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from plain_store import PlainStore

from pairrank.errors import StorageError
from pairrank.service.http.rank_request import Query
from pairrank.service.http.ranking import show
from pairrank.service.learning.learner import Learner
from pairrank.service.settings import Settings
from pairrank.service.store import SqlStore
from pairrank.service.store.sqlite import SqliteDatabase
from pairrank.service.store.values import Event, Feedback, Served, Status
from pairrank.service.supervisor import Supervisor
from pairrank.service.worker.group_commit import GroupCommit
from pairrank.service.worker.models import Models
from pairrank.service.worker.state import WorkerState


class World(Protocol):
    """What processes share."""

    path: Path
    plain: PlainStore
    fault: tuple[BaseException, str] | None  # what the next commit raises, before or after it is made
    cutting: bool  # keep what the next flush leaves
    saved: tuple[Path, PlainStore] | None  # what a power cut now leaves
    cuts: bool  # and there will be one

    def clock(self) -> float: ...
    def issue(self, items: list[Served]) -> None: ...
    def save(self) -> None: ...


class KilledError(BaseException):
    """This process ends here."""


class PowerCutError(BaseException):
    """All processes end here, and the disk has what was flushed."""


class WrongError(BaseException):
    """The store did what it should not have done; no code under test may catch this."""


class Loop(asyncio.BaseEventLoop):
    """An event loop that runs one callback when told to, and its pool's one thread, which does one job when told to."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock, self._jobs = clock, deque()
        self.set_exception_handler(lambda *_: None)  # answers that nobody fetched, tasks of processes that died

    def time(self) -> float:
        return self._clock()

    def _write_to_self(self) -> None:
        """Nothing: nobody sleeps here."""

    def run_in_executor(self, executor, func, *args):
        future = self.create_future()
        self._jobs.append((future, func, args))
        return future

    def turn(self) -> bool:
        """Run the next callback, if there is one."""
        while self._scheduled and self._scheduled[0].when() <= self.time():
            self._ready.append(heapq.heappop(self._scheduled))
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                self.do(handle._context.run, handle._callback, *handle._args)
                return True
        return False

    def read(self) -> bool:
        """Do the next job, if there is one."""
        if not self._jobs:
            return False
        future, func, args = self._jobs.popleft()
        try:
            self.call_soon(future.set_result, func(*args))
        except Exception as problem:
            self.call_soon(future.set_exception, problem)
        return True

    def do(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run something for which this is the running loop."""
        asyncio._set_running_loop(self)
        try:
            return work(*args)
        finally:
            asyncio._set_running_loop(None)

    def close(self) -> None:
        """What was under way never goes on."""
        for task in asyncio.all_tasks(self):
            task.get_coro().close()
        super().close()


class Database(SqliteDatabase):
    """A connection whose commits fail when the world says so."""

    def __init__(self, world: World) -> None:
        self._world, self.commits = world, 0
        super().__init__(world.path)

    def _commit(self) -> None:
        world = self._world
        fault, world.fault = world.fault, None
        if self._flush and world.saved is not None:
            if world.cuts:
                raise PowerCutError
            world.saved = None  # the power stayed
        if fault is not None and fault[1] == "before":
            raise fault[0]
        super()._commit()
        self.commits += 1
        if fault is not None:
            raise fault[0]


class Store(SqlStore):
    """A store that is compared with the plain one, write by write."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__(Database(world))
        self.database.migrate()

    def stop(self, ranker_id: int, reason: str) -> None:
        raise WrongError(f"a learner gives up: {reason}")


def _watched(name: str) -> Callable[..., Any]:
    def call(self: Store, *args: Any) -> Any:
        world, before, wanted = self._world, self.database.commits, None
        if name == "serve":
            world.issue(*args)
        try:
            answer = getattr(SqlStore, name)(self, *args)
        finally:
            if self.database.commits > before:
                try:
                    wanted = getattr(world.plain, name)(*args)
                except AssertionError as problem:
                    raise WrongError(str(problem)) from None
                if self.database._flush and world.cutting:
                    world.save()
        if name in ("feedback", "events"):
            answer, verdicts = [verdict.status for verdict in answer], answer
        if answer != wanted and self.database.commits > before:
            raise WrongError(f"{name} says {answer}, should say {wanted}")
        return verdicts if name in ("feedback", "events") else answer

    return call


for _name in ("serve", "feedback", "events", "close_windows", "expire", "publish", "delete", "set_frozen", "roll_back"):
    setattr(Store, _name, _watched(_name))


class Process:
    """What a supervisor sees of a process."""

    returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def close(self) -> None:
        self.returncode = -9


class Worker(Process):
    """A rank worker: the service's own state over a loop of ours."""

    def __init__(self, world: World) -> None:
        self.loop = Loop(world.clock)
        self.state = WorkerState(world.path, Settings(), clock=world.clock)
        self.stores = [Store(world), Store(world)]
        self.state.store = self.stores[0]
        self.state.models = Models(self.stores[0])
        self.state.writer = self.loop.do(GroupCommit, self.stores[1], world.clock)
        self.started = self.loop.create_task(self.state.models.start())

    def turn(self, choice: int) -> bool:
        return self.loop.turn()

    def read(self, choice: int) -> bool:
        return self.loop.read()

    def write(self, choice: int) -> bool:
        """Let the thread write its next batch, if there is one."""
        jobs = self.state.writer._jobs
        if jobs.empty():
            return False
        jobs.put(None)  # one batch, then the thread ends
        self.state.writer._run()
        return True

    def close(self) -> None:
        super().close()
        self.loop.close()
        for store in self.stores:
            store.close()

    async def rank(self, name: str, query: Query) -> dict[str, Any]:
        return await show(self.state, await self.state.models.get(name), query)

    async def feedback(self, name: str, number: int, token: str, clicks: frozenset[str]) -> Status:
        item = await self.state.models.get(name)
        return (await self.state.writer.feedback(Feedback(item.row.id, number, token, clicks))).status

    async def events(self, name: str, number: int, token: str, event_id: str, document: str) -> Status:
        item = await self.state.models.get(name)
        return (await self.state.writer.events([Event(item.row.id, number, token, event_id, document)]))[0].status


class LearnerProcess(Process):
    def __init__(self, world: World) -> None:
        self.store = Store(world)
        self.learner = Learner(self.store, world.clock)

    def learn(self, choice: int) -> bool:
        """One round as in `Learner.run`, if no other learner holds the rankers."""
        learner = self.learner
        try:
            if not learner._held or choice >> 9 & 1:
                learner._hold()
            if not learner._held:
                return False
            learner.step(publish=bool(choice >> 8 & 1))
        except StorageError:
            learner._keep(set())
        return True

    def close(self) -> None:
        super().close()
        self.store.close()


class Host(Supervisor):
    """A supervisor, with its worker and its learner."""

    def __init__(self, world: World) -> None:
        super().__init__(Settings(workers=1), listener=None, folder=None)
        self._world = world
        self.tend()

    def tend(self) -> None:
        for child in self._children:
            self._tend(child)

    def _start(self, role: str) -> Process:
        if any(child.role == role and child.process in self.living for child in self._children):
            raise WrongError(f"a second {role} is started beside the first")
        return (Worker if role == "worker" else LearnerProcess)(self._world)

    @property
    def living(self) -> list[Process]:
        return [one.process for one in self._children if one.process is not None and one.process.poll() is None]

    def check(self) -> None:
        """After a long time all processes live."""
        if len(self.living) != len(self._children):
            raise WrongError("a process that died was not started again")

    def close(self) -> None:
        for process in self.living:
            process.close()
