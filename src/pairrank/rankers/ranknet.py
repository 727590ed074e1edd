"""Linear RankNet: online from clicks without exploration, and offline from labels (the ceiling)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from pairrank import threads
from pairrank.checking import check_choice, check_number_in
from pairrank.errors import DataError
from pairrank.features.additive import Additive
from pairrank.features.spread import without_far
from pairrank.kernel.gaps import filled
from pairrank.kernel.logistic import sigmoid
from pairrank.kernel.pairs import Pairs
from pairrank.rankers.base import Draw
from pairrank.rankers.linear import LinearRanker
from pairrank.rankers.pairwise import PAIRS, PairKind, preferred
from pairrank.types import BoolArray, FloatArray, Impression, IntArray


def by_score(scores: FloatArray, rng: np.random.Generator) -> IntArray:
    """Rows by falling score (n,), ties by lot."""
    return np.lexsort((rng.random(len(scores)), -scores))


def greedy(scores: FloatArray, k: int, rng: np.random.Generator) -> Draw:
    """The ``k`` best by score, ties by lot; every position is a block of its own."""
    return Draw(by_score(scores, rng)[:k], np.arange(k), False, {})


def ascent(X: FloatArray, weights: FloatArray, found: Pairs) -> FloatArray:
    """The gradient of the pairs' log-likelihood, Σ w σ(f_j − f_i)(x_i − x_j), where i should stand before j.

    Parameters
    ----------
    X : (k, n_features). weights : (n_features,). found : i, j and w, each (m,); i and j are rows of X.

    Returns
    -------
    (n_features,)
    """
    i, j, worth = found
    scores = X @ weights
    doubt = worth * sigmoid(scores[j] - scores[i])
    return (np.bincount(i, doubt, len(X)) - np.bincount(j, doubt, len(X))) @ X


@dataclass(eq=False, kw_only=True)
class SGDRankNet(LinearRanker):
    """RankNet trained by one step of gradient descent a list, shown best first: no exploration at all.

    θ takes a step along the gradient of Σ w log σ(f_i − f_j) over the pairs that the clicks give.

    References: Burges et al., "Learning to Rank using Gradient Descent", ICML 2005; as a baseline Jia et al.,
    "PairRank: Online Pairwise Learning to Rank by Divide-and-Conquer", WWW 2021, who infer pairs as PairRank does and
    choose the rate on validation data without printing it. The default was chosen likewise (docs/reproducing.md,
    "Settings").

    >>> ranker = SGDRankNet(n_features=2, seed=0, learning_rate=0.1)
    >>> shown = ranker.rank({"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]})
    >>> ranker.learn(shown, clicks=["c"])
    True

    Parameters
    ----------
    learning_rate : the length of a step.
    pairs : preferences taken from clicks, as in `PairRank`: "adjacent" (the paper's), "matched", "all", "averaged" or
        "shown".
    """

    name: ClassVar[str] = "sgd-ranknet"
    any_list: ClassVar[bool] = True

    learning_rate: float = 0.01
    pairs: PairKind = "adjacent"

    def _reset(self) -> None:
        super()._reset()
        check_number_in("learning_rate", self.learning_rate, 0, 1e6, open_low=True)
        check_choice("pairs", self.pairs, PAIRS)

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        return greedy(inputs @ self._weights, k, rng)

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        step = ascent(impression.features, self._weights, preferred(self.pairs, impression, clicks))
        self._weights = self._weights + self.learning_rate * step


@dataclass(eq=False, kw_only=True)
class OfflineRankNet(LinearRanker):
    """RankNet trained on labels: what a linear ranker can reach, and the ideal weights of the cosine metric.

    `fit` minimises, over the m pairs of documents of one query and of different grade,

        1/m Σ_{g_i > g_j} log(1 + exp(f_j − f_i)) + λ/2 ‖θ‖².

    `learn` accepts clicks and changes nothing; before `fit` all weights are zero.

    Reference: Burges et al., "Learning to Rank using Gradient Descent", ICML 2005.

    >>> ceiling = OfflineRankNet(n_features=2)
    >>> ceiling.rank([[0.0, 1.0], [1.0, 0.0]]).ranking  # before `fit` all scores are equal
    array([0, 1])

    Parameters
    ----------
    l2 : λ, the penalty on the weights of features in units of their largest range within a query. Of 1e-6 to 0.1, 3e-4
        and 1e-3 are best on the validation splits of MQ2008 and the MSLR sample together; on MQ2008 alone 1e-5 is a
        little better.
    """

    name: ClassVar[str] = "offline-ranknet"

    l2: float = 1e-3

    def _reset(self) -> None:
        super()._reset()
        check_number_in("l2", self.l2, 0, 1e6, open_low=True)

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        return greedy(inputs @ self._weights, k, rng)

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        """Nothing: this ranker learns from labels, in `fit`."""

    @threads.single()
    def fit(self, features: ArrayLike, grades: ArrayLike, offsets: ArrayLike) -> Self:
        """Train on labelled queries, whatever the weights were before.

        Parameters
        ----------
        features : (n_docs, n_features). grades : (n_docs,), whole numbers, higher is better.
        offsets : (n_queries + 1,), query q owns the rows from offsets[q] up to offsets[q + 1].
        """
        X = self.check_features(features)
        labels, bounds = check_labels(grades, offsets, len(X))
        if self.missing == "mean":  # of a document's own query
            X = self._columns.read(features, None, self._may_lack(), bounds[1:-1].tolist()).features
        queries = [X[start:stop] for start, stop in pairwise(bounds.tolist()) if stop > start]
        widest = np.max([np.ptp(filled(rows), axis=0) for rows in queries], axis=0)
        units = type(self._units)(self.n_features, self._unit_kind)
        units.fix(widest)
        if isinstance(units, Additive):
            units.fix_pieces(without_far(queries))
        X = np.concatenate([units.inputs(rows) for rows in queries])
        # By query, then by falling grade: the pairs of a grade are then two slices.
        query = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        order = np.lexsort((-labels, query))
        spans = _spans(labels[order], bounds)
        if not spans:
            raise DataError("no query has documents of two different grades; there is nothing to learn from")
        X = X[order]
        from scipy.optimize import minimize  # takes longer to import than the rest of a ranker, and few need it

        def objective(weights: FloatArray) -> tuple[float, FloatArray]:
            loss, pull = _pair_loss(X @ weights, spans)
            return loss + self.l2 / 2 * float(weights @ weights), pull @ X + self.l2 * weights

        found = minimize(objective, np.zeros(units.n_inputs), jac=True, method="L-BFGS-B", options=_STOP)
        self._units = units
        self._weights = np.asarray(found.x, dtype=np.float64)
        return self


_STOP = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-10, "gtol": 1e-6}
_MATRIX = 2**20  # pairs at a time, so that a long query fits in memory

# Rows first:last, of one grade, stand against rows low:end, all lower grades of the same query.
_Span = tuple[int, int, int, int]


def _spans(grades: IntArray, bounds: IntArray) -> list[_Span]:
    """Where the pairs of different grade lie, for ``grades`` (n_docs,) that fall within each query."""
    starts = np.union1d(bounds, np.flatnonzero(np.diff(grades)) + 1)
    ends = bounds[np.searchsorted(bounds, starts[:-1], side="right")]
    spans = []
    for start, low, end in zip(starts[:-1].tolist(), starts[1:].tolist(), ends.tolist(), strict=True):
        rows = max(1, _MATRIX // max(1, end - low))
        if low < end:
            spans += [(first, min(first + rows, low), low, end) for first in range(start, low, rows)]
    return spans


def _pair_loss(scores: FloatArray, spans: list[_Span]) -> tuple[float, FloatArray]:
    """The mean of log(1 + exp(f_j − f_i)) over the pairs of ``spans``, and its slope by score (n_docs,)."""
    loss, slope, n_pairs = 0.0, np.zeros(len(scores)), 0
    for first, last, low, end in spans:
        gap = np.subtract.outer(scores[first:last], scores[low:end])
        doubt = sigmoid(-gap)
        loss += float(np.log1p(np.exp(-np.abs(gap))).sum() - np.minimum(gap, 0).sum())
        slope[first:last] -= doubt.sum(axis=1)
        slope[low:end] += doubt.sum(axis=0)
        n_pairs += gap.size
    return loss / n_pairs, slope / n_pairs


def check_labels(grades: ArrayLike, offsets: ArrayLike, n_docs: int) -> tuple[IntArray, IntArray]:
    """The grades and offsets of labelled documents as whole numbers, or `DataError`."""
    labels, bounds = np.asarray(grades), np.asarray(offsets)
    if labels.shape != (n_docs,) or labels.dtype.kind not in "iu":
        raise DataError(f"grades have shape {labels.shape}, type {labels.dtype}; expected ({n_docs},) whole numbers")
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu" or len(bounds) < 2:
        raise DataError(f"offsets have shape {bounds.shape}, type {bounds.dtype}; expected whole numbers, two or more")
    labels, bounds = labels.astype(np.int64), bounds.astype(np.int64)
    if bounds[0] != 0 or bounds[-1] != n_docs or (np.diff(bounds) < 0).any():
        raise DataError(f"offsets must rise from 0 to the number of documents, {n_docs}")
    return labels, bounds
