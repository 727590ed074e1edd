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
from pairrank.data.normalize import Normaliser, check_name, statistics
from pairrank.errors import DataError, OptionError
from pairrank.progress import progress
from pairrank.rng import Purpose, generator
from pairrank.types import AnyArray, Float32Array, FloatArray, IntArray

# Files from this size on get a progress bar, where standard error is a terminal.
_LONG = 20 * 2**20
_Arrays = dict[str, AnyArray]
_Entry = tuple[dict[str, Any], _Arrays]


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
        name, (values, arrays) = _entry(text, split, fold, normalise, drop_constant, cache)
    except OSError as problem:
        raise DataError(f"{text}: cannot be read: {problem.strerror or problem}") from problem
    kept: dict[str, Any] = {**arrays, **values, "normaliser": Normaliser.from_json(values["normaliser"])}
    return Dataset(**kept, name=name, split=split, fold=fold, normalisation=normalise)


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
        theta=synthetic.theta(recipe) if normalise == "query" else None,
    )


def _filed(path: Path, split: str, fold: int, cache: bool) -> _Origin:
    source = layout.find(path, split, fold)
    part, training = (None, None) if not source.shared else (split, "all" if split == "all" else "train")

    def identity(file: Path, part: str | None) -> dict[str, Any]:
        known = {"sha256": store.fingerprint(file)} if cache else {"path": file}
        return {**known, "part": part, "regroup": False}  # an option once; entries made then still serve

    def read() -> letor.Raw:
        with _reading(source.path) as tell:
            raw = letor.parse(source.path, progress=tell)
        return raw if part in (None, "all") else _part(source.path, raw, part)

    return _Origin(source.name, identity(source.path, part), identity(source.train, training), read)


def _entry(text: str, split: str, fold: int, normalise: str, drop_constant: bool, cache: bool) -> tuple[str, _Entry]:
    """The name of a data set, and the values and arrays of a split, from the cache or from its raw data."""
    if text.startswith(synthetic.PREFIX):
        origin = _generated(text, split, fold, normalise)
    else:
        origin = _filed(Path(text), split, fold, cache)
    options = {"normalise": normalise, "drop_constant": drop_constant}
    name = store.key(kind="dataset", split=origin.split, training=origin.training, **options) if cache else ""
    entry = store.get(name) if cache else None
    if entry is None:
        raw, training = origin.read(), None
        if origin.split != origin.training:
            _, training = _entry(text, "train", fold, normalise, drop_constant, cache)
        entry = _made(origin, raw, training, normalise, drop_constant)
        if cache and store.put(name, *entry):
            entry = store.get(name) or entry
    return origin.name, entry


def _made(origin: _Origin, raw: letor.Raw, training: _Entry | None, normalise: str, drop_constant: bool) -> _Entry:
    """The values and arrays of a split from its raw data, by what the ``training`` split says, or itself if None."""
    scale = scale_of(int(raw.grades.max(initial=0)))
    if training is None:
        found = statistics(raw.features, raw.grades, normalise)
        columns = found.varying() if drop_constant else np.arange(len(found.minimum))
        normaliser = Normaliser.fit(normalise, found).select(columns)
    else:
        values, arrays = training
        scale, columns = max(scale, values["scale"]), arrays["feature_ids"] - 1
        normaliser = Normaliser.from_json(values["normaliser"])
    if not len(columns):
        raise DataError(f"{origin.name}: no feature varies over the training split; expected at least one that does")
    features = _columns(raw.features, columns)
    normaliser.apply_in_place(features, raw.offsets)
    made: _Arrays = {
        "features": features,
        "grades": raw.grades,
        "offsets": raw.offsets,
        "query_ids": raw.query_ids,
        "feature_ids": columns.astype(np.int64) + 1,
    }
    values = {"scale": scale, "normaliser": normaliser.to_json()}
    return values, made if origin.theta is None else made | {"theta": origin.theta[columns]}


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
