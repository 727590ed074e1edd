"""`load`: from a folder, a file or a synthetic name to a `Dataset`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pairrank.data import cache as store
from pairrank.data import layout, letor, synthetic
from pairrank.data.dataset import Dataset, scale_of
from pairrank.data.normalize import Normaliser, Statistics, check_name, statistics
from pairrank.errors import DataError, OptionError
from pairrank.progress import progress
from pairrank.rng import Purpose, generator
from pairrank.types import AnyArray, Float32Array, FloatArray, IntArray

# Files from this size on get a progress bar, where standard error is a terminal.
_LONG = 20 * 2**20
_Arrays = dict[str, AnyArray]


def load(
    path_or_name: str | os.PathLike[str],
    split: str = "train",
    fold: int = 1,
    *,
    normalise: str = "query",
    drop_constant: bool = True,
    cache: bool = True,
) -> Dataset:
    """One split of a data set: a folder or file of LETOR text, or a name such as ``synthetic:mslr(queries=500)``.

    Parameters
    ----------
    path_or_name : see `pairrank.data.layout` for the layouts, `pairrank.data.synthetic` for the names.
    split : train, vali or test. One file is dealt out by query, 60, 20 and 20 of a hundred; its split "all" is the
        whole file.
    fold : the number of the fold, or of Yahoo's set.
    normalise : see `pairrank.data.normalize`; what it learns, it learns from the training split.
    drop_constant : leave out features that are constant over the training split; ``feature_ids`` says which stayed.
    cache : keep the result, memory-mapped, for the next time (see `pairrank.data.cache`).
    """
    normalise = check_name(normalise)
    text = os.fspath(path_or_name)
    try:
        if text.startswith(synthetic.PREFIX):
            origin = _generated(text, split, fold, normalise)
        else:
            origin = _filed(Path(text), split, fold, cache)
    except OSError as problem:
        raise DataError(f"{text}: cannot be read: {problem.strerror or problem}") from problem
    options = {"normalise": normalise, "drop_constant": drop_constant}
    name = store.key(kind="dataset", split=origin.split, training=origin.training, **options) if cache else ""
    entry = store.get(name) if cache else None
    if entry is None:
        entry = _make(origin, normalise, drop_constant, cache)
        if cache and store.put(name, *entry):
            entry = store.get(name) or entry
    values, arrays = entry
    kept: dict[str, Any] = {**arrays, **values, "normaliser": Normaliser.from_json(values["normaliser"])}
    return Dataset(**kept, name=origin.name, split=split, fold=fold, normalisation=normalise)


def content_key(path: str, splits: Sequence[str], fold: int) -> str:
    """A hash of what the files of some splits hold, wherever they lie: 40 hex digits."""
    sources = [(layout.find(Path(path), split, fold), split) for split in splits]
    files = [(_digest(source.path.resolve()), split if source.shared else None) for source, split in sources]
    return store.key(kind="content", files=files)


def _digest(file: Path) -> str:
    status = file.stat()
    return _fingerprint(file, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _fingerprint(file: Path, size: int, changed: int) -> str:
    # Remembered here too, since a sweep asks once a run and the cache's folder may not be writable.
    return store.fingerprint(file)


@dataclass(frozen=True)
class _Origin:
    """Where raw data come from; ``split`` and ``training`` hold all that the two splits' raw data depend on.

    Where they are equal the split is the training split.
    """

    name: str
    split: dict[str, Any]
    training: dict[str, Any]
    read: Callable[[], letor.Raw]
    read_training: Callable[[], letor.Raw]
    theta: FloatArray | None = None


def _generated(text: str, split: str, fold: int, normalise: str) -> _Origin:
    recipe = synthetic.parse(text)
    layout.check_split(split, whole=False)
    if fold != 1:
        raise OptionError(f"fold is {fold}; synthetic data have one fold, 1: change the seed for other data")
    return _Origin(
        name=text,
        split=recipe.identity(split),
        training=recipe.identity("train"),
        read=lambda: synthetic.generate(recipe, split),
        read_training=lambda: synthetic.generate(recipe, "train"),
        theta=synthetic.theta(recipe) if normalise == "query" else None,
    )


def _filed(path: Path, split: str, fold: int, cache: bool) -> _Origin:
    source = layout.find(path, split, fold)
    part, training = (None, None) if not source.shared else (split, "all" if split == "all" else "train")

    def identity(file: Path, part: str | None) -> dict[str, Any]:
        known = {"sha256": store.fingerprint(file)} if cache else {"path": file}
        return {**known, "part": part, "regroup": False}  # an option once; entries made then still serve

    def read(file: Path, part: str | None) -> letor.Raw:
        with _reading(file) as tell:
            raw = letor.parse(file, progress=tell)
        return raw if part in (None, "all") else _part(file, raw, part)

    return _Origin(
        name=source.name,
        split=identity(source.path, part),
        training=identity(source.train, training),
        read=lambda: read(source.path, part),
        read_training=lambda: read(source.train, training),
    )


def _make(origin: _Origin, normalise: str, drop_constant: bool, cache: bool) -> tuple[dict[str, Any], _Arrays]:
    """The values and arrays of a data set, from its raw data."""
    raw = origin.read()
    training = _training(origin, raw, normalise, cache)
    columns = training.varying() if drop_constant else np.arange(len(training.minimum))
    if not len(columns):
        raise DataError(f"{origin.name}: no feature varies over the training split; expected at least one that does")
    features = _columns(raw.features, columns)
    normaliser = Normaliser.fit(normalise, training).select(columns)
    normaliser.apply_in_place(features, raw.offsets)
    values = {
        "scale": scale_of(max(training.highest, int(raw.grades.max(initial=0)))),
        "normaliser": normaliser.to_json(),
    }
    arrays: _Arrays = {
        "features": features,
        "grades": raw.grades,
        "offsets": raw.offsets,
        "query_ids": raw.query_ids,
        "feature_ids": columns.astype(np.int64) + 1,
    }
    return values, arrays if origin.theta is None else arrays | {"theta": origin.theta[columns]}


def _training(origin: _Origin, raw: letor.Raw, normalise: str, cache: bool) -> Statistics:
    """Statistics of the training split: of ``raw`` if it is that, else from the cache or from its file."""
    name = store.key(kind="statistics", normalise=normalise, training=origin.training) if cache else ""
    entry = store.get(name) if cache else None
    if entry is not None:
        values, arrays = entry
        return Statistics(**arrays, highest=values["highest"])
    source = raw if origin.split == origin.training else origin.read_training()
    found = statistics(source.features, source.grades, normalise)
    if cache:
        arrays = {name: getattr(found, name) for name in ("minimum", "maximum", "mean", "deviation")}
        store.put(name, {"highest": found.highest}, arrays)
    return found


def _columns(features: Float32Array, columns: IntArray) -> Float32Array:
    """Some columns; those beyond the width of a sparse file are 0. No copy where all are wanted as they are."""
    width = features.shape[1]
    if len(columns) == width and columns[-1] == width - 1:
        return features
    chosen = np.zeros((len(features), len(columns)), dtype=np.float32)
    present = columns < width
    chosen[:, present] = features[:, columns[present]]
    return chosen


def _part(file: Path, raw: letor.Raw, split: str) -> letor.Raw:
    """The queries of one file that belong to ``split``: a shuffle that depends on their number alone."""
    n = len(raw.query_ids)
    if n < 3:
        raise DataError(f"{file}: has {n} queries, too few to deal out; expected at least 3, or split='all'")
    order = generator(0, 0, Purpose.DATA).permutation(n)
    fifth = max(1, n // 5)
    first, last = {"test": (0, fifth), "vali": (fifth, 2 * fifth), "train": (2 * fifth, n)}[split]
    chosen = np.isin(np.arange(n), order[first:last])
    sizes = np.diff(raw.offsets)
    rows = np.repeat(chosen, sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes[chosen])]).astype(np.int64)
    return letor.Raw(raw.features[rows], raw.grades[rows], offsets, raw.query_ids[chosen])


def _reading(file: Path) -> AbstractContextManager[Callable[[int], None] | None]:
    """A bar while a long file is read, if somebody watches."""
    size = file.stat().st_size
    if size < _LONG or not sys.stderr.isatty():
        return nullcontext()
    return progress(size, f"reading {file.name}", size=True)
