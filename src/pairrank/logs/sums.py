"""What a pass over the pairs adds up: loss, gradient, Hessian and M. Sums over lists, so they can be had in parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import coo_array

from pairrank.features import position
from pairrank.features.linear import FURTHEST, Units
from pairrank.features.spread import centred, clipped, spread_sums
from pairrank.kernel.logistic import sigmoid, slope
from pairrank.kernel.pairs import Pairs
from pairrank.logs.reader import Batch
from pairrank.types import FloatArray, IntArray

KINDS = ("adjacent", "all", "averaged", "shown")


def preferences(batch: Batch, kind: str) -> Pairs:
    """The pairs of every list, by rows of the batch, as `pairrank.kernel.pairs` takes them from one list.

    Of two examined documents the one with the higher gain is preferred, with weight g_i - g_j: 1 where clicks are yes
    or no. "averaged" divides by the most pairs that a document of the list is part of, which for clicks is the larger
    of the numbers of clicked and unclicked ones; "shown" takes documents further down too, and
    counts down to the lower one of the pair, or to the last other one that something was done to. Lists of one length
    are taken together, as a matrix (n_lists, k).
    """
    sizes = np.diff(batch.offsets)
    none = np.empty(0, dtype=np.int64)
    parts = [Pairs(none, none, np.empty(0))]
    for k in np.unique(sizes):
        lists = np.flatnonzero(sizes == k)
        start = batch.offsets[lists]
        gains = batch.gains[start[:, None] + np.arange(k)]
        parts.append(_of_equal_length(gains, start, batch.locked[lists], kind))
    return Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _of_equal_length(gains: FloatArray, start: IntArray, locked: IntArray, kind: str) -> Pairs:
    k = gains.shape[1]
    place = np.arange(k)
    free = place >= locked[:, None]
    acted = (gains != 0) & free
    last = np.where(acted.any(axis=1), k - 1 - np.argmax(acted[:, ::-1], axis=1), -2)
    examined = free & (place <= last[:, None] + 1)
    compared = free & acted.any(axis=1)[:, None] if kind == "shown" else examined
    better = (gains[:, :, None] > gains[:, None, :]) & compared[:, :, None] & compared[:, None, :]
    if kind == "adjacent":
        # Only positions (1,2), (3,4), … below the locked ones.
        cell = (place - np.minimum(locked, k)[:, None]) // 2
        better &= cell[:, :, None] == cell[:, None, :]
    rows, winner, loser = np.nonzero(better)
    weight = gains[rows, winner] - gains[rows, loser]
    if kind == "averaged":
        weight /= (better.sum(axis=1) + better.sum(axis=2)).max(axis=1)[rows]
    if kind == "shown":
        places = np.where(acted, place, -1)
        before = np.where(places < last[:, None], places, -1).max(axis=1)
        lower = np.maximum(winner, loser)
        seen = np.maximum(np.where((winner == last[rows]) | (loser == last[rows]), before[rows], last[rows]), lower) + 1
        n_liked = ((gains > 0) & free).sum(axis=1)[rows]
        n_left = seen - np.minimum(locked[rows], k) - n_liked
        weight /= np.maximum(np.maximum(n_liked, n_left), 1)
    return Pairs(start[rows] + winner, start[rows] + loser, weight)


def inputs(batch: Batch, kind: str, units: Units) -> FloatArray:
    """(n, d) or (n, d + 1): columns centred on their list; with the column of their positions for "shown" pairs."""
    X = centred(units.columns(batch.features), batch.offsets)
    if kind != "shown":
        return X
    first = np.repeat(batch.above - batch.offsets[:-1], np.diff(batch.offsets))
    return position.with_column(X, np.arange(len(X)) + first)


@dataclass
class Sums:
    """Loss, gradient (d,), Hessian (d, d) and M (d, d) of some pairs at one θ, without the penalty; and counts.

    spread, varied : (d,), the sums of `pairrank.features.spread.spread_sums`.
    """

    loss: float
    gradient: FloatArray
    hessian: FloatArray
    M: FloatArray
    spread: FloatArray
    varied: FloatArray
    n_lists: int = 0
    n_pairs: int = 0
    weight: float = 0.0

    @classmethod
    def zero(cls, n_features: int) -> Sums:
        square, row = (n_features, n_features), np.zeros(n_features)
        return cls(0.0, row, np.zeros(square), np.zeros(square), row, row)


def sums(
    batch: Batch,
    theta: FloatArray,
    kind: str,
    units: Units,
    usual: FloatArray | None = None,
    *,
    first: bool = False,
    powers: bool = False,
) -> Sums:
    """The sums over a batch: Σ w log(1 + e^-z), -Σ w σ(-z) x, Σ w σ'(z) x xᵀ and Σ w x xᵀ, where z = x·θ.

    With b_i = Σ ±w σ(-z) over the pairs of document i the gradient is -Xᵀb, and Σ v x xᵀ = Xᵀ·Laplacian(v)·X: the
    work grows with the documents, however many pairs they make. M and the features' spread are added up in the
    ``first`` pass only: they do not depend on θ. With ``powers`` the score's square and cube are two more columns, the
    last. Documents that are far out for how far the columns ``usual`` (d,) differ in a list are `clipped`.
    """
    usual = np.full(len(theta), np.inf) if usual is None else usual
    X, pairs = inputs(batch, kind, units), preferences(batch, kind)
    apart = spread_sums(X, batch.offsets, usual) if first else None
    if len(X) and (np.maximum(X.max(axis=0), -X.min(axis=0)) > 0.5 * FURTHEST * usual).any():  # few batches
        features = clipped(batch.features, batch.offsets, usual[: batch.features.shape[1]])
        X = X if features is batch.features else inputs(batch._replace(features=features), kind, units)
    scores = X @ theta
    if powers:
        s = X[:, : units.n_inputs] @ theta[: units.n_inputs]
        X = np.column_stack([X, s**2, s**3])
    gap = scores[pairs.winner] - scores[pairs.loser]
    force = pairs.weight * sigmoid(-gap)
    n, d = X.shape
    pull = np.bincount(pairs.winner, force, n) - np.bincount(pairs.loser, force, n)
    return Sums(
        loss=float(pairs.weight @ np.logaddexp(0.0, -gap)),
        gradient=-(pull @ X),
        hessian=_spread(X, pairs, pairs.weight * slope(gap)),
        M=_spread(X, pairs, pairs.weight) if first else np.zeros((d, d)),
        spread=np.zeros(d) if apart is None else apart[0],
        varied=np.zeros(d) if apart is None else apart[1],
        n_lists=len(batch.offsets) - 1,
        n_pairs=len(gap),
        weight=float(pairs.weight.sum()),
    )


def _spread(X: FloatArray, pairs: Pairs, value: FloatArray) -> FloatArray:
    """Σ v (x_w - x_l)(x_w - x_l)ᵀ, (d, d), symmetric to the last bit."""
    n = len(X)
    across = coo_array((value, (pairs.winner, pairs.loser)), shape=(n, n)).tocsr()
    degree = np.bincount(pairs.winner, value, n) + np.bincount(pairs.loser, value, n)
    half = X.T @ (0.5 * degree[:, None] * X - across @ X)
    result: FloatArray = half + half.T
    return result


_SUMMED = ("loss", "gradient", "hessian", "M", "spread", "varied", "weight")


class Compensated:
    """A sum of `Sums`, one after the other, with the rounding errors kept (Neumaier): exact to about one rounding."""

    def __init__(self, n_features: int) -> None:
        self._total = Sums.zero(n_features)
        self._error = Sums.zero(n_features)

    def add(self, part: Sums) -> None:
        total, error = self._total, self._error
        for name in _SUMMED:
            old, new = np.asarray(getattr(total, name)), np.asarray(getattr(part, name))
            both = old + new
            lost = np.where(np.abs(old) >= np.abs(new), (old - both) + new, (new - both) + old)
            setattr(total, name, both)
            setattr(error, name, getattr(error, name) + lost)
        total.n_lists += part.n_lists
        total.n_pairs += part.n_pairs

    def total(self) -> Sums:
        sums = {name: getattr(self._total, name) + getattr(self._error, name) for name in _SUMMED}
        return replace(self._total, **sums | {name: float(sums[name]) for name in ("loss", "weight")})
