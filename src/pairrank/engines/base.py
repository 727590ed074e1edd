"""What maps a function over items, results in the order of the items: this process, or a pool of others."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from typing import Any, TypeVar

from pairrank import threads
from pairrank.errors import PairRankError

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system tells which cores are ours
        return os.cpu_count() or 1


class Engine:
    """This process, one item after the other: the plainest engine, and the one that the others are compared with."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """``function`` of every item, in the order of the items. Items and results must travel between processes."""
        yield from map(function, items)


@dataclass(frozen=True)
class Pool(Engine):
    """Workers that take items as they become free; at most two per worker are under way, so memory stays bounded.

    submit : starts `call` of a function and an item on a worker. result : waits for it.
    deaths : what it looks like when a worker dies.
    """

    workers: int
    submit: Callable[[Callable[[Any], Any], Any], Any]
    result: Callable[[Any], Any]
    deaths: tuple[type[Exception], ...]

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(self.submit(function, item))
                if len(waiting) >= 2 * self.workers:
                    yield self.result(waiting.popleft())
            while waiting:
                yield self.result(waiting.popleft())
        except self.deaths as problem:
            raise PairRankError(
                f"a worker died ({type(problem).__name__}), perhaps for want of memory: use fewer workers, or start "
                "again; a fit goes on from its checkpoint"
            ) from problem


def call(function: Callable[[Any], Any], item: Any) -> Any:
    """On a worker: the function of an item, with one BLAS thread."""
    with threads.single():
        return function(item)


@contextmanager
def sharing() -> Iterator[None]:
    """Around what makes a pool of processes, which share some memory: a container without /dev/shm has none."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or problem
        hint = "one process does without (--engine serial, or --jobs 1)"
        raise PairRankError(f"processes cannot share memory ({reason}); {hint}") from problem


@contextmanager
def processes(n: int, initializer: Callable[..., None], initargs: tuple[Any, ...] = ()) -> Iterator[Executor]:
    """``n`` worker processes, which end with the ``with``. Ctrl-C waits for what they do, a second one kills them."""
    others = set(active_children())
    # Not fork: Arrow and BLAS have threads, and a forked copy of a held lock is never released.
    with sharing():
        pool = ProcessPoolExecutor(n, mp_context=get_context("spawn"), initializer=initializer, initargs=initargs)
    ended = threading.Event()

    def end() -> None:
        pool.shutdown(cancel_futures=True)
        ended.set()

    try:
        with threads.single_in_children():
            yield pool
    finally:
        # By a thread: before Python 3.13 a join that Ctrl-C interrupts takes the pool's own thread for ended, and
        # the interpreter, which then does not wait for it, can stop for ever at a lock that it holds. An interpreter
        # that ends starts no more threads: there a generator that was never read to its end gives up its pool.
        if sys.is_finalizing():
            end()
        else:
            threading.Thread(target=end).start()
        try:
            ended.wait()
        except KeyboardInterrupt:
            for worker in set(active_children()) - others:
                worker.kill()
            ended.wait()
            raise


def submit(pool: Executor, *task: Any) -> Future[Any]:
    """``pool.submit`` with Ctrl-C held back: a worker that it starts hears none before its initialiser has run."""
    if not hasattr(signal, "pthread_sigmask"):
        return pool.submit(*task)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(*task)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def enlist(at_ctrl_c: signal.Handlers = signal.SIG_DFL) -> None:
    """On a worker process, as it starts: end with the parent, and at Ctrl-C, which reaches every process, silently."""
    signal.signal(signal.SIGINT, at_ctrl_c)
    if hasattr(signal, "pthread_sigmask"):  # held back since `submit`
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent leaves nobody behind."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
