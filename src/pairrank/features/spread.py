"""How far the documents of a list differ, feature by feature: the unit in which a prior is told.

Only differences within a list matter, so documents are centred on their list before anything is summed. The prior's
precision of feature f is λ_f = lam · E[(x_i - x_j)_f²], the mean over the pairs of documents of a list and then over
the lists in which the feature varies. Multiplying a feature by c multiplies λ_f by c² and divides its weight by c:
every score stays as it was.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pairrank.types import FloatArray, IntArray

# With lam = 3d the prior expects the scores of two usual documents to differ by √(1/3) = 0.58.
STRENGTH = 3.0
# A feature whose squared differences add up to less is constant: their sum would lose its digits.
LEAST = 1e-200


def centred(features: ArrayLike, offsets: IntArray) -> FloatArray:
    """``features`` (n_docs, d) with every list moved to mean zero; list q owns the rows offsets[q]:offsets[q + 1].

    The first document is taken off before the mean: values that are equal become exactly 0, and a constant of 1e8 costs
    no digits beyond those that it cost when it was added.
    """
    X = np.asarray(features, dtype=np.float64)
    starts, sizes = _lists(offsets)
    D = X - np.repeat(X[starts], sizes, axis=0)
    D -= np.repeat(np.add.reduceat(D, starts, axis=0) / sizes[:, None], sizes, axis=0)
    return D


def spread_sums(D: FloatArray, offsets: IntArray) -> tuple[FloatArray, FloatArray]:
    """For centred ``D`` (n_docs, d), per feature: Σ over lists of E[(x_i - x_j)_f²], and the number where it varies."""
    starts, sizes = _lists(offsets)
    # Σ_ij (x_i - x_j)² = 2k Σ (x_i - mean)², over k(k - 1) pairs.
    squares = np.add.reduceat(D**2, starts, axis=0)
    means = np.where(squares > LEAST, squares * (2.0 / np.maximum(sizes - 1, 1))[:, None], 0.0)
    return means.sum(axis=0), (means > 0).sum(axis=0).astype(np.float64)


def mean_spread(total: FloatArray, n_lists: FloatArray) -> FloatArray:
    """(d,): E[(x_i - x_j)_f²] from `spread_sums`; 1 for a feature that never varied, whose unit nobody can know."""
    return np.where(n_lists > 0, total / np.maximum(n_lists, 1.0), 1.0)


def of(features: ArrayLike, offsets: IntArray) -> FloatArray:
    """(d,): E[(x_i - x_j)_f²] of the lists of ``features`` (n_docs, d)."""
    return mean_spread(*spread_sums(centred(features, offsets), offsets))


def _lists(offsets: IntArray) -> tuple[IntArray, IntArray]:
    """First rows and sizes of the lists that hold a document."""
    sizes = np.diff(offsets)
    return offsets[:-1][sizes > 0], sizes[sizes > 0]
