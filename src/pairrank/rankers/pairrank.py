"""PairRank: explore only where the order is uncertain, keep it where it is certain, learn from the clicks.

Jia, Wang, Guo, Wang: PairRank: Online Pairwise Learning to Rank by Divide-and-Conquer. WWW 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pairrank.errors import OptionError
from pairrank.kernel import confidence, logistic, loops, pairs, partition
from pairrank.kernel.pairs import Floors, Pairs
from pairrank.rankers.base import Draw, LinearRanker, State, check_choice, check_number_in
from pairrank.rankers.candidates import WHOLE, Candidates, Closed, Shown, Whole
from pairrank.rankers.posterior import Posterior
from pairrank.rankers.precision import Precision
from pairrank.rankers.scale import Scale
from pairrank.rankers.trust import Confirmation, Repeats, Surprise, discount_contradiction
from pairrank.rng import Purpose, generator
from pairrank.types import AnyArray, BoolArray, Float32Array, FloatArray, Impression, Inspection

# Bytes of documents that the incremental estimator keeps before it folds the oldest into its quadratic model.
HISTORY_BYTES = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """PairRank's options with every one decided; `PairRank` explains them."""

    exploration: str
    pairs: str
    width: str
    alpha: float | str
    z: float
    lam: float | str
    loss: str
    Q: float | None
    refine: bool
    learn_from: str
    biased_weight: float
    read_factor: float
    mirrored: bool
    confirm: bool
    examine_next: bool
    repeats: float
    robust: float
    covariance: str
    evidence: bool
    calibrate: bool
    caution: float
    stake: float
    half_life: float | None
    delta1: float
    c_mu: float
    estimator: str
    tolerance: float

    def __post_init__(self) -> None:
        check_choice("exploration", self.exploration, ("conservative", "random"))
        check_choice("pairs", self.pairs, ("adjacent", "matched", "all", "averaged"))
        check_choice("width", self.width, ("probability", "score"))
        check_choice("loss", self.loss, ("sum", "mean"))
        check_choice("learn_from", self.learn_from, ("all", "uncertain", "fair", "propensity"))
        check_choice("covariance", self.covariance, ("laplace", "sandwich"))
        check_choice("estimator", self.estimator, ("incremental", "exact", "bounded"))
        if self.alpha != "theory":
            check_number_in("alpha", self.alpha, 0.0, 1e9)
        check_number_in("z", self.z, 0.0, 1e9)
        if self.lam != "scaled":
            check_number_in("lam", self.lam, 0.0, 1e12, open_low=True)
        check_number_in("delta1", self.delta1, 0.0, 1.0, open_low=True)
        check_number_in("c_mu", self.c_mu, 0.0, 0.25, open_low=True)
        check_number_in("biased_weight", self.biased_weight, 0.0, 1.0)
        check_number_in("read_factor", self.read_factor, 1.0, 1e9)
        check_number_in("tolerance", self.tolerance, 0.0, 1.0, open_low=True)
        if self.Q is not None:
            check_number_in("Q", self.Q, 0.0, 1e9, open_low=True)
        for name in ("repeats", "robust", "stake"):
            check_number_in(name, getattr(self, name), 0.0, 100.0)
        check_number_in("caution", self.caution, 0.0, 1e9)
        if self.half_life is not None:
            check_number_in("half_life", self.half_life, 1.0, 1e9)
        for name in ("refine", "mirrored", "confirm", "examine_next", "evidence", "calibrate"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} is {getattr(self, name)!r}; expected True or False")
        self._check_together()

    def _check_together(self) -> None:
        if self.estimator == "bounded" and (self.loss == "mean" or self.Q is not None or self.evidence):
            raise OptionError('estimator="bounded" keeps no history, which loss="mean", Q and evidence need')
        if self.loss == "mean" and (self.evidence or self.half_life is not None):
            raise OptionError('loss="mean" has a penalty of its own, which evidence and half_life cannot change')
        if self.lam == "scaled" and (self.width == "probability" or self.loss == "mean"):
            raise OptionError('lam="scaled" is for width="score" and loss="sum"; give a number')
        if self.width == "probability":
            for name, off in {"covariance": "laplace", "calibrate": False, "caution": 0.0, "stake": 0.0}.items():
                if getattr(self, name) != off:
                    raise OptionError(
                        f'{name} is for width="score", the Laplace posterior; leave it out or change width'
                    )


_BEST = Settings(
    exploration="conservative",
    pairs="averaged",
    width="score",
    alpha=0.1,
    z=0.2,
    lam="scaled",
    loss="sum",
    Q=None,
    refine=True,
    learn_from="fair",
    biased_weight=0.1,
    read_factor=3.0,
    mirrored=False,
    confirm=False,
    examine_next=True,
    repeats=0.0,
    robust=0.0,
    covariance="laplace",
    evidence=False,
    calibrate=False,
    caution=0.0,
    stake=0.0,
    half_life=None,
    delta1=0.05,
    c_mu=0.25,
    estimator="incremental",
    tolerance=0.01,
)
_PUBLISHED = replace(_BEST, width="probability", lam=0.1, learn_from="all", read_factor=1.0)
PRESETS = MappingProxyType(
    {
        "best": _BEST,
        "paper": replace(_PUBLISHED, pairs="adjacent", refine=False),
        "authors": replace(_PUBLISHED, pairs="matched", loss="mean"),
    }
)


@dataclass(eq=False, kw_only=True)
class PairRank(LinearRanker):
    """The ranker of the paper, with every choice that it leaves open as an option.

    Parameters
    ----------
    n_features : width of a document's features.
    seed : with the impression's number, the key of all randomness.
    preset : where options that are not given come from: "best" (what we know to work best), "paper" (as published) or
        "authors" (as the authors' program does it).
    exploration : "conservative" keeps certain orders inside a block, "random" shuffles it whole.
    pairs : preferences taken from clicks: "adjacent" (the paper), "matched" (the authors), "all", or "averaged" (the
        expectation of matched).
    width : "probability": certain when σ(x·θ̂) - α‖x‖_{M⁻¹} > ½ (the paper); "score": certain when
        x·θ̂ > z‖x‖_{H⁻¹}, H the curvature of the loss (Laplace posterior).
    alpha : α for width="probability", a number or "theory" (α_t of Lemma 1).
    z : standard deviations for width="score".
    lam : λ, the weight of ½‖θ‖² and the start of M: a number, or "scaled": 3 E‖x_i - x_j‖² over the first lists.
    loss : "sum" (the paper's Eq. 1) or "mean" (the authors': mean loss plus λ‖θ‖²).
    Q : radius of the admissible models; θ̂ is projected onto ‖θ‖ ≤ Q as in the appendix. None: no projection.
    refine : take the transitive closure of certain orders first. With width="score" they are transitive already.
    learn_from : which pairs count in full: "all", those whose order was "uncertain" when shown, or those whose order
        was a "fair" coin: the lower document was free to be drawn when the upper one was, so that either could have
        come first. The order of all other pairs follows the model, and clicks on them carry its position bias.
        "propensity" weighs each by 2P(R*)/(P(R) + P(R*)), the chance of the list with the two exchanged, as PDGD does.
    biased_weight : the least weight of a pair: that of those which do not count in full.
    read_factor : how many times that weight, up to 1, where a click below the pair shows that both were read.
    mirrored : learn nothing from those of them that would not have been found with the two documents' clicks exchanged:
        the examined part of a list ends with a click, and so favours documents further down.
    confirm : raise their weight, up to 1, as far as they confirm the model more than it expects and than their
        positions explain. These three are for learn_from="fair" and "uncertain".
    examine_next : whether the document below the last click counts as examined, as the paper has it.
    repeats : ρ; the r-th time that the same two documents make a pair it weighs r^-ρ.
    robust : γ; a pair that contradicts the model by a margin m weighs (2σ(m))^γ, against clicks that attack.
    covariance : of the posterior: "laplace", H⁻¹, or "sandwich", H⁻¹BH⁻¹ with B the spread of whole lists' gradients.
    evidence : set λ by maximising the evidence as the pairs come in (``lam`` is where it starts).
    calibrate : widen by √φ, φ how much more often unlearned pairs contradict the model than it expects.
    caution : z is multiplied by √(1 + caution/(1 + pairs learned)): a guard against certainty that comes early.
    stake : z falls with the place of the upper document as 1/log₂(1 + place)^stake: exploration where NDCG is made.
    half_life : learned lists after which a pair counts half, for users who change. None: nothing is forgotten.
    delta1, c_mu : δ₁ and c_μ of Lemma 1, for alpha="theory". There a Q of None counts as 1.
    estimator : "incremental" (θ̂ within ``tolerance`` of the exact minimiser, cost flat in t), "exact" (the minimiser
        after every list), or "bounded" (no history at all, for endless streams).
    tolerance : for "incremental": how far θ̂ may stray from the exact minimiser, as a share of the confidence width.
    """

    preset: str = "best"
    exploration: str | None = None
    pairs: str | None = None
    width: str | None = None
    alpha: float | str | None = None
    z: float | None = None
    lam: float | str | None = None
    loss: str | None = None
    Q: float | None = None
    refine: bool | None = None
    learn_from: str | None = None
    biased_weight: float | None = None
    read_factor: float | None = None
    mirrored: bool | None = None
    confirm: bool | None = None
    examine_next: bool | None = None
    repeats: float | None = None
    robust: float | None = None
    covariance: str | None = None
    evidence: bool | None = None
    calibrate: bool | None = None
    caution: float | None = None
    stake: float | None = None
    half_life: float | None = None
    delta1: float | None = None
    c_mu: float | None = None
    estimator: str | None = None
    tolerance: float | None = None

    name: ClassVar[str] = "pairrank"

    def _reset(self) -> None:
        super()._reset()
        check_choice("preset", self.preset, tuple(PRESETS))
        given = {f.name: getattr(self, f.name) for f in fields(Settings)}
        self.settings = s = replace(
            PRESETS[self.preset], **{name: value for name, value in given.items() if value is not None}
        )
        # In the norm of H a width is z. In probability it is α in that of M, which is above H where σ is flat.
        width = s.z if s.width == "score" else 0.25 * (1.0 if s.alpha == "theory" else float(s.alpha))
        tolerance = 0.0 if s.estimator == "exact" else s.tolerance * max(width, 0.01)
        capacity = 0 if s.estimator == "bounded" else max(HISTORY_BYTES // (8 * self.n_features), 1000)
        self._scale = Scale(self.n_features)
        self._posterior = Posterior(
            self.n_features,
            self._scale.start if s.lam == "scaled" else float(s.lam),
            mean_loss=s.loss == "mean",
            tolerance=tolerance,
            capacity=capacity,
            # Where σ is flat, M is far above H, and what is little in the norm of H is much in that of M; unless the
            # penalty grows with the pairs, as that of the mean does.
            patient=s.width == "score" or s.loss == "mean",
            sandwich=s.covariance == "sandwich",
            evidence=s.evidence,
            half_life=s.half_life,
        )
        self._repeats, self._surprise = Repeats(s.repeats), Surprise()
        self._confirmation = Confirmation(s.half_life)
        self._floors = self._floors_above(0.0)
        # Compiled loops may do all of `_rank`, unless they would pass over what a subclass has made of it.
        usual = s.width == "score" and s.exploration == "conservative" and not s.stake
        self._at_once = usual and type(self)._rank is PairRank._rank
        self._inverse32: Float32Array | None = None  # H⁻¹ or M⁻¹ as `rank` uses it, until the next `learn`
        # The Laplace posterior has its own matrix; only the paper's widths need M.
        self._precision = Precision(self.n_features, self.lam_t) if s.width == "probability" else None

    def set_prior(self, mean: ArrayLike, precision: ArrayLike, M: ArrayLike | None = None) -> None:
        """Start from what is known: θ ~ N(mean, precision⁻¹) instead of N(0, I/λ), before anything is learned.

        The loss gets ½(θ - mean)ᵀ precision (θ - mean), H starts at ``precision`` (d, d), and the paper's M at ``M``
        (d, d), or there too, so exploration begins narrow where the prior knows and wide where it does not.
        """
        if self._posterior.n_pairs:
            raise OptionError("a prior can be set only before anything was learned")
        if self.settings.loss == "mean":
            raise OptionError('a prior needs loss="sum": the mean loss has a penalty of its own')
        mu, P = np.array(mean, dtype=np.float64), self._check_precision("precision", precision)
        if mu.shape != (self.n_features,) or not np.isfinite(mu).all():
            raise OptionError(f"the prior's mean has shape {mu.shape}; expected ({self.n_features},), all finite")
        start = P if M is None else self._check_precision("M", M)
        self._inverse32 = None
        self._scale.stop()
        self._posterior.set_prior(mu, P)
        if self._precision is not None:
            self._precision.start_from(start)
        self._weights = mu

    def _check_precision(self, name: str, matrix: ArrayLike) -> FloatArray:
        array, d = np.array(matrix, dtype=np.float64), self.n_features
        if array.shape != (d, d) or not np.isfinite(array).all():
            raise OptionError(f"the prior's {name} has shape {array.shape}; expected ({d}, {d}), all finite")
        try:
            np.linalg.cholesky(0.5 * (array + array.T))
        except np.linalg.LinAlgError:
            raise OptionError(f"the prior's {name} is not positive definite; add a small multiple of I") from None
        return 0.5 * (array + array.T)

    # Ranking.

    @property
    def alpha_t(self) -> float:
        """The factor on a pair's width today: z, α, or α_t of Lemma 1."""
        s = self.settings
        if self._precision is None:
            early = math.sqrt(1.0 + s.caution / (1.0 + self._posterior.n_pairs))
            return float(s.z) * early * (self._surprise.factor if s.calibrate else 1.0)
        if s.alpha != "theory":
            return float(s.alpha)
        return confidence.alpha_theory(
            self._precision.log_det, self.n_features, self.lam_t, 1.0 if s.Q is None else s.Q, s.delta1, s.c_mu
        )

    @property
    def lam_t(self) -> float:
        """λ today: the number given, or where "scaled" or ``evidence`` has set it."""
        return self._posterior.lam

    @property
    def _metric(self) -> FloatArray:
        """H⁻¹ or M⁻¹, (d, d): what a pair's width is measured by."""
        return self._posterior.covariance if self._precision is None else self._precision.inverse

    def _candidates(self, X: FloatArray) -> Candidates:
        rule = partition.certain_by_score if self._precision is None else partition.certain_by_probability
        kind = Whole if len(X) <= WHOLE or self.settings.learn_from == "propensity" else Candidates
        if self.settings.refine and self._precision is not None:
            # In score space certainty is transitive by the triangle inequality, and `refine` has nothing to add.
            kind = Closed
        if self._inverse32 is None:
            self._inverse32 = self._metric.astype(np.float32)
        return kind(X, X @ self._weights, self._inverse32, rule, self.alpha_t, self.settings.stake)

    def _draw_numbered(self, X: FloatArray, k: int, number: int) -> Draw:
        loops.count_a_list()
        fast = loops.compiled()
        if fast is None or not self._at_once or len(X) > WHOLE:
            return super()._draw_numbered(X, k, number)
        candidates = self._candidates(X)
        return self._drawn(candidates, candidates.show_at_once(fast, k, self.seed, number))

    def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        candidates = self._candidates(features)
        return self._drawn(candidates, candidates.show(k, rng, shuffled=self.settings.exploration == "random"))

    def _drawn(self, candidates: Candidates, shown: Shown) -> Draw:
        """What was shown, and what of it `learn` must know."""
        ends, places, blocks, fair = shown
        # With the blocks, the ends tell their sizes even where a block runs on below what was shown.
        memory: dict[str, AnyArray] = {"ends": ends}
        shuffled = self.settings.exploration == "random"
        match self.settings.learn_from:
            case "fair":
                memory["unbiased"] = fair
            case "uncertain" if shuffled:
                memory["unbiased"] = fair  # a shuffle puts either first with probability a half
            case "uncertain":
                certain = candidates.certain_among(places)
                memory["unbiased"] = ~(certain | certain.T)
            case "propensity" if shuffled:
                memory["trust"] = fair.astype(np.float64)
            case "propensity":
                memory["trust"] = candidates.propensities(ends, places)
        return Draw(candidates.order[places], blocks, bool(ends[-1] >= len(ends)), memory)

    def inspect(self, features: ArrayLike) -> Inspection:
        """What the model is certain of for these candidates: scores, widths, certain pairs, blocks."""
        X = self.check_features(features)
        n = len(X)
        scores = X @ self._weights
        candidates = self._candidates(X)
        certain = candidates.certain_rows(0, n)
        ends = partition.block_ends(partition.reaches(certain))
        back = np.argsort(candidates.order)
        return Inspection(
            scores=scores,
            order=candidates.order,
            probability=logistic.sigmoid(np.subtract.outer(scores, scores)),
            width=self.alpha_t * np.sqrt(confidence.squared_widths(X - X.mean(axis=0), self._metric)),
            certain=certain[np.ix_(back, back)],
            blocks=partition.block_numbers(ends, n)[back],
            unit="score" if self._precision is None else "probability",
            z=self.alpha_t if self._precision is None else None,
        )

    # Learning.

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        found = self._trusted(impression, clicks, self._pairs(impression, clicks))
        if len(found.weight) == 0:
            return
        if self.settings.lam == "scaled" and (lam := self._scale.watch(impression.features)):
            self._posterior.change_lam(lam)
        self._posterior.add(impression.features, found)
        if self._precision is not None:
            self._precision.add(pairs.low_rank(impression.features, found, found.weight))
        self._weights = self._admissible(self._posterior.theta)
        self._inverse32 = None

    def _trusted(self, impression: Impression, clicks: BoolArray, found: Pairs) -> Pairs:
        """The pairs with the weights that they deserve, without those that deserve none."""
        s = self.settings
        if len(found.weight) and s.learn_from != "all":
            found = self._discounted(impression, clicks, found)
        if len(found.weight) == 0:
            return found
        found = self._repeats.weigh(impression.features, found)
        if s.robust or s.calibrate:
            margins = self._margins(impression, found)
            self._surprise.watch(margins, found.weight)
            found = found._replace(weight=found.weight * discount_contradiction(margins, s.robust))
        return found

    def _discounted(self, impression: Impression, clicks: BoolArray, found: Pairs) -> Pairs:
        """Less weight for pairs whose order the model had fixed."""
        s = self.settings
        if s.learn_from == "propensity":
            trust = impression.memory["trust"][found.winner, found.loser]
            weight = found.weight * np.maximum(trust, s.biased_weight)
            kept = weight > 0
            return Pairs(found.winner[kept], found.loser[kept], weight[kept])
        floors = self._floors_above(self._confirmation.share) if s.confirm else self._floors
        counted, settled = pairs.discount(found, impression.memory["unbiased"], clicks, int(s.examine_next), floors)
        if s.confirm:
            upper = found.winner < found.loser
            self._confirmation.watch(self._margins(impression, found), upper, found.weight, settled)
        return counted

    def _floors_above(self, share: float) -> Floors:
        """What pairs in a fixed order count, ``share`` at least."""
        s = self.settings
        return Floors(
            other=max(0.0 if s.mirrored else s.biased_weight, share),
            mirrored=max(s.biased_weight, share),
            read=max(min(s.read_factor * s.biased_weight, 1.0), share),
        )

    def _margins(self, impression: Impression, found: Pairs) -> FloatArray:
        """(n,), by how much each winner led in score."""
        scores = impression.features @ self._weights
        margins: FloatArray = scores[found.winner] - scores[found.loser]
        return margins

    def _pairs(self, impression: Impression, clicks: BoolArray) -> Pairs:
        beyond = int(self.settings.examine_next)
        match self.settings.pairs:
            case "adjacent":
                return pairs.adjacent(clicks, beyond)
            case "matched":
                return pairs.matched(clicks, generator(impression.seed, impression.number, Purpose.LEARN), beyond)
            case "all":
                return pairs.all_pairs(clicks, beyond)
            case _:
                return pairs.averaged(clicks, beyond)

    def _admissible(self, theta: FloatArray) -> FloatArray:
        """θ̂ within ‖θ‖ ≤ Q, by the appendix's projection."""
        Q = self.settings.Q
        if Q is None or np.linalg.norm(theta) <= Q:
            return theta
        differences, weight = self._posterior.history.differences()
        M = self._posterior.P + differences.T @ (weight[:, None] * differences)
        return logistic.project(theta, differences, weight, self._posterior.P, M, Q)

    # Saving.

    def _state(self) -> State:
        extra = {} if self._precision is None else self._precision.state()
        return super()._state() | self._posterior.state() | self._trust_state() | extra

    def _trust_state(self) -> State:
        return self._repeats.state() | self._surprise.state() | self._confirmation.state() | self._scale.state()

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self._scale.restore(state)
        self._posterior.restore(state)
        self._repeats.restore(state)
        self._surprise.restore(state)
        self._confirmation.restore(state)
        self._inverse32 = None
        if self._precision is not None:
            self._precision.restore(state)

    def uncertainty(self) -> FloatArray:
        """(n_features,), the standard deviation of each weight under the Laplace posterior."""
        return np.sqrt(np.maximum(np.diagonal(self._posterior.inverse), 0.0))
