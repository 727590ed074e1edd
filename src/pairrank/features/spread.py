"""How far the documents of a list differ, feature by feature: the unit in which a prior is told.

Only differences within a list matter, so documents are centred on their list before anything is summed. The prior's
precision of feature f is λ_f = lam · E[(x_i - x_j)_f²], the mean over the pairs of documents of a list and then over
the lists in which the feature varies. Multiplying a feature by c multiplies λ_f by c² and divides its weight by c:
every score stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pairrank.features.linear import FURTHEST, UNUSUAL, Units
from pairrank.kernel.gaps import filled
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


def spreads(D: FloatArray, offsets: IntArray) -> FloatArray:
    """(n_lists, d): E[(x_i - x_j)_f²] of centred ``D`` (n_docs, d) list by list; 0 where a feature does not vary."""
    starts, sizes = _lists(offsets)
    # Σ_ij (x_i - x_j)² = 2k Σ (x_i - mean)², over k(k - 1) pairs.
    squares = np.add.reduceat(D**2, starts, axis=0)
    return np.where(squares > LEAST, squares * (2.0 / np.maximum(sizes - 1, 1))[:, None], 0.0)


def spread_sums(D: FloatArray, offsets: IntArray, usual: FloatArray | float = np.inf) -> tuple[FloatArray, FloatArray]:
    """For centred ``D`` (n_docs, d), per feature: Σ over lists of E[(x_i - x_j)_f²], and the number where it varies.

    Lists in which a feature differs by more than `UNUSUAL` times what is ``usual`` (d,) are left out.
    """
    means = spreads(D, offsets)
    means[np.sqrt(means) > UNUSUAL * usual] = 0.0
    return means.sum(axis=0), (means > 0).sum(axis=0).astype(np.float64)


def usual(features: FloatArray, offsets: IntArray) -> FloatArray:
    """(d,): how far the documents ``features`` (n_docs, d) differ in usual lists; infinite where they never do."""
    D = centred(np.concatenate([filled(X) for X in np.split(features, offsets[1:-1])]), offsets)
    found = Units(D.shape[1], "spread").usual(np.sqrt(spreads(D, offsets)))
    return np.where(found > 0.0, found, np.inf)


def clipped(features: FloatArray, offsets: IntArray, usual: FloatArray, *, drop: bool = False) -> FloatArray:
    """``features`` (n_docs, d), no document further from its list's lower median than `FURTHEST` times ``usual`` (d,).

    As a ranker sees them (`kernel.confidence.standardised`): lists that are nowhere as far from their mean, and missing
    values, stay as they are. With ``drop`` the median takes the place of what is too far, and the rest is what comes.
    """
    starts, sizes = _lists(offsets)
    reach = FURTHEST * usual
    wide = np.fmax.reduceat(features, starts, axis=0) - np.fmin.reduceat(features, starts, axis=0) > reach
    result = features
    for q, f in np.argwhere(wide):
        rows = slice(starts[q], starts[q] + sizes[q])
        values = features[rows, f]
        known = np.sort(values[~np.isnan(values)])
        if np.abs(known - known.mean()).max() > reach[f]:
            result = features.copy() if result is features else result
            middle = known[(len(known) - 1) // 2]
            far = np.abs(values - middle) > reach[f]
            result[rows, f] = np.where(far, middle + (0.0 if drop else np.copysign(reach[f], values - middle)), values)
    return result


def without_far(lists: Sequence[FloatArray]) -> list[FloatArray]:
    """``lists`` (k, d) without what is too far out for one: `clipped` with ``drop``, by what is usual in them."""
    X, offsets = np.concatenate(lists), np.append(0, np.cumsum([len(X) for X in lists]))
    return np.split(clipped(X, offsets, usual(X, offsets), drop=True), offsets[1:-1])


def mean_spread(total: FloatArray, n_lists: FloatArray) -> FloatArray:
    """(d,): E[(x_i - x_j)_f²] from `spread_sums`; 1 for a feature that never varied, whose unit nobody can know."""
    return np.where(n_lists > 0, total / np.maximum(n_lists, 1.0), 1.0)


def of(features: ArrayLike, offsets: IntArray) -> FloatArray:
    """(d,): E[(x_i - x_j)_f²] of the lists of ``features`` (n_docs, d)."""
    X = np.asarray(features, dtype=np.float64)
    return mean_spread(*spread_sums(centred(X, offsets), offsets, usual(X, offsets)))


def _lists(offsets: IntArray) -> tuple[IntArray, IntArray]:
    """First rows and sizes of the lists that hold a document."""
    sizes = np.diff(offsets)
    return offsets[:-1][sizes > 0], sizes[sizes > 0]
