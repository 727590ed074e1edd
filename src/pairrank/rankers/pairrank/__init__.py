"""PairRank: explore only where the order is uncertain, keep it where it is certain, learn from the clicks.

Jia, Wang, Guo, Wang: PairRank: Online Pairwise Learning to Rank by Divide-and-Conquer. WWW 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pairrank import threads
from pairrank.checking import check_numbers
from pairrank.documents import Features
from pairrank.errors import OptionError
from pairrank.estimator.information_matrix import InformationMatrix
from pairrank.estimator.posterior import Posterior
from pairrank.features import position
from pairrank.features.additive import Additive
from pairrank.features.linear import Units
from pairrank.kernel import confidence, logistic, pairs, partition
from pairrank.kernel.lazy_generator import LazyGenerator
from pairrank.kernel.pairs import Pairs
from pairrank.rankers.base import Draw, State
from pairrank.rankers.candidates import FEW, Candidates, compared, drawn, show, show_by_score
from pairrank.rankers.pairrank.options import PRESETS, PairRankOptions
from pairrank.rankers.upgrade import differences_for_documents
from pairrank.rng import Purpose
from pairrank.state import restore, state_of
from pairrank.types import BoolArray, Float32Array, FloatArray, Impression, Inspection, IntArray

__all__ = ["PRESETS", "PairRank"]


@dataclass(eq=False, kw_only=True)
class PairRank(PairRankOptions):
    """Keeps orders that are certain and explores the others; ``preset``: our settings, the paper's or the authors'.

    A pair's order is certain when the model's score difference exceeds its confidence width. Blocks are the runs of the
    score order that no uncertain pair crosses: the order between blocks is kept, inside a block it is drawn at random.
    Clicked documents are preferred to others of their list (``pairs``); θ̂ minimises the logistic loss of all such pairs
    (`estimator.posterior`).

    >>> ranker = PairRank(n_features=2, seed=0)
    >>> impression = ranker.rank([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], k=2)
    >>> ranker.learn(impression, [True, False])
    True

    Parameters
    ----------
    n_features : width of a document's features; may be left out where ``feature_names`` tell.
    seed : with the impression's number, the key of all randomness.
    feature_names : what the features are called, for documents by name and for frames; saved with the ranker.
    missing : what a missing value means: a number, or "mean" of the list's other documents. None: it is refused.
    monotone : features, by name or number, of which more may only raise (1) or lower (-1) the score: {"price": -1}.
    model : "linear", or "additive": a function per feature, a line that bends where the evidence says so.
    interactions : with model="additive", how many products of two features the evidence is asked about; those that a
        score test over the first lists finds largest. None: no products.
    preset : where options that are not given come from: "best" (what we know to work best), "paper" (as published) or
        "authors" (as the authors' program does it).
    exploration : "conservative" keeps certain orders inside a block, "random" shuffles it whole.
    pairs : preferences taken from clicks: "adjacent" (the paper), "matched" (the authors), "all", "averaged" (the
        expectation of matched), or "shown" (every clicked document over every other one of the list).
    offsets : learn with the weights how much the position itself favours the upper document of a pair: the model is
        σ(x·θ + β log(q/p)) for documents at positions p < q.
    width : "probability": certain when σ(x·θ̂) - α‖x‖_{M⁻¹} > ½ (the paper); "score": certain when
        x·θ̂ > z‖x‖_{H⁻¹}, H the curvature of the loss (Laplace posterior).
    alpha : α for width="probability", a number or "theory" (α_t of Lemma 1).
    z : standard deviations for width="score".
    lam : λ, the weight of ½‖θ‖² and the start of M, in the features' ``units``; by default 3 per feature.
    units : of each feature, from the first lists: "spread" (root mean squared difference of two documents of a list) or
        "range" (largest range within a list: one for features normalised per query, which it leaves as they are).
    loss : "sum" (the paper's Eq. 1) or "mean" (the authors': mean loss plus λ‖θ‖²).
    Q : radius of the admissible models; θ̂ is projected onto ‖θ‖ ≤ Q as in the appendix. None: no projection.
    refine : take the transitive closure of certain orders first. With width="score" they are transitive already.
    half_life : learned lists after which a pair counts half, for users who change. None: nothing is forgotten.
    delta1, c_mu : δ₁ and c_μ of Lemma 1, for alpha="theory". There a Q of None counts as 1.
    tolerance : how far a pair's score may stray from that of the exact minimiser, as a share of its confidence width
        (root mean square over directions; with the paper's widths the largest); 0: not at all.
    """

    # Ranking.

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        n, shuffled = len(inputs), self.exploration == "random"
        if self.width == "score" and not shuffled and n <= FEW:
            z, keys = max(float(self.z), partition.TINY), rng.random(k * n)
            return drawn(*show_by_score(inputs, self._weights, self._metric32(), z, k, keys))
        return show(self._compare(inputs), k, rng, shuffled=shuffled)

    def _stream(self, number: int) -> Any:
        if type(self)._rank is not PairRank._rank:  # of one's own, which may take numpy's generator anywhere
            return super()._stream(number)
        return LazyGenerator(self.seed, number, Purpose.RANK)

    def _compare(self, inputs: FloatArray) -> Candidates:
        """Which orders of the candidates are certain."""
        rule = partition.certain_by_score if self.width == "score" else partition.certain_by_probability
        # In score space certainty is transitive by the triangle inequality, and `refine` has nothing to add.
        closed = self.refine and self.width == "probability"
        return compared(inputs, self._weights, self._metric32(), rule, self.width_factor, closed=closed)

    def _metric32(self) -> Float32Array:
        if self._inverse32 is None:
            self._inverse32 = self._metric.astype(np.float32)  # kept until the next `learn`
        return self._inverse32

    @property
    def _metric(self) -> FloatArray:
        """H⁻¹ or M⁻¹, (d, d): what a pair's width is measured by."""
        d = self.n_inputs
        return self._posterior.inverse[:d, :d] if self._information is None else self._information.inverse

    @property
    def width_factor(self) -> float:
        """What the length of a pair in the norm of H⁻¹ or M⁻¹ is multiplied by: z, α, or α_t of Lemma 1."""
        if self._information is None:
            return float(self.z)
        if self.alpha != "theory":
            return float(self.alpha)
        radius = 1.0 if self.Q is None else self.Q
        return confidence.alpha_theory(
            self._information.log_det, self.n_inputs, self.lam, radius, self.delta1, self.c_mu
        )

    # Learning; which pairs clicks are taken for stands in `rankers.pairwise`.

    def _design(self, inputs: FloatArray, impression: Impression) -> FloatArray:
        if not self.offsets:
            return inputs
        above = impression.memory.get("above")
        places = None if above is None else above + np.arange(len(impression))
        return position.with_column(inputs, places)

    @property
    def _bends(self) -> bool:
        # The paper's M knows of no other prior than λI.
        return self.loss == "sum" and self.width == "score"

    def _follow(self, impression: Impression, clicks: BoolArray, found: Pairs | None) -> None:
        if self._information is not None:
            found = found or pairs.shown(clicks)
            inputs = impression.features[:, : self.n_inputs]
            self._information.add(pairs.low_rank(inputs, found, found.weight))
        self._weights = self._admissible(self._weights)
        self._inverse32 = None

    def _admissible(self, theta: FloatArray) -> FloatArray:
        """θ̂ within ‖θ‖ ≤ Q, by the appendix's projection."""
        if self.Q is None or np.linalg.norm(theta) <= self.Q:
            return theta
        differences, weight = self._posterior.history.differences()
        M = self._posterior.P + differences.T @ (weight[:, None] * differences)
        return logistic.project(theta, differences, weight, self._posterior.P, M, self.Q)

    # State.

    SAVED: ClassVar[tuple[str, ...]] = (*PairRankOptions.SAVED, "_information")

    def _reset(self) -> None:
        self._check_options()
        super()._reset()
        self._inverse32 = None

    def _start(self) -> Posterior:
        precision = np.append(self.lam * self._units.precisions, np.full(int(self.offsets), position.PRECISION))
        n_free = self.n_features + self.offsets  # functions are lines until they bend
        if self.width == "score":
            # The Laplace posterior has its own matrix; only the paper's widths need M. In the norm of H a width is z,
            # and a vector of length r there moves a pair of unit width by r/√d in the mean.
            self._information, width = None, self.z * math.sqrt(n_free)
        else:  # of probabilities, and σ is nowhere steeper than ¼
            self._information = InformationMatrix(self.n_inputs, self.lam)
            width = 4.0 * (1.0 if self.alpha == "theory" else float(self.alpha))
        return Posterior(
            precision,
            tolerance=self.tolerance * max(width, 0.01),
            mean_loss=self.loss == "mean",
            metric=self._information,
            half_life=self.half_life or 0.0,
            n_free=n_free,
            n_asleep=self._units.n_asleep,
            disjoint=self._apart,
        )

    @property
    def _apart(self) -> bool:
        """Whether no two pairs of a list share a document, and nothing but the pairs is asked for."""
        return self.width == "probability" and self.pairs in ("adjacent", "matched")

    def _restore(self, state: State) -> None:
        super()._restore(differences_for_documents(state) if self._apart else state)

    def set_prior(
        self, mean: ArrayLike, precision: ArrayLike, M: ArrayLike | None = None, units: Units | None = None
    ) -> None:
        """Start from what is known: θ ~ N(mean, precision⁻¹) instead of N(0, I/λ), before anything is learned.

        The loss gets ½(θ - mean)ᵀ precision (θ - mean), H starts at ``precision`` (d, d), and the paper's M at ``M``
        (d, d), or there too, so exploration begins narrow where the prior knows and wide where it does not. All three
        are in the features' own units; the model's units become those in which the prior's diagonal is λ, but features
        without one in ``units`` get theirs when they vary. For an additive model d counts the columns of ``units``,
        which then are its own. With ``units`` all but λ in them is forgotten by ``half_life``, without them nothing is.
        """
        if (self.model == "additive") != isinstance(units, Additive):
            raise OptionError(
                'model="additive" takes a prior with pieces, from logs or labelled data, and no other model does: '
                "weights alone tell of no pieces"
            )
        if units is not None and len(units.values) != self.n_features:
            raise OptionError(f"the prior is of {len(units.values)} features; expected {self.n_features}")
        if self._posterior.n_pairs:
            raise OptionError("a prior can be set only before anything was learned")
        if self.loss == "mean":
            raise OptionError('a prior needs loss="sum": the mean loss has a penalty of its own')
        d = units.n_inputs if isinstance(units, Additive) else self.n_features
        mu, P = check_numbers("the prior's mean", mean), self._check_precision("precision", precision, d)
        if mu.shape != (d,) or not np.isfinite(mu).all():
            raise OptionError(f"the prior's mean has shape {mu.shape}; expected ({d},), all finite")
        start = P if M is None else self._check_precision("M", M, d)
        with self._turn, threads.single():
            if isinstance(units, Additive):
                restore(self._units, state_of(units))
                self._reset()
            else:
                self._units.fix(np.sqrt(np.diagonal(P) / self.lam))
                if units is not None:
                    self._units.forget(units.values == 0.0)
            unit = self._units.units
            inner = P / np.outer(unit, unit)
            beside = np.full(int(self.offsets), position.PRECISION)
            full = np.diag(np.append(np.empty(d), beside))
            full[:d, :d] = inner
            penalty = None
            if units is not None:
                penalty = np.append(self.lam * units.precisions * (units.units / unit) ** 2, beside)
            self._posterior.set_prior(np.append(unit * mu, np.zeros(len(beside))), full, penalty)
            if self._information is not None:
                self._information.start_from(start / np.outer(unit, unit))
            self._weights, self._inverse32 = unit * mu, None
            self._keep_monotone()

    def _check_precision(self, name: str, matrix: ArrayLike, d: int) -> FloatArray:
        array = check_numbers(f"the prior's {name}", matrix)
        if array.shape != (d, d) or not np.isfinite(array).all():
            raise OptionError(f"the prior's {name} has shape {array.shape}; expected ({d}, {d}), all finite")
        try:
            np.linalg.cholesky(0.5 * (array + array.T))
        except np.linalg.LinAlgError:
            raise OptionError(f"the prior's {name} is not positive definite; add a small multiple of I") from None
        return 0.5 * (array + array.T)

    # Looking inside.

    def inspect(self, features: Features) -> Inspection:
        """What the model is certain of for these candidates: scores, widths, certain pairs, blocks."""
        X = self.check_features(features)
        with self._turn, threads.single():
            inputs = self._inputs(X)
            candidates = self._compare(inputs)
            certain = candidates.certain()
            widths = self.width_factor * np.sqrt(confidence.squared_widths(inputs, self._metric))
            scores = self.score(X)
        unit, z = ("score", self.width_factor) if self._information is None else ("probability", None)
        return partition.inspected(scores, candidates.order, certain, widths, unit, z)

    def block_sizes(self, features: Features) -> IntArray:
        """(n_blocks,), as `inspect` tells, at a fraction of its cost."""
        X = self.check_features(features)
        with self._turn, threads.single():
            certain = self._compare(self._inputs(X)).certain()
        return np.diff(partition.block_ends(partition.reaches(certain)), prepend=-1)

    def uncertainty(self) -> FloatArray:
        """(n_features,), the standard deviation of each weight under the Laplace posterior, in the features' units."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))

    @property
    def covariance(self) -> FloatArray:
        """(n_features, n_features), of the weights under the Laplace posterior, in the features' units."""
        d = len(self.weights)  # an additive model has none, and says so
        with self._turn:
            unit = self._units.weights(np.ones(d))
            covariance: FloatArray = self._posterior.inverse[:d, :d] * np.outer(unit, unit)
        return covariance

    def position_bias(self) -> tuple[float, float]:
        """β and its standard deviation: how much position favours the upper document, in log-odds per log of rank."""
        if not self.offsets:
            return 0.0, 0.0
        with self._turn:
            return float(self._posterior.theta[-1]), float(np.sqrt(self._posterior.inverse[-1, -1]))
