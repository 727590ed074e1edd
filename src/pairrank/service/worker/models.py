"""The models that a rank worker serves from: read-only, replaced whole when the learner publishes a newer one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from pairrank import rankers
from pairrank.errors import PairRankError, StorageError, UnknownNameError
from pairrank.service.learning.model import Model
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import ExperimentRow, Head, Key, RankerRow, new_batch
from pairrank.trials.experiment import Arm

logger = logging.getLogger("pairrank.models")

POLL_SECONDS = 0.05
# Numbers are taken from the store in blocks, so that ranking needs no write of its own for them.
NUMBERS = 1000
# So many rankers are loaded before the first request.
WARM = 50

T = TypeVar("T")


@dataclass(slots=True)
class LoadedModel:
    """A ranker as this worker serves it."""

    row: RankerRow
    ranker: rankers.Ranker
    version: int
    next_number: int = 0
    end_number: int = 0
    batch: str = ""  # of these numbers
    trouble: str = ""  # why a newer version could not be read, as last told


class Models:
    """Rankers by name, loaded when first asked for and kept fresh by polling; and the keys.

    keep : is told which rankers are loaded when some may have been deleted.
    """

    def __init__(self, store: SqlStore, keep: Callable[[list[RankerRow]], None] = lambda _: None) -> None:
        self._store, self._keep = store, keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reader")
        self._items: dict[str, LoadedModel] = {}
        self._loading: dict[str, asyncio.Task[LoadedModel]] = {}
        self._epoch = -1
        self._connected = 0
        self._heads: dict[int, Head] = {}
        self._targets: dict[int, int] | None = None
        self._poll: asyncio.Task[None] | None = None
        self._looking = 0.0
        self.keys: list[Key] = []
        self._experiments: dict[int, list[ExperimentRow]] = {}  # running ones by ranker
        self._pinned: dict[tuple[int, int], rankers.Ranker] = {}  # versions that are arms

    async def start(self) -> None:
        """Read the store once, then follow it."""
        await self.refresh()
        for row in await self.read(lambda: self._store.rankers(self._store.ranker_ids()[:WARM])):
            try:
                await self._load(row.name)
            except PairRankError as problem:  # it will be told to who asks for it
                logger.warning("%s", problem)
        self._poll = asyncio.create_task(self._follow())

    async def close(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)
        self._thread.shutdown(wait=True)

    async def read(self, work: Callable[..., T], *args: Any) -> T:
        """Run something that reads (or administers) the store, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def get(self, name: str) -> LoadedModel:
        """The ranker of this name, ready to rank."""
        found = await self._loaded(name)
        while found.next_number >= found.end_number:
            await self._number(found)
        return found

    async def _loaded(self, name: str) -> LoadedModel:
        if name in self._items:
            return self._items[name]
        if name not in self._loading:
            self._loading[name] = task = asyncio.create_task(self._load(name))
            task.add_done_callback(lambda _: self._loading.pop(name, None))
        return await asyncio.shield(self._loading[name])

    def experiments(self, ranker_id: int) -> Sequence[ExperimentRow]:
        """The running experiments that a ranker's requests take part in."""
        return self._experiments.get(ranker_id, ())

    def head(self, ranker_id: int) -> Head | None:
        """Where a ranker stood a moment ago; None when it was deleted."""
        return self._heads.get(ranker_id)

    async def arm(self, arm: Arm) -> rankers.Ranker | None:
        """The model that an arm ranks with; None for the order in which documents came."""
        if arm.ranker is None:
            return None
        found = await self._loaded(arm.ranker)
        if arm.version is None:
            return found.ranker
        return self._pinned.get((found.row.id, arm.version)) or await self.read(self._pin, found.row, arm.version)

    async def caught_up(self, name: str, seconds: float) -> RankerRow:
        """The ranker's row once its model has caught up with its log as it is now, ``seconds`` later at the latest.

        From then on this worker serves that model.
        """
        deadline = time.monotonic() + seconds
        row = await self.read(self._store.ranker, name)
        target = row.log_seq
        while row.applied < target and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
            row = await self.read(self._store.ranker, name)
        await self.refresh()
        return row

    @property
    def recovering(self) -> bool:
        """Whether the learner still has to apply entries that were logged before this worker started."""
        if self._targets is None:
            return True
        for ranker_id, target in list(self._targets.items()):
            head = self._heads.get(ranker_id)
            if head is None or head.applied >= target or head.stopped:
                del self._targets[ranker_id]
        return bool(self._targets)

    async def refresh(self) -> None:
        """Bring rankers, limits, keys and models up to what the store has."""
        if self._targets is None:
            heads = await self.read(self._store.due)
            self._targets = {ranker_id: head.log_seq for ranker_id, head in heads.items()}
        watched = {item.row.id for item in self._items.values()} | self._targets.keys()
        epoch, heads, connected, self._looking = await self.read(self._look, watched)
        for gone in watched - heads.keys():
            self._heads.pop(gone, None)
        self._heads |= heads
        if connected != self._connected:  # it may give out numbers again, and have the epoch that another had
            for item in self._items.values():
                item.next_number = item.end_number
            self._epoch, self._connected = -1, connected
        if epoch != self._epoch:
            self.keys = await self.read(self._store.access_keys)
            loaded = [item.row.id for item in self._items.values()]
            rows = {row.name: row for row in await self.read(self._store.rankers, loaded)}
            for name, item in list(self._items.items()):
                row = rows.get(name)
                if row is None or (row.id, row.secret) != (item.row.id, item.row.secret):  # another of this name
                    del self._items[name]
                    self._heads.pop(item.row.id, None)  # it may have gone after it was looked at
                else:
                    item.row = row
            running: dict[int, list[ExperimentRow]] = {}
            for experiment in await self.read(self._store.running):
                running.setdefault(experiment.ranker_id, []).append(experiment)
            self._experiments = running
            self._pinned.clear()  # they come back with the next list that needs them
            self._keep([item.row for item in self._items.values()])
            self._epoch = epoch
        for item in list(self._items.values()):
            head = heads.get(item.row.id)
            wanted = item.row.pinned if item.row.pinned is not None or head is None else head.version
            if wanted is not None and wanted != item.version:
                try:
                    ranker = await self.read(self._open, item.row, wanted)
                except PairRankError as problem:  # damaged, or deleted meanwhile: the others go on
                    if str(problem) != item.trouble:
                        item.trouble = str(problem)
                        logger.warning("%s", problem)
                    continue
                item.ranker, item.version = ranker, wanted

    def _look(self, watched: set[int]) -> tuple[int, dict[int, Head], int, float]:
        """The store's epoch, where rankers stand, how often it was connected to, and the processor time of this."""
        began = time.thread_time()
        epoch, heads = self._store.epoch(), self._store.heads(watched)
        return epoch, heads, self._store.database.connected, time.thread_time() - began

    async def _follow(self) -> None:
        while True:
            # A tenth of the time is enough for looking, where there are many rankers.
            await asyncio.sleep(max(POLL_SECONDS, 9 * self._looking))
            try:
                await self.refresh()
            except PairRankError as problem:  # serve what is loaded; writes tell of the fault
                logger.warning("%s", problem)
                self._connected = 0  # what is there next may be another store on the same connection
                await asyncio.sleep(5 * POLL_SECONDS)

    async def _load(self, name: str) -> LoadedModel:
        row = await self.read(self._store.ranker, name)
        ranker = await self.read(self._open, row, row.served_version)
        self._heads[row.id] = Head(row.version, row.applied, row.log_seq, row.open_count, bool(row.stopped), row.launch)
        return self._items.setdefault(name, LoadedModel(row, ranker, row.served_version))

    def _open(self, row: RankerRow, version: int) -> rankers.Ranker:
        snapshot = self._store.snapshot(row.id, version)
        if snapshot is None:
            raise StorageError(f"version {version} of ranker {row.name!r} is gone; a newer one is on its way")
        return Model.restore(snapshot).ranker

    def _pin(self, row: RankerRow, version: int) -> rankers.Ranker:
        """A version that is an arm; lists that came together wait for one another here, and read it once."""
        ranker = self._pinned.get((row.id, version)) or self._open(row, version)
        self._pinned[row.id, version] = ranker
        return ranker

    async def _number(self, item: LoadedModel) -> None:
        first = await self.read(self._store.allocate, item.row.id, NUMBERS)
        if first < 0:
            raise UnknownNameError(f"no ranker is called {item.row.name!r}")
        if item.next_number >= item.end_number:  # else another request was quicker; its numbers come first
            item.next_number, item.end_number, item.batch = first, first + NUMBERS, new_batch()
