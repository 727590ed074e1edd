"""Rankers with one weight per input: what makes inputs of features, and learning anew when units change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import ClassVar

import numpy as np

from pairrank.checking import check_choice, check_whole
from pairrank.documents import Features
from pairrank.errors import NoWeightsError, OptionError
from pairrank.features.additive import Additive, filled
from pairrank.features.linear import Units
from pairrank.kernel import jit
from pairrank.rankers.base import State
from pairrank.rankers.effects import Explained
from pairrank.rankers.first_lists import FirstLists, packed, unpacked
from pairrank.rankers.monotone import constraints, projected
from pairrank.state import restore
from pairrank.types import AnyArray, BoolArray, FloatArray, Impression, IntArray


@dataclass(eq=False, kw_only=True)
class LinearRanker(Explained):
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
            if self.model != "additive" or self._stiff_at_first == 1.0 or self.monotone:
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
    def _stiff_at_first(self) -> float:
        """How stiff the functions of an additive model are when its pieces are fixed; see `features.additive`."""
        return 1.0

    @property
    def _sleeps(self) -> bool:
        """Whether functions that are lines cost no inputs."""
        return False

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

    def _inputs(self, X: FloatArray) -> FloatArray:
        return self._units.inputs(X)

    def _may_lack(self) -> BoolArray:
        return self._units.may_lack()

    def _remember(self, X: FloatArray) -> Mapping[str, AnyArray]:
        if self._units.settled or self._units.kind != "range":
            return {}
        return {"ranges": np.ptp(filled(X), axis=0)}

    def _take(self, impression: Impression, clicks: BoolArray) -> None:
        before, telling = self._units.settled, self._tells_units(impression)
        changed = telling and self._units.watch(impression.features, impression.memory.get("ranges"))
        if before:
            self._first = ()
        elif telling:  # others could be any number before units are settled
            self._first = (*self._first, (impression, clicks))
        if self._units.settled and not before:
            self._newest = None  # from here on NaN may be no value in a feature in which it was one
            products = self._products() if self.interactions else None
            lists = [shown.features for shown, _ in self._first]
            changed |= self._units.fix_pieces(lists, self._stiff_at_first, products, asleep=self._sleeps)
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

    def _products(self) -> IntArray | None:
        """(n, 2), the features whose products are to be asked about."""
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
        return bool(np.count_nonzero(np.isfinite(self._weights)) == len(self._weights))

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
