"""The bias of position as one more input: σ(x·θ + β log(q/p)) for documents at positions p < q of a list.

Learners append this column to the documents, and leave it out when they rank: β is how much position itself favours
the upper document of a pair, in log-odds per log of rank.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pairrank.types import FloatArray, IntArray

# A priori β has a standard deviation of one: the odds of the first position against the tenth are anywhere between
# 1 : 10 and 10 : 1.
PRECISION = 1.0


def column(places: IntArray) -> FloatArray:
    """-log p of positions p = place + 1, of any shape.

    >>> column(np.array([0, 1]))
    array([-0.        , -0.69314718])
    """
    return -np.log1p(places)


def with_column(documents: FloatArray, places: IntArray | None = None) -> FloatArray:
    """(n, d + 1), the documents (n, d) and the column of their places (n,): by default the first n."""
    n, d = documents.shape
    both = np.empty((n, d + 1))
    both[:, :d] = documents
    both[:, d] = _first(n) if places is None else column(places)
    return both


@lru_cache(maxsize=64)
def _first(n: int) -> FloatArray:
    return column(np.arange(n))
