"""The engine that runs on a Ray cluster, on this machine or on many.

Data travel through Ray's object store, once per node; records come back to the driver, which alone writes them. So
nodes need no shared folder, and a run that Ray repeats, because its worker died, is still written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pairrank import rankers, threads
from pairrank.engines import connected
from pairrank.lab.outcomes import RETRIES, Failure, Out, Report, Result
from pairrank.rankers import own
from pairrank.sim import Records, RunFolder, RunSpec
from pairrank.sim.run import Splits, load_splits, run_spec

_TICK = 0.5  # seconds between looks at what has come back
_Source = tuple[str, str, int, str]


def run(specs: Sequence[RunSpec], out: Out, jobs: int | None, address: str | None, tell: Report) -> list[Result]:
    """Every spec's result, in their order; a run whose worker dies is tried again by Ray."""
    results: dict[int, Result] = {}
    data: dict[_Source, Splits] = {}
    files: dict[int, dict[str, bytes]] = {}  # of the runs that are left
    for index, spec in enumerate(specs):
        try:
            done = RunFolder(out, spec).finished() if out is not None else None
            if done is not None:
                results[index] = done.summary()
                continue
            if _source(spec) not in data:
                data[_source(spec)] = load_splits(spec)
            # A ranker of one's own: the worker's machine may not have its file.
            own_file = own.place(rankers.parse(spec.ranker)[0])
            files[index] = {} if own_file is None else {own_file.digest: own.source(own_file)}
        except Exception as problem:
            results[index] = Failure.of(spec, problem)
    if files:
        with connected(jobs, address) as ray:
            task = ray.remote(num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": threads.ENVIRONMENT})(_work)
            stored = {source: ray.put(splits) for source, splits in data.items()}
            pending = {task.remote(specs[i], stored[_source(specs[i])], sent): i for i, sent in files.items()}
            try:
                while pending:
                    ready, _ = ray.wait(list(pending), num_returns=1, timeout=_TICK)
                    for reference in ready:
                        index = pending.pop(reference)
                        results[index] = _received(ray, reference, specs[index], out)
                    tell(sum(specs[index].rounds for index in results))
            finally:
                for reference in pending:
                    ray.cancel(reference, force=True)
    return [results[index] for index in range(len(specs))]


def _work(spec: RunSpec, data: Splits, sources: dict[str, bytes]) -> Records | Failure:
    """On a worker: the records, or what went wrong."""
    own.receive(sources)
    source = _source(spec)
    if source not in _last:
        _last.clear()
    try:
        return run_spec(spec, _last.setdefault(source, data))
    except Exception as problem:
        return Failure.of(spec, problem)


# The splits that this worker used last: what is computed once per data set hangs on their identity.
_last: dict[_Source, Splits] = {}


def _source(spec: RunSpec) -> _Source:
    return spec.data, spec.evaluation, spec.fold, spec.normalise


def _received(ray: Any, reference: Any, spec: RunSpec, out: Out) -> Result:
    try:
        records: Records | Failure = ray.get(reference)
    except ray.exceptions.RayError as problem:
        reason = f"its worker died {RETRIES + 1} times (killed, or out of memory): {type(problem).__name__}"
        return Failure(spec, "WorkerDied", reason)
    if isinstance(records, Failure):
        return records
    try:
        if out is not None:
            folder = RunFolder(out, spec)
            folder.open()
            folder.save(records)
    except Exception as problem:
        return Failure.of(spec, problem)
    return records.summary()
