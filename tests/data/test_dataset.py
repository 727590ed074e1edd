"""The Dataset value: views, read-only arrays, grade scales."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

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


def test_arrays_that_were_given_can_be_written_on() -> None:
    features, grades, offsets = np.zeros((2, 1)), np.array([0, 1]), np.array([0, 2])
    data = Dataset(features, grades, offsets, np.array(["q"]), np.array([1]))
    features[0], grades[0], offsets[1] = 1.0, 1, 2
    assert np.shares_memory(data.features, features), "large ones are not copied"


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


def test_what_svmlight_readers_and_lists_give_is_taken() -> None:
    plain, whole = make(), np.array([0.0, 1.0, 2.0, 0.0, 0.0, 1.0])
    lists = {name: getattr(plain, name).tolist() for name in ("features", "offsets", "query_ids", "feature_ids")}
    given = make(grades=whole, **lists)
    assert given.grades.dtype == np.int64
    for name in ("features", "grades", "offsets", "query_ids", "feature_ids"):
        assert np.array_equal(getattr(given, name), getattr(plain, name))
    assert make(grades=whole > 0).n_grades == 2
    assert np.array_equal(make(features=csr_array(plain.features)).features, plain.features)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grades": np.array([0, 1, -1, 0, 0, 1])}, "grades hold -1; expected a row of whole numbers from 0"),
        ({"grades": np.array([0, 1, 0.5, 0, 0, 1])}, "grades hold 0.5"),
        ({"grades": np.array([0, 1, np.nan, 0, np.inf, 1])}, "grades hold nan"),
        ({"grades": ["good"] * 6}, "grades cannot be read as numbers"),
        ({"grades": np.zeros((6, 1), dtype=int)}, r"grades have shape \(6, 1\)"),
        (
            {"offsets": np.array([1, 2, 4, 6])},
            r"offsets begin with \[1 2 4\]; expected numbers of rows that rise from 0",
        ),
        ({"offsets": np.array([0, 4, 1, 6])}, "offsets begin with"),
        ({"offsets": []}, "offsets begin with"),
        ({"features": [[1.0, 2.0], [3.0]]}, "features cannot be read as numbers"),
    ],
)
def test_what_is_no_data_set_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make(**changes)
