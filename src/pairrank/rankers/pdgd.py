"""Pairwise differentiable gradient descent (PDGD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pairrank.checking import check_number_in
from pairrank.kernel.logistic import sigmoid, slope
from pairrank.kernel.pairs import all_pairs
from pairrank.rankers.base import Draw
from pairrank.rankers.linear import LinearRanker
from pairrank.types import BoolArray, FloatArray, Impression, IntArray

# Swapped scores that are held at a time, so that a list of any length fits in memory; more than that is a long list.
_PART = 2**20
# Of long lists: which Z_p, of a Z_0 of one, the series is for, how far above |Z*_p - Z_p| they are, and its terms.
_LEAST, _ABOVE, _TERMS = 1e-16, 8.0, 18


@dataclass(eq=False, kw_only=True)
class PDGD(LinearRanker):
    """Lists drawn from a Plackett-Luce model, and a step for every preference that the clicks show.

    A list R has P(R) = Π_p exp(f(R_p)) / Σ_{q ≥ p} exp(f(R_q)). For every clicked d_i and every examined d_j
    that was not clicked (examined: down to the last click and one more),

        θ ← θ + η · ρ(d_i, d_j, R) · σ(f_i − f_j) σ(f_j − f_i) · (x_i − x_j),   ρ = P(R*) / (P(R) + P(R*)),

    where R* is R with d_i and d_j exchanged: ρ makes up for the preference that the order of the list itself
    gives. ρ is computed from the scores at the time of ranking, the gradient from the weights at the time of
    learning; they are the same when clicks come at once.

    Reference: Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank", CIKM 2018.

    >>> ranker = PDGD(n_features=2, seed=0, learning_rate=0.05)
    >>> shown = ranker.rank({"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]})
    >>> ranker.learn(shown, clicks=["c"])
    True

    Parameters
    ----------
    learning_rate : η, the length of the first step.
    decay : η is multiplied by this after every update.
    """

    name: ClassVar[str] = "pdgd"
    SAVED: ClassVar[tuple[str, ...]] = (*LinearRanker.SAVED, "_rate")

    learning_rate: float = 0.1
    decay: float = 0.9999977

    def _reset(self) -> None:
        super()._reset()
        self._rate = check_number_in("learning_rate", self.learning_rate, 0, 1e6, open_low=True)
        check_number_in("decay", self.decay, 0, 1, open_low=True)

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        scores = inputs @ self._weights
        # The k largest of scores with Gumbel noise are a draw of k without replacement, in order.
        order = np.argsort(-(scores + rng.gumbel(size=len(scores))), kind="stable")
        ranking, rest = order[:k], order[k:]
        memory = {"scores": scores[ranking], "rest": np.logaddexp.reduce(scores[rest], keepdims=True)}
        return Draw(ranking, np.zeros(k, dtype=np.int64), len(scores) > 1, memory)

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        clicked, unclicked, _ = all_pairs(clicks)
        if len(clicked) == 0:
            return
        memory = impression.memory
        rho = reversal_weights(np.append(memory["scores"], memory["rest"]), clicked, unclicked)
        X = impression.features
        scores = X @ self._weights
        margin = scores[clicked] - scores[unclicked]
        force = rho * slope(margin)
        pull = np.bincount(clicked, force, len(X)) - np.bincount(unclicked, force, len(X))
        self._weights = self._weights + self._rate * (pull @ X)
        self._rate *= self.decay


def reversal_weights(scores: FloatArray, i: IntArray, j: IntArray) -> FloatArray:
    """P(R*) / (P(R) + P(R*)) for the list R and the same list with positions i and j exchanged.

    Only the normalisers between the two positions differ: with a = min(i, j) and b = max(i, j),

        log P(R*) − log P(R) = Σ_{a < p ≤ b} log Z_p − log Z*_p,   Z_p = Σ_{q ≥ p} exp(f_q).

    Parameters
    ----------
    scores : (k + 1,), f by position, then log Σ exp(f) of the documents not shown (−inf when all are shown).
    i, j : (m,) and (m,), positions below k.

    Returns
    -------
    (m,), in [0, 1].
    """
    first, last = np.minimum(i, j), np.maximum(i, j)
    if len(i) * len(scores) > _PART:
        parts = [slice(start, start + _PART // 16) for start in range(0, len(i), _PART // 16)]
        return sigmoid(np.concatenate([_long_change(scores, first[part], last[part]) for part in parts]))
    end = int(last.max()) + 1
    place = np.arange(end)
    head = scores[: end + 1].copy()
    head[end] = np.logaddexp.reduce(scores[end:])
    rows, swapped = np.arange(len(i)), np.empty((len(i), end + 1))
    swapped[:] = head
    swapped[rows, i], swapped[rows, j] = head[j], head[i]
    between = (place > first[:, None]) & (place <= last[:, None])
    change = np.where(between, _log_sums_from(head) - _log_sums_from(swapped), 0.0).sum(axis=1)
    return sigmoid(change)


def _long_change(scores: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """(m,), the change of log P for positions ``first`` and ``last``, without a term for each position between them.

    Z*_p = Z_p + δ with δ = exp(f_first) − exp(f_last), so log Z_p − log Z*_p = Σ_n (−δ)ⁿ/n Z_p⁻ⁿ, and sums over
    positions are differences of running sums. Below those whose Z_p is well above |δ|, one by one.
    """
    tails = np.logaddexp.accumulate(scores[::-1])[::-1]
    Z, top = np.exp(tails - tails[0]), np.exp(scores - tails[0])
    delta = top[first] - top[last]
    n_above = np.searchsorted(-Z, -np.maximum(_ABOVE * np.abs(delta), _LEAST), side="right")
    split = np.clip(n_above - 1, first, last)
    change, power, inverse = np.zeros(len(first)), np.ones(len(first)), 1.0 / np.maximum(Z, _LEAST)
    for n in range(1, _TERMS + 1):
        power = power * -delta
        running = np.cumsum(inverse**n)
        change += power / n * (running[split] - running[first])
    left = last - split
    rows = np.argsort(left, kind="stable")[np.count_nonzero(left == 0) :]  # alike beside each other
    while len(rows):
        n_rows = max(_PART // 16 // int(left[rows[-1]]), 1)
        rows, some = rows[:-n_rows], rows[-n_rows:]
        up = np.arange(left[some[-1]])  # from the last position
        place = last[some, None] - up
        swapped = np.column_stack([tails[last[some] + 1], scores[first[some]], scores[place[:, 1:]]])
        gaps = tails[place] - np.logaddexp.accumulate(swapped, axis=1)[:, 1:]
        change[some] += np.where(up < left[some, None], gaps, 0.0).sum(axis=1)
    return change


def _log_sums_from(scores: FloatArray) -> FloatArray:
    """(..., k): log Σ_{q ≥ p} exp(scores_q) for every p but the last of ``scores`` (..., k + 1)."""
    return np.logaddexp.accumulate(scores[..., ::-1], axis=-1)[..., :0:-1]
