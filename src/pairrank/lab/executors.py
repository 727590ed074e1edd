"""Many runs: one after the other, or over the cores. Every engine writes the same records."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from pairrank.errors import OptionError, PairRankError
from pairrank.sim import RunSpec, Summary, simulate

ENGINES = ("serial", "processes")
Report = Callable[[int], None]

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def run_all(
    specs: Sequence[RunSpec],
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    *,
    jobs: int | None = None,
    report: Report | None = None,
) -> list[Summary]:
    """Run every spec and return their summaries in the same order.

    With ``out`` the records are kept there; what is done is not run again, and what was interrupted goes on.
    ``report(rounds)`` hears a few times a second how many rounds are done over all runs. ``jobs`` is the number of
    processes; by default one per core.
    """
    tell = report or (lambda rounds: None)
    if engine == "serial":
        return _serial(specs, out, tell)
    if engine == "processes":
        return _processes(specs, out, jobs or _cores(), tell)
    raise OptionError(f"engine is {engine!r}; expected one of {', '.join(ENGINES)}")


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system tells which cores are ours
        return os.cpu_count() or 1


def _serial(specs: Sequence[RunSpec], out: str | os.PathLike[str] | None, tell: Report) -> list[Summary]:
    summaries, before = [], 0
    for spec in specs:

        def watch(done: int, before: int = before) -> bool:
            tell(before + done)
            return True

        summaries.append(simulate(spec, out=out, watch=watch).summary())
        before += spec.rounds
        tell(before)
    return summaries


def _processes(specs: Sequence[RunSpec], out: str | os.PathLike[str] | None, jobs: int, tell: Report) -> list[Summary]:
    context = get_context("spawn")
    rounds, stop = context.Value("q", 0), context.Event()
    with (
        _one_thread_each(),
        ProcessPoolExecutor(
            min(jobs, max(1, len(specs))), mp_context=context, initializer=_enlist, initargs=(rounds, stop)
        ) as pool,
    ):
        futures: list[Future[Summary]] = [pool.submit(_work, spec, out) for spec in specs]
        try:
            while wait(futures, timeout=0.2, return_when=FIRST_EXCEPTION).not_done:
                tell(rounds.value)
                failed = next((f for f in futures if f.done() and f.exception() is not None), None)
                if failed is not None:
                    failed.result()
            return [future.result() for future in futures]
        except BrokenProcessPool:
            raise PairRankError(
                "a worker process died (killed, or out of memory); what is done is kept: run again to go on"
            ) from None
        finally:
            stop.set()  # whatever still runs writes a checkpoint and ends
            for future in futures:
                future.cancel()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Children inherit the environment; their matrix products must not fight over the cores."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# What a worker process shares with its parent: rounds done by all, and whether to stop. Set once, when it starts.
_shared: tuple[Any, Any] | None = None


def _enlist(rounds: Any, stop: Any) -> None:
    global _shared
    _shared = rounds, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent decides


def _work(spec: RunSpec, out: str | os.PathLike[str] | None) -> Summary:
    if _shared is None:
        raise PairRankError("a worker was started without its initialiser")
    rounds, stop = _shared
    told = 0

    def watch(done: int) -> bool:
        nonlocal told
        with rounds.get_lock():
            rounds.value += done - told
        told = done
        return not stop.is_set()

    summary = simulate(spec, out=out, watch=watch).summary()
    watch(spec.rounds)
    return summary
