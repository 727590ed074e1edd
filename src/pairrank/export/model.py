"""A linear model as a value: weights, feature names and how each feature is normalised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from pairrank import threads
from pairrank.checking import check_numbers
from pairrank.data.normalize import Normaliser
from pairrank.documents import as_rows, check_columns
from pairrank.errors import ExportError, FeatureError
from pairrank.rankers.base import Ranker
from pairrank.types import FloatArray


@dataclass(frozen=True, slots=True)
class MinMax:
    """x -> (x - minimum) / (maximum - minimum); nothing is clipped."""

    minimum: float
    maximum: float

    def __post_init__(self) -> None:
        if not (np.isfinite([self.minimum, self.maximum]).all() and self.minimum < self.maximum):
            raise ExportError(
                f"a min-max normaliser from {self.minimum} to {self.maximum}; expected minimum < maximum, both finite"
            )


@dataclass(frozen=True, slots=True)
class Standard:
    """x -> (x - mean) / standard_deviation."""

    mean: float
    standard_deviation: float

    def __post_init__(self) -> None:
        if not (np.isfinite([self.mean, self.standard_deviation]).all() and self.standard_deviation > 0):
            raise ExportError(
                f"a standard normaliser with mean {self.mean}, standard deviation {self.standard_deviation}; "
                "expected finite numbers and a positive deviation"
            )


@dataclass(frozen=True, slots=True)
class QueryMinMax:
    """x -> (x - min) / (max - min) over the candidates of the query; 0 where these are all equal."""


Normalisation = MinMax | Standard | QueryMinMax | None


@dataclass(frozen=True, eq=False, slots=True)
class LinearModel:
    """score(x) = Σ_f weight_f · normalised_f(x_f): what every export format can hold.

    Attributes
    ----------
    name : what the search engine will call the model.
    weights : (d,), finite, read-only.
    feature_names : d names, all different.
    normalisation : d entries, `MinMax`, `Standard`, `QueryMinMax` or None, which passes the feature through.

    >>> model = LinearModel.of([2.0, -1.0], feature_names=["rating", "price"], normaliser=[MinMax(0, 5), None])
    >>> model.score([[5.0, 0.5], [2.5, 0.2]])
    array([1.5, 0.8])
    """

    name: str
    weights: FloatArray
    feature_names: tuple[str, ...]
    normalisation: tuple[Normalisation, ...]

    def __post_init__(self) -> None:
        weights = check_numbers("weights", self.weights, ExportError)
        names = tuple(self.feature_names)
        if not isinstance(self.name, str) or not self.name:
            raise ExportError(f"the model's name is {self.name!r}; expected a text of a letter at least")
        if weights.ndim != 1 or len(weights) == 0 or not np.isfinite(weights).all():
            raise ExportError(f"weights have shape {weights.shape}; expected (n_features,), all finite")
        if len(names) != len(weights):
            raise ExportError(f"{len(names)} feature names came for {len(weights)} weights; expected one each")
        if any(not isinstance(name, str) or not name for name in names) or len(set(names)) != len(names):
            raise ExportError("feature names are empty, not text, or come twice; expected a name of its own for each")
        if len(self.normalisation) != len(weights):
            raise ExportError(f"{len(self.normalisation)} normalisers came for {len(weights)} weights")
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "feature_names", names)
        object.__setattr__(self, "normalisation", tuple(self.normalisation))

    def _key(self) -> tuple[object, ...]:
        return self.name, self.feature_names, self.normalisation, tuple(self.weights.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearModel) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @classmethod
    def of(
        cls,
        weights: ArrayLike,
        *,
        name: str = "pairrank",
        feature_names: Sequence[str] | None = None,
        normaliser: Normaliser | Sequence[Normalisation] | None = None,
    ) -> Self:
        """A model of ``weights``; features without names are called 1, 2, …, as in LETOR files.

        ``normaliser`` is None, a fitted `Normaliser`, or a sequence with one entry per feature.
        Features that a `Normaliser` found constant become 0 in it, so their weight here is 0.
        """
        array = check_numbers("weights", weights, ExportError)
        names = [str(i + 1) for i in range(array.size)] if feature_names is None else feature_names
        if normaliser is None:
            entries: Sequence[Normalisation] = (None,) * array.size
        elif isinstance(normaliser, Normaliser):
            entries = _from_fitted(normaliser, array.size)
            if normaliser.spread is not None:
                array[normaliser.spread <= 0] = 0.0
        else:
            entries = normaliser
        return cls(name, array, tuple(names), tuple(entries))

    @classmethod
    def from_ranker(
        cls,
        ranker: Ranker,
        *,
        name: str = "pairrank",
        feature_names: Sequence[str] | None = None,
        normaliser: Normaliser | Sequence[Normalisation] | None = None,
        nonnegative: bool = False,
    ) -> Self:
        """The weights of a linear ranker, with the names (by default its own) and the normalisation of its features.

        ``nonnegative``: the likeliest weights of which none is below 0, by the ranker's own posterior.
        """
        weights = getattr(ranker, "weights", None)
        if weights is None:
            kind = type(ranker).__name__
            raise ExportError(f"this {kind} has no weights; expected a linear ranker; AdditiveModel takes others")
        if nonnegative:
            covariance = getattr(ranker, "covariance", None)
            if covariance is None:
                raise ExportError(f"a {type(ranker).__name__} has no posterior to fit non-negative weights by")
            weights = nonnegative_weights(weights, covariance)
        names = ranker.feature_names if feature_names is None else feature_names
        return cls.of(weights, name=name, feature_names=names, normaliser=normaliser)

    @property
    def n_features(self) -> int:
        """How many features the model reads."""
        return len(self.weights)

    def rows(self) -> Iterator[tuple[str, float, Normalisation]]:
        """Name, weight and normalisation of each feature."""
        return zip(self.feature_names, self.weights.tolist(), self.normalisation, strict=True)

    @property
    def is_normalised(self) -> bool:
        """Whether any feature is changed before it is weighed."""
        return any(entry is not None for entry in self.normalisation)

    @property
    def is_per_query(self) -> bool:
        """Whether any feature is scaled by what the other candidates of its query have."""
        return any(isinstance(entry, QueryMinMax) for entry in self.normalisation)

    def affine(self) -> tuple[FloatArray, FloatArray]:
        """(shift, scale), both (d,): normalised x = (x - shift) / scale; refused where it depends on the query."""
        if self.is_per_query:
            raise ExportError("a model that is normalised within the query is not linear in its features as they come")
        shift, scale = np.array([_affine(entry) for entry in self.normalisation]).T
        return shift, scale

    def score(self, features: ArrayLike) -> FloatArray:
        """(n_docs,), the scores of raw features (n_docs, d), all candidates of one query."""
        X = raw(features, self.feature_names)
        shift, scale = np.array([_affine(entry, x) for x, entry in zip(X.T, self.normalisation, strict=True)]).T
        scores: FloatArray = ((X - shift) / scale) @ self.weights
        return scores

    def folded(self) -> Self:
        """The model over raw features that orders alike: weights/scale; all scores move by one constant."""
        _, scale = self.affine()
        return replace(self, weights=self.weights / scale, normalisation=(None,) * self.n_features)

    def reordered(self, names: Sequence[str]) -> FloatArray:
        """(len(names),), the weights in the order of ``names``; NaN where the model has no such feature."""
        known = {name: weight for name, weight, _ in self.rows()}
        return np.array([known.get(name, np.nan) for name in names])


@threads.single()
def nonnegative_weights(weights: FloatArray, covariance: FloatArray) -> FloatArray:
    """(d,): argmin over θ ≥ 0 of (θ - θ̂)ᵀ C⁻¹ (θ - θ̂), the likeliest such weights under θ ~ N(θ̂, C).

    θ̂ = ``weights`` (d,), C = ``covariance`` (d, d). A weight that is set to 0 moves those of correlated features along,
    which clipping would not do.

    >>> nonnegative_weights(np.array([1.0, -1.0]), np.array([[1.0, 0.9], [0.9, 1.0]])).round(2)
    array([1.9, 0. ])
    """
    from scipy.optimize import nnls  # takes longer to import than the rest, and few need it

    unit = np.sqrt(np.diagonal(covariance))
    # With C = KKᵀ the distance is ‖K⁻¹(θ - θ̂)‖², a least-squares problem; in standard deviations units do not matter.
    K = np.linalg.cholesky(covariance / np.outer(unit, unit))
    inverse = solve_triangular(K, np.eye(len(unit)), lower=True)
    found, _ = nnls(inverse, inverse @ (weights / unit))
    result: FloatArray = found * unit
    return result


def raw(features: Any, names: Sequence[str]) -> FloatArray:
    """(n_docs, d) numbers; of a frame that knows any of these ``names`` their columns, whatever the order."""
    present = getattr(features, "column_names", getattr(features, "columns", ()))
    if not set(names).isdisjoint(present):
        check_columns(present, names)
        features = getattr(features, "select", features.__getitem__)(list(names))
    # Row by row in memory, as frames are not: the bits of a product depend on the layout.
    X = np.ascontiguousarray(as_rows(features))
    if X.ndim != 2 or X.shape[1] != len(names):
        raise FeatureError(f"features have shape {X.shape}; expected (n_docs, {len(names)})")
    return X


def _affine(entry: Normalisation, x: FloatArray | None = None) -> tuple[float, float]:
    """(shift, scale) of a feature, over the candidates' values ``x`` (n,) where it depends on the query."""
    match entry:
        case MinMax(low, high):
            return low, high - low
        case Standard(mean, deviation):
            return mean, deviation
        case QueryMinMax() if x is not None and len(x):
            return float(x.min()), float(np.ptp(x)) or 1.0
    return 0.0, 1.0


def _from_fitted(normaliser: Normaliser, n_features: int) -> tuple[Normalisation, ...]:
    """One entry a feature; features without any spread become 0 there, and weigh nothing."""
    name = normaliser.name
    if name.startswith("log1p"):
        raise ExportError(
            f"no export format has a place for the normalisation {name!r}: let the engine's features take the "
            "logarithm, and export with a normaliser of what they give"
        )
    if name == "query":
        return (QueryMinMax(),) * n_features
    shift, spread = normaliser.shift, normaliser.spread
    if shift is None or spread is None:
        return (None,) * n_features
    if len(shift) != n_features:
        raise ExportError(f"the normaliser is for {len(shift)} features; the model has {n_features}")
    kind, second = (MinMax, shift + spread) if name == "global" else (Standard, spread)
    numbers = zip(shift.tolist(), second.tolist(), spread > 0, strict=True)
    return tuple(kind(*both) if varies else None for *both, varies in numbers)
