"""ε-greedy exploration over a linear RankNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pairrank.checking import check_number_in
from pairrank.rankers.base import Draw
from pairrank.rankers.multileaving import in_turn
from pairrank.rankers.pairwise import PairKind
from pairrank.rankers.ranknet import SGDRankNet, by_score
from pairrank.types import FloatArray


@dataclass(eq=False, kw_only=True)
class EpsilonGreedy(SGDRankNet):
    """At every position a random document with probability ε, else the best that is left.

    It learns as `SGDRankNet` does, from every clicked document over every examined one that was not clicked.

    References: Hofmann et al., "Balancing Exploration and Exploitation in Listwise and Pairwise Online Learning to
    Rank for Information Retrieval", Information Retrieval 16(1), 2013, with a ranking SVM; with RankNet in its place
    Jia et al., WWW 2021, who choose ε and the rate on validation data without printing them. ε = 0.8 is what Oosterhuis
    and de Rijke, "Differentiable Unbiased Online Learning to Rank", CIKM 2018, ran this baseline with in their program;
    the rate was chosen for it on validation data (docs/reproducing.md, "Settings").

    >>> ranker = EpsilonGreedy(n_features=2, seed=0, epsilon=0.1)
    >>> shown = ranker.rank({"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]})
    >>> ranker.learn(shown, clicks=["c"])
    True

    Parameters
    ----------
    epsilon : ε, how often chance chooses.
    learning_rate, pairs : as in `SGDRankNet`.
    """

    name: ClassVar[str] = "epsilon-greedy"

    learning_rate: float = 0.003
    pairs: PairKind = "all"
    epsilon: float = 0.8

    def _reset(self) -> None:
        super()._reset()
        check_number_in("epsilon", self.epsilon, 0, 1)

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        best = by_score(inputs @ self._weights, rng)
        # The next of a random permutation that is not yet shown is uniform among all that are not.
        chance = rng.permutation(len(inputs))
        coins = rng.random(k) < self.epsilon
        ranking = in_turn({0: best.tolist(), 1: chance.tolist()}, coins.tolist())
        return Draw(ranking, np.zeros(k, dtype=np.int64), len(inputs) > 1 and bool(coins.any()), {})
