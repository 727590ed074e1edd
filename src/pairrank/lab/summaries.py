"""Runs of which the summaries alone are kept, in one JSON file: numpy and scipy are enough for all of it.

The file is written after every few seeds, so that the same command goes on where an interrupted one stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from pairrank import archive
from pairrank.errors import FileFormatError
from pairrank.lab.outcomes import Failure, RunsFailedError
from pairrank.sim import RunSpec, Summary

FILE = "summaries.json"
CHUNK = 64  # runs, at least, between two writes: enough to keep many cores busy
Folder = str | os.PathLike[str]


def keep(
    specs: Sequence[RunSpec],
    out: Folder,
    run_all: Callable[[Sequence[RunSpec]], list[Summary]],
    at_once: int | None = None,
) -> None:
    """Run what is not there yet, whole seeds of ``at_once`` runs or more at a time, and keep them before the next.

    Runs that fail are told at the end, by `RunsFailedError`.
    """
    kept = load(out)
    failures: list[Failure] = []
    for chunk in _chunks([spec for spec in specs if spec.run_id not in kept], at_once or CHUNK):
        try:
            done: Sequence[Summary] = run_all(chunk)
        except RunsFailedError as problem:
            done = problem.summaries
            failures += problem.failures
        # Read again: another command may have written to the same folder meanwhile.
        kept = load(out) | {summary.spec.run_id: summary for summary in done}
        _save(out, kept)
    if failures:
        raise RunsFailedError(failures, list(kept.values()), None)


def _chunks(specs: Sequence[RunSpec], at_once: int) -> Iterator[list[RunSpec]]:
    """Whole seeds, until there are enough."""
    chunk: list[RunSpec] = []
    for _, of_seed in groupby(specs, key=lambda spec: spec.seed):
        chunk += of_seed
        if len(chunk) >= at_once:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def load(out: Folder) -> dict[str, Summary]:
    """The summaries below ``out``, by the id of the run."""
    path = Path(out) / FILE
    if not path.exists():
        return {}
    try:
        found = [_summary(row) for row in json.loads(archive.read_file(path))]
    except (KeyError, TypeError, ValueError):
        raise FileFormatError(f"{path} is damaged; delete it to run everything again") from None
    return {summary.spec.run_id: summary for summary in found}


def _summary(row: Mapping[str, Any]) -> Summary:
    spec = RunSpec.from_json(json.dumps(row["spec"]))
    return Summary(spec, row["ndcg"], row["cndcg"], row["regret"], row["seconds"], tuple(row["curve"]))


def _save(out: Folder, kept: Mapping[str, Summary]) -> None:
    rows = [{**asdict(summary), "spec": json.loads(summary.spec.to_json())} for summary in kept.values()]
    archive.write_atomically(Path(out) / FILE, json.dumps(rows).encode() + b"\n")


def clear(out: Folder) -> None:
    """Forget what was run."""
    (Path(out) / FILE).unlink(missing_ok=True)
