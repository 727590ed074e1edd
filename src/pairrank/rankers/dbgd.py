"""Dueling bandit gradient descent (DBGD)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pairrank.checking import check_number_in
from pairrank.rankers import multileaving
from pairrank.rankers.base import Draw
from pairrank.rankers.linear import LinearRanker
from pairrank.rng import Purpose, generator
from pairrank.types import AnyArray, BoolArray, FloatArray, Impression, IntArray

# Credits of rankers that agree on the list are equal but for rounding; far below any real difference.
_TIE = 1e-9


@dataclass(eq=False, kw_only=True)
class DBGD(LinearRanker):
    """A random direction u a list: θ and θ + δu are interleaved, and θ moves towards the candidate that wins.

        θ ← θ + η u   when the candidate's credit is above that of θ.

    Interleaving is probabilistic; a ranker's credit is the expected number of clicks on its documents, over
    all assignments of documents to rankers that could have given the list.

    References: Yue and Joachims, "Interactively Optimizing Information Retrieval Systems as a Dueling Bandits
    Problem", ICML 2009; Hofmann et al., "A Probabilistic Method for Inferring Preferences from Clicks", CIKM 2011.

    >>> ranker = DBGD(n_features=2, seed=0, delta=0.5)
    >>> shown = ranker.rank({"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]})
    >>> ranker.learn(shown, clicks=["c"])
    True

    Parameters
    ----------
    learning_rate : η, the length of the first step.
    decay : η is multiplied by this after every update.
    delta : δ, how far from θ a candidate lies.
    tau : a ranker draws documents with probability in proportion to rank^(−τ).
    """

    name: ClassVar[str] = "dbgd"
    SAVED: ClassVar[tuple[str, ...]] = (*LinearRanker.SAVED, "_rate")

    learning_rate: float = 0.01
    decay: float = 1.0
    delta: float = 1.0
    tau: float = 3.0

    def _reset(self) -> None:
        super()._reset()
        self._rate = check_number_in("learning_rate", self.learning_rate, 0, 1e6, open_low=True)
        check_number_in("decay", self.decay, 0, 1, open_low=True)
        check_number_in("delta", self.delta, 0, 1e6, open_low=True)
        check_number_in("tau", self.tau, 0, 100)
        # Clicks mostly follow at once: the last list's directions are kept, not drawn again.
        self._last_directions: tuple[int, FloatArray] = (-1, np.empty(0))
        self._candidates = 1

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        key = rng.integers(2**63, size=1)
        if self.n_inputs != self.n_features:  # those of an additive model, which had fewer at first
            key = np.append(key, self.n_inputs)
        models = self._weights + self.delta * self._directions(key)
        ranking, memory = self._compare(models @ inputs.T, k, rng)
        return Draw(ranking, np.zeros(k, dtype=np.int64), len(inputs) > 1, {"key": key, **memory})

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        credit = self._credits(impression.memory, clicks)
        winners = np.flatnonzero(credit > credit[0] + _TIE)
        if len(winners) == 0:
            return
        step = self._directions(impression.memory["key"])[winners].mean(axis=0)
        self._weights = self._weights + self._rate * step
        self._rate *= self.decay

    def _compare(self, scores: FloatArray, k: int, rng: np.random.Generator) -> tuple[IntArray, dict[str, AnyArray]]:
        """One list of k from the scores (1 + candidates, n_docs), θ first, and what its credits need."""
        ranks = multileaving.ranks(scores, rng)
        ranking = multileaving.probabilistic(ranks, k, rng, tau=self.tau)
        return ranking, {"assignments": multileaving.assignments(ranks, ranking, tau=self.tau)}

    def _credits(self, memory: Mapping[str, AnyArray], clicks: BoolArray) -> FloatArray:
        """(1 + candidates,), θ first."""
        return multileaving.expected_credits(memory["assignments"], clicks)

    def _directions(self, key: IntArray) -> FloatArray:
        """(1 + candidates, n_inputs), unit vectors after a row of zeros, which stands for θ itself.

        They are a function of ``key``, so that impressions stay small.
        """
        last, unit = self._last_directions
        if last != int(key[0]):
            n = int(key[1]) if len(key) > 1 else self.n_features
            normals = generator(int(key[0]), 0, Purpose.RANK).standard_normal((self._candidates, n))
            unit = np.zeros((1 + self._candidates, self.n_inputs))
            unit[1:, :n] = normals / np.linalg.norm(normals, axis=1, keepdims=True)
            self._last_directions = int(key[0]), unit
        return unit
