"""P²LinRank: an order is certain when models that learned from perturbed clicks agree on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from pairrank.checking import check_choice, check_number_in
from pairrank.documents import Features
from pairrank.errors import OptionError
from pairrank.estimator.posterior import Posterior
from pairrank.kernel import exploration, partition
from pairrank.rankers.base import Draw
from pairrank.rankers.pairwise import PAIRS, PairKind, PairwiseRanker, preferred
from pairrank.rankers.posterior_sampling import TOLERANCE
from pairrank.rng import Purpose, generator
from pairrank.types import BoolArray, FloatArray, Impression, Inspection, IntArray

MAX_MODELS = 1000
# Up to this many documents, comparing all of a block costs less than finding out which comparisons can be spared.
_WHOLE = 256


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
    lam: float = 30.0
    pairs: PairKind = "averaged"
    exploration: Literal["conservative", "random"] = "conservative"

    def _reset(self) -> None:
        if isinstance(self.n_models, bool) or not isinstance(self.n_models, int):
            raise OptionError(f"n_models is {self.n_models!r}; expected a whole number")
        check_number_in("n_models", self.n_models, 1, MAX_MODELS)
        check_number_in("nu", self.nu, 0.0, 1e6)
        check_number_in("lam", self.lam, 0.0, 1e12, open_low=True)
        check_choice("pairs", self.pairs, PAIRS)
        check_choice("exploration", self.exploration, ("conservative", "random"))
        super()._reset()
        rng = generator(self.seed, 0, Purpose.INIT)
        centres: FloatArray = 2 * self.nu / np.sqrt(self.lam) * rng.standard_normal((self.n_models, self.n_inputs))
        self._noise = self.lam * centres  # ξ, (N, d)
        self._models: FloatArray = centres
        self._weights = centres.mean(axis=0)

    @property
    def models(self) -> FloatArray:
        """(N, n_inputs), a copy of the models."""
        return self._models.copy()

    @property
    def _sleeps(self) -> bool:
        return False  # the noise of a function that wakes would have to be that of the lists before

    # Ranking.

    def _start(self) -> Posterior:
        return Posterior(self.lam * self._units.precisions, tolerance=TOLERANCE)

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        order, agreement = self._sorted(inputs)
        ends = agreement.ends(k)
        places, blocks = exploration.draw_blocks(ends, k, partial(self._draw, agreement, rng))
        return Draw(order[places], blocks, bool(ends[-1] >= len(ends)), {"ends": ends})

    def _draw(self, agreement: Agreement, rng: np.random.Generator, start: int, stop: int, n_draws: int) -> IntArray:
        """The first ``n_draws`` places of the block from ``start`` to ``stop``."""
        if self.exploration == "random":
            return start + exploration.draw_random(stop - start, n_draws, rng)
        inside = Agreement(agreement.scores[:, start:stop])
        if stop - start <= _WHOLE:
            return start + exploration.draw_conservative(inside.rows(0, stop - start), n_draws, rng)
        return start + exploration.draw_conservative_lazily(
            inside.rows, inside.predecessors, stop - start, n_draws, rng
        )

    def _sorted(self, inputs: FloatArray) -> tuple[IntArray, Agreement]:
        """Rows by falling mean score, and the models' agreement on them in that order."""
        scores = self._models @ inputs.T
        order = np.argsort(-scores.mean(axis=0), kind="stable")
        return order, Agreement(scores[:, order])

    def inspect(self, features: Features) -> Inspection:
        """What the models agree on; a width is half the range of the models' score differences."""
        X = self.check_features(features)
        with self._turn:
            order, agreement = self._sorted(self._inputs(X))
        scores = agreement.scores[:, np.argsort(order)]
        width = 0.5 * np.ptp(scores[:, :, None] - scores[:, None, :], axis=0)
        return partition.inspected(scores.mean(axis=0), order, agreement.rows(0, len(X)), width, "score")

    def _follow(self, impression: Impression, clicks: BoolArray) -> None:
        found = preferred(self.pairs, impression, clicks)
        rng = generator(impression.seed, impression.number, Purpose.NOISE)
        noise = self.nu * np.sqrt(found.weight) * rng.standard_normal((self.n_models, len(found.weight)))
        k = len(impression)
        pull = np.array([np.bincount(found.winner, g, k) - np.bincount(found.loser, g, k) for g in noise])
        self._noise = self._noise + pull @ impression.features
        self._models = self._posterior.theta + self._noise @ self._posterior.inverse
        self._weights = self._models.mean(axis=0)


class Agreement:
    """Which orders all models agree on: certain (i, j) when every row of ``scores`` (N, n) has i above j.

    An intersection of total orders: transitive, so there is nothing to refine.
    """

    def __init__(self, scores: FloatArray) -> None:
        self.scores = scores

    def rows(self, start: int, stop: int) -> BoolArray:
        """(stop - start, n), the certain orders of documents start to stop - 1 over all."""
        return self._all_above(self.scores[:, start:stop, None], self.scores[:, None, :])

    def ends(self, k: int) -> IntArray:
        """The ends of the blocks with the first ``k`` places: in every model all above an end are over all below it."""
        lowest = np.minimum.accumulate(self.scores, axis=1)[:, :-1]
        highest_below = np.maximum.accumulate(self.scores[:, :0:-1], axis=1)[:, ::-1]
        ends = np.append(np.flatnonzero((lowest > highest_below).all(axis=0)), self.scores.shape[1] - 1)
        return ends[: np.searchsorted(ends, k - 1) + 1]

    def predecessors(self, documents: IntArray) -> BoolArray:
        """(m, n), which documents are certainly above each of ``documents``."""
        return self._all_above(self.scores[:, None, :], self.scores[:, documents, None])

    @staticmethod
    def _all_above(upper: FloatArray, lower: FloatArray) -> BoolArray:
        agreed: BoolArray = upper[0] > lower[0]
        for above, below in zip(upper[1:], lower[1:], strict=True):  # model by model: no (N, n, n) in memory
            agreed &= above > below
        return agreed
