"""Who does the work: this process, some processes, or a Ray cluster. Results are the same and come in order.

>>> with start("serial") as engine:
...     list(engine.map(abs, [1, -2]))
[1, 2]
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from typing import Any, TypeVar

from pairrank import threads
from pairrank.checking import check_choice, check_whole, import_extra
from pairrank.errors import PairRankError

ENGINES = ("serial", "processes", "ray")
Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def start(name: str = "serial", workers: int | None = None) -> Iterator[Engine]:
    """The engine called ``name``, with so many ``workers`` (default: one per core), for a ``with``: they start once.

    Ray is the cluster at the address in the environment's RAY_ADDRESS, or a local one that lives as long as the work.
    """
    check_choice("engine", name, ENGINES)
    if workers is not None:
        check_whole("workers", workers, 1)
    # One thread also for what is done with the results here: a sum has the same bits everywhere.
    with threads.single():
        if name == "serial":
            yield Engine()
        elif name == "processes":
            n = workers or cores()
            with processes(n, enlist) as pool:
                yield Pool(n, partial(submit, pool, call), Future.result, (BrokenExecutor,))
        else:
            with connected(workers, os.environ.get("RAY_ADDRESS")) as ray:
                n = workers or int(ray.cluster_resources().get("CPU", 1))
                deaths = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)
                yield Pool(n, ray.remote(call).remote, ray.get, deaths)


def over_processes(
    function: Callable[[Item], Result], items: Iterable[Item], jobs: int, report: Callable[[int], None]
) -> list[Result]:
    """``function`` of every item, in their order, over ``jobs`` processes; ``report`` hears how many are done."""
    results: list[Result] = []
    with start("serial" if jobs == 1 else "processes", jobs) as engine:
        for result in engine.map(function, items):
            results.append(result)
            report(len(results))
    return results


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


@contextmanager
def connected(workers: int | None, address: str | None) -> Iterator[Any]:
    """The module ray, connected to ``address`` or to a cluster of our own: never to one that happens to run here.

    A cluster that was started here is stopped here; somebody else's connection is used and left.
    """
    ray = import_extra("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address is None:
            ray.init(address="local", num_cpus=workers or cores(), include_dashboard=False, **quiet)
        else:
            _knock(address)
            ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as problem:
        where = "on this machine" if address is None else f"at {address}"
        raise PairRankError(f"cannot connect to Ray {where}: {problem}") from problem
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Find out in seconds whether anybody listens there: Ray itself tries for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()
