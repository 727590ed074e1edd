"""One map, three engines: in this process, in some processes, or on a Ray cluster. Results come in order.

Ray is the cluster at the address in the environment's RAY_ADDRESS, or a local one that lives as long as the work.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

from pairrank import threads
from pairrank.errors import MissingExtraError, OptionError, PairRankError

Item = TypeVar("Item")
Result = TypeVar("Result")

ENGINES = ("serial", "processes", "ray")


class Engine:
    """Maps a function over items; at most two items a worker are under way, so memory stays bounded.

    Use it in a ``with``: workers are started once and serve any number of maps.
    """

    def __init__(self, name: str = "serial", workers: int | None = None) -> None:
        if name not in ENGINES:
            raise OptionError(f"engine is {name!r}; expected one of {', '.join(ENGINES)}")
        if workers is not None and (isinstance(workers, bool) or workers < 1):
            raise OptionError(f"workers is {workers!r}; expected a whole number, 1 or more")
        self.name = name
        self.workers = workers
        self._submit: Callable[[Any, Any], Any]
        self._result: Callable[[Any], Any]
        self._close: Callable[[], Any] = lambda: None
        self._deaths: tuple[type[Exception], ...] = ()  # what it looks like when a worker dies

    def __enter__(self) -> Engine:
        with ExitStack() as opened:
            # Also for what is done with the results: a sum has the same bits everywhere.
            opened.enter_context(threads.single())
            if self.name == "processes":
                self._start_processes()
            elif self.name == "ray":
                self._start_ray()
            opened.callback(self._close)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """``function`` of every item, in the order of the items. Items and results must travel between processes."""
        if self.name == "serial":
            yield from map(function, items)
            return
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(self._submit(function, item))
                if len(waiting) >= 2 * (self.workers or 1):
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        except self._deaths as problem:
            raise PairRankError(
                f"a worker died ({type(problem).__name__}), perhaps for want of memory: use fewer workers, or start "
                "again; a fit goes on from its checkpoint"
            ) from problem

    def _start_processes(self) -> None:
        from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
        from multiprocessing import get_context

        self.workers = self.workers or os.cpu_count() or 1
        # Not fork: Arrow and BLAS have threads, and a forked copy of a held lock is never released.
        pool = ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))
        self._submit = lambda function, item: pool.submit(_call, function, item)
        self._result = lambda future: future.result()
        self._close = lambda: pool.shutdown(cancel_futures=True)
        self._deaths = (BrokenExecutor,)

    def _start_ray(self) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtraError("ray", "ray") from None
        if not ray.is_initialized():
            self._connect(ray, os.environ.get("RAY_ADDRESS"))
            self._close = ray.shutdown
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        self.workers = self.workers or int(resources.get("CPU", 1))
        call: Any = ray.remote(_call)
        self._submit = lambda function, item: call.remote(function, item)
        self._result = ray.get
        self._deaths = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)

    def _connect(self, ray: Any, address: str | None) -> None:
        """To the cluster at ``address``, or to one of our own: never to one that happens to run on this machine."""
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address is None:
                ray.init(address="local", num_cpus=self.workers, include_dashboard=False, **quiet)
            else:
                ray.init(address=address, **quiet)
        except (OSError, RuntimeError, ValueError) as problem:
            where = "on this machine" if address is None else f"at {address}"
            raise PairRankError(f"cannot connect to Ray {where}: {problem}") from problem


def _call(function: Callable[[Any], Any], item: Any) -> Any:
    with threads.single():
        return function(item)
