"""The engine that uses all cores of one machine: worker processes that share the data set's memory map."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from pairrank.engines import enlist, processes, sharing, submit
from pairrank.errors import PairRankError
from pairrank.lab.outcomes import RETRIES, Failure, Out, Report, Result, attempt
from pairrank.sim import RunSpec

_TICK = 0.2  # seconds between reports
_NOT_STARTED = -1


def run(specs: Sequence[RunSpec], out: Out, jobs: int, tell: Report) -> list[Result]:
    """Every spec's result, in their order. A worker that dies takes its run with it; that run is tried again."""
    results: dict[int, Result] = {}
    waiting = list(range(len(specs)))
    while waiting:
        for index in _pool(specs, waiting, out, jobs, results, tell):
            # Alone, so that a run which kills its worker every time is known for it, and no other is blamed.
            for _ in range(RETRIES):
                if not _pool(specs, [index], out, 1, results, tell):
                    break
            else:
                reason = f"its worker process died {RETRIES + 1} times (killed, or out of memory)"
                results[index] = Failure(specs[index], "WorkerDied", reason)
        left = [index for index in waiting if index not in results]
        if left == waiting:
            raise PairRankError(
                "worker processes die before they start a run; a script calls for them in a file of its own, below "
                'if __name__ == "__main__":, and the engine serial does without them'
            )
        waiting = left
    return [results[index] for index in range(len(specs))]


def _pool(
    specs: Sequence[RunSpec], indices: Sequence[int], out: Out, jobs: int, results: dict[int, Result], tell: Report
) -> list[int]:
    """Run some specs in a pool of their own; the indices of those that were under way when a worker died."""
    context = get_context("spawn")
    before = sum(specs[index].rounds for index in results)
    with sharing():
        rounds = context.Array("q", [_NOT_STARTED] * len(specs))
        stop = context.Event()
    futures: dict[Future[Result], int] = {}
    with processes(min(jobs, len(indices)), _enlist, (rounds, stop)) as pool:
        try:
            for index in indices:
                futures[submit(pool, _work, index, specs[index], out)] = index
            while wait(futures, timeout=_TICK).not_done:
                tell(before + sum(max(0, done) for done in rounds[:]))
        except BrokenProcessPool:
            pass
        finally:
            stop.set()  # whatever still runs writes a checkpoint and ends
    ended = {index: future for future, index in futures.items() if future.exception() is None}
    results |= {index: future.result() for index, future in ended.items()}
    return [index for index in indices if index not in ended and rounds[index] != _NOT_STARTED]


# What a worker process shares with its parent: rounds done, by run, and whether to stop. Set once, when it starts.
_shared: tuple[Any, Any]


def _enlist(rounds: Any, stop: Any) -> None:
    global _shared
    _shared = rounds, stop
    enlist(signal.SIG_IGN)  # at Ctrl-C the parent decides


def _work(index: int, spec: RunSpec, out: Out) -> Result:
    rounds, stop = _shared
    rounds[index] = 0

    def watch(done: int) -> bool:
        rounds[index] = done
        return not stop.is_set()

    result = attempt(spec, out, watch)
    rounds[index] = spec.rounds
    return result
