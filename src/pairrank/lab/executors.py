"""Many runs: one after the other, over the cores, or over a Ray cluster. Every engine writes the same records.

A run that raises does not stop the others; what failed is told at the end, with the command that repeats it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pairrank import errors
from pairrank.errors import OptionError, PairRankError, StorageError
from pairrank.sim import RunFolder, RunSpec, Summary
from pairrank.sim.run import run_spec

ENGINES = ("serial", "processes", "ray")
Out = str | os.PathLike[str] | None
Report = Callable[[int], None]

RETRIES = 3  # how often a run whose worker died is tried again
_LISTED = 8  # failures that are told one by one


@dataclass(frozen=True)
class Failure:
    """A run that did not end: its spec, the name of the error and its sentence."""

    spec: RunSpec
    kind: str
    reason: str

    @classmethod
    def of(cls, spec: RunSpec, problem: BaseException) -> Failure:
        """What ``problem`` did to ``spec``."""
        kind = type(problem).__name__
        text = " ".join(str(problem).split())
        return cls(spec, kind, text if isinstance(problem, PairRankError) else f"{kind}: {text}")

    def command(self, out: Out) -> str:
        """The command line that repeats the run."""
        file = None if out is None else RunFolder(out, self.spec).path / "spec.json"
        spec = str(file) if file is not None and file.exists() else self.spec.to_json()
        kept = [] if out is None else ["--out", os.fspath(out)]
        return shlex.join(["pairrank", "simulate", "--spec", spec, *kept])


class RunsFailedError(PairRankError):
    """Some runs failed; ``summaries`` are those of the runs that did not."""

    def __init__(self, failures: Sequence[Failure], summaries: Sequence[Summary], out: Out) -> None:
        self.failures, self.summaries = tuple(failures), tuple(summaries)
        lines = [f"{len(failures)} of {len(failures) + len(summaries)} runs failed; the others are unharmed:"]
        for failure in failures[:_LISTED]:
            spec = failure.spec
            lines.append(f"  {spec.ranker}, {spec.clicks}, seed {spec.seed}: {failure.reason}")
            lines.append(f"    to repeat: {failure.command(out)}")
        if len(failures) > _LISTED:
            lines.append(f"  and {len(failures) - _LISTED} more; the same command as before runs them all again")
        super().__init__("\n".join(lines))


Result = Summary | Failure


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
    if engine not in ENGINES:
        raise OptionError(f"engine is {engine!r}; expected one of {', '.join(ENGINES)}")
    if address is not None and engine != "ray":
        raise OptionError(f"address is {address!r} and the engine is {engine!r}; an address needs the engine ray")
    if out is not None:
        prepare(out)
        for spec in () if resume else specs:
            RunFolder(out, spec).clear()
    tell = report or (lambda rounds: None)
    if engine == "serial":
        results = _serial(specs, out, tell)
    elif engine == "processes":
        from pairrank.lab import processes

        results = processes.run(specs, out, jobs or cores(), tell)
    else:
        from pairrank.lab import cluster

        results = cluster.run(specs, out, jobs, address, tell)
    return _checked(results, out)


def cores() -> int:
    """How many cores are ours."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system tells which cores are ours
        return os.cpu_count() or 1


def prepare(out: str | os.PathLike[str], below: str = "runs") -> None:
    """Make the folder ``below`` it, and find out before the first run whether it can be written at all."""
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

        def work(spec: RunSpec = spec, before: int = before) -> Summary:
            def watch(done: int) -> bool:
                tell(before + done)
                return True

            return run_spec(spec, out=out, watch=watch).summary()

        results.append(attempt(spec, work))
        before += spec.rounds
        tell(before)
    return results


def attempt(spec: RunSpec, work: Callable[[], Summary]) -> Result:
    """The summary of a run, or why there is none."""
    try:
        return work()
    except Exception as problem:
        return Failure.of(spec, problem)


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
