"""LETOR / SVMlight text, as it is found: ``grade qid:id index:value ... # comment``, one document a line.

Plain or compressed (.gz, .bz2, .zst). Indices count from 1 and may be sparse; query ids are any text without blanks;
blank lines and comments are skipped. Values beyond the range of float32 are set to its largest finite number, with
their sign (Istella has values of 1.8e308). Lines are read in blocks: `decimals` does nearly all of the
work, and a block that it declines is read again line by line, which is slow but says exactly what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from pairrank.data import compressed_lines, decimals
from pairrank.data.dataset import Dataset
from pairrank.data.normalize import LARGEST
from pairrank.errors import DataError, StorageError
from pairrank.types import AnyArray, IntArray

MAX_INDEX = 100_000
MAX_GRADE = 30
_GRADES = {b"%d" % grade: grade for grade in range(MAX_GRADE + 1)}
EXPECTED = "expected 'grade qid:id index:value index:value ...', indices from 1, each once"


@dataclass(frozen=True, eq=False)
class Raw:
    """A parsed file: features (n_docs, n_features) float32 as they were, grades, offsets and query ids."""

    features: NDArray[np.float32]
    grades: IntArray
    offsets: IntArray
    query_ids: AnyArray


class _Block(NamedTuple):
    """Some lines of a file: dense features (n, highest index), grades, and the queries' runs (id, first line, n)."""

    features: NDArray[np.float32]
    grades: list[int]
    runs: list[tuple[bytes, int, int]]


def parse(path: Path, *, progress: Callable[[int], None] | None = None) -> Raw:
    """Read a file; ``progress`` is called with the number of its bytes read so far.

    Raises `DataError` with the file, the line and what was expected.
    """
    blocks = list(_blocks(path, progress))
    grades = [grade for block in blocks for grade in block.grades]
    if not grades:
        raise DataError(f"{path}: line 1: the file holds no documents; {EXPECTED}")
    sizes = _sizes(path, (run for block in blocks for run in block.runs))
    matrix = np.zeros((len(grades), max(block.features.shape[1] for block in blocks)), dtype=np.float32)
    start = 0
    for features, *_ in blocks:
        matrix[start : start + len(features), : features.shape[1]] = features
        start += len(features)
    offsets = np.cumsum([0, *sizes.values()], dtype=np.int64)
    names = np.array([name.decode("utf-8", "replace") for name in sizes])
    return Raw(matrix, np.array(grades, dtype=np.int64), offsets, names)


def write_letor(dataset: Dataset | Raw, path: str | os.PathLike[str]) -> None:
    """Write a data set as LETOR text, zeros included; nine significant digits give back every float32 exactly.

    Raises `DataError`, before a line is written, where `load` would not read it back.
    """
    width = dataset.features.shape[1]
    ids = dataset.feature_ids if isinstance(dataset, Dataset) else np.arange(1, width + 1)
    pairs = " ".join(f"{i}:%.9g" for i in ids.tolist())
    queries = [str(name) for name in dataset.query_ids.tolist()]
    for name in queries:
        if name.split() != [name] or "#" in name:
            raise DataError(f"a query's id is {name!r}; a LETOR file has ids without blanks and #")
    if not queries or len(set(queries)) < len(queries) or (np.diff(dataset.offsets) < 1).any():
        raise DataError("there is no query, one without documents, or two of one id; a LETOR file has lines of each")
    if (highest := int(dataset.grades.max())) > MAX_GRADE:
        raise DataError(f"a grade is {highest}; a LETOR file has 0 to {MAX_GRADE}")
    if ids.min(initial=1) < 1 or ids.max(initial=1) > MAX_INDEX or len(set(ids.tolist())) < len(ids):
        raise DataError(
            f"a feature has the number 0, one above {MAX_INDEX} or that of another; expected each from 1 once"
        )
    if not np.isfinite(dataset.features).all():
        raise DataError("a value is not finite; a LETOR file has numbers")
    try:
        opened = compressed_lines.writer(Path(path))
    except OSError as problem:
        raise StorageError(f"{os.fspath(path)}: cannot be written: {problem.strerror or problem}") from problem
    with opened as file:
        for query, name in enumerate(queries):
            rows = slice(int(dataset.offsets[query]), int(dataset.offsets[query + 1]))
            listed = zip(dataset.grades[rows].tolist(), dataset.features[rows].tolist(), strict=True)
            text = "".join(f"{grade} qid:{name} {pairs % tuple(row)}\n" for grade, row in listed)
            file.write(text.encode())


def _sizes(path: Path, runs: Iterable[tuple[bytes, int, int]]) -> dict[bytes, int]:
    """How many lines each query has; one whose lines do not stand together is a `DataError`."""
    sizes: dict[bytes, int] = {}
    previous = b""
    for name, line, n in runs:
        if name != previous and name in sizes:
            raise DataError(
                f"{path}: line {line}: query {name.decode('utf-8', 'replace')!r} goes on after other queries; "
                "expected the lines of a query together: sort the file by query (sort -s -k 2,2)"
            )
        sizes[name] = sizes.get(name, 0) + n
        previous = name
    return sizes


def _blocks(path: Path, progress: Callable[[int], None] | None) -> Iterator[_Block]:
    """The blocks of a file in their order."""
    line = 1
    try:
        for text in compressed_lines.lines(path, progress):
            lines = text.split(b"\n")
            yield _block(path, lines, line)
            line += len(lines) - 1
    except compressed_lines.DamageError as problem:
        what = f"the compressed data is cut off or damaged hereafter ({problem}); expected a whole file"
        _fail(path, line, f"{what}: fetch it again")
    except OSError as problem:
        _fail(path, line, f"cannot be read: {problem.strerror or problem}")


def _block(path: Path, lines: list[bytes], first: int) -> _Block:
    """The documents of ``lines``, of which the first is number ``first`` of the file."""
    grades: list[int] = []
    bodies: list[bytes] = []
    runs: list[tuple[bytes, int, int]] = []
    current, began, count = b"", first, 0
    for number, line in enumerate(lines, start=first):
        parts = line.partition(b"#")[0].split(None, 2)
        if not parts:
            continue
        grade = _GRADES.get(parts[0])
        if grade is None:
            grade = _grade(path, number, parts[0])
        if len(parts) < 2 or not parts[1].startswith(b"qid:") or parts[1] == b"qid:":
            came = _shown(parts[1]) if len(parts) > 1 else "nothing"
            _fail(path, number, f"{came} follows the grade; expected qid: and the query's id")
        if parts[1] != current:
            if count:
                runs.append((current[4:], began, count))
            current, began, count = parts[1], number, 0
        count += 1
        grades.append(grade)
        bodies.append(parts[2] if len(parts) > 2 else b"")
    if count:
        runs.append((current[4:], began, count))
    bodies.append(b"")
    pairs = decimals.pairs(b"\n".join(bodies))
    features = None if pairs is None else _dense(pairs)
    return _Block(_slowly(path, lines, first) if features is None else features, grades, runs)


def _grade(path: Path, line: int, text: bytes) -> int:
    """A grade spelt at length: 2.0 is as good as 2."""
    value = float(text) if decimals.NUMBER.fullmatch(text) else -1.0
    if not value.is_integer() or not 0 <= value <= MAX_GRADE:
        form = "" if decimals.NUMBER.fullmatch(text) else ", in lines of LETOR text such as '2 qid:7 1:0.5 3:12'"
        _fail(path, line, f"the grade is {_shown(text)}; expected a whole number from 0 to {MAX_GRADE}{form}")
    return int(value)


def _dense(pairs: decimals.Pairs) -> NDArray[np.float32] | None:
    """A row per line; None where an index is 0, too large, or not larger than the one before it on its line."""
    n = len(pairs.counts)
    value = np.clip(pairs.values, -LARGEST, LARGEST)
    if not len(value):
        return np.zeros((n, 0), dtype=np.float32)
    width = int(pairs.counts[0])
    if (pairs.counts == width).all() and (pairs.indices.reshape(n, width) == np.arange(1, width + 1)).all():
        return value.astype(np.float32).reshape(n, width)
    row = np.repeat(np.arange(n), pairs.counts)
    rising = (np.diff(pairs.indices) > 0) | (np.diff(row) > 0)
    if pairs.indices.min() < 1 or pairs.indices.max() > MAX_INDEX or not rising.all():
        return None
    features = np.zeros((n, int(pairs.indices.max())), dtype=np.float32)
    features[row, pairs.indices - 1] = value
    return features


def _slowly(path: Path, lines: list[bytes], first: int) -> NDArray[np.float32]:
    """The same, token by token; every complaint about a token is made here."""
    rows: list[dict[int, float]] = []
    for number, line in enumerate(lines, start=first):
        parts = line.partition(b"#")[0].split()
        if parts:
            rows.append(_row(path, number, parts[2:]))
    width = max((max(row, default=0) for row in rows), default=0)
    features = np.zeros((len(rows), width), dtype=np.float32)
    for target, row in zip(features, rows, strict=True):
        for index, value in row.items():
            target[index - 1] = value
    return features


def _row(path: Path, line: int, tokens: list[bytes]) -> dict[int, float]:
    row: dict[int, float] = {}
    for token in tokens:
        index, colon, value = token.partition(b":")
        if not colon or not index.isdigit():
            _fail(path, line, f"found {_shown(token)}; {EXPECTED}")
        if len(index) > 8 or not 1 <= int(index) <= MAX_INDEX:
            hint = "" if index.strip(b"0") else "; scikit-learn's dump_svmlight_file counts so with zero_based=False"
            _fail(path, line, f"the feature index is {_shown(index)}; expected 1 to {MAX_INDEX}{hint}")
        if int(index) in row:
            _fail(path, line, f"feature {int(index)} comes twice; {EXPECTED}")
        if decimals.NUMBER.fullmatch(value) is None:
            _fail(path, line, f"the value of feature {int(index)} is {_shown(value)}; expected a number")
        row[int(index)] = min(max(float(value), -LARGEST), LARGEST)
    return row


def _shown(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _fail(path: Path, line: int, what: str) -> NoReturn:
    raise DataError(f"{path}: line {line}: {what}")
