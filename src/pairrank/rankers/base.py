"""What all rankers share: checking, accounting, seeding, saving. An algorithm writes ``_rank`` and ``_learn``."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, astuple, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from pairrank import archive, notebook, threads
from pairrank.checking import check_positions, check_whole
from pairrank.documents import COUNTED, Columns, Features, Missing, clicked
from pairrank.errors import (
    ClickError,
    FeatureError,
    FileFormatError,
    ForeignImpressionError,
    LearningError,
    OptionError,
)
from pairrank.rankers.learned_set import LearnedSet
from pairrank.rankers.upgrade import from_0_1, shown_for_mirrored
from pairrank.rng import Purpose, check_seed, generator
from pairrank.state import Saved, Settings, checkpoint, restore, state_of
from pairrank.types import AnyArray, BoolArray, FloatArray, Id, Impression, IntArray

State = dict[str, Any]


class Draw(NamedTuple):
    """What ``_rank`` answers: the list, the block of each position, whether chance had a say, and what to remember.

    >>> Draw(ranking=np.array([2, 0]), blocks=np.array([0, 1]), explored=False, memory={}).ranking
    array([2, 0])
    """

    ranking: IntArray
    blocks: IntArray
    explored: bool
    memory: Mapping[str, AnyArray]


@dataclass(eq=False)
class Ranker(Saved, ABC):
    """An online ranker: ``rank`` shows a list, ``learn`` takes its clicks, in any order and at any time.

    A subclass is a keyword-only dataclass whose fields are its options. It writes `_reset` (check the options, make the
    initial state), `_rank`, `_learn` and `score`, and names in ``SAVED`` the attributes that learning replaces.

    One ranker may be used from several threads: `rank` and `learn` take turns.

    Parameters
    ----------
    n_features : width of a document's features; may be left out where ``feature_names`` tell.
    seed : with the impression's number, the key of all randomness.
    feature_names : what the features are called, for documents by name and for frames; saved with the ranker.
    missing : what a missing value means: a number, or "mean" of the list's other documents. None: it is refused.

    >>> @dataclass(eq=False, kw_only=True)
    ... class Shuffled(Ranker):
    ...     name = "shuffled"
    ...     def _reset(self): pass
    ...     def _learn(self, impression, clicks): pass
    ...     def score(self, features): return np.zeros(len(self.check_features(features)))
    ...     def _rank(self, inputs, k, rng):
    ...         return Draw(rng.permutation(len(inputs))[:k], np.zeros(k, dtype=np.int64), True, {})
    >>> Shuffled(n_features=1, seed=2).rank({"a": [0.2], "b": [0.7]}).ids
    ('a', 'b')
    """

    n_features: int = field(default=COUNTED)
    _: KW_ONLY
    seed: int = field(default=0)
    feature_names: Sequence[str] | None = field(default=None)
    missing: Missing = field(default=None)

    name: ClassVar[str]
    # Whether `_learn` needs nothing but what was shown and clicked, whoever drew the list: see `trials.shown`.
    any_list: ClassVar[bool] = False
    NO_SETTINGS: ClassVar[tuple[str, ...]] = ("n_features", "seed")

    def __post_init__(self) -> None:
        if not isinstance(getattr(self, "name", None), str):
            raise OptionError(
                f'{type(self).__name__} has no name; expected a line such as name: ClassVar[str] = "mine"'
            )
        for name, value in list(vars(self).items()):
            if isinstance(value, np.generic):  # files hold plain numbers
                setattr(self, name, value.item())
        self._columns = Columns.of(self.n_features, self.feature_names, self.missing)
        self.n_features, self.feature_names, self.missing = astuple(self._columns)
        self.seed = check_seed(self.seed)
        self._number = 0
        self._learned = LearnedSet()
        self._older: tuple[str, ...] = ()  # fingerprints of before an upgrade, whose impressions are still ours
        self._left_out = (0, 0)  # first lists, and lists of the history, to be read back before the next is learned
        self._newest: Impression | None = None  # what `rank` gave last, whose features it has checked
        self._turn = threads.turns.new()
        self._fill_in()
        self._reset()

    def _fill_in(self) -> None:
        """Give options that were left open the values that act; ``n_features`` is known here."""

    # The steps that an algorithm writes.

    @abstractmethod
    def _reset(self) -> None:
        """Check the options and make the state of a ranker that has seen nothing."""

    @abstractmethod
    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        """Draw the first ``k`` positions for ``inputs`` (n_docs, n_features); changes nothing."""

    @abstractmethod
    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        """Take the clicks of an impression that was checked; its features are inputs, as `_rank` sees them."""

    @abstractmethod
    def score(self, features: Features) -> FloatArray:
        """(n_docs,), higher is better."""

    def _inputs(self, X: FloatArray) -> FloatArray:
        """What `_rank` sees of the candidates' features X (n_docs, n_features)."""
        return X

    def _may_lack(self, ever: bool = False) -> BoolArray:
        """(n_features,), the features in which NaN is a value, or ``ever`` was one."""
        return np.zeros(self.n_features, dtype=np.bool_)

    def _remember(self, X: FloatArray) -> Mapping[str, AnyArray]:
        """What `learn` will need to know of all candidates X, beside what `_rank` remembers."""
        return {}

    def _take(self, impression: Impression, clicks: BoolArray) -> None:
        """`_learn`, from the features as they come."""
        self._learn(impression, clicks)

    def _state(self) -> State:
        """Arrays and JSON-able scalars by name: everything that learning has changed."""
        return state_of(self)

    def _restore(self, state: State) -> None:
        """Take over a state that `_state` gave."""
        restore(self, state)

    # What all of them share.

    def rank(
        self,
        features: Features,
        k: int | None = None,
        *,
        ids: Iterable[Id] | str | None = None,
        number: int | None = None,
        explore: bool = True,
        locked: int = 0,
    ) -> Impression:
        """Order the candidates, explore where the algorithm wants to, and say what was shown.

        Parameters
        ----------
        features : (n_docs, n_features), one row per candidate, in any units; or a mapping from ids to features, rows by
            feature name, a pandas or polars frame (see `pairrank.documents`).
        ids : the candidates' ids, or the name of the column that has them, where ``features`` does not tell.
        k : positions to show; None ranks them all; more than there are documents is the same as all.
        number : the impression's number; by default the next one. Ranking anew under an old number gives the old list.
        explore : False shows the documents by score alone; nothing is learned from such a list.
        locked : this many positions at the top are shown by score alone, and only the rest is learned from.
        """
        X, given_ids = self._columns.read(features, ids, self._may_lack())
        shown = len(X) if k is None else check_positions("k", k, 1, len(X))
        fixed = check_positions("locked", locked, 0, shown) if explore else shown
        with self._turn, threads.single():
            number = check_whole("number", self._number if number is None else number, 0, 2**63 - 1)
            draw = self._draw_numbered(X, shown, number) if fixed == 0 else self._draw_below(X, shown, fixed, number)
            self._number = max(self._number, number + 1)
        impression = self._newest = Impression.of(
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
            ids=None if given_ids is None else tuple(given_ids[row] for row in draw.ranking.tolist()),
        )
        return impression

    def rank_many(self, lists: Iterable[Features], k: int | None = None) -> list[Impression]:
        """`rank` for each of ``lists``, in their order, to the bit; one lock and one setting of threads for all.

        The model is the same for all of them. Where a list is wrong, those before it have been numbered, as one by one.

        >>> from pairrank import PairRank
        >>> [len(shown) for shown in PairRank(n_features=1).rank_many([[[0.2], [0.7]], [[0.4]]])]
        [2, 1]
        """
        if not isinstance(lists, Iterable):
            raise FeatureError(f"lists came as {type(lists).__name__}; expected the features of one list after another")
        with self._turn, threads.single():
            return [self.rank(features, k) for features in lists]

    def _draw_numbered(self, X: FloatArray, k: int, number: int) -> Draw:
        """`_rank` with the impression's own stream of random numbers."""
        draw = self._rank(self._inputs(X), k, self._stream(number))
        extra = self._remember(X)
        return draw._replace(memory={**draw.memory, **extra}) if extra else draw

    def _stream(self, number: int) -> np.random.Generator:
        return generator(self.seed, number, Purpose.RANK)

    def _draw_below(self, X: FloatArray, k: int, locked: int, number: int) -> Draw:
        """The ``locked`` best by score, then the algorithm's own order of the rest."""
        order = np.argsort(-self.score(X), kind="stable")
        top, rest = order[:locked], np.sort(order[locked:])
        blocks = np.arange(locked)
        if k == locked:
            return Draw(top, blocks, False, {})
        draw = self._draw_numbered(X[rest], k - locked, number)
        ranking = np.concatenate([top, rest[draw.ranking]])
        return draw._replace(ranking=ranking, blocks=np.concatenate([blocks, locked + draw.blocks]))

    def learn(self, impression: Impression, clicks: ArrayLike | Collection[Id]) -> bool:
        """Learn from the clicks on an impression of this ranker: one yes or no per shown position, or the ids clicked.

        Impressions may come in any order and at any time. One that was learned before is ignored: the answer is False
        and the state stays as it was. Anything wrong raises, and the state stays as it was.
        """
        self._check_impression(impression)
        checked = clicked(clicks, len(impression), impression.ids)
        with self._turn, threads.single():
            if impression.number in self._learned:
                return False
            if any(self._left_out):
                raise OptionError(f"{max(self._left_out)} lists were left out of this ranker: `recall` them first")
            tail, counted = impression.tail(), checked[impression.locked :]
            if np.count_nonzero(counted):
                self._take_or_leave(tail, counted)
            self._learned.add(impression.number)
            self._number = max(self._number, impression.number + 1)
        return True

    def learn_many(self, impressions: Iterable[Impression], clicks: Iterable[ArrayLike | Collection[Id]]) -> list[bool]:
        """`learn` for each of ``impressions`` with its ``clicks``, in their order, to the bit; see `rank_many`.

        All or nothing holds for each list, not for all together: where one raises, those before it have been learned.
        They are answered False when the call is made again without the wrong one.
        """
        if not isinstance(impressions, Iterable) or not isinstance(clicks, Iterable):
            raise ClickError(
                f"impressions came as {type(impressions).__name__}, clicks as {type(clicks).__name__}; expected "
                "several impressions, and the clicks of each"
            )
        shown, answers = list(impressions), list(clicks)
        if len(shown) != len(answers):
            raise ClickError(f"{len(shown)} impressions came with clicks for {len(answers)}; expected as many")
        with self._turn, threads.single():
            return [self.learn(impression, given) for impression, given in zip(shown, answers, strict=True)]

    def _take_or_leave(self, impression: Impression, clicks: BoolArray) -> None:
        """Learn, or raise and leave everything as it was."""
        take_back = checkpoint(self)
        try:
            self._take(impression, clicks)
            if not self._sound():
                raise FloatingPointError("the weights are not finite")
        except BaseException as problem:
            take_back()
            if isinstance(problem, ArithmeticError | np.linalg.LinAlgError):
                raise LearningError(f"impression {impression.number} cannot be learned: {problem}") from problem
            raise

    def _sound(self) -> bool:
        """Whether the state is one to go on with."""
        return True

    def check_features(self, features: Features, ids: Iterable[Id] | None = None) -> FloatArray:
        """``features`` as a finite float64 array (n_docs, n_features) with a row at least, or `FeatureError`.

        With ``ids`` its message names the document.
        """
        return self._columns.read(features, ids, self._may_lack()).features

    def _check_impression(self, impression: Impression) -> None:
        if not isinstance(impression, Impression):
            raise ForeignImpressionError(f"got {type(impression).__name__}; expected an Impression made by rank()")
        k = len(impression.ranking)
        if impression.features.shape != (k, self.n_features) or len(impression.blocks) != k:
            raise ForeignImpressionError(
                f"the impression's features have shape {impression.features.shape}; expected ({k}, {self.n_features})"
            )
        known = impression.ranker == self.fingerprint or impression.ranker in (self._as_given, *self._older)
        if not known or impression.seed != self.seed:
            raise ForeignImpressionError("the impression was made by another ranker (name, width, seed or options)")
        if impression is not self._newest:
            self._columns.check(impression.features, may_lack=self._may_lack(ever=True))

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits of name, width, seed and settings: rankers that agree in all share impressions."""
        settings = self.settings
        numbers = [f.name for f in fields(self) if "float" in str(f.type) and type(settings.get(f.name)) is int]
        return self._fingerprint_of(settings | {name: float(settings[name]) for name in numbers})

    @cached_property
    def _as_given(self) -> str:
        """The fingerprint of before 1 was 1.0, where a number is meant."""
        return self._fingerprint_of(self.settings)

    def _fingerprint_of(self, settings: Mapping[str, Any]) -> str:
        # Rankers of before there were additive ones keep their fingerprint.
        told = {name: value for name, value in settings.items() if (name, value) != ("model", "linear")}
        text = json.dumps([self.name, self.n_features, self.seed, told], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def settings(self) -> Settings:
        """Every option as it acts, without ``n_features`` and ``seed``: what files, stores and fingerprints hold."""
        acting = {f.name: getattr(self, f.name) for f in fields(self) if f.init and f.name not in self.NO_SETTINGS}
        # Only where they are given, so that rankers of before they existed keep their fingerprint.
        later = ("feature_names", "missing", "monotone", "interactions")
        return Settings({k: v for k, v in acting.items() if v is not None or k not in later})

    def _repr_html_(self) -> str:
        return notebook.ranker(self)

    def inspect(self, features: Features) -> Any:
        """What the model is certain of for these candidates, or None where the algorithm has no notion of it."""
        self.check_features(features)
        return None

    def block_sizes(self, features: Features) -> IntArray | None:
        """(n_blocks,), how many of these candidates each block would hold, best first; None where there are none."""
        inspection = self.inspect(features)
        return None if inspection is None else inspection.block_sizes

    @property
    def n_ranked(self) -> int:
        """The number that the next impression will get."""
        return self._number

    @property
    def state(self) -> State:
        """Arrays and scalars by name (copies): all that distinguishes this ranker from a new one."""
        with self._turn:
            own = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in self._state().items()}
            return own | {"number": self._number, "learned": self._learned.to_array()}

    # Saving.

    def to_bytes(self, *, history: bool = True) -> bytes:
        """The ranker whole, settings and state, as bytes that hold no pickle; equal rankers give equal bytes.

        ``history=False`` leaves out the lists that it keeps to make θ̂ exact again: what is left is small, ranks as the
        whole does, and learns on after `recall` has read those lists back from a log.
        """
        with self._turn:
            state, left_out = self._state(), self._left_out
            if not history and not any(left_out):
                state, left_out = self._without_lists(state)
            state |= {"number": self._number, "learned": self._learned.to_array()}
            arrays = {k: v for k, v in state.items() if isinstance(v, np.ndarray)}
            values = {
                "name": self.name,
                "n_features": self.n_features,
                "seed": self.seed,
                "settings": self.settings,
                "older": list(self._older),
                "left_out": list(left_out),
                "state": {k: v for k, v in state.items() if k not in arrays},
            }
            return archive.pack("ranker", values, arrays)

    def _without_lists(self, state: State) -> tuple[State, tuple[int, int]]:
        """The state without the lists that it keeps, and how many there were: first ones, and those of the history."""
        return state, (0, 0)

    def recall(self, entries: Iterable[tuple[Impression, ArrayLike]]) -> bool:
        """Read back the lists that ``to_bytes(history=False)`` left out; whether all of them were there.

        ``entries`` are impressions with their clicks as they were learned, newest first; only as many are taken as are
        needed, and those that this ranker has not learned are passed over. Where there are too few, what they taught
        stays as the quadratic model that it has become.
        """
        with self._turn, threads.single():
            found = not any(self._left_out) or self._read_back(self._known(entries), *self._left_out)
            self._left_out = (0, 0)
            return found

    def _known(self, entries: Iterable[tuple[Impression, ArrayLike]]) -> Iterable[tuple[Impression, BoolArray]]:
        for impression, clicks in entries:
            if self._learned.may_have(impression.number):
                counted = clicked(clicks, len(impression), impression.ids)[impression.locked :]
                if counted.any():
                    yield impression.tail(), counted

    def _read_back(self, entries: Iterable[tuple[Impression, BoolArray]], n_first: int, n_history: int) -> bool:
        """Take over the lists that `_without_lists` left out, newest first; whether all of them were there."""
        return True

    @classmethod
    def from_bytes(cls, blob: bytes, *, source: str = "these bytes") -> Self:
        """The ranker that `to_bytes` wrote; it continues exactly where it stopped."""
        values, arrays = archive.unpack(blob, "ranker", source=source)
        if values.get("name") != cls.name:
            raise FileFormatError(f"{source} holds the ranker {values.get('name')!r}; expected {cls.name!r}")
        try:
            if "settings" not in values:
                values, arrays = from_0_1(values, arrays)
            mirrored = values["settings"].get("pairs") == "mirrored"
            values = shown_for_mirrored(values) if mirrored else values
            ranker = cls(values["n_features"], seed=values["seed"], **values["settings"])
            state = {**values["state"], **arrays}
            ranker._number = int(state.pop("number"))
            ranker._learned = LearnedSet.from_array(state.pop("learned"))
            ranker._older = tuple(values["older"])
            n_first, n_history = map(int, values["left_out"])
            ranker._left_out = (n_first, n_history)
            ranker._restore(state)
            if mirrored:  # today's pairs of the lists left out are not those that it learned
                ranker.recall(())
        except (LookupError, TypeError, ValueError) as problem:
            raise FileFormatError(f"{source} is damaged: {problem}") from problem
        return ranker

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, atomically. `pairrank.load` reads it."""
        archive.write_atomically(path, archive.sealed(self.to_bytes()))

    def digest(self) -> str:
        """SHA-256 of `to_bytes` without the lists that are kept, which follow from the log: equal for equal models."""
        return hashlib.sha256(self.to_bytes(history=False)).hexdigest()

    def __reduce__(self) -> tuple[Callable[[bytes], Ranker], tuple[bytes]]:
        return type(self).from_bytes, (self.to_bytes(),)
