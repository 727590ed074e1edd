"""Processes on this machine."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context

from pairrank import threads
from pairrank.engines.base import Pool, call, cores


class Processes(Pool):
    """Worker processes, one per core unless told otherwise."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or cores()

    def _start(self, opened: ExitStack) -> None:
        # Not fork: Arrow and BLAS have threads, and a forked copy of a held lock is never released.
        opened.enter_context(threads.single_in_children())
        pool = ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))
        opened.callback(pool.shutdown, cancel_futures=True)
        self._submit = lambda function, item: pool.submit(call, function, item)
        self._result = lambda future: future.result()
        self._deaths = (BrokenExecutor,)
