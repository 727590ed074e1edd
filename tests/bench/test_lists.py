"""What benchmarks are run on: the shape asked for, and streams that repeat."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from pairrank.bench.lists import LabelledList, Stream, candidates, make, two_products


@pytest.mark.parametrize(("n_docs", "n_features"), [(20, 46), (250, 12)])
def test_lists_have_exactly_the_shape_asked_for(n_docs: int, n_features: int) -> None:
    found = candidates(n_docs, n_features, 3)
    assert [query.features.shape for query in found] == [(n_docs, n_features)] * 3
    assert [query.grades.shape for query in found] == [(n_docs,)] * 3
    assert all(query.features.dtype == np.float64 for query in found)
    assert all(query.features.min() >= 0 and query.features.max() <= 1 for query in found)
    assert not np.array_equal(found[0].features, found[1].features)


def test_a_stream_played_twice_teaches_the_same() -> None:
    queries = candidates(15, 8, 4)
    learned = []
    for _ in range(2):
        ranker = make("pairrank", 8)
        taken = Stream(queries).play(ranker, 12, count().__next__)
        assert (taken >= 0).all()
        assert taken[:, 2].tolist() == list(range(12)), "what comes between is called once after every round"
        learned.append(ranker.weights)
    assert learned[0].any()
    assert np.array_equal(*learned)


def test_the_floor_is_taken_on_the_query_asked_last() -> None:
    used: list[int] = []

    class Noted(np.ndarray):  # type: ignore[type-arg]
        def __matmul__(self, other: object) -> object:
            used.append(len(self))
            return np.asarray(self) @ other

    queries = [
        LabelledList(q.features[:n].view(Noted), q.grades[:n])
        for q, n in zip(candidates(15, 8, 2), (15, 7), strict=True)
    ]
    stream = Stream(queries)
    floor = two_products(stream, 8)
    for length in (7, 15, 7):
        stream.next()
        used.clear()
        assert floor() > 0
        assert used == [length]
