"""From clicks to preferences: what was examined, and which pairs of shown positions count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from pairrank.kernel import jit
from pairrank.types import BoolArray, FloatArray, IntArray

# Beyond this many documents, and more than there are weights, equations in the weights are fewer: others are cubic.
LONG = 256


class Pairs(NamedTuple):
    """Preferences among shown positions: ``winner`` was clicked, ``loser`` was not; all of shape (n,)."""

    winner: IntArray
    loser: IntArray
    weight: FloatArray


def examined(clicks: BoolArray) -> int:
    """How many positions count as examined: down to the last click and one more; none without a click."""
    clicked = clicks.nonzero()[0]
    return min(int(clicked[-1]) + 2, len(clicks)) if len(clicked) else 0


def _sides(clicks: BoolArray) -> tuple[IntArray, IntArray]:
    seen = clicks[: examined(clicks)]
    return seen.nonzero()[0], (~seen).nonzero()[0]


def adjacent(clicks: BoolArray) -> Pairs:
    """The paper's independent pairs: positions (1,2), (3,4), ... where just one of the two was clicked."""
    n = examined(clicks)
    upper, lower = clicks[: n - n % 2 : 2], clicks[1:n:2]
    unlike = (upper != lower).nonzero()[0]
    return Pairs(2 * unlike + lower[unlike], 2 * unlike + upper[unlike], np.ones(len(unlike)))


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


def averaged(clicks: BoolArray) -> Pairs:
    """The expectation of `matched`: every pair, each with weight 1/max(n₊, n₋)."""
    winner, loser, weight = all_pairs(clicks)
    if len(weight):
        n_clicked = int(clicks.sum())
        weight /= max(n_clicked, examined(clicks) - n_clicked)
    return Pairs(winner, loser, weight)


@jit.twin(Pairs)
def shown(clicks: BoolArray) -> Pairs:
    """Every clicked position over every unclicked one, whether it counts as examined or not.

    A pair at positions u < v weighs 1/max(n₊, n₋) as in `averaged`, with n₋ counted down to v, or to the last click on
    any other document if that stands lower. Neither which pairs are taken nor their weight depends on which of the two
    was clicked, so their odds are those of the users' clicks: relevance, and what position alone does, which a model
    must estimate beside it (`features.position`).

    >>> shown(np.array([False, True, False, False]))
    Pairs(winner=array([1, 1, 1]), loser=array([0, 2, 3]), weight=array([1.        , 0.5       , 0.33333333]))
    """
    winners, losers = np.flatnonzero(clicks), np.flatnonzero(~clicks)
    winner, loser = np.repeat(winners, len(losers)), np.tile(losers, len(winners))
    last, before = [-1, -1, *winners.tolist()][:-3:-1]
    seen = np.maximum(np.where(winner == last, before, last), np.maximum(winner, loser)) + 1
    return Pairs(winner, loser, 1.0 / np.maximum(len(winners), seen - len(winners)))


def preferences(winner: IntArray, loser: IntArray, weight: FloatArray, k: int) -> FloatArray:
    """(k, k), the weight of each document's preference over each other; pairs that come twice add up."""
    weights: FloatArray = np.bincount(winner * k + loser, weight, k * k).astype(np.float64, copy=False)
    return weights.reshape(k, k)


def only_used(
    documents: FloatArray, pairs: Pairs, others: FloatArray | None
) -> tuple[FloatArray, Pairs, FloatArray | None]:
    """The documents (k, d) that take part in a pair, the pairs by their places among them, and ``others`` (k, m)."""
    used = np.zeros(len(documents), dtype=np.bool_)
    used[pairs.winner] = used[pairs.loser] = True
    if np.count_nonzero(used) == len(used):
        return documents, pairs, others
    place = used.cumsum() - 1
    pairs = Pairs(place[pairs.winner], place[pairs.loser], pairs.weight)
    return documents[used], pairs, None if others is None else others[used]


def laplacian(stiffness: FloatArray) -> FloatArray:
    """The graph Laplacian of weights between documents (k, k): sᵀLs = Σ stiffness_ij (s_i - s_j)²."""
    L: FloatArray = stiffness + stiffness.T
    # Nobody pulls at himself: the diagonal of the sum is zero unless it was given so.
    degree = L.sum(axis=1) - L.diagonal()
    np.negative(L, out=L)
    L.flat[:: len(L) + 1] = degree
    return L


def sparse_laplacian(winner: IntArray, loser: IntArray, stiffness: FloatArray, k: int) -> csr_array:
    """The same (k, k) as a sparse array, from the stiffness (n,) of each pair."""
    every, ends = np.arange(k), np.concatenate([winner, loser])
    degree = np.bincount(ends, np.tile(stiffness, 2), k)
    rows, columns = np.concatenate([ends, every]), np.concatenate([loser, winner, every])
    return csr_array((np.concatenate([-stiffness, -stiffness, degree]), (rows, columns)), shape=(k, k))


def low_rank(documents: FloatArray, pairs: Pairs, scale: FloatArray) -> FloatArray:
    """Rows V (m, d) with VᵀV = Σ scale (x_w - x_l)(x_w - x_l)ᵀ over the pairs of ``documents`` (k, d).

    However many the pairs, they join at most k documents: the sum is Xᵀ·Laplacian·X, of rank below k, and at most d.
    """
    if len(scale) < len(documents):
        return (documents[pairs.winner] - documents[pairs.loser]) * np.sqrt(scale)[:, None]
    if len(documents) > max(LONG, documents.shape[1]):
        L = sparse_laplacian(pairs.winner, pairs.loser, scale, len(documents))
        values, vectors = np.linalg.eigh(documents.T @ (L @ documents))
        rows: FloatArray = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        return rows
    values, vectors = np.linalg.eigh(laplacian(preferences(pairs.winner, pairs.loser, scale, len(documents))))
    # The smallest eigenvalue is zero (all documents shifted alike make no difference).
    rows = (vectors[:, 1:] * np.sqrt(np.maximum(values[1:], 0.0))).T @ documents
    return rows
