"""Queries with candidate documents, their features and their grades: what every experiment runs on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairrank.checking import check_numbers
from pairrank.data.normalize import Normaliser
from pairrank.errors import DataError
from pairrank.types import AnyArray, FloatArray, IntArray

SCALES = (2, 3, 5)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """One split of a data set, as read-only arrays; documents of a query are adjacent.

    Arrays are views of those that were given. Where these have changed make a new one: much is remembered of each.

    Attributes
    ----------
    features : (n_docs, n_features), normalised; float32 from files, memory-mapped when it comes from the cache.
    grades : (n_docs,) int64, relevance from 0.
    offsets : (n_queries + 1,) int64; query i has the rows offsets[i] to offsets[i + 1].
    query_ids : (n_queries,) str.
    feature_ids : (n_features,) int64, the 1-based indices in the file of the columns that were kept.
    name, split, fold : where it came from.
    normalisation : the name of the normalisation that ``features`` went through.
    theta : (n_features,) float64, the ideal weights where they are known (synthetic linear data), else None.
    scale : number of grades of the whole data set, where this split alone might not show them all.
    normaliser : what was fitted on the training split, for models that are to be exported.

    >>> features, grades = np.array([[0.1], [0.9], [0.5]], dtype=np.float32), np.array([0, 2, 1])
    >>> query_ids, feature_ids = np.array(["q1", "q2"]), np.array([1])
    >>> data = Dataset(features, grades, np.array([0, 2, 3]), query_ids, feature_ids)
    >>> data
    <Dataset train: 2 queries, 3 documents, 1 features, 3 grades>
    >>> data.query(0)[1]
    array([0, 2])
    """

    features: NDArray[np.floating[Any]]
    grades: IntArray
    offsets: IntArray
    query_ids: AnyArray
    feature_ids: IntArray
    name: str = ""
    split: str = "train"
    fold: int = 1
    normalisation: str = "none"
    theta: FloatArray | None = None
    scale: int = 0
    normaliser: Normaliser | None = None

    def __post_init__(self) -> None:
        given: Any = self.features
        if not isinstance(given, np.ndarray):  # lists, or sparse as scikit-learn's load_svmlight_file has them
            rows = given.toarray() if hasattr(given, "toarray") else given
            object.__setattr__(self, "features", check_numbers("features", rows, DataError))
        for name in ("grades", "offsets", "feature_ids"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        object.__setattr__(self, "query_ids", np.asarray(self.query_ids))
        if len(self.offsets) == 0 or self.offsets[0] != 0 or (np.diff(self.offsets) < 0).any():
            raise DataError(f"offsets begin with {self.offsets[:3]}; expected numbers of rows that rise from 0")
        docs, queries, width = len(self.grades), len(self.offsets) - 1, len(self.feature_ids)
        if self.features.shape != (docs, width) or len(self.query_ids) != queries or self.offsets[-1] != docs:
            raise DataError(
                f"features {self.features.shape}, grades ({docs},), offsets for {queries} queries and "
                f"{self.offsets[-1]} documents, {len(self.query_ids)} query ids and {width} feature ids do not fit"
            )
        for name in ("features", "grades", "offsets", "query_ids", "feature_ids", "theta"):
            array = getattr(self, name)
            if array is not None and array.flags.writeable:
                object.__setattr__(self, name, own := array.view())  # what was given stays as it is
                own.setflags(write=False)

    def __repr__(self) -> str:
        counts = f"{self.n_queries:,} queries, {self.n_docs:,} documents, {self.n_features} features"
        return f"<Dataset {f'{self.name} {self.split}'.strip()}: {counts}, {self.n_grades} grades>"

    @property
    def n_queries(self) -> int:
        """How many queries there are."""
        return len(self.offsets) - 1

    @property
    def n_docs(self) -> int:
        """How many documents there are, over all queries."""
        return len(self.grades)

    @property
    def n_features(self) -> int:
        """How many features were kept."""
        return len(self.feature_ids)

    @property
    def n_grades(self) -> int:
        """Number of grades on the data set's scale: 2, 3 or 5 (one more than the highest grade beyond that)."""
        return max(self.scale, scale_of(int(self.grades.max(initial=0))))

    def query(self, i: int) -> tuple[NDArray[np.floating[Any]], IntArray]:
        """Views of the features (n, n_features) and grades (n,) of query ``i``."""
        rows = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        return self.features[rows], self.grades[rows]

    def queries(self) -> Iterator[tuple[NDArray[np.floating[Any]], IntArray]]:
        """Every query in turn, as `query` gives it."""
        return (self.query(i) for i in range(self.n_queries))


def _whole(name: str, values: AnyArray) -> IntArray:
    """``values`` as int64; a grade of 2.0 is as good as 2, in memory as in a file."""
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iu":
        numbers = check_numbers(name, values, DataError)
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers < 2**53) & (numbers == np.floor(numbers))))
    if numbers.ndim != 1 or len(wrong):
        came = f"hold {numbers.flat[wrong[0]]}" if len(wrong) else f"have shape {numbers.shape}"
        raise DataError(f"{name} {came}; expected a row of whole numbers from 0")
    return numbers.astype(np.int64, copy=False)


def scale_of(highest: int) -> int:
    """The number of grades on the customary scale (2, 3 or 5) that holds the grade ``highest``."""
    return next((scale for scale in SCALES if highest < scale), highest + 1)
