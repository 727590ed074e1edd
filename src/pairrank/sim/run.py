"""`simulate`: one run from its spec, on disk or in memory, fresh or from where it stopped."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from time import perf_counter
from types import FrameType
from typing import Any

import numpy as np

from pairrank import data as datasets
from pairrank import rankers, threads
from pairrank.data.dataset import Dataset, scale_of
from pairrank.errors import DataError, OptionError
from pairrank.rankers import Ranker
from pairrank.sim import engine
from pairrank.sim.engine import Progress
from pairrank.sim.folder import RunFolder
from pairrank.sim.records import Records
from pairrank.sim.spec import Protocol, RunSpec, content, described
from pairrank.sim.world import World, taught

Splits = tuple[Dataset, Dataset]
Watch = Callable[[int], bool]


def simulate(
    run: RunSpec | str | os.PathLike[str] | Dataset | Splits | None = None,
    *,
    data: str | os.PathLike[str] | Dataset | Splits | None = None,
    ranker: str | Ranker = "pairrank",
    clicks: str = "navigational",
    rounds: int = 1000,
    seed: int = 0,
    k: int = 10,
    fold: int = 1,
    normalise: str = "query",
    evaluation: str = "test",
    schedule: str = "geometric:12",
    panel: int = 10,
    ideal: str = "offline-ranknet",
    out: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
    checkpoint_seconds: float = 30.0,
) -> Records:
    """Simulate one run and return its records.

    Give a `RunSpec`, or data and the fields of one (they are explained there). Data may also be in memory: a
    `Dataset`, or a pair of them to train and to evaluate on, as they are: ``fold`` and ``normalise`` are those of their
    loading. A ranker may be an object of your own, fresh.

    With ``out`` the run is kept below that folder: one that is done is read instead of run again, and one that was
    interrupted goes on from its last checkpoint, to the same records as if nothing had happened. Ctrl-C then writes
    a checkpoint first. ``watch(rounds_done)`` is called about ten times a second; False stops the run likewise.
    """
    if not isinstance(ranker, (str, Ranker)):
        raise OptionError(f"ranker is {described(ranker)}; expected a name or an object such as YourRanker(n_features)")
    own = ranker if isinstance(ranker, Ranker) else None
    given: dict[str, Any] = {
        "ranker": ranker if isinstance(ranker, str) else rankers.spell(ranker.name, ranker.settings),
        "clicks": clicks,
        "rounds": rounds,
        "seed": seed,
        "k": k,
        "fold": fold,
        "normalise": normalise,
        "evaluation": evaluation,
        "schedule": schedule,
        "panel": panel,
        "ideal": ideal,
    }
    if isinstance(run, RunSpec):
        source, splits, spec = data, _pair(data), run
        if source is not None and _label(source) != spec.data:
            raise OptionError(f"the data are {_label(source)!r} and the spec says {spec.data!r}; give one of them")
        asked = RunSpec(data=spec.data, content=spec.content, **given)
        also = [name for name in given if getattr(asked, name) not in (getattr(RunSpec, name), getattr(spec, name))]
        if also:
            raise OptionError(f"the spec has its own {', '.join(also)}; for others use dataclasses.replace(spec, ...)")
    else:
        if run is not None and data is not None:
            raise OptionError("there are data twice; give them as the first argument, or as data=")
        source = data if run is None else run
        splits = _pair(source)
        if splits is not None:
            given["fold"], given["normalise"] = _as_loaded(splits[0], fold, normalise)
        spec = RunSpec(data=_label(source), **given)
    if own is not None and out is not None and not own.n_ranked:
        _check_fresh(own, spec)
    return run_spec(spec, splits, ranker=own, out=out, watch=watch, checkpoint_seconds=checkpoint_seconds)


@threads.single()
def run_spec(
    spec: RunSpec,
    splits: Splits | None = None,
    *,
    ranker: Ranker | None = None,
    out: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
    checkpoint_seconds: float = 30.0,
) -> Records:
    """`simulate` for a spec; ``splits`` are its data where they were loaded already, on another machine perhaps."""
    folder = None if out is None else RunFolder(out, spec)
    done = folder.finished() if folder else None
    if done is not None:
        return done
    train, held_out = splits or load_splits(spec)
    fresh = ranker or rankers.make(spec.ranker, n_features=train.n_features, seed=spec.seed)
    world = World(spec, train, held_out)
    saved = folder.load_checkpoint(fresh) if folder else None
    if folder:
        folder.open()
    if saved is None and fresh.n_ranked:
        raise OptionError(
            f"the ranker has ranked {fresh.n_ranked:,} lists already, and a run begins with one that knows nothing of "
            "them; make a new one for every run"
        )
    playing, progress = saved or (taught(fresh, train), Progress.start(spec.rounds))
    last = perf_counter()
    with _asked_to_stop(folder is not None) as asked:

        def look() -> bool:
            nonlocal last
            go_on = (watch is None or watch(progress.done)) and not asked()
            if folder and (not go_on or perf_counter() - last >= checkpoint_seconds):
                engine.settle(world, playing, progress)
                folder.save_checkpoint(playing, progress)
                last = perf_counter()
            return go_on

        if not engine.play(world, playing, progress, look):
            raise KeyboardInterrupt
    records = engine.records(world, playing, progress)
    if folder:
        folder.save(records)
    return records


def load_splits(spec: Protocol) -> Splits:
    """What runs by a protocol are trained and evaluated on."""
    if spec.data.startswith("memory:"):
        raise OptionError(f"the spec's data are {spec.data!r}, which live in memory only; pass them as data=")
    found = content(spec.data, spec.fold, spec.evaluation)
    if spec.contents and found and found != spec.contents:
        raise DataError(f"{spec.data} holds other data than the spec was made for; make a new spec for them")
    return (
        _split(spec.data, "train", spec.fold, spec.normalise, found),
        _split(spec.data, spec.evaluation, spec.fold, spec.normalise, found),
    )


def _label(source: Any) -> str:
    """What the spec says of the data: the path or name, or a hash of data in memory."""
    if source is None:
        raise OptionError("there are no data; expected a path, a synthetic: name, a Dataset or a pair of Datasets")
    splits = _pair(source)
    if splits is None:
        return str(os.fspath(source))
    digest, train = hashlib.sha256(), splits[0]
    for dataset in splits:
        for array in (dataset.features, dataset.grades, dataset.offsets):
            digest.update(np.ascontiguousarray(array).data)
    # Only what the arrays above do not tell: most runs that were kept without it are still found.
    if train.n_grades != scale_of(int(train.grades.max(initial=0))):
        digest.update(f"{train.n_grades} grades".encode())
    if train.theta is not None:
        digest.update(np.ascontiguousarray(train.theta).data)
    return f"memory:{digest.hexdigest()[:16]}"


def _pair(source: Any) -> Splits | None:
    if source is None or isinstance(source, (str, os.PathLike)):
        return None
    if isinstance(source, Dataset):
        return source, source
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(split, Dataset) for split in source):
        return source
    raise OptionError(f"data are {type(source).__name__}; expected a path, a name, a Dataset or a pair of Datasets")


def _as_loaded(train: Dataset, fold: int, normalise: str) -> tuple[int, str]:
    """Fold and normalisation of data in memory, which the record is to tell; others were asked for in vain."""
    if fold not in (1, train.fold) or normalise not in ("query", train.normalisation):
        raise OptionError(
            f"fold {fold} and normalise {normalise!r} are asked for, and the data in memory have fold {train.fold} and "
            f"normalisation {train.normalisation!r}; load them so: pairrank.data.load(path, split, fold, normalise=...)"
        )
    return train.fold, train.normalisation


def _check_fresh(own: Ranker, spec: RunSpec) -> None:
    """A kept run is found again by its spec, which tells of an object its name and options and of seeds the run's."""
    if type(own)(own.n_features, seed=spec.seed, **own.settings).digest() != own.digest():
        raise OptionError(
            f"the ranker has another seed than the run's, {spec.seed}, or knows something already, such as a prior; "
            "its record would not tell, so it cannot be kept by out="
        )


@lru_cache(maxsize=8)
def _split(path: str, split: str, fold: int, normalise: str, content: str) -> Dataset:
    # Remembered, so that the runs of a sweep share what is computed once per data set; read again where it changed.
    return datasets.load(path, split, fold, normalise=normalise)


@contextmanager
def _asked_to_stop(wanted: bool) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a question that the loop asks between rounds; a second one interrupts at once."""
    ours = wanted and threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    # Another handler is somebody else's business: a worker that ignores Ctrl-C, a notebook.
    if not ours or before is not signal.default_int_handler:
        yield lambda: False
        return
    interrupted = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupted.is_set
    finally:
        signal.signal(signal.SIGINT, before)
