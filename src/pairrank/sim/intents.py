"""What users want, and how that is judged: the labels of the data, and after a drift those of another taste."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pairrank import metrics
from pairrank.data.dataset import Dataset
from pairrank.rng import Purpose, generator
from pairrank.types import FloatArray, IntArray

CUTOFF = 10  # NDCG@10 everywhere, however many positions are shown
# The number of the stream that a taste is drawn from; synthetic data use the numbers below 2**42 themselves.
_TASTE = 2**42
_ROWS = 2**16  # documents scored at a time, so that a large split is never copied whole


class Intent(NamedTuple):
    """Grades of the training documents, the judge of held-out lists, and the ideal weights where there are any."""

    grades: IntArray
    evaluator: metrics.NDCG
    ideal: FloatArray | None


@lru_cache(maxsize=8)
def judge(dataset: Dataset) -> metrics.NDCG:
    """NDCG@10 by the data's own labels; remembered, so that the runs of a sweep share it."""
    return metrics.NDCG(dataset.grades, dataset.offsets, CUTOFF)


def taste(seed: int, n_features: int) -> FloatArray:
    """(n_features,), the weights θ' ~ N(0, I) of another intent; a function of the seed alone."""
    return generator(seed, _TASTE, Purpose.DATA).standard_normal(n_features)


def regraded(dataset: Dataset, weights: FloatArray) -> IntArray:
    """(n_docs,), each query's own grades in the order of x·weights, highest first; ties keep the order of rows."""
    features = dataset.features
    parts = [features[i : i + _ROWS].astype(np.float64) @ weights for i in range(0, len(features), _ROWS)]
    scores = np.concatenate([np.empty(0), *parts])
    query = np.repeat(np.arange(dataset.n_queries), np.diff(dataset.offsets))
    grades = np.empty_like(dataset.grades)
    grades[np.lexsort((-scores, query))] = dataset.grades[np.lexsort((-dataset.grades, query))]
    return grades
