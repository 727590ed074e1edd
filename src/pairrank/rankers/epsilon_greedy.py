"""ε-greedy exploration over a linear RankNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pairrank.rankers.base import Draw, check_number_in
from pairrank.rankers.ranknet import SGDRankNet
from pairrank.types import FloatArray


@dataclass(eq=False, kw_only=True)
class EpsilonGreedy(SGDRankNet):
    """At every position a random document with probability ε, else the best that is left.

    It learns as `SGDRankNet` does.

    Reference: Hofmann et al., "Balancing Exploration and Exploitation in Listwise and Pairwise Online Learning to
    Rank for Information Retrieval", Information Retrieval 16(1), 2013.

    Parameters
    ----------
    epsilon : ε, how often chance chooses.
    learning_rate : the length of a step. The default was chosen near figures measured with the authors' program, not
        taken from the paper: tune it on validation data.
    """

    name: ClassVar[str] = "epsilon-greedy"

    learning_rate: float = 0.001
    epsilon: float = 0.8

    def _reset(self) -> None:
        super()._reset()
        check_number_in("epsilon", self.epsilon, 0, 1)

    def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        n = len(features)
        best = np.argsort(-(features @ self._weights), kind="stable").tolist()
        # The next of a random permutation that is not yet shown is uniform among all that are not.
        chance = rng.permutation(n).tolist()
        coins = rng.random(k) < self.epsilon
        queues = (iter(best), iter(chance))
        shown: dict[int, None] = {}
        for coin in coins.tolist():
            shown[next(row for row in queues[coin] if row not in shown)] = None
        ranking = np.fromiter(shown, dtype=np.int64, count=k)
        return Draw(ranking, np.zeros(k, dtype=np.int64), n > 1 and bool(coins.any()), {})
