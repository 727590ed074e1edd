"""P²LinRank: an order is certain when models that learned from perturbed clicks agree on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pairrank import threads
from pairrank.checking import check_choice, check_number_in, check_whole
from pairrank.documents import Features
from pairrank.kernel import partition
from pairrank.kernel.pairs import Pairs, shown
from pairrank.kernel.partition import Places
from pairrank.rankers.base import Draw
from pairrank.rankers.candidates import Asked, show
from pairrank.rankers.monotone import constraints, projected
from pairrank.rankers.pairwise import PairwiseRanker
from pairrank.rng import Purpose, generator
from pairrank.types import BoolArray, FloatArray, Impression, Inspection, IntArray

MAX_MODELS = 1000


@dataclass(eq=False, kw_only=True)
class P2LinRank(PairwiseRanker):
    """N linear models that learn from the same pairs, each with noise of its own; where all agree, the order is kept.

    Model n minimises the pairwise logistic loss with the label of every pair perturbed, y + γ with γ ~ N(0, ν²), and
    with the penalty's centre drawn too, ½λ‖θ - θ₀‖² with θ₀ ~ N(0, (2ν)²/λ). Both are linear in θ: the loss becomes

        L_n(θ) = L(θ) - ξ_n·θ,   ξ_n = λ θ₀ + Σ √w γ x,

    so it is enough to keep θ̂ and H⁻¹ of the unperturbed loss, as PairRank does, and one vector ξ_n for each model.
    θ_n is the minimiser of the quadratic model at θ̂, θ_n = θ̂ + H⁻¹ ξ_n: one Newton step instead of a fit per round.
    (For a pair of weight w the noise counts √w, so that its variance is in proportion to the pair's information.) With
    ν = ½ and σ' near ¼ the models are draws from the posterior N(θ̂, H⁻¹).

    (i, j) is certain when all N models score i above j. Documents are sorted by the mean of the models' scores, which
    agrees with every certain order; blocks and exploration are PairRank's. `score` uses the mean model.

    The perturbed centre stands for the random starts of the neural models in the reference.

    Reference: Jia and Wang, "Scalable Exploration for Neural Online Learning to Rank with Perturbed Feedback", SIGIR
    2022, where P²LinRank is the linear case of P²NeurRank.

    >>> ranker = P2LinRank(n_features=2, seed=0, n_models=3)
    >>> shown = ranker.rank({"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]})
    >>> ranker.learn(shown, clicks=["c"])
    True

    Parameters
    ----------
    n_models : N. More models agree less often: more exploration.
    nu : ν, the standard deviation of the noise on a click's label; larger is more exploration. The default did best of
        0.1, 0.2 and 0.5 on synthetic data.
    lam : λ, the weight of the penalty, for features in units of their largest range within a list.
    pairs : preferences taken from clicks: "adjacent", "matched", "all", "averaged" or "shown", as in PairRank.
    exploration : "conservative" keeps certain orders inside a block, "random" shuffles it whole.
    """

    name: ClassVar[str] = "p2linrank"
    SAVED: ClassVar[tuple[str, ...]] = (*PairwiseRanker.SAVED, "_noise", "_models")

    n_models: int = 5
    nu: float = 0.1
    exploration: Literal["conservative", "random"] = "conservative"

    def _reset(self) -> None:
        check_whole("n_models", self.n_models, 1, MAX_MODELS)
        check_number_in("nu", self.nu, 0.0, 1e6)
        check_choice("exploration", self.exploration, ("conservative", "random"))
        super()._reset()
        rng = generator(self.seed, 0, Purpose.INIT)
        centres: FloatArray = 2 * self.nu / np.sqrt(self.lam) * rng.standard_normal((self.n_models, self.n_inputs))
        self._noise = self.lam * centres  # ξ, (N, d)
        self._models: FloatArray = centres
        self._keep_monotone()

    @property
    def models(self) -> FloatArray:
        """(N, n_inputs), a copy of the models."""
        return self._models.copy()

    @property
    def _sleeps(self) -> bool:
        return False  # the noise of a function that wakes would have to be that of the lists before

    # Ranking.

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        return show(Agreement(self._models @ inputs.T), k, rng, shuffled=self.exploration == "random")

    def inspect(self, features: Features) -> Inspection:
        """What the models agree on; a width is half the range of the models' score differences."""
        X = self.check_features(features)
        with self._turn, threads.single():
            scores = self._models @ self._inputs(X).T
        agreement = Agreement(scores)
        width = 0.5 * np.ptp(scores[:, :, None] - scores[:, None, :], axis=0)
        return partition.inspected(scores.mean(axis=0), agreement.order, agreement.certain(), width, "score")

    def _follow(self, impression: Impression, clicks: BoolArray, found: Pairs | None) -> None:
        found = found or shown(clicks)
        rng = generator(impression.seed, impression.number, Purpose.NOISE)
        noise = self.nu * np.sqrt(found.weight) * rng.standard_normal((self.n_models, len(found.weight)))
        k = len(impression)
        pull = np.array([np.bincount(found.winner, g, k) - np.bincount(found.loser, g, k) for g in noise])
        self._noise = self._noise + pull @ impression.features
        self._models = self._posterior.theta + self._noise @ self._posterior.inverse

    def _keep_monotone(self) -> None:
        if self._signs:
            rows, covariance = constraints(self._units, self._signs), self._covariance()
            self._models = np.array([projected(model, rows, covariance) for model in self._models])
        self._weights = self._models.mean(axis=0)
        super()._keep_monotone()  # of several that hold it the mean does, but for a hair


class Agreement(Asked):
    """Candidates by falling mean of ``scores`` (N, n): (i, j) is certain when all N models score i above j.

    An intersection of total orders: transitive, so there is nothing to refine.
    """

    def __init__(self, scores: FloatArray) -> None:
        self.order = np.argsort(-scores.mean(axis=0), kind="stable")
        self.scores = scores[:, self.order]

    def ends(self, k: int) -> IntArray:
        # In every model all above an end are over all below it.
        lowest = np.minimum.accumulate(self.scores, axis=1)[:, :-1]
        highest_below = np.maximum.accumulate(self.scores[:, :0:-1], axis=1)[:, ::-1]
        ends = np.append(np.flatnonzero((lowest > highest_below).all(axis=0)), self.scores.shape[1] - 1)
        return ends[: np.searchsorted(ends, k - 1) + 1]

    def over(self, upper: Places, lower: Places) -> BoolArray:
        return _above(self.scores[:, upper, None], self.scores[:, None, lower])

    def under(self, lower: Places, upper: Places) -> BoolArray:
        return _above(self.scores[:, None, upper], self.scores[:, lower, None])


def _above(upper: FloatArray, lower: FloatArray) -> BoolArray:
    """Where all of N models score ``upper`` (N, …) above ``lower`` (N, …)."""
    agreed: BoolArray = upper[0] > lower[0]
    for above, below in zip(upper[1:], lower[1:], strict=True):  # model by model: no (N, n, n) in memory
        agreed &= above > below
    return agreed
