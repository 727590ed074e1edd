"""The Dataset value: views, read-only arrays, grade scales."""

from __future__ import annotations

import numpy as np
import pytest

from pairrank.data.dataset import Dataset, scale_of
from pairrank.errors import DataError


def make(**changes: object) -> Dataset:
    arrays = {
        "features": np.arange(12, dtype=np.float32).reshape(6, 2),
        "grades": np.array([0, 1, 2, 0, 0, 1]),
        "offsets": np.array([0, 1, 4, 6]),
        "query_ids": np.array(["a", "b", "c"]),
        "feature_ids": np.array([1, 5]),
    }
    return Dataset(**(arrays | changes))  # type: ignore[arg-type]


def test_counts_and_queries() -> None:
    dataset = make()
    assert (dataset.n_queries, dataset.n_docs, dataset.n_features, dataset.n_grades) == (3, 6, 2, 3)
    features, grades = dataset.query(1)
    assert features.tolist() == [[2, 3], [4, 5], [6, 7]]
    assert grades.tolist() == [1, 2, 0]
    assert np.shares_memory(features, dataset.features)
    assert [len(grades) for _, grades in dataset.queries()] == [1, 3, 2]


@pytest.mark.parametrize("name", ["features", "grades", "offsets", "query_ids", "feature_ids"])
def test_arrays_are_read_only(name: str) -> None:
    array = getattr(make(), name)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = array[0]


def test_scale() -> None:
    assert [scale_of(highest) for highest in range(7)] == [2, 2, 3, 5, 5, 6, 7]
    assert make(scale=5).n_grades == 5
    assert make(scale=2).n_grades == 3  # what is there counts


@pytest.mark.parametrize(
    "changes",
    [
        {"features": np.zeros((5, 2), dtype=np.float32)},
        {"feature_ids": np.array([1])},
        {"query_ids": np.array(["a"])},
        {"offsets": np.array([0, 1, 4, 5])},
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes: dict[str, np.ndarray]) -> None:
    with pytest.raises(DataError, match="do not fit"):
        make(**changes)
