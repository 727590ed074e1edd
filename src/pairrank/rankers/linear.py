"""Rankers with one weight per input: what makes inputs of features, learning anew when units change, and what the
model makes of each feature: its function with a band, and each document's score taken apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pairrank.checking import check_choice, check_whole, nearest
from pairrank.documents import Features, numbers
from pairrank.errors import FeatureError, NoWeightsError, OptionError, UnknownNameError
from pairrank.estimator.evidence import LINE
from pairrank.features.additive import Additive
from pairrank.features.linear import Units
from pairrank.features.spread import without_far
from pairrank.kernel import jit
from pairrank.kernel.gaps import filled
from pairrank.rankers.base import Ranker, State
from pairrank.rankers.first_lists import FirstLists, packed, unpacked
from pairrank.rankers.monotone import constraints, projected
from pairrank.state import restore
from pairrank.types import AnyArray, BoolArray, FloatArray, Impression, IntArray

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


@dataclass(eq=False, kw_only=True)
class LinearRanker(Ranker):
    """A ranker that scores by one weight vector: score(x) = φ(x)·θ.

    `_rank` and `_learn` see ``n_inputs`` inputs φ(x): with ``model`` "linear" the documents centred on their list, in
    units taken from the first lists (`features.linear`); with "additive" as many columns per feature as its own
    function has terms (`features.additive`). ``_weights`` are weights of those inputs.

    Parameters
    ----------
    model : "linear", or "additive": a function per feature, a line that bends where the evidence says so.
    monotone : features, by name or number, of which more may only raise (1) or lower (-1) the score: {"price": -1}.
    interactions : with model="additive", how many products of two features the evidence is asked about; those that a
        score test over the first lists finds largest. None: no products.

    >>> from pairrank import rankers
    >>> rankers.make("pdgd", n_features=2).weights
    array([0., 0.])
    """

    SAVED: ClassVar[tuple[str, ...]] = ("_weights", "_units")

    model: str = "linear"
    monotone: Mapping[str, int] | Mapping[int, int] | None = None
    interactions: int | None = None

    def _reset(self) -> None:
        jit.begin()
        told, names = self.monotone or {}, self.feature_names or ()
        if not isinstance(told, Mapping) or not all(sign in (1, -1) for sign in told.values()):
            raise OptionError(f"monotone is {told!r}; expected 1 or -1 for each feature")
        self._signs = {self.feature_number(f): int(sign) for f, sign in told.items()}
        if len(self._signs) < len(told):
            raise OptionError(f"monotone is {told!r}, which names a feature twice; expected each once")
        if self.monotone is not None:  # as files hold it: a number is told by name where its text is another's name
            self.monotone = {
                str(f) if self.feature_number(str(f)) == n else names[n]: sign
                for f, (n, sign) in zip(told, self._signs.items(), strict=True)
            }
        if self.interactions is not None:
            check_whole("interactions", self.interactions, 1, 1000)
            if self.model != "additive" or not self._bends or self.monotone:
                raise OptionError(
                    'interactions are for model="additive" in rankers that ask the evidence (pairrank, p2linrank, '
                    "posterior-sampling), and not beside monotone"
                )
        self._weights = np.zeros(self.n_inputs)
        # Lists learned while units may still change, to be learned anew in the units that they turn out to have.
        self._first: FirstLists = ()

    @cached_property
    def _units(self) -> Units:
        """What makes inputs of features; made once, and kept when the rest is reset."""
        check_choice("model", self.model, ("linear", "additive"))
        if self.model == "additive":
            return Additive(self.n_features, self._unit_kind, int(self.interactions or 0))
        return Units(self.n_features, self._unit_kind)

    @property
    def _unit_kind(self) -> str:
        """How units are measured; see `features.linear.Units`."""
        return "range"

    @property
    def _bends(self) -> bool:
        """Whether the functions of an additive model are as stiff as the evidence says, lines to begin with."""
        return False

    @property
    def _sleeps(self) -> bool:
        """Whether functions that are lines cost no inputs."""
        return self._bends

    @property
    def n_inputs(self) -> int:
        """How many columns `_rank` and `_learn` see: those of the features, or of an additive model's functions."""
        return self._units.n_inputs

    @property
    def weights(self) -> FloatArray:
        """(n_features,), θ in the features' own units; an additive model has none, see `effect`."""
        if self.model != "linear":
            raise NoWeightsError('a model="additive" has a function per feature, not a weight: see effect(feature)')
        with self._turn:
            return self._units.weights(self._weights)

    def score(self, features: Features) -> FloatArray:
        """(n_docs,), φ(X)·θ."""
        with self._turn:
            return self._units.scores(self.check_features(features), self._weights)

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

    def _covariance(self) -> FloatArray | None:
        """(n_inputs, n_inputs), of the weights of the inputs; None where the ranker knows none."""
        return None

    def _inputs(self, X: FloatArray) -> FloatArray:
        return self._units.inputs(X)

    def _may_lack(self, ever: bool = False) -> BoolArray:
        lacking = self._units.may_lack()
        return lacking | isinstance(self._units, Additive) if ever else lacking

    def _remember(self, X: FloatArray) -> Mapping[str, AnyArray]:
        if self._units.settled or self._units.kind != "range":
            return {}
        return {"ranges": np.ptp(filled(X), axis=0)}

    def _take(self, impression: Impression, clicks: BoolArray) -> None:
        before, telling = self._units.settled, self._tells_units(impression)
        earlier = ((shown.features, shown.memory.get("ranges")) for shown, _ in self._first)
        changed = telling and self._units.watch(impression.features, impression.memory.get("ranges"), earlier)
        if before:
            self._first = ()
        elif telling:  # others could be any number before units are settled
            self._first = (*self._first, (impression, clicks))
        if self._units.settled and not before and isinstance(self._units, Additive):
            lists = without_far([shown.features for shown, _ in self._first])
            products = self._products(lists) if self.interactions else None
            self._units.fix_pieces(lists, LINE if self._bends else 1.0, products, asleep=self._sleeps)
            changed = True
        if changed:
            self._learn_anew()
        else:
            self._learn(self._seen(impression), clicks)
        if self._units.settled:
            self._first = ()
        self._keep_monotone()

    @staticmethod
    def _tells_units(impression: Impression) -> bool:
        """Whether a list has more than one document to measure units by, shown or among its candidates."""
        ranges = impression.memory.get("ranges")
        return len(impression) > 1 or (ranges is not None and bool(ranges.any()))

    def _keep_monotone(self) -> None:
        if self._signs:
            self._weights = projected(self._weights, constraints(self._units, self._signs), self._covariance())

    def _products(self, lists: Sequence[FloatArray]) -> IntArray | None:
        """(n, 2), the features whose products are to be asked about, by the documents of the first ``lists``."""
        return None

    def _seen(self, impression: Impression) -> Impression:
        """The impression with inputs in place of features."""
        return impression.with_features(self._units.inputs(impression.features))

    def _learn_anew(self) -> None:
        """Learn the first lists again, in units that have changed."""
        first = self._first
        self._reset()
        self._first = first
        for impression, clicks in first:
            self._learn(self._seen(impression), clicks)

    def _sound(self) -> bool:
        return math.isfinite(self._weights.dot(self._weights))

    def _state(self) -> State:
        return super()._state() | packed(self._first)

    def _restore(self, state: State) -> None:
        restore(self._units, {k.removeprefix("units."): v for k, v in state.items() if k.startswith("units.")})
        self._reset()  # for as many inputs as the units make
        super()._restore(state)
        self._first = unpacked(state)

    def _without_lists(self, state: State) -> tuple[State, tuple[int, int]]:
        empty = {name: value[:0] for name, value in state.items() if name.startswith("first.")}
        return state | empty, (len(self._first), 0)

    def _read_back(self, entries: Iterable[tuple[Impression, BoolArray]], n_first: int, n_history: int) -> bool:
        telling = (entry for entry in entries if self._tells_units(entry[0]))
        first = list(islice(telling, n_first))[::-1]
        if len(first) == n_first:
            self._first = tuple(first)
        else:  # units can no longer change: what was learned in them cannot be learned anew
            self._units.fix(self._units.values)
        return len(first) == n_first


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
