"""What a model makes of each feature: its function with a band, and each document's score taken apart."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pairrank.checking import nearest
from pairrank.documents import Features, numbers
from pairrank.errors import FeatureError, UnknownNameError
from pairrank.features.linear import Units
from pairrank.rankers.base import Ranker
from pairrank.types import BoolArray, FloatArray, IntArray

# Documents whose values are told beside a function: enough to see where they are, few enough to send.
MARKS = 40


@dataclass(frozen=True, eq=False, slots=True)
class Effect:
    """The function of one feature, ready to plot.

    Attributes
    ----------
    x : (n,), values of the feature. value : (n,), what each adds to the score, above that of ``reference``.
    sd : (n,), its standard deviation under the posterior; NaN where the ranker has none.
    reference : the value that adds nothing: the median of the first lists in an additive model, else 0.
    missing : what a missing value adds, and its standard deviation; None where the model has no weight for it.
    """

    x: FloatArray
    value: FloatArray
    sd: FloatArray
    reference: float
    missing: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Explanation:
    """Why documents stand where they stand.

    Attributes
    ----------
    contribution : (n_docs, n_features), what each feature adds to a document's score, above the mean of the candidates;
        rows add up to the score above its mean.
    order : (n_docs,), rows by falling score.
    gap : (n_docs - 1,), by how much each document of that order scores above the next.
    width : (n_docs - 1,), half the confidence interval of that, in the unit of `Inspection.width`; NaN where the
        algorithm has none.
    certain : (n_docs - 1,), whether the order of these two is kept; what is not may be shown either way.
    """

    contribution: FloatArray
    order: IntArray
    gap: FloatArray
    width: FloatArray
    certain: BoolArray


class Explained(Ranker):
    """What a ranker with weights of inputs can tell of its features."""

    _weights: FloatArray

    @property
    @abstractmethod
    def _units(self) -> Units:
        """What makes inputs of features."""

    def _covariance(self) -> FloatArray | None:
        """(n_inputs, n_inputs), of the weights of the inputs; None where the ranker knows none."""
        return None

    def feature_number(self, feature: int | str) -> int:
        """The column of a feature that is told by its number, from 0, or by its name."""
        if isinstance(feature, str):
            names = self.feature_names or ()
            if feature not in names and feature.isdecimal():
                return self.feature_number(int(feature))
            if feature not in names:
                known = nearest(feature, names) if names else "; this ranker's features have no names, only numbers"
                raise UnknownNameError(f"no feature is called {feature!r}{known}")
            return names.index(feature)
        if isinstance(feature, bool) or not isinstance(feature, (int, np.integer)):
            raise UnknownNameError(f"{feature!r} is no feature; expected a number or a name")
        if not 0 <= feature < self.n_features:
            raise UnknownNameError(f"there is no feature {feature}; expected 0 to {self.n_features - 1}")
        return int(feature)

    def effect(self, feature: int | str, x: ArrayLike | None = None) -> Effect:
        """What a feature adds to the score, and how sure that is: x, f(x) and its standard deviation.

        ``feature`` is a number, from 0, or a name. ``x`` (n,) are values of it; by default the ends of its pieces, or
        three values a unit apart where it has none.

        >>> from pairrank import PairRank
        >>> PairRank(n_features=1).effect(0, x=[0.0, 2.0]).value
        array([0., 0.])
        """
        with self._turn:
            f, units = self.feature_number(feature), self._units
            reference = units.middle[f]
            if x is None:
                at = units.knots_of(f)
                if len(at) == 0:
                    at = reference + units.units[f] * np.array([-1.0, 0.0, 1.0])
            else:
                try:
                    at = np.atleast_1d(numbers(x))
                except (TypeError, ValueError):  # texts, dates
                    at = np.array([np.nan])
                if at.ndim != 1 or not np.isfinite(at).all():
                    raise FeatureError("x holds what is no finite number; expected values of the feature, (n,)")
            rows = np.tile(units.middle, (len(at) + 1, 1))
            rows[1:, f] = at
            columns = np.flatnonzero(units.owner == f)
            seen = units.columns(rows)[:, columns] / units.units[columns]
            told, weights, covariance = seen[1:] - seen[0], self._weights[columns], self._covariance()
            block = None if covariance is None else covariance[np.ix_(columns, columns)]
            absent = None
            if units.missing[f]:
                one = np.eye(len(columns))[-1:] / units.units[columns[-1]]  # its column is the last
                absent = float((one @ weights)[0]), float(deviation(one, block)[0])
            return Effect(at, told @ weights, deviation(told, block), float(reference), absent)

    def functions(self, seen: FloatArray) -> list[dict[str, Any]]:
        """`effect` of every feature as plain values, ready for JSON, the one that moves the score most first.

        ``seen`` (n, n_features) are documents: a function is told as far as they reach, with the values of some.
        """
        names = self.feature_names or [f"feature {number + 1}" for number in range(self.n_features)]
        told = [self._function(number, name, seen[:, number]) for number, name in enumerate(names)]
        return sorted(told, key=lambda function: min(function["value"]) - max(function["value"]))

    def _function(self, number: int, name: str, values: FloatArray) -> dict[str, Any]:
        known = np.sort(values[~np.isnan(values)])
        effect = self.effect(number)
        if len(known):
            effect = self.effect(number, np.union1d(effect.x, known[[0, -1]]))
        marks = known[np.linspace(0, len(known) - 1, min(MARKS, len(known))).astype(np.int64)]
        absent: dict[str, float | None] | None = None
        if effect.missing is not None:
            value, sd = effect.missing
            absent = {"value": value, "deviation": sd if np.isfinite(sd) else None}
        return {
            "name": name,
            "x": effect.x.tolist(),
            "value": effect.value.tolist(),
            "deviation": effect.sd.tolist() if np.isfinite(effect.sd).all() else None,
            "reference": effect.reference,
            "missing": absent,
            "documents": np.unique(marks).tolist(),
        }

    def explain(self, features: Features) -> Explanation:
        """What each feature adds to each document's score, and which neighbours' order is certain.

        >>> from pairrank import PairRank
        >>> PairRank(n_features=2).explain([[0.0, 1.0], [1.0, 0.0]]).certain
        array([False])
        """
        with self._turn:
            X = self.check_features(features)
            inputs, owners = self._units.inputs(X), (self._units.owner, self._units.partner)
            halves = [by_feature(inputs, 0.5 * self._weights, owner, self.n_features) for owner in owners]
            parts: FloatArray = halves[0] + halves[1]  # of a product each feature has one half
            scores = parts.sum(axis=1)
            looked = self.inspect(X)
        order = np.argsort(-scores, kind="stable") if looked is None else looked.order
        upper, lower = order[:-1], order[1:]
        return Explanation(
            contribution=parts,
            order=order,
            gap=scores[upper] - scores[lower],
            width=np.full(len(upper), np.nan) if looked is None else looked.width[upper, lower],
            certain=np.zeros(len(upper), dtype=np.bool_) if looked is None else looked.certain[upper, lower],
        )


def by_feature(inputs: FloatArray, weights: FloatArray, owner: IntArray, n_features: int) -> FloatArray:
    """(n, n_features): Σ of weight times input over the inputs that belong to each feature."""
    total = np.zeros((n_features, len(inputs)))
    np.add.at(total, owner, (inputs * weights).T)
    return total.T


def deviation(columns: FloatArray, covariance: FloatArray | None) -> FloatArray:
    """(n,), the standard deviation of columns·θ for ``columns`` (n, m) and θ's ``covariance`` (m, m)."""
    if covariance is None:
        return np.full(len(columns), np.nan)
    variance: FloatArray = np.einsum("ij,jk,ik->i", columns, covariance, columns)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))
