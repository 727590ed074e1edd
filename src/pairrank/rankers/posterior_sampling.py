"""Posterior sampling: show the list that a model drawn from the posterior believes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pairrank.checking import check_number_in
from pairrank.kernel.pairs import Pairs
from pairrank.rankers.base import Draw
from pairrank.rankers.pairwise import PairKind, PairwiseRanker
from pairrank.types import BoolArray, FloatArray, Impression

# Documents that are alike make a covariance singular; this share of its mean diagonal does not change a list.
_JITTER = 1e-12


@dataclass(eq=False, kw_only=True)
class PosteriorSampling(PairwiseRanker):
    """Lists sorted by the scores of a model that is drawn anew for every query (Thompson sampling).

    The model is PairRank's: pairwise logistic regression with the Laplace posterior θ ~ N(θ̂, H⁻¹), where
    H = λI + Σ w σ'(x·θ̂) x xᵀ over the pairs so far. For candidates X the scores are drawn as a whole,

        s ~ N(X θ̂, v² X H⁻¹ Xᵀ),

    and the list is sorted by them. So a pair's order is left to chance just as far as the posterior doubts it: i is
    shown above j with probability Φ(x_ij·θ̂ / v‖x_ij‖_{H⁻¹}). `score` uses θ̂, without chance.

    References: Thompson, "On the Likelihood that One Unknown Probability Exceeds Another in View of the Evidence of Two
    Samples", Biometrika 25, 1933; Chapelle and Li, "An Empirical Evaluation of Thompson Sampling", NIPS 2011.

    >>> ranker = PosteriorSampling(n_features=2, seed=0, v=0.5)
    >>> shown = ranker.rank({"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]})
    >>> ranker.learn(shown, clicks=["c"])
    True

    Parameters
    ----------
    v : scale of the draws; 1 is the posterior itself, 0 shows the documents best first. The default did best of 0.25,
        0.5 and 1 on synthetic data.
    lam : λ, the weight of ½‖θ‖², for features in units of their largest range within a list.
    pairs : preferences taken from clicks: "adjacent", "matched", "all", "averaged" or "shown", as in PairRank.
    """

    name: ClassVar[str] = "posterior-sampling"

    v: float = 0.25
    pairs: PairKind = "adjacent"

    def _reset(self) -> None:
        check_number_in("v", self.v, 0.0, 1e9)
        super()._reset()
        self._root: FloatArray | None = None  # of H⁻¹, until the next `learn`

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        order = np.argsort(-self.draw_scores(inputs, rng), kind="stable")[:k]
        return Draw(order, np.zeros(k, dtype=np.int64), len(inputs) > 1 and self.v > 0, {})

    def draw_scores(self, inputs: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n,), one draw from N(X θ̂, v² X H⁻¹ Xᵀ) for ``inputs`` X (n, d).

        Through the smaller of two square roots: of the covariance (n, n), or of H⁻¹ (d, d), which is kept.
        """
        n, inverse = len(inputs), self._posterior.inverse
        if n < self.n_inputs:
            noise = square_root(inputs @ inverse @ inputs.T) @ rng.standard_normal(n)
        else:
            if self._root is None:
                self._root = square_root(inverse)
            noise = inputs @ (self._root @ rng.standard_normal(self.n_inputs))
        return inputs @ self._weights + self.v * noise

    def _follow(self, impression: Impression, clicks: BoolArray, found: Pairs | None) -> None:
        self._root = None


def square_root(covariance: FloatArray) -> FloatArray:
    """R (n, n) with R Rᵀ = ``covariance`` up to rounding, for one that may be singular."""
    n = len(covariance)
    try:
        R: FloatArray = np.linalg.cholesky(covariance + _JITTER * np.trace(covariance) / n * np.eye(n))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
        R = vectors * np.sqrt(np.maximum(values, 0.0))
    return R
