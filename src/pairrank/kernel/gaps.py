"""Missing values in the place of what a list's other documents have."""

from __future__ import annotations

import numpy as np

from pairrank.types import FloatArray

TOO_MUCH = 1e300  # for any feature, and sums of what is less stay finite


def filled(X: FloatArray) -> FloatArray:
    """X (n, d) with missing values in the place of their column's mean, 0 where a column has no other.

    >>> filled(np.array([[1.0, 0.1], [3.0, np.nan], [np.nan, 0.1]]))
    array([[1. , 0.1],
           [3. , 0.1],
           [2. , 0.1]])
    """
    gaps = np.isnan(X)
    if not gaps.any():
        return X
    # From the first value: a mean of equal numbers is not that number, and the column would differ by the rounding.
    known = np.abs(X) < TOO_MUCH
    first = np.where(known.any(axis=0), X[known.argmax(axis=0), np.arange(X.shape[1])], 0.0)
    away = np.where(known, X, first) - first
    return np.where(gaps, first + away.sum(axis=0) / np.maximum(known.sum(axis=0), 1), X)
