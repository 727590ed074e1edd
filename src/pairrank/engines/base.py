"""What all engines have in common: they map a function over items, and results come in the order of the items."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Self, TypeVar

from pairrank import threads
from pairrank.errors import PairRankError

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """How many cores are ours."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system tells which cores are ours
        return os.cpu_count() or 1


class Engine(ABC):
    """Maps a function over items. Use it in a ``with``: workers are started once and serve any number of maps."""

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            # Also for what is done with the results here: a sum has the same bits everywhere.
            opened.enter_context(threads.single())
            self._start(opened)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @abstractmethod
    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """``function`` of every item, in the order of the items. Items and results must travel between processes."""

    @abstractmethod
    def _start(self, opened: ExitStack) -> None:
        """Start workers; what ends them goes on ``opened``."""


class Pool(Engine):
    """Workers that take items as they become free; at most two per worker are under way, so memory stays bounded."""

    workers: int
    _submit: Callable[[Callable[[Any], Any], Any], Any]
    _result: Callable[[Any], Any]
    _deaths: tuple[type[Exception], ...]  # what it looks like when a worker dies

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(self._submit(function, item))
                if len(waiting) >= 2 * self.workers:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        except self._deaths as problem:
            raise PairRankError(
                f"a worker died ({type(problem).__name__}), perhaps for want of memory: use fewer workers, or start "
                "again; a fit goes on from its checkpoint"
            ) from problem


def call(function: Callable[[Any], Any], item: Any) -> Any:
    """On a worker: the function of an item, with one BLAS thread."""
    with threads.single():
        return function(item)
