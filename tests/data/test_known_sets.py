"""Figures of a data set, and their comparison with published ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pairrank.data import known_sets, load
from pairrank.data.dataset import Dataset


def whole(path: Path, fold: int = 1) -> known_sets.Counts:
    splits = ("train", "vali", "test")
    parts = [load(path, split, fold, normalise="none", drop_constant=False, cache=False) for split in splits]
    return known_sets.total([known_sets.summary(part) for part in parts])


@pytest.mark.parametrize("fold", [1, 4])
def test_mq2008_is_as_published(real_data: Path, fold: int) -> None:
    found = whole(real_data / "MQ2008", fold)
    assert (found.queries, found.documents, found.features) == (784, 15_211, 46)
    assert found.grades == (12_279, 2_001, 931)
    assert (found.longest, found.without_relevant) == (121, 220)
    assert round(found.documents_per_query, 1) == 19.4
    known = known_sets.closest(found)
    assert known is not None
    assert known.name == "MQ2008"
    assert known_sets.differences(found, known) == {}


def test_the_mslr_sample_is_as_described(real_data: Path) -> None:
    found = whole(real_data / "MSLR-sample")
    assert (found.queries, found.documents, found.features) == (181, 19_704, 136)
    assert found.grades == (10_808, 5_905, 2_568, 305, 118)
    assert (round(found.documents_per_query), found.longest) == (109, 337)
    known = known_sets.closest(found)
    assert known is not None
    assert known.name == "MSLR-WEB10K"
    assert known_sets.differences(found, known)["queries"] == (181, 10_000)


def test_summary_counts() -> None:
    dataset = Dataset(
        features=np.zeros((6, 2), dtype=np.float32),
        grades=np.array([0, 0, 2, 0, 0, 1]),
        offsets=np.array([0, 2, 5, 6]),
        query_ids=np.array(["a", "b", "c"]),
        feature_ids=np.array([1, 2]),
    )
    found = known_sets.summary(dataset)
    assert found == known_sets.Counts(3, 6, 2, (4, 1, 1), 1, 3, 1)
    assert known_sets.total([found, replace(found, grades=(1, 2), longest=9)]).grades == (5, 3, 1)
    assert known_sets.closest(found) is None
    assert found.to_json()["documents_per_query"] == 6 / 3


def test_published_grades_add_up() -> None:
    for known in known_sets.KNOWN:
        if known.grades:
            assert sum(known.grades) == known.documents
            assert len(known.grades) == known.n_grades


@pytest.mark.parametrize(
    ("highest", "documents", "name"), [(699, 709_877, "Yahoo! set 1"), (700, 172_870, "Yahoo! set 2")]
)
def test_yahoo_sets_are_known_by_their_highest_feature(highest: int, documents: int, name: str) -> None:
    known = known_sets.closest(known_sets.Counts(1, documents, highest, (0,) * 5, 1, 1, 0))
    assert known is not None
    assert known.name == name
