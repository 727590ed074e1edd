"""From clicks to preferences: what was examined, and which pairs of shown positions count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pairrank.kernel import loops
from pairrank.types import BoolArray, FloatArray, IntArray


class Pairs(NamedTuple):
    """Preferences among shown positions: ``winner`` was clicked, ``loser`` examined and not; all of shape (n,)."""

    winner: IntArray
    loser: IntArray
    weight: FloatArray


def examined(clicks: BoolArray, beyond: int = 1) -> int:
    """How many positions count as examined: down to the last click and ``beyond`` more; none without a click."""
    clicked = np.flatnonzero(clicks)
    return min(int(clicked[-1]) + 1 + beyond, len(clicks)) if len(clicked) else 0


def _sides(clicks: BoolArray, beyond: int) -> tuple[IntArray, IntArray]:
    seen = clicks[: examined(clicks, beyond)]
    return np.flatnonzero(seen), np.flatnonzero(~seen)


def adjacent(clicks: BoolArray, beyond: int = 1) -> Pairs:
    """The paper's independent pairs: positions (1,2), (3,4), ... where just one of the two was clicked."""
    first = np.arange(0, examined(clicks, beyond) - 1, 2)
    first = first[clicks[first] != clicks[first + 1]]
    upper = clicks[first]
    return Pairs(np.where(upper, first, first + 1), np.where(upper, first + 1, first), np.ones(len(first)))


def matched(clicks: BoolArray, rng: np.random.Generator, beyond: int = 1) -> Pairs:
    """The authors' independent pairs: clicked and unclicked examined positions, shuffled and zipped."""
    winners, losers = _sides(clicks, beyond)
    n = min(len(winners), len(losers))
    return Pairs(rng.permutation(winners)[:n], rng.permutation(losers)[:n], np.ones(n))


def all_pairs(clicks: BoolArray, beyond: int = 1) -> Pairs:
    """Every clicked position over every unclicked examined one."""
    winners, losers = _sides(clicks, beyond)
    n = len(winners) * len(losers)
    return Pairs(np.repeat(winners, len(losers)), np.tile(losers, len(winners)), np.ones(n))


def averaged(clicks: BoolArray, beyond: int = 1) -> Pairs:
    """The expectation of `matched`: every pair, each with weight 1/max(n₊, n₋)."""
    if fast := loops.compiled():
        return Pairs(*fast.averaged(clicks, beyond))
    winner, loser, weight = all_pairs(clicks, beyond)
    if len(weight):
        n_clicked = int(clicks.sum())
        weight /= max(n_clicked, examined(clicks, beyond) - n_clicked)
    return Pairs(winner, loser, weight)


class Floors(NamedTuple):
    """What pairs of positions count at least, by what the clicks tell of whether both were read; see `discount`."""

    other: float
    mirrored: float
    read: float


def discount(pairs: Pairs, full: BoolArray, clicks: BoolArray, beyond: int, floors: Floors) -> tuple[Pairs, FloatArray]:
    """Leave their weights to pairs that count in ``full`` (k, k), and one of the ``floors`` of them to others.

    The examined part of a list ends with a click, so which pairs are found at all depends on which of the two was
    clicked: the lower one's click always shows that both were examined, the upper one's does not. Let the other clicks
    of the list end at position c, and u < v be the pair's positions. Then both count as examined whichever of the two
    was clicked if v ≤ max(c, u) + ``beyond``: the pair is *mirrored*. If v < c a click below shows that both were
    *read*, whatever users do after a click.

    Returns the pairs that count at all, and for all that came in the weight (n,) of those not in ``full``, else 0.
    """
    if fast := loops.compiled():
        winner, loser, weight, settled = fast.discount(*pairs, full, clicks, beyond, *floors)
        return Pairs(winner, loser, weight), settled
    winner, loser, weight = pairs
    last, before = [-1, -1, *np.flatnonzero(clicks).tolist()][:-3:-1]
    c = np.where((winner == last) | (loser == last), before, last)
    upper, lower = np.minimum(winner, loser), np.maximum(winner, loser)
    floor = np.where(lower <= np.maximum(c, upper) + beyond, floors.mirrored, floors.other)
    floor = np.where(lower < c, floors.read, floor)
    fair = full[winner, loser]
    counted = weight * np.where(fair, 1.0, floor)
    kept = counted > 0
    return Pairs(winner[kept], loser[kept], counted[kept]), np.where(fair, 0.0, weight)


def preferences(pairs: Pairs, k: int) -> FloatArray:
    """(k, k), the weight of each document's preference over each other; pairs that come twice add up."""
    if fast := loops.compiled():
        return fast.preferences(*pairs, k)
    weights: FloatArray = np.bincount(pairs.winner * k + pairs.loser, pairs.weight, k * k).astype(
        np.float64, copy=False
    )
    return weights.reshape(k, k)


def top_used(pairs: Pairs, k: int) -> int:
    """How many of ``k`` documents take part in pairs, if they are those at the top, as nearly always; else 0."""
    if fast := loops.compiled():
        return fast.top_used(pairs.winner, pairs.loser, k)
    used = np.zeros(k, dtype=np.bool_)
    used[pairs.winner] = used[pairs.loser] = True
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
    values, vectors = np.linalg.eigh(laplacian(preferences(pairs._replace(weight=scale), len(documents))))
    # The smallest eigenvalue is zero (all documents shifted alike make no difference).
    rows: FloatArray = (vectors[:, 1:] * np.sqrt(np.maximum(values[1:], 0.0))).T @ documents
    return rows
