"""What becomes of a run: its summary, or a failure that says how to repeat it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pairrank.errors import PairRankError
from pairrank.rankers.own import line_of
from pairrank.sim import RunFolder, RunSpec, Summary
from pairrank.sim.run import run_spec

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
        if not isinstance(problem, PairRankError):
            text = f"{line_of(spec.ranker, problem)}{kind}: {text}"
        return cls(spec, kind, text)

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
        others = "; the others are unharmed" if summaries else ""
        lines = [f"{len(failures)} of {len(failures) + len(summaries)} runs failed{others}:"]
        for failure in failures[:_LISTED]:
            spec = failure.spec
            lines.append(f"  {spec.ranker}, {spec.clicks}, seed {spec.seed}: {failure.reason}")
            lines.append(f"    to repeat: {failure.command(out)}")
        if len(failures) > _LISTED:
            lines.append(f"  and {len(failures) - _LISTED} more; the same command as before runs them all again")
        super().__init__("\n".join(lines))


Result = Summary | Failure


def attempt(spec: RunSpec, out: Out, watch: Callable[[int], bool]) -> Result:
    """Run a spec: its summary, or why there is none."""
    try:
        return run_spec(spec, out=out, watch=watch).summary()
    except Exception as problem:
        return Failure.of(spec, problem)
