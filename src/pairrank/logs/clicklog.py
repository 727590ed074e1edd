"""The click log: Parquet, one row per list as it was shown. What a file must look like, and how to write one.

=============  ==============================================  ==================================================
column         type                                            meaning
=============  ==============================================  ==================================================
query_id       string                                          which query (or session, or user) it was
timestamp      timestamp, any unit                             when the list was shown
documents      list<string>                                    the shown documents' ids, best first
features       list<list<number>>, inner lists may be fixed    their features, as the ranker saw them
clicks         list<bool>, or list<number>                     which of them were clicked; or a gain for each:
                                                               0 nothing, 1 a click, 3 a purchase, -1 turned down
locked         integer, optional                               positions at the top that nothing is learned from
above          integer, optional                               documents that earlier pages of the list had shown
=============  ==============================================  ==================================================

Further columns are passed over. A row group is read at a time; `Writer` keeps them small.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pairrank.checking import import_extra
from pairrank.documents import numbers
from pairrank.errors import DataError, StorageError

GROUP_BYTES = 16 * 2**20


def parquet() -> Any:
    """``pyarrow.parquet``, or the line that installs it."""
    return import_extra("pyarrow.parquet", "logs")


def arrow() -> Any:
    """``pyarrow``, or the line that installs it."""
    return import_extra("pyarrow", "logs")


@dataclass
class Writer:
    """Writes a click log with row groups of at most 16 MiB of features; complete when closed, absent before.

    ``dtype`` "float32" makes files half as large; it loses digits of features that are large beside their differences.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, Writer(f"{folder}/clicks.parquet", n_features=2) as log:
    ...     log.add("red shoes", 1.7e9, ["a", "b"], features=[[0.1, 0.9], [0.5, 0.3]], clicks=[False, True])
    """

    path: str | os.PathLike[str]
    n_features: int
    dtype: str = "float64"

    def __post_init__(self) -> None:
        pa = arrow()
        columns = {
            "query_id": pa.string(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "documents": pa.list_(pa.string()),
            "features": pa.list_(pa.list_(pa.from_numpy_dtype(self.dtype), self.n_features)),
            "clicks": pa.list_(pa.float32()),
            "locked": pa.int32(),
            "above": pa.int32(),
        }
        self._schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])
        self._partial = Path(self.path).with_name(f".{Path(self.path).name}.part")
        try:
            self._file = parquet().ParquetWriter(self._partial, self._schema, compression="zstd")
        except OSError as problem:
            raise StorageError(f"cannot write {self.path}: {os.strerror(problem.errno or 0)}") from problem
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    def add(
        self,
        query_id: str,
        timestamp: float,
        documents: Sequence[str],
        features: ArrayLike,
        clicks: ArrayLike,
        locked: int = 0,
        above: int = 0,
    ) -> None:
        """One list: ``features`` (k, d), clicks or gains (k,), in shown order; ``timestamp`` in seconds since 1970."""
        try:
            # Copies, for they wait.
            X, C = numbers(features).astype(self.dtype), numbers(clicks).astype(np.float32)
            time = int(np.int64(round(timestamp * 1e6)))  # as long as Parquet has room for
            counts = np.array([locked, above], dtype=np.int32)
        except (TypeError, ValueError, OverflowError) as problem:
            what = "time, features, clicks, locked or above"
            raise DataError(f"{what} of the list {query_id!r} are no numbers: {problem}") from None
        try:
            "".join((query_id, *documents)).encode()
        except (TypeError, UnicodeEncodeError):
            expected = "expected what UTF-8 holds; of numbers str(…) makes it"
            raise DataError(f"ids of the list {query_id!r} are not texts: {list(documents)}; {expected}") from None
        if X.shape != (len(documents), self.n_features) or C.shape != (len(documents),):
            raise DataError(
                f"features {X.shape} and clicks {C.shape} do not fit {len(documents)} documents "
                f"of {self.n_features} features"
            )
        self._rows.append((query_id, time, list(documents), X, C, *counts))
        self._bytes += X.nbytes
        if self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        pa = arrow()
        query_ids, times, documents, features, clicks, locked, above = zip(*self._rows, strict=True)
        offsets = pa.array(np.cumsum([0, *(len(names) for names in documents)]), pa.int32())
        flat = pa.array(np.concatenate(features).ravel())
        columns = [
            pa.array(query_ids, pa.string()),
            pa.array(times, pa.timestamp("us", tz="UTC")),
            pa.array(documents, pa.list_(pa.string())),
            pa.ListArray.from_arrays(offsets, pa.FixedSizeListArray.from_arrays(flat, self.n_features)),
            pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(clicks))),
            pa.array(locked, pa.int32()),
            pa.array(above, pa.int32()),
        ]
        self._file.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._rows, self._bytes = [], 0

    def close(self) -> None:
        """Write what is left and give the file its name."""
        self._flush()
        self._file.close()
        os.replace(self._partial, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self._file.close()
            self._partial.unlink(missing_ok=True)
