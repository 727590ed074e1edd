"""Warm starts: what is known before the first click, as a Gaussian prior with a strength counted in pairs.

Knowledge of θ₀ that is worth s pairs is what s such pairs would leave behind: beside the penalty ½ θᵀΛθ, which stays
around zero, a term s/2 (θ - θ₀)ᵀ J (θ - θ₀) with J = E[σ'(x·θ₀) x xᵀ], a pair's mean information. Together they make
the precision Λ + sJ and the mean (Λ + sJ)⁻¹ sJ θ₀; the paper's M starts at Λ + s E[x xᵀ]. So a ranker starts out
certain along directions in which such pairs differ, and as ignorant as ever along those in which they do not; and a
weak prior is a small one. Λ = diag(λ_f) follows the spread of each feature (see `spread`), so units do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from pairrank import threads
from pairrank.checking import check_lam, check_number_in, check_numbers
from pairrank.errors import FeatureError, OptionError
from pairrank.features import spread
from pairrank.features.linear import Units
from pairrank.features.spread import STRENGTH, centred
from pairrank.kernel.logistic import slope
from pairrank.rankers.base import Ranker
from pairrank.rankers.pairrank import PairRank
from pairrank.rankers.ranknet import OfflineRankNet, check_labels
from pairrank.types import FloatArray

# The variance of the difference of two features that are spread evenly over [0, 1], as min-max leaves them.
EVEN = 1.0 / 6.0
MAX_WEIGHT = 1e100  # its square, times any variance, is a number


@dataclass(frozen=True, eq=False)
class Prior:
    """θ ~ N(mean, precision⁻¹): ``mean`` (d,), ``precision`` (d, d) where H starts, and ``M`` (d, d) where M starts.

    ``units`` : what makes the d columns of features; an additive model needs those of logs or labels.

    >>> ranker = PairRank(n_features=2)
    >>> from_weights([1.0, -0.5], strength=1000).apply(ranker)
    >>> bool(ranker.score([[0.9, 0.3]]) > ranker.score([[0.2, 0.1]]))
    True
    """

    mean: FloatArray
    precision: FloatArray
    M: FloatArray
    units: Units | None = None

    def apply(self, ranker: Ranker) -> None:
        """Give the prior to a PairRank that has learned nothing yet."""
        _pairrank(ranker).set_prior(self.mean, self.precision, self.M, self.units)


class Settings(NamedTuple):
    """``lam``, pairs and model with which a fit is the same problem as a ranker's own, or as its expectation."""

    lam: float
    pairs: str
    model: str


def settings_of(ranker: Ranker) -> Settings:
    """What a fit for this ranker is to be told."""
    ours = _pairrank(ranker)
    return Settings(ours.lam, "averaged" if ours.pairs == "matched" else ours.pairs, ours.model)


@threads.single()
def from_labels(
    features: ArrayLike,
    grades: ArrayLike,
    offsets: ArrayLike,
    *,
    lam: float | None = None,
    strength: float | None = None,
    l2: float = 1e-3,
    model: str = "linear",
) -> Prior:
    """What graded documents know: RankNet's θ, and the spread of the pairs of different grade within queries.

    Parameters
    ----------
    features : (n_docs, d). grades : (n_docs,), whole numbers, higher is better.
    offsets : (n_queries + 1,), query q owns the rows from offsets[q] up to offsets[q + 1].
    lam : λ_f = lam · E[(x_i - x_j)_f²] over documents of one query; None is 3d, what a new `PairRank` has.
    strength : how many pairs of clicks the labels are worth; None counts each as one.
    l2 : the penalty of `OfflineRankNet`. model : "linear" or "additive", as the ranker's.
    """
    documents = check_numbers("features", features, FeatureError)
    if documents.ndim != 2:
        raise FeatureError(f"features have shape {documents.shape}; expected (n_docs, d)")
    d, (labels, bounds) = documents.shape[-1], check_labels(grades, offsets, len(documents))
    penalty = _check_lam(lam, d)
    teacher = OfflineRankNet(d, l2=l2, model=model)
    if model != "additive":
        teacher.check_features(np.where(np.isfinite(documents), 0.0, documents))  # told at its place, before it spreads
        documents = centred(documents, bounds)
    documents = teacher.check_features(documents)
    documents = spread.clipped(documents, bounds, spread.usual(documents, bounds))
    teacher.fit(documents, labels, bounds)
    units = teacher._units
    theta = teacher._weights / units.units
    columns = units.columns(documents)
    X = centred(columns, bounds)
    units.fix_units(np.sqrt(spread.of(columns, bounds)))
    units.forget(np.all(X == 0.0, axis=0))
    J, M = np.zeros((len(theta),) * 2), np.zeros((len(theta),) * 2)
    n_pairs = 0
    for start, stop in pairwise(bounds.tolist()):
        documents = X[start:stop]
        scores = documents @ theta
        differ = np.not_equal.outer(labels[start:stop], labels[start:stop])
        # Every pair stands twice in the matrix, and both times as itself: hence the halves.
        J += 0.5 * _spread(documents, differ * slope(np.subtract.outer(scores, scores)))
        M += 0.5 * _spread(documents, differ.astype(np.float64))
        n_pairs += int(differ.sum()) // 2
    worth = float(n_pairs) if strength is None else _check_strength(strength)
    return _prior(theta, J / n_pairs, M / n_pairs, penalty * units.units**2, worth, units)


@threads.single()
def from_weights(weights: ArrayLike, *, strength: float, lam: float | None = None, variance: ArrayLike = EVEN) -> Prior:
    """What weights alone know: θ₀ itself, and nothing of how documents differ.

    So pairs are taken to differ evenly, x ~ N(0, diag(variance)), in the features whose weight is known; with s = ‖θ₀‖
    in units of that spread, a pair's information is E[σ'(sz)] across θ₀ and E[σ'(sz) z²] along it, z ~ N(0, 1).

    Parameters
    ----------
    weights : (d,); NaN where nothing is known, and there the ranker starts wide, at λ_f.
    strength : how many pairs of clicks the weights are worth. lam : λ_f = lam · variance_f; None is 3d.
    variance : of the difference of two documents of a list, a number or (d,): weights do not tell the unit of their
        features. The default fits features spread evenly over [0, 1].
    """
    _check_strength(strength)
    given = check_numbers("weights", weights)
    if given.ndim != 1 or (np.abs(given) > MAX_WEIGHT).any() or np.isnan(given).all():
        expected = f"(d,), from {-MAX_WEIGHT:g} to {MAX_WEIGHT:g}, NaN only where not known"
        raise OptionError(f"weights have shape {given.shape}; expected {expected}")
    known = ~np.isnan(given)
    theta = np.where(known, given, 0.0)
    told = check_numbers("variance", variance)
    if told.shape not in ((), given.shape) or not (np.isfinite(told).all() and (told > 0).all()):
        raise OptionError("variance must be positive and finite, a number or one per weight")
    even = np.broadcast_to(told, given.shape)
    spread = np.sqrt(even) * known
    size = float(np.linalg.norm(spread * theta))
    across, along = information(size)
    direction = spread * theta / size if size > 0 else np.zeros_like(theta)
    inner = across * np.diag(known.astype(np.float64)) + (along - across) * np.outer(direction, direction)
    penalty = _check_lam(lam, len(even)) * even
    units = Units(len(even), "spread")
    units.fix(np.sqrt(even))
    return _prior(theta, spread[:, None] * inner * spread, np.diag(spread**2), penalty, strength, units)


def _prior(
    theta: FloatArray,
    J: FloatArray,
    second_moment: FloatArray,
    lam: FloatArray,
    strength: float,
    units: Units,
) -> Prior:
    """Λ = diag(``lam``) around zero and ``strength`` pairs of information ``J`` around ``theta``."""
    penalty = np.diag(lam)
    both = penalty + strength * J
    mean: FloatArray = cho_solve(cho_factor(both), strength * (J @ theta))
    return Prior(mean, both, penalty + strength * second_moment, units)


def information(size: float) -> tuple[float, float]:
    """E[σ'(sz)] and E[σ'(sz) z²] for z ~ N(0, 1) and s = ``size``: what a pair tells across θ and along it."""
    # In t = az the integrand is as wide as 1, however large s: σ' falls like exp(-t), the density like exp(-t²/2).
    a = max(size, 1.0)
    t, step = np.linspace(0.0, 45.0, 9001, retstep=True)
    z = t / a
    density = 2.0 * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) / a
    weight = slope(size * z) * density
    # The trapezium rule; of its two ends only the first is not zero.
    return float(step * (weight.sum() - 0.5 * weight[0])), float(step * (weight * z**2).sum())


def _spread(X: FloatArray, value: FloatArray) -> FloatArray:
    """Σ_ij v_ij (x_i - x_j)(x_i - x_j)ᵀ for symmetric ``value`` (n, n): 2 Xᵀ (diag(v1) - v) X."""
    result: FloatArray = 2.0 * (X.T @ (value.sum(axis=1)[:, None] * X - value @ X))
    return result


def _check_lam(lam: float | None, d: int) -> float:
    return STRENGTH * d if lam is None else check_lam(lam)


def _check_strength(strength: float) -> float:
    return check_number_in("strength", strength, 0.0, 1e12, open_low=True)


def _pairrank(ranker: Ranker) -> PairRank:
    if not isinstance(ranker, PairRank):
        raise OptionError(f"a {ranker.name} cannot take a prior; expected a pairrank ranker")
    if ranker.interactions:
        raise OptionError("fits and warm starts look for no interactions; leave interactions out")
    return ranker
