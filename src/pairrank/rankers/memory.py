"""PairRank with a memory: a line for every list, and what clicks told of the documents of lists that come again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import block_diag

from pairrank import threads
from pairrank.checking import check_lam, check_number_in, check_whole
from pairrank.documents import Features
from pairrank.estimator.mixed_effects import Known, MixedEffects
from pairrank.features import position
from pairrank.features.linear import FURTHEST
from pairrank.features.spread import STRENGTH
from pairrank.kernel import partition
from pairrank.kernel.confidence import inverse_of
from pairrank.kernel.pairs import shown
from pairrank.rankers.base import Draw, State
from pairrank.rankers.candidates import LazyPairs, show
from pairrank.rankers.linear import Explanation, LinearRanker
from pairrank.types import AnyArray, BoolArray, FloatArray, Impression, Inspection, IntArray


@dataclass(eq=False, kw_only=True)
class MemoryRank(LinearRanker):
    """PairRank for queries that come again and again: a document of a known list scores x·θ + b, with b ~ N(0, τ²).

    A line is only nearly true. Where the same list comes often, its clicks tell of its own documents what the line
    cannot say, and count no longer as ever more evidence for the line. τ² is learned: where the line is true it is
    small. Certain orders, blocks and exploration are PairRank's, by the posterior of θ, of β for the position and of
    all b; of a document that was never shown nothing is known of b.

    A list is known again by the features of all its candidates, to the last bit, in any order. Any other has the line
    alone. See `estimator.mixed_effects`.

    >>> ranker = MemoryRank(n_features=2, seed=0)
    >>> shown = ranker.rank({"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]})
    >>> ranker.learn(shown, clicks=["c"])
    True

    Parameters
    ----------
    z : standard deviations of a score difference beyond which an order is certain.
    lam : λ, the weight of ½‖θ‖², in the features' units; by default 3 per feature.
    remember : documents of known lists that are kept; beyond it the list that was learned from longest ago is
        forgotten, and what it told of the line stays.
    """

    name: ClassVar[str] = "pairrank-memory"
    any_list: ClassVar[bool] = True
    SAVED: ClassVar[tuple[str, ...]] = (*LinearRanker.SAVED, "_effects")

    z: float = 0.2
    lam: float | None = None
    remember: int = 10_000

    def _fill_in(self) -> None:
        self.lam = float(STRENGTH * self.n_features) if self.lam is None else self.lam

    def _reset(self) -> None:
        check_number_in("z", self.z, 0.0, 1e9)
        check_whole("remember", self.remember, 1, 10**7)
        super()._reset()
        precision = np.append(check_lam(self.lam) * self._units.precisions, position.PRECISION)
        self._effects = MixedEffects(precision, room=self.remember, furthest=FURTHEST)
        self._inverse: FloatArray | None = None  # of A, until the next `learn`

    @property
    def _unit_kind(self) -> str:
        return "spread"

    # Ranking. What a list is called depends on its candidates as they come, which `_rank` does not see.

    def _draw_numbered(self, X: FloatArray, k: int, number: int) -> Draw:
        names = names_of(X)
        draw = show(self._compare(X, names), k, self._stream(number), shuffled=False)
        return draw._replace(memory={**draw.memory, **_called(names)})

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        raise NotImplementedError("`_draw_numbered` does its work")

    def _remember(self, X: FloatArray) -> Mapping[str, AnyArray]:
        return _called(names_of(X))

    def _compare(self, X: FloatArray, names: AnyArray) -> Believed:
        """Which orders of the candidates X (n, n_features) of these ``names`` (n,) are certain.

        All that is known of their scores is that of a linear model of more columns: the inputs less VG, and one column
        for each document that has an effect.
        """
        effects, d = self._effects, self.n_inputs
        if self._inverse is None:
            self._inverse = inverse_of(effects.A)[0]
        known, places = self._found(names)
        here = places >= 0
        V, VG = known.effects()
        Z = np.zeros((len(X), d + 1 + len(V)))
        Z[:, :d] = self._inputs(X)
        Z[here, : d + 1] -= VG[places[here]]
        Z[here, d + 1 + places[here]] = 1.0
        weights = np.concatenate([self._weights, effects.phi[-1:], known.centre])
        own = np.where(here, 0.0, effects.variance)
        return Believed(Z, weights, block_diag(self._inverse, V), own, max(self.z, partition.TINY))

    def _found(self, names: AnyArray) -> tuple[Known, IntArray]:
        """What is known of the list of these ``names`` (n,), and each one's place in it (n,), -1 where never shown."""
        known = self._effects.lists.get(name_of(names), self._effects.unknown())
        places = {document: place for place, document in enumerate(known.documents.tolist())}
        return known, np.array([places.get(name, -1) for name in names.tolist()])

    def score(self, features: Features) -> FloatArray:
        """(n_docs,), X·θ, with what is known of the documents of a list that was learned from."""
        X = self.check_features(features)
        with self._turn, threads.single():
            known, places = self._found(names_of(X))
            scores, here = self._units.scores(X, self._weights), places >= 0
            scores[here] += (known.centre - known.effects()[1] @ self._effects.phi)[places[here]]
        return scores

    def inspect(self, features: Features) -> Inspection:
        """What the model is certain of for these candidates: scores, widths, certain pairs, blocks."""
        X, scores = self.check_features(features), self.score(features)
        with self._turn, threads.single():
            candidates = self._compare(X, names_of(X))
            certain, back = candidates.certain(), np.argsort(candidates.order)
            squared = np.maximum(candidates.squared_widths(), 0.0).astype(np.float64)[np.ix_(back, back)]
        return partition.inspected(scores, candidates.order, certain, self.z * np.sqrt(squared), "score", self.z)

    def explain(self, features: Features) -> Explanation:
        """What each feature adds to the line's part of each score; gaps and certain orders are those of the whole."""
        told, scores = super().explain(features), self.score(features)
        return replace(told, gap=-np.diff(scores[told.order]))

    def position_bias(self) -> tuple[float, float]:
        """β and its standard deviation: how much position favours the upper document, in log-odds per log of rank."""
        with self._turn, threads.single():
            return float(self._effects.phi[-1]), float(np.sqrt(inverse_of(self._effects.A)[0][-1, -1]))

    # Learning.

    def _seen(self, impression: Impression) -> Impression:
        return impression  # all documents of a list that is known must be counted from one, see `_learn`

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        found = shown(clicks)
        if not len(found.weight):
            return
        X, above = impression.features, impression.memory.get("above", 0)
        columns, units = position.column(np.arange(len(X)) + above), self._units
        name = int(impression.memory["list"][0])
        self._effects.learn(name, names_of(X), units.columns(X), units.units, found, columns)
        self._weights, self._inverse = self._effects.phi[:-1], None

    def _covariance(self) -> FloatArray:
        return inverse_of(self._effects.A)[0][:-1, :-1]

    def _sound(self) -> bool:
        return bool(np.isfinite(self._effects.phi).all())

    # State.

    def _state(self) -> State:
        return super()._state() | {f"lists.{name}": array for name, array in self._effects.packed().items()}

    def _restore(self, state: State) -> None:
        super()._restore(state)
        lists = {name.removeprefix("lists."): v for name, v in state.items() if name.startswith("lists.")}
        self._effects.unpack(lists)


class Believed(LazyPairs):
    """Candidates with inputs X (n, m) and a variance of their ``own`` (n,) beside that of the weights."""

    def __init__(self, X: FloatArray, weights: FloatArray, covariance: FloatArray, own: FloatArray, z: float) -> None:
        super().__init__(X, weights, covariance.astype(np.float32), partition.certain_by_score, z)
        self._own += own[self.order].astype(np.float32)

    def squared_widths(self) -> AnyArray:
        """(n, n), of all pairs in the order of scores."""
        squared = self._squared(slice(None), slice(None))
        squared.flat[:: len(squared) + 1] = 0.0
        return squared


def names_of(X: FloatArray) -> AnyArray:
    """(n,), a name of 64 bits for each document of X (n, d), by its features."""
    rows = X + 0.0  # of two zeros
    return np.array([_digest(row.tobytes()) for row in rows], dtype=np.uint64)


def _called(names: AnyArray) -> Mapping[str, AnyArray]:
    return {"list": np.array([name_of(names)], dtype=np.uint64)}


def name_of(names: AnyArray) -> int:
    """The name of a list whose documents have these ``names`` (n,), in whatever order."""
    return _digest(np.sort(names).tobytes())


def _digest(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
