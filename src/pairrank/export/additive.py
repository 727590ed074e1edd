"""An additive model as a value: a piecewise-linear function per feature, and the same as steps for tree engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from pairrank.errors import ExportError
from pairrank.export import strict_json
from pairrank.export.model import raw
from pairrank.features.additive import Additive
from pairrank.rankers.base import Ranker
from pairrank.rankers.linear import LinearRanker
from pairrank.types import FloatArray

FORMAT = "pairrank-additive"
VERSION = 1
LEAVES = 16384


class Steps(NamedTuple):
    """A function in steps: ``values`` (n,) below, between and above ``bounds`` (n - 1,), each step with its left end.

    ``missing`` is the value of a missing one, or None. Between the knots no step is further from the function than
    ``error``.
    """

    bounds: FloatArray
    values: FloatArray
    missing: float | None
    error: float


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """g(x): ``y`` (n,) at the knots ``x`` (n,), linear in between and with ``slope`` beyond, ``missing`` for NaN.

    ``few`` : the knots are all the values that the feature took.
    """

    x: FloatArray
    y: FloatArray
    slope: float
    missing: float | None = None
    few: bool = False

    def __call__(self, x: FloatArray) -> FloatArray:
        """(n,), g of some values (n,); NaN stays NaN where it has no value."""
        inside = np.clip(x, self.x[0], self.x[-1])
        values = np.interp(inside, self.x, self.y) + self.slope * (x - inside)
        return np.where(np.isnan(x), np.nan if self.missing is None else self.missing, values)

    def steps(self, rise: float) -> Steps:
        """Steps of at most ``rise`` each, one around every knot with the value there: exact where values are few."""
        if len(self.x) < 2:
            return Steps(np.empty(0), self.y, self.missing, 0.0)
        counts = np.maximum(np.ceil(np.abs(np.diff(self.y)) / rise), 1.0).astype(int)
        ends = [np.linspace(a, b, n + 1)[1:] for a, b, n in zip(self.x[:-1], self.x[1:], counts, strict=True)]
        at = np.concatenate([self.x[:1], *ends])
        heights = self(at)
        error = 0.5 * float(np.abs(np.diff(heights)).max())
        return Steps(0.5 * (at[1:] + at[:-1]), heights, self.missing, error)


class Product(NamedTuple):
    """weight · (x_f - m_f)(x_g - m_g): numbers and medians of two features, each taken within its outermost knots."""

    features: tuple[int, int]
    middles: tuple[float, float]
    weight: float


@dataclass(frozen=True, eq=False, slots=True)
class AdditiveModel:
    """score(x) = Σ_f g_f(x_f), and products of two features where there are any, with features as they come.

    >>> from pairrank import PairRank
    >>> AdditiveModel.from_ranker(PairRank(n_features=2, model="additive")).score([[1.0, 2.0]])
    array([0.])
    """

    name: str
    feature_names: tuple[str, ...]
    functions: tuple[Function, ...]
    products: tuple[Product, ...] = ()

    @classmethod
    def from_ranker(cls, ranker: Ranker, *, name: str = "pairrank", feature_names: Sequence[str] | None = None) -> Self:
        """The functions of a ranker with ``model="additive"``; features without names are called 1, 2, …."""
        if not isinstance(ranker, LinearRanker) or not isinstance(units := ranker._units, Additive):
            raise ExportError(f'a {type(ranker).__name__} of another kind came; expected one with model="additive"')
        names = feature_names or ranker.feature_names or [str(i + 1) for i in range(ranker.n_features)]
        if len(names) != ranker.n_features or len(set(names)) != len(names):
            raise ExportError(f"{len(names)} feature names came; expected {ranker.n_features}, all different")
        weights = ranker._weights / units.units
        slopes = weights[: ranker.n_features].copy()
        there = units.bends > 0.0
        np.subtract.at(
            slopes, np.nonzero(there)[1], weights[units.blocks()[: ranker.n_features].T[there]] * units.tilts[there]
        )
        functions = []
        for f in range(ranker.n_features):
            own = units.knots_of(f)
            told = ranker.effect(f, own if len(own) else [units.middle[f]])
            missing = None if told.missing is None else told.missing[0]
            functions.append(Function(told.x, told.value, float(slopes[f]), missing, bool(units.few[f])))
        there, end = units.product_units > 0.0, ranker.n_features + np.count_nonzero(units.bends)
        products = tuple(
            Product((f, g), (float(units.middle[f]), float(units.middle[g])), float(weight))
            for (f, g), weight in zip(units.products[there].tolist(), weights[end:], strict=False)
        )
        return cls(name, tuple(names), tuple(functions), products)

    @property
    def n_features(self) -> int:
        """How many features the model reads."""
        return len(self.functions)

    def score(self, features: ArrayLike) -> FloatArray:
        """(n_docs,), the scores of features (n_docs, d)."""
        X = raw(features, self.feature_names)
        scores: FloatArray = np.sum([function(x) for function, x in zip(self.functions, X.T, strict=True)], axis=0)
        for product in self.products:
            away = [self._away(X, f, middle) for f, middle in zip(product.features, product.middles, strict=True)]
            scores = scores + product.weight * away[0] * away[1]
        return scores

    def _away(self, X: FloatArray, feature: int, middle: float) -> FloatArray:
        """(n,), a feature within its outermost knots, less its median; 0 where it is missing."""
        x, ends = X[:, feature], self.functions[feature].x
        return np.asarray(np.clip(np.where(np.isnan(x), middle, x), ends[0], ends[-1]) - middle)

    def steps(self, leaves: int = LEAVES) -> tuple[Steps, ...]:
        """Every function in steps, about ``leaves`` in all, each as high as any other.

        Between the knots scores are within Σ_f error_f of the model's; beyond them a step stays where it is.
        """
        if self.products:
            raise ExportError("trees of one feature each cannot hold products of two; json and onnx can")
        for name, function in zip(self.feature_names, self.functions, strict=True):
            if len(function.x) < 2 and function.slope:  # units are still being measured, or it did not vary meanwhile
                raise ExportError(f"the function of {name!r} is a line without ends, which trees cannot hold; json can")
        spare = leaves - sum(len(f.x) for f in self.functions)
        if spare < 1:
            raise ExportError(f"{leaves} leaves came; this model needs {leaves - spare + 1} at least")
        rise = sum(float(np.abs(np.diff(f.y)).sum()) for f in self.functions) / spare  # of all that goes up and down
        return tuple(function.steps(max(rise, 1e-300)) for function in self.functions)


def largest_error(steps: Sequence[Steps]) -> float:
    """How far scores of steps can be from the model's, for documents between the knots."""
    return math.fsum(step.error for step in steps)


def check_resolution(model: AdditiveModel, most: float, told: str, *, steps: bool, slack: float = 0.0) -> None:
    """Raise where features in 32 bits, or with a slack, may move a score by more than ``most``.

    ``steps`` : functions go out in steps, of which few values need only be told apart.
    """
    lost = []
    for function in model.functions:
        moved = np.spacing(np.maximum(np.abs(function.x), slack).astype(np.float32)).astype(float)
        share = np.maximum(moved[1:], moved[:-1]) / np.diff(function.x)  # of a piece
        share = np.where(share < 0.5, 0.0, 1.0) if steps and function.few else np.minimum(share, 1.0)
        lost.append(float(np.max(share * np.abs(np.diff(function.y)), initial=0.0)))
    if math.fsum(lost) > most:
        raise ExportError(
            f"values of {model.feature_names[int(np.argmax(lost))]!r} lie closer together than {told}: give that "
            "feature in a unit in which they differ by more, or from another zero"
        )


def dumps(model: AdditiveModel) -> bytes:
    """The model as JSON text, nothing lost."""
    return strict_json.write(document(model))


def document(model: AdditiveModel) -> dict[str, Any]:
    features = []
    for name, function in zip(model.feature_names, model.functions, strict=True):
        missing = {} if function.missing is None else {"missing": function.missing}
        features.append(
            {"name": name, "x": function.x.tolist(), "y": function.y.tolist(), "slope": function.slope}
            | missing
            | ({"few": True} if function.few else {})
        )
    products = [{"features": p.features, "middles": p.middles, "weight": p.weight} for p in model.products]
    found = {"format": FORMAT, "version": VERSION, "name": model.name, "features": features}
    return found | ({"products": products} if products else {})


def loads(blob: bytes, *, source: str = "this model") -> AdditiveModel:
    content, features = strict_json.model(blob, FORMAT, VERSION, source)
    names, functions = [], []
    for feature in features:
        names.append(strict_json.entry(feature, "name", str, source))
        given = {key: strict_json.entry(feature, key, list, source) for key in ("x", "y")}
        x, y = (np.array([strict_json.number(v, f"{k} of {names[-1]!r}") for v in vs]) for k, vs in given.items())
        if len(x) == 0 or len(x) != len(y) or not (np.diff(x) > 0).all():
            raise ExportError(f"{source}: {names[-1]!r} has {len(x)} x and {len(y)} y; expected as many, x rising")
        missing = None if "missing" not in feature else strict_json.number(feature["missing"], "missing")
        slope = strict_json.number(feature.get("slope"), f"the slope of {names[-1]!r}")
        functions.append(Function(x, y, slope, missing, feature.get("few") is True))
    products = []
    for product in strict_json.entry({"products": [], **content}, "products", list, source):
        pair, middles = (strict_json.entry(product, key, list, source) for key in ("features", "middles"))
        known = all(type(f) is int and 0 <= f < len(functions) for f in pair)
        if not known or len(pair) != 2 or len(middles) != 2:
            raise ExportError(
                f"{source}: a product of the features {pair} with the middles {middles}; expected two of each, and "
                f"there are {len(functions)} features, from 0"
            )
        f, g = pair
        a, b = (strict_json.number(v, "a middle") for v in middles)
        products.append(Product((f, g), (a, b), strict_json.number(product.get("weight"), "the weight of a product")))
    name = strict_json.entry(content, "name", str, source)
    return AdditiveModel(name, tuple(names), tuple(functions), tuple(products))
