"""Many runs: one after the other, over the cores, or over a Ray cluster. Every engine writes the same records.

A run that raises does not stop the others; what failed is told at the end, with the command that repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pairrank import errors
from pairrank.checking import check_choice, check_whole, import_extra
from pairrank.engines import ENGINES, cores
from pairrank.errors import OptionError, PairRankError, StorageError
from pairrank.lab import cluster, processes
from pairrank.lab.experiment import check_defaults
from pairrank.lab.outcomes import Failure, Out, Report, Result, RunsFailedError, attempt
from pairrank.sim import RunFolder, RunSpec, Summary


def run_all(
    specs: Sequence[RunSpec],
    out: Out = None,
    engine: str = "serial",
    *,
    jobs: int | None = None,
    address: str | None = None,
    resume: bool = True,
    report: Report | None = None,
) -> list[Summary]:
    """Run every spec and return their summaries in the same order.

    With ``out`` the records are kept there; what is done is not run again, and what was interrupted goes on, unless
    ``resume`` is False. ``report(rounds)`` hears now and then how many rounds are done over all runs. ``jobs`` is the
    number of processes, by default one per core; ``address`` that of a Ray cluster, by default one of its own on this
    machine.

    All runs are tried. When some fail, `RunsFailedError` tells which and keeps the rest; when all fail for one
    reason, that reason is raised.
    """
    check_choice("engine", engine, ENGINES)
    if jobs is not None:
        check_whole("jobs", jobs, 1)
    if address is not None and engine != "ray":
        raise OptionError(f"address is {address!r} and the engine is {engine!r}; an address needs the engine ray")
    if out is not None:
        prepare(out, "runs", "pyarrow")
        check_defaults(out, dict.fromkeys(spec.ranker for spec in specs), resume)
        for spec in () if resume else specs:
            RunFolder(out, spec).clear()
    tell = report or (lambda rounds: None)
    if engine == "serial":
        results = _serial(specs, out, tell)
    elif engine == "processes":
        results = processes.run(specs, out, jobs or cores(), tell)
    else:
        results = cluster.run(specs, out, jobs, address, tell)
    return _checked(results, out)


def prepare(out: str | os.PathLike[str], below: str, *packages: str) -> None:
    """Make the folder ``below`` it, and find out before the first run whether it can be written at all.

    So with the ``packages`` of the extra that keep the runs and draw them.
    """
    for package in packages:
        import_extra(package, "lab")
    folder = Path(out) / below
    probe = folder / f".{os.getpid()}.probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise StorageError(f"cannot write to the folder {folder}: {problem.strerror or problem}") from problem


def _serial(specs: Sequence[RunSpec], out: Out, tell: Report) -> list[Result]:
    results, before = list[Result](), 0
    for spec in specs:

        def watch(done: int, before: int = before) -> bool:
            tell(before + done)
            return True

        results.append(attempt(spec, out, watch))
        before += spec.rounds
        tell(before)
    return results


def _checked(results: Sequence[Result], out: Out) -> list[Summary]:
    summaries = [result for result in results if isinstance(result, Summary)]
    failures = [result for result in results if isinstance(result, Failure)]
    if not failures:
        return summaries
    first = failures[0]
    known = getattr(errors, first.kind, None)
    if not summaries and known is not None and len({failure.reason for failure in failures}) == 1:
        if issubclass(known, errors.MissingExtraError):  # its sentence is made from other arguments
            known = PairRankError
        raise known(first.reason)
    raise RunsFailedError(failures, summaries, out)
