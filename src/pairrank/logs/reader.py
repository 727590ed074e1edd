"""Reading click logs: row group by row group, every row checked, bad ones left out and accounted for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pairrank.documents import MAX_MAGNITUDE, Columns, Missing
from pairrank.errors import DataError, LogError, StorageError
from pairrank.logs.clicklog import arrow, parquet
from pairrank.logs.problems import Problems, Reason
from pairrank.types import BoolArray, FloatArray, IntArray

# Lists decoded at a time: bounds memory whatever the size of a file's row groups.
BATCH = 4096
MAX_GAIN = 1e6
NO_LIST = "the logs hold no list that could be read; pairrank fit --check tells what is wrong with them"


# What a column must be: in words, and which of `pyarrow.types` it may be, level by level of lists.
_TEXT, _LIST = ("string", "large_string"), ("list", "large_list", "fixed_size_list")
_COLUMNS: Mapping[str, tuple[str, *tuple[tuple[str, ...], ...]]] = {
    "query_id": ("string", _TEXT),
    "timestamp": ("timestamp", ("timestamp",)),
    "documents": ("list<string>", _LIST, _TEXT),
    "features": ("list<list<number>>", _LIST, _LIST, ("integer", "floating")),
    "clicks": ("list<bool> or a list of numbers", _LIST, ("boolean", "integer", "floating")),
    "locked": ("an integer", ("integer",)),
    "above": ("an integer", ("integer",)),
}
_OPTIONAL = ("locked", "above")


class Chunk(NamedTuple):
    """A row group: the unit of work of every engine. ``missing`` : what a missing value in it means, as a ranker's."""

    path: str
    group: int
    rows: int
    first_row: int
    missing: Missing


class Batch(NamedTuple):
    """Lists that passed all checks, one after the other.

    features : (n_docs, d). offsets : (n_lists + 1,). gains : (n_docs,), 1 for a click. locked, above : (n_lists,).
    """

    features: FloatArray
    offsets: IntArray
    gains: FloatArray
    locked: IntArray
    above: IntArray


def chunks(paths: Sequence[str], problems: Problems, missing: Missing = None) -> list[Chunk]:
    """The row groups of all files, in the order given; files that are no click logs are noted in ``problems``."""
    found: list[Chunk] = []
    missing = Columns.of(1, None, missing).missing  # checked
    for path in paths:
        if not Path(path).exists():
            raise StorageError(f"cannot read {path}: no such file")
        try:
            file = parquet().ParquetFile(path)
        except (OSError, ValueError) as problem:
            problems.add(Reason.UNREADABLE, f"{path}: {_first_line(problem)}")
            continue
        with file:
            wrong = _wrong_columns(file.schema_arrow)
            if wrong is not None:
                problems.add(wrong[0], f"{path}: {wrong[1]}", max(file.metadata.num_rows, 1))
                continue
            first = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                found.append(Chunk(path, group, rows, first, missing))
                first += rows
    return found


def width(found: Sequence[Chunk], *, otherwise: int = 0) -> int:
    """The number of features of the first document in the first chunk that has one; ``otherwise`` where none has."""
    for chunk in found:
        for _, table in _tables(chunk, Problems()):  # `batches` will say what is wrong with it
            lengths = _lengths(table.column("features").flatten())
            if lengths.any():
                return int(lengths[lengths > 0][0])
    if not otherwise:
        raise DataError(NO_LIST)
    return otherwise


def width_of(paths: Sequence[str]) -> int:
    """`width` of the click logs at ``paths``; where there is none, what is wrong with them."""
    problems = Problems()
    found = chunks(paths, problems)
    if not found and problems:
        raise LogError("the logs hold no list that could be read", problems)
    return width(found)


def batches(chunk: Chunk, may_lack: BoolArray, problems: Problems) -> Iterator[tuple[Batch, IntArray]]:
    """The good lists of a chunk with their times (microseconds), a bounded number at a time.

    ``may_lack`` (d,) : features in which NaN is a value.
    """
    latest = None
    columns = Columns(len(may_lack), None, chunk.missing)
    may_lack = may_lack | (chunk.missing is not None)
    for row, table in _tables(chunk, problems):
        batch, rows, times = _check(table, may_lack, problems, f"{chunk.path} row", row)
        earlier = times < np.concatenate([times[:1] if latest is None else [latest], times[:-1]])
        for place in row + rows[earlier]:
            problems.add(Reason.OUT_OF_ORDER, f"{chunk.path} row {place}")
        if chunk.missing is not None and np.isnan(batch.features).any():
            lists = np.split(batch.features, batch.offsets[1:-1])
            batch = batch._replace(features=np.concatenate([columns.filled(X) for X in lists]))
        latest = times[-1] if len(times) else latest
        yield batch, times


def _tables(chunk: Chunk, problems: Problems) -> Iterator[tuple[int, Any]]:
    """Record batches, each with the number of its first row, down to where the chunk cannot be read."""
    row = chunk.first_row
    try:
        with parquet().ParquetFile(chunk.path) as file:
            columns = [name for name in _COLUMNS if name in file.schema_arrow.names]
            # In one thread: the engine decides how many cores work.
            for table in file.iter_batches(BATCH, row_groups=[chunk.group], columns=columns, use_threads=False):
                yield row, table
                row += table.num_rows
    except (OSError, ValueError) as problem:
        left = chunk.first_row + chunk.rows - row
        problems.add(Reason.UNREADABLE, f"{chunk.path} row {row} on: {_first_line(problem)}", max(left, 1))


def _wrong_columns(schema: Any) -> tuple[Reason, str] | None:
    missing = [name for name in _COLUMNS if name not in (*_OPTIONAL, *schema.names)]
    if missing:
        return Reason.MISSING_COLUMN, ", ".join(missing)
    twice = [name for name in _COLUMNS if schema.names.count(name) > 1]
    if twice:
        return Reason.WRONG_TYPE, f"{', '.join(twice)} came more than once, expected one column of that name"
    for name, (expected, *levels) in _COLUMNS.items():
        kind: Any = schema.field(name).type if name in schema.names else None
        told = kind
        for level in levels if told is not None else ():
            kind = kind.value_type if arrow().types.is_dictionary(kind) else kind  # categories, of what they stand for
            if not any(getattr(arrow().types, f"is_{what}")(kind) for what in level):
                return Reason.WRONG_TYPE, f"{name} is {told}, expected {expected}"
            kind = getattr(kind, "value_type", None)
    return None


def _check(
    table: Any, may_lack: BoolArray, problems: Problems, place: str, first: int
) -> tuple[Batch, IntArray, IntArray]:
    """Leave out the bad rows of a record batch, each with its reason: what is left, its rows and its times."""
    documents, features, clicks = (table.column(name) for name in ("documents", "features", "clicks"))
    n, n_features = table.num_rows, len(may_lack)
    bad: dict[Reason, BoolArray] = {}
    null = np.zeros(n, dtype=np.bool_)
    for name in table.schema.names:
        null |= table.column(name).is_null().to_numpy(zero_copy_only=False)
    sizes = [_lengths(column) for column in (documents, features, clicks)]
    # A null in a feature reads as NaN, which is judged below.
    inner_null = [_any_null(column) for column in (documents, clicks, *(() if may_lack.any() else (features,)))]
    empty = sizes[0] == 0
    bad[Reason.CLICK_WITHOUT_IMPRESSION] = empty & (sizes[2] > 0) & ~null
    bad[Reason.MISSING_VALUE] = null | (empty & (sizes[2] == 0)) | np.logical_or.reduce(inner_null)
    bad[Reason.LENGTHS_DIFFER] = (sizes[0] != sizes[1]) | (sizes[0] != sizes[2])
    widths = _lengths(features.flatten())
    owner = np.repeat(np.arange(n), sizes[1])
    bad[Reason.WRONG_WIDTH] = _any(owner, widths != n_features, n)
    values = features.flatten().flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    # Comparisons with NaN are false, so one test answers NaN, infinity and absurd sizes.
    absurd = ~(np.abs(values) <= MAX_MAGNITUDE)
    if may_lack.any():
        feature = np.arange(len(values)) - np.repeat(np.cumsum(widths) - widths, widths)
        absurd &= ~(np.isnan(values) & may_lack[np.minimum(feature, n_features - 1)])
    gains = np.asarray(clicks.flatten().cast("float64", safe=False).fill_null(0.0))
    absurd_gains = _any(np.repeat(np.arange(n), sizes[2]), ~(np.abs(gains) <= MAX_GAIN), n)
    bad[Reason.NOT_FINITE] = _any(np.repeat(owner, widths), absurd, n) | absurd_gains
    good = np.ones(n, dtype=np.bool_)
    for reason, rows in bad.items():
        for row in np.flatnonzero(rows & good):
            problems.add(reason, f"{place} {first + row}")
        good &= ~rows
    kept = np.repeat(good, sizes[1])
    X = values[np.repeat(kept, widths)].reshape(-1, n_features)
    times = _microseconds(table.column("timestamp"))
    offsets = np.concatenate([[0], np.cumsum(sizes[0][good])])
    counts = (_counts(table, name)[good] for name in _OPTIONAL)
    return Batch(X, offsets, gains[np.repeat(good, sizes[2])], *counts), np.flatnonzero(good), times[good]


def _microseconds(column: Any) -> IntArray:
    kind = arrow().timestamp("us", tz=column.type.tz)
    return np.asarray(column.cast(kind, safe=False).cast("int64").fill_null(0))


def _counts(table: Any, name: str) -> IntArray:
    if name not in table.schema.names:
        return np.zeros(table.num_rows, dtype=np.int64)
    given: FloatArray = np.asarray(table.column(name).cast("float64", safe=False).fill_null(0.0))
    return given.clip(0, 2**31 - 1).astype(np.int64)


def _lengths(column: Any) -> IntArray:
    """(n,): how many values of ``column.flatten()`` each row has; null rows have none."""
    return np.asarray(column.value_lengths().cast("int64").fill_null(0))


def _any_null(column: Any) -> BoolArray:
    """(n,): whether a row's list holds a null, at whatever depth."""
    flat = column.flatten()
    nulls = flat.is_null().to_numpy(zero_copy_only=False)
    if hasattr(flat, "flatten") and hasattr(flat.type, "value_type"):
        nulls = nulls | _any_null(flat)
    owner = np.repeat(np.arange(len(column)), _lengths(column))
    return _any(owner, nulls, len(column))


def _any(owner: IntArray, flags: BoolArray, n: int) -> BoolArray:
    """(n,): whether any of a row's flags is set; ``owner`` says whose each flag is."""
    return np.bincount(owner[flags], minlength=n).astype(np.bool_)


def _first_line(problem: BaseException) -> str:
    return str(problem).splitlines()[0] if str(problem) else type(problem).__name__
