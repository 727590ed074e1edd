"""From clicks to preferences: what was examined, and which pairs of shown positions count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pairrank.kernel import jit
from pairrank.types import BoolArray, FloatArray, IntArray


class Pairs(NamedTuple):
    """Preferences among shown positions: ``winner`` was clicked, ``loser`` examined and not; all of shape (n,)."""

    winner: IntArray
    loser: IntArray
    weight: FloatArray


def examined(clicks: BoolArray) -> int:
    """How many positions count as examined: down to the last click and one more; none without a click."""
    clicked = np.flatnonzero(clicks)
    return min(int(clicked[-1]) + 2, len(clicks)) if len(clicked) else 0


def _sides(clicks: BoolArray) -> tuple[IntArray, IntArray]:
    seen = clicks[: examined(clicks)]
    return np.flatnonzero(seen), np.flatnonzero(~seen)


def adjacent(clicks: BoolArray) -> Pairs:
    """The paper's independent pairs: positions (1,2), (3,4), ... where just one of the two was clicked."""
    first = np.arange(0, examined(clicks) - 1, 2)
    first = first[clicks[first] != clicks[first + 1]]
    upper = clicks[first]
    return Pairs(np.where(upper, first, first + 1), np.where(upper, first + 1, first), np.ones(len(first)))


def matched(clicks: BoolArray, rng: np.random.Generator) -> Pairs:
    """The authors' independent pairs: clicked and unclicked examined positions, shuffled and zipped."""
    winners, losers = _sides(clicks)
    n = min(len(winners), len(losers))
    return Pairs(rng.permutation(winners)[:n], rng.permutation(losers)[:n], np.ones(n))


def all_pairs(clicks: BoolArray) -> Pairs:
    """Every clicked position over every unclicked examined one."""
    winners, losers = _sides(clicks)
    n = len(winners) * len(losers)
    return Pairs(np.repeat(winners, len(losers)), np.tile(losers, len(winners)), np.ones(n))


@jit.twin(Pairs)
def averaged(clicks: BoolArray) -> Pairs:
    """The expectation of `matched`: every pair, each with weight 1/max(n₊, n₋)."""
    winner, loser, weight = all_pairs(clicks)
    if len(weight):
        n_clicked = int(clicks.sum())
        weight /= max(n_clicked, examined(clicks) - n_clicked)
    return Pairs(winner, loser, weight)


@jit.twin(Pairs)
def mirrored(clicks: BoolArray) -> Pairs:
    """Those pairs that would also have been found with the clicks of their two documents exchanged, weighted alike.

    The examined part of a list ends with a click, so which pairs are found at all depends on which of the two was
    clicked: a click on the lower one always shows both as examined, one on the upper need not. Let the other clicks of
    the list end at position c, and u < v be the pair's positions. Then both count as examined whichever of the two was
    clicked if v ≤ max(c, u) + 1. Of the other pairs the lower document always wins, whatever the two are.

    A pair weighs 1/max(n₊, n₋) as in `averaged`, but with n₋ counted down to max(c, v), which the exchange does not
    change. So the odds of a pair's two outcomes are those of the users' clicks, and of nothing that we do with them.

    >>> mirrored(np.array([False, False, True]))  # 2 over 1, as 1 over 2 would be; not 2 over 0
    Pairs(winner=array([2]), loser=array([1]), weight=array([0.5]))
    """
    winner, loser, _ = all_pairs(clicks)
    last, before = [-1, -1, *np.flatnonzero(clicks).tolist()][:-3:-1]
    c = np.where((winner == last) | (loser == last), before, last)
    upper, lower = np.minimum(winner, loser), np.maximum(winner, loser)
    kept = lower <= np.maximum(c, upper) + 1
    n_clicked = int(clicks.sum())
    n_unclicked = np.maximum(c, lower) + 1 - n_clicked
    return Pairs(winner[kept], loser[kept], 1.0 / np.maximum(n_clicked, n_unclicked)[kept])


def preferences(winner: IntArray, loser: IntArray, weight: FloatArray, k: int) -> FloatArray:
    """(k, k), the weight of each document's preference over each other; pairs that come twice add up."""
    weights: FloatArray = np.bincount(winner * k + loser, weight, k * k).astype(np.float64, copy=False)
    return weights.reshape(k, k)


def top_used(winner: IntArray, loser: IntArray, k: int) -> int:
    """How many of ``k`` documents take part in pairs, if they are those at the top, as nearly always; else 0."""
    used = np.zeros(k, dtype=np.bool_)
    used[winner] = used[loser] = True
    n_used = int(np.count_nonzero(used))
    return n_used if used[:n_used].all() else 0


def laplacian(stiffness: FloatArray) -> FloatArray:
    """The graph Laplacian of weights between documents (k, k): sᵀLs = Σ stiffness_ij (s_i - s_j)²."""
    L: FloatArray = stiffness + stiffness.T
    # Nobody pulls at himself: the diagonal of the sum is zero unless it was given so.
    degree = L.sum(axis=1) - L.diagonal()
    np.negative(L, out=L)
    L.flat[:: len(L) + 1] = degree
    return L


def low_rank(documents: FloatArray, pairs: Pairs, scale: FloatArray) -> FloatArray:
    """Rows V (m, d) with VᵀV = Σ scale (x_w - x_l)(x_w - x_l)ᵀ over the pairs of ``documents`` (k, d).

    However many the pairs, they join at most k documents: the sum is Xᵀ·Laplacian·X, of rank below k.
    """
    if len(scale) < len(documents):
        return (documents[pairs.winner] - documents[pairs.loser]) * np.sqrt(scale)[:, None]
    values, vectors = np.linalg.eigh(laplacian(preferences(pairs.winner, pairs.loser, scale, len(documents))))
    # The smallest eigenvalue is zero (all documents shifted alike make no difference).
    rows: FloatArray = (vectors[:, 1:] * np.sqrt(np.maximum(values[1:], 0.0))).T @ documents
    return rows
