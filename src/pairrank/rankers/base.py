"""What all rankers share: checking, accounting, seeding, saving. An algorithm writes ``_rank`` and ``_learn``."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from pairrank import archive
from pairrank.checking import check_choice as check_choice
from pairrank.checking import check_number_in as check_number_in
from pairrank.errors import CutoffError, FeatureError, FileFormatError, ForeignImpressionError, OptionError
from pairrank.rankers.ledger import Ledger
from pairrank.rng import Purpose, check_seed, generator
from pairrank.types import AnyArray, BoolArray, FloatArray, Impression, IntArray, check_clicks

# Squares of features and of scores stay within float32, in which candidates are compared. Raw counts reach 1e8.
MAX_MAGNITUDE = 1e9
MAX_FEATURES = 100_000

State = dict[str, Any]


class Draw(NamedTuple):
    """What ``_rank`` answers: the list, the block of each position, whether chance had a say, and what to remember."""

    ranking: IntArray
    blocks: IntArray
    explored: bool
    memory: Mapping[str, AnyArray]


@dataclass(eq=False)
class Ranker(ABC):
    """An online ranker: ``rank`` shows a list, ``learn`` takes its clicks, in any order and at any time.

    A subclass is a keyword-only dataclass whose fields are its options, stored as given. It writes `_reset` (check the
    options, make the initial state), `_rank`, `_learn`, `score`, `_state` and `_restore`.
    """

    n_features: int
    _: KW_ONLY
    seed: int = field(default=0)

    name: ClassVar[str]

    def __post_init__(self) -> None:
        if isinstance(self.n_features, bool) or not isinstance(self.n_features, (int, np.integer)):
            raise OptionError(f"n_features is {self.n_features!r}; expected a whole number")
        if not 1 <= self.n_features <= MAX_FEATURES:
            raise OptionError(f"n_features is {self.n_features}; expected 1 to {MAX_FEATURES}")
        self.n_features = int(self.n_features)
        self.seed = check_seed(self.seed)
        self._number = 0
        self._learned = Ledger()
        self._reset()

    # The steps that an algorithm writes.

    @abstractmethod
    def _reset(self) -> None:
        """Check the options and make the state of a ranker that has seen nothing."""

    @abstractmethod
    def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        """Draw the first ``k`` positions for ``features`` (n_docs, n_features); changes nothing."""

    @abstractmethod
    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        """Take the clicks of an impression that was checked; ends with all of its work done or none."""

    @abstractmethod
    def score(self, features: ArrayLike) -> FloatArray:
        """(n_docs,), higher is better."""

    @abstractmethod
    def _state(self) -> State:
        """Arrays and JSON-able scalars by name: everything that learning has changed."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Take over a state that `_state` gave."""

    # What all of them share.

    def rank(
        self,
        features: ArrayLike,
        k: int | None = None,
        *,
        number: int | None = None,
        explore: bool = True,
        locked: int = 0,
    ) -> Impression:
        """Order the candidates, explore where the algorithm wants to, and say what was shown.

        Parameters
        ----------
        features : (n_docs, n_features), one row per candidate.
        k : positions to show; None ranks them all; more than there are documents is the same as all.
        number : the impression's number; by default the next one. Ranking anew under an old number gives the old list.
        explore : False shows the documents by score alone; nothing is learned from such a list.
        locked : this many positions at the top are shown by score alone, and only the rest is learned from.
        """
        X = self.check_features(features)
        shown = _check_positions("k", k, 1, len(X))
        fixed = _check_positions("locked", locked, 0, shown) if explore else shown
        number = self._number if number is None else _check_number(number)
        draw = self._draw_numbered(X, shown, number) if fixed == 0 else self._draw_below(X, shown, fixed, number)
        self._number = max(self._number, number + 1)
        return Impression(
            ranker=self.fingerprint,
            seed=self.seed,
            number=number,
            n_docs=len(X),
            features=X.take(draw.ranking, axis=0),
            ranking=draw.ranking,
            blocks=draw.blocks,
            explored=draw.explored,
            locked=fixed,
            memory=draw.memory,
        )

    def _draw_numbered(self, X: FloatArray, k: int, number: int) -> Draw:
        """`_rank` with the impression's own stream of random numbers."""
        return self._rank(X, k, generator(self.seed, number, Purpose.RANK))

    def _draw_below(self, X: FloatArray, k: int, locked: int, number: int) -> Draw:
        """The ``locked`` best by score, then the algorithm's own order of the rest."""
        order = np.argsort(-self.score(X), kind="stable")
        top, rest = order[:locked], np.sort(order[locked:])
        blocks = np.arange(locked)
        if k == locked:
            return Draw(top, blocks, False, {})
        draw = self._draw_numbered(X[rest], k - locked, number)
        return Draw(
            np.concatenate([top, rest[draw.ranking]]),
            np.concatenate([blocks, locked + draw.blocks]),
            draw.explored,
            draw.memory,
        )

    def learn(self, impression: Impression, clicks: ArrayLike) -> bool:
        """Learn from the clicks (one yes or no per shown position) on an impression of this ranker.

        Impressions may come in any order and at any time. One that was learned before is ignored: the answer is False
        and the state stays as it was. Anything wrong raises, and the state stays as it was.
        """
        self._check_impression(impression)
        checked = check_clicks(clicks, len(impression))
        if impression.number in self._learned:
            return False
        tail = impression.tail()
        if len(tail) > 0:
            self._learn(tail, checked[impression.locked :])
        self._learned.add(impression.number)
        self._number = max(self._number, impression.number + 1)
        return True

    def check_features(self, features: ArrayLike) -> FloatArray:
        """``features`` as a finite float64 array (n_docs, n_features) with a row at least, or `FeatureError`."""
        try:
            X = np.asarray(features, dtype=np.float64)
        except (TypeError, ValueError):
            raise FeatureError("features are not numbers in rows of equal length; expected a 2-D array") from None
        if X.ndim != 2:
            raise FeatureError(f"features have shape {X.shape}; expected 2-D, (n_docs, {self.n_features})")
        if X.shape[1] != self.n_features:
            raise FeatureError(f"features have {X.shape[1]} columns; this ranker was made for {self.n_features}")
        if len(X) == 0:
            raise FeatureError("features have no rows; expected one document at least")
        # One pass answers nearly always: no value is beyond the root of the sum of squares, and NaN compares false.
        if np.vdot(X, X) <= MAX_MAGNITUDE**2:
            return X
        if not (X.max() <= MAX_MAGNITUDE and X.min() >= -MAX_MAGNITUDE):
            raise FeatureError(f"features hold NaN, infinity or values beyond {MAX_MAGNITUDE:g}; clean them first")
        return X

    def _check_impression(self, impression: Impression) -> None:
        if not isinstance(impression, Impression):
            raise ForeignImpressionError(f"got {type(impression).__name__}; expected an Impression made by rank()")
        k = len(impression.ranking)
        if impression.features.shape != (k, self.n_features) or len(impression.blocks) != k:
            raise ForeignImpressionError(
                f"the impression's features have shape {impression.features.shape}; expected ({k}, {self.n_features})"
            )
        if impression.ranker != self.fingerprint or impression.seed != self.seed:
            raise ForeignImpressionError("the impression was made by another ranker (name, width, seed or options)")
        self.check_features(impression.features)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits of name, width, seed and options: rankers that agree in all share impressions."""
        text = json.dumps([self.name, self.n_features, self.seed, self.options()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def options(self) -> dict[str, Any]:
        """The options as given, without ``n_features`` and ``seed``."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("n_features", "seed")}

    def inspect(self, features: ArrayLike) -> Any:
        """What the model is certain of for these candidates, or None where the algorithm has no notion of it."""
        self.check_features(features)
        return None

    @property
    def n_ranked(self) -> int:
        """The number that the next impression will get."""
        return self._number

    @property
    def state(self) -> State:
        """Arrays and scalars by name (copies): all that distinguishes this ranker from a new one."""
        own = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in self._state().items()}
        return own | {"number": self._number, "learned": self._learned.to_array()}

    def to_bytes(self) -> bytes:
        """The ranker whole, options and state, as bytes that hold no pickle; equal rankers give equal bytes."""
        state = self.state
        arrays = {k: v for k, v in state.items() if isinstance(v, np.ndarray)}
        scalars = {k: v for k, v in state.items() if k not in arrays}
        values = {
            "name": self.name,
            "n_features": self.n_features,
            "seed": self.seed,
            "options": self.options(),
            "state": scalars,
        }
        return archive.pack("ranker", values, arrays)

    @classmethod
    def from_bytes(cls, blob: bytes, *, source: str = "these bytes") -> Self:
        """The ranker that `to_bytes` wrote; it continues exactly where it stopped."""
        values, arrays = archive.unpack(blob, "ranker", source=source)
        if values.get("name") != cls.name:
            raise FileFormatError(f"{source} holds the ranker {values.get('name')!r}; expected {cls.name!r}")
        try:
            ranker = cls(values["n_features"], seed=values["seed"], **values["options"])
            state = {**values["state"], **arrays}
            ranker._number = int(state.pop("number"))
            ranker._learned = Ledger.from_array(state.pop("learned"))
            ranker._restore(state)
        except (KeyError, TypeError, ValueError) as problem:
            raise FileFormatError(f"{source} is damaged: {problem}") from problem
        return ranker

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, atomically. `pairrank.load` reads it."""
        archive.write_atomically(path, self.to_bytes())

    def digest(self) -> str:
        """SHA-256 of `to_bytes`: equal for rankers that will behave alike from here on."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


@dataclass(eq=False, kw_only=True)
class LinearRanker(Ranker):
    """A ranker that scores by one weight vector: score(x) = x·θ."""

    def _reset(self) -> None:
        self._weights = np.zeros(self.n_features)

    @property
    def weights(self) -> FloatArray:
        """(n_features,), a copy of θ."""
        return self._weights.copy()

    def score(self, features: ArrayLike) -> FloatArray:
        """(n_docs,), X·θ."""
        scores: FloatArray = self.check_features(features) @ self._weights
        return scores

    def _state(self) -> State:
        return {"weights": self._weights}

    def _restore(self, state: State) -> None:
        self._weights = restored(state, "weights", (self.n_features,))


def restored(state: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> AnyArray:
    """A writable copy of ``state[name]``, which must have ``shape``."""
    array = np.array(state[name])
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    return array


def _check_positions(name: str, value: int | None, low: int, high: int) -> int:
    if value is None:
        return high
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise CutoffError(f"{name} is {value!r}; expected a whole number of positions, {low} or more")
    return min(int(value), high)


def _check_number(number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not 0 <= number < 2**63:
        raise OptionError(f"number is {number!r}; expected a whole number from 0 to 2**63 - 1")
    return int(number)
