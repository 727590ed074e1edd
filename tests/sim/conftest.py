from __future__ import annotations

import numpy as np
import pytest

from pairrank.data import Dataset


def make_dataset(seed: int, n_queries: int = 12, n_features: int = 4, longest: int = 18) -> Dataset:
    """A small linear problem: documents lie sorted by grade, worst first, and every fifth query has no relevant one."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, longest + 1, n_queries)
    features = rng.random((sizes.sum(), n_features)).astype(np.float32)
    utility = features @ np.arange(n_features)
    query = np.repeat(np.arange(n_queries), sizes)
    grades = np.digitize(utility, np.quantile(utility, [0.6, 0.85])) * (query % 5 != 4)
    order = np.lexsort((grades, query))
    return Dataset(
        features=features[order],
        grades=grades[order].astype(np.int64),
        offsets=np.concatenate([[0], sizes.cumsum()]),
        query_ids=np.arange(n_queries).astype(str),
        feature_ids=np.arange(1, n_features + 1),
        scale=3,
    )


@pytest.fixture(scope="session")
def splits() -> tuple[Dataset, Dataset]:
    return make_dataset(0), make_dataset(1)


@pytest.fixture(scope="session")
def held_out() -> Dataset:
    """More documents than are scored at a time."""
    return make_dataset(2, n_queries=300)
