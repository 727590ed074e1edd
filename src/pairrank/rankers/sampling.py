"""Posterior sampling: show the list that a model drawn from the posterior believes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pairrank.kernel import pairs
from pairrank.kernel.pairs import Pairs
from pairrank.rankers.base import Draw, LinearRanker, State, check_choice, check_number_in
from pairrank.rankers.posterior import Posterior
from pairrank.rng import Purpose, generator
from pairrank.types import BoolArray, FloatArray, Impression

PAIRS = ("adjacent", "matched", "all", "averaged")
# Bytes of documents that the estimator keeps before it folds the oldest into its quadratic model.
HISTORY_BYTES = 256 * 2**20
# How far θ̂ may stray from the exact minimiser, as a share of a standard deviation of the posterior.
TOLERANCE = 0.01
# Documents that are alike make a covariance singular; this share of its mean diagonal does not change a list.
_JITTER = 1e-12


@dataclass(eq=False, kw_only=True)
class PosteriorSampling(LinearRanker):
    """Lists sorted by the scores of a model that is drawn anew for every query (Thompson sampling).

    The model is PairRank's: pairwise logistic regression with the Laplace posterior θ ~ N(θ̂, H⁻¹), where
    H = λI + Σ w σ'(x·θ̂) x xᵀ over the pairs so far. For candidates X the scores are drawn as a whole,

        s ~ N(X θ̂, v² X H⁻¹ Xᵀ),

    and the list is sorted by them. So a pair's order is left to chance just as far as the posterior doubts it: i is
    shown above j with probability Φ(x_ij·θ̂ / v‖x_ij‖_{H⁻¹}). `score` uses θ̂, without chance.

    References: Thompson, "On the Likelihood that One Unknown Probability Exceeds Another in View of the Evidence of Two
    Samples", Biometrika 25, 1933; Chapelle and Li, "An Empirical Evaluation of Thompson Sampling", NIPS 2011.

    Parameters
    ----------
    v : scale of the draws; 1 is the posterior itself, 0 shows the documents best first. The default did best of 0.25,
        0.5 and 1 on synthetic data.
    lam : λ, the weight of ½‖θ‖².
    pairs : preferences taken from clicks: "adjacent", "matched", "all" or "averaged", as in PairRank.
    """

    name: ClassVar[str] = "posterior-sampling"

    v: float = 0.25
    lam: float = 30.0
    pairs: str = "adjacent"

    def _reset(self) -> None:
        super()._reset()
        check_number_in("v", self.v, 0.0, 1e9)
        check_number_in("lam", self.lam, 0.0, 1e12, open_low=True)
        check_choice("pairs", self.pairs, PAIRS)
        self._posterior = posterior(self.n_features, self.lam)
        self._root: FloatArray | None = None  # of H⁻¹, until the next `learn`

    def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        scores = self.draw_scores(features, rng)
        order = np.argsort(-scores, kind="stable")[:k]
        return Draw(order, np.zeros(k, dtype=np.int64), len(features) > 1 and self.v > 0, {})

    def draw_scores(self, features: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n,), one draw from N(X θ̂, v² X H⁻¹ Xᵀ) for ``features`` X (n, d).

        Through the smaller of two square roots: of the covariance (n, n), or of H⁻¹ (d, d), which is kept.
        """
        n, inverse = len(features), self._posterior.inverse
        if n < self.n_features:
            noise = square_root(features @ inverse @ features.T) @ rng.standard_normal(n)
        else:
            if self._root is None:
                self._root = square_root(inverse)
            noise = features @ (self._root @ rng.standard_normal(self.n_features))
        scores: FloatArray = features @ self._weights + self.v * noise
        return scores

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        found = preferred(self.pairs, clicks, generator(impression.seed, impression.number, Purpose.LEARN))
        if len(found.weight) == 0:
            return
        self._posterior.add(impression.features, found)
        self._weights = self._posterior.theta
        self._root = None

    def _state(self) -> State:
        return super()._state() | self._posterior.state()

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self._posterior.restore(state)
        self._root = None


def posterior(n_features: int, lam: float) -> Posterior:
    """The Laplace posterior that PairRank keeps by default, for rankers that explore by other means."""
    capacity = max(HISTORY_BYTES // (8 * n_features), 1000)
    return Posterior(n_features, lam, mean_loss=False, tolerance=TOLERANCE, capacity=capacity)


def preferred(kind: str, clicks: BoolArray, rng: np.random.Generator) -> Pairs:
    """The pairs of one list, by the name of their kind; only "matched" draws from ``rng``."""
    match kind:
        case "adjacent":
            return pairs.adjacent(clicks)
        case "matched":
            return pairs.matched(clicks, rng)
        case "all":
            return pairs.all_pairs(clicks)
        case _:
            return pairs.averaged(clicks)


def square_root(covariance: FloatArray) -> FloatArray:
    """R (n, n) with R Rᵀ = ``covariance`` up to rounding, for one that may be singular."""
    n = len(covariance)
    try:
        R: FloatArray = np.linalg.cholesky(covariance + _JITTER * np.trace(covariance) / n * np.eye(n))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
        R = vectors * np.sqrt(np.maximum(values, 0.0))
    return R
