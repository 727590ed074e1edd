"""The values that pass between the parts: what was shown, and what a model is certain of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from pairrank import archive, notebook
from pairrank.errors import ClickError, FileFormatError

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]
Id = str | int  # of a document
_ARRAYS = ("features", "ranking", "blocks")  # of an impression


@dataclass(frozen=True, eq=False)
class Impression:
    """One list as it was shown: immutable, and all that ``learn`` needs to know besides the clicks.

    Attributes
    ----------
    ranker : fingerprint of the ranker that made it (its name, width, seed and options).
    seed, number : the ranker's seed and the impression's number; together the key of its random draws.
    n_docs : how many candidates there were.
    features : (k, n_features), the shown documents' features in shown order.
    ranking : (k,), row numbers of the candidates' features, best first, as shown.
    blocks : (k,), which block each shown position came from, 0 first.
    explored : whether chance had a say in what was shown.
    locked : this many positions at the top were shown by score alone, by request; nothing is learned from them.
    memory : what the algorithm must remember (teams, propensities, ...), by name.
    ids : (k,), the shown documents' ids in shown order, where the candidates had any.

    >>> from pairrank import PairRank
    >>> shown = PairRank(n_features=1).rank({"a": [0.2], "b": [0.7]}, k=1)
    >>> shown
    Impression(number=0, ids=('a',), blocks=[0], shown=1 of 2)
    >>> Impression.from_bytes(shown.to_bytes()).ids
    ('a',)
    """

    ranker: str
    seed: int
    number: int
    n_docs: int
    features: FloatArray
    ranking: IntArray
    blocks: IntArray
    explored: bool = True
    locked: int = 0
    memory: Mapping[str, AnyArray] = field(default_factory=dict)
    ids: tuple[Id, ...] | None = None

    def __post_init__(self) -> None:
        for array in (self.features, self.ranking, self.blocks, *self.memory.values()):
            array.setflags(write=False)
        ids = None if self.ids is None else tuple(self.ids)
        vars(self).update(memory=MappingProxyType(dict(self.memory)), ids=ids)

    @classmethod
    def of(cls, **values: Any) -> Impression:
        """An impression with ``values`` for all fields, in a third of the time of one by its fields' order.

        >>> from pairrank import PairRank
        >>> shown = PairRank(n_features=1).rank([[0.2]])
        >>> Impression.of(**vars(shown)).n_docs
        1
        """
        made = object.__new__(cls)
        vars(made).update(values)
        made.__post_init__()
        return made

    def __len__(self) -> int:
        return len(self.ranking)

    def __repr__(self) -> str:
        shown = f"ranking={self.ranking.tolist()}" if self.ids is None else f"ids={self.ids}"
        how = "" if self.explored else ", explored=False"
        blocks = self.blocks.tolist()
        return f"Impression(number={self.number}, {shown}, blocks={blocks}{how}, shown={len(self)} of {self.n_docs})"

    def _repr_html_(self) -> str:
        return notebook.impression(self)

    def __getstate__(self) -> bytes:
        return self.to_bytes()

    def __setstate__(self, blob: bytes) -> None:
        vars(self).update(vars(Impression.from_bytes(blob)))

    def with_features(self, features: FloatArray, **memory: AnyArray) -> Impression:
        """The same impression of other ``features`` (k, any width), which become read-only.

        ``memory`` is what it remembers beside what it did.
        """
        features.setflags(write=False)
        return self._but(features=features, memory={**self.memory, **memory} if memory else self.memory)

    def tail(self) -> Impression:
        """The part below the locked positions as an impression of its own, without ids: what is learned from.

        Its memory has how many positions are ``above`` it, where there are any.
        """
        if not self.locked and self.ids is None:
            return self
        cut = slice(self.locked, None)
        features, ranking, blocks = self.features[cut], self.ranking[cut], self.blocks[cut]
        above = self.memory.get("above", 0) + self.locked  # more where this is a later page
        memory = {**self.memory, "above": np.array(above)} if self.locked else self.memory
        return self._but(features=features, ranking=ranking, blocks=blocks, locked=0, memory=memory, ids=None)

    def _but(self, **changes: object) -> Impression:
        """`dataclasses.replace`, in a tenth of its time: what comes in is as `__post_init__` leaves it."""
        other = object.__new__(Impression)
        vars(other).update(vars(self) | changes)
        return other

    def to_bytes(self) -> bytes:
        """Everything, as bytes that hold no pickle."""
        values = {name: value for name, value in vars(self).items() if name not in (*_ARRAYS, "memory", "ids")}
        if self.ids is not None:
            values["ids"] = self.ids
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return archive.pack("impression", values, arrays | {f"memory.{k}": v for k, v in self.memory.items()})

    @classmethod
    def from_bytes(cls, blob: bytes) -> Impression:
        """The impression that `to_bytes` wrote."""
        values, arrays = archive.unpack(blob, "impression", source="this impression")
        memory = {name.removeprefix("memory."): a for name, a in arrays.items() if name.startswith("memory.")}
        try:
            return cls(**values | {name: arrays[name] for name in _ARRAYS}, memory=memory)
        except (KeyError, TypeError) as problem:
            raise FileFormatError(f"this impression is damaged: {problem}") from None


def check_clicks(clicks: ArrayLike, n_shown: int) -> BoolArray:
    """Clicks as a bool array of length ``n_shown``; 0 and 1 are accepted, anything else raises `ClickError`."""
    array = np.asarray(clicks)
    if array.ndim != 1 or len(array) != n_shown:
        raise ClickError(f"clicks have shape {array.shape}; expected one per shown position, ({n_shown},)")
    if array.dtype != np.bool_:
        if array.dtype.kind not in "iuf":
            raise ClickError(f"clicks have type {array.dtype}; expected bool (or 0 and 1)")
        if not np.isin(array, (0, 1)).all():
            raise ClickError("clicks hold values other than 0 and 1; expected one yes or no per shown position")
    return array.astype(np.bool_)


@dataclass(frozen=True, eq=False, slots=True)
class Inspection:
    """Which orders a model keeps for one set of candidates, and which it leaves open.

    Attributes
    ----------
    scores : (n,), higher is better.
    order : (n,), row numbers by falling score; ties by row number.
    probability : (n, n), P(i before j) = sigmoid(score_i - score_j).
    width : (n, n), half the confidence interval of each pair, in the unit named by ``unit``.
    certain : (n, n) bool, certain[i, j] when i is kept before j (after ``refine``, where that is on). How sure that is,
        `chance` tells.
    blocks : (n,), for each document the number of its block, 0 is best.
    unit : "probability" (the paper) or "score" (Laplace posterior).
    z : how many standard deviations of the score difference ``width`` is, where the model knows them; else None.

    >>> from pairrank import PairRank
    >>> PairRank(n_features=1).inspect([[0.2], [0.7], [0.4]])
    Inspection(scores=[0.0, 0.0, 0.0], order=[0, 1, 2], block_sizes=[3], unit='score')
    """

    scores: FloatArray
    order: IntArray
    probability: FloatArray
    width: FloatArray
    certain: BoolArray
    blocks: IntArray
    unit: str
    z: float | None = None

    def __repr__(self) -> str:
        scores, order, sizes = self.scores.round(3).tolist(), self.order.tolist(), self.block_sizes.tolist()
        return f"Inspection(scores={scores}, order={order}, block_sizes={sizes}, unit={self.unit!r})"

    def _repr_html_(self) -> str:
        from pairrank import drawing  # when a notebook asks: it reads XML and a style sheet

        return drawing.blocks(drawing.Panel(self))

    @property
    def chance(self) -> FloatArray | None:
        """(n, n), the model's own chance that i belongs before j: Φ((score_i − score_j) / σ_ij), σ = width / z.

        None where the model knows no standard deviations. It is what the model believes, not what was measured.
        """
        if not self.z:
            return None
        gap = np.subtract.outer(self.scores, self.scores)
        with np.errstate(divide="ignore", invalid="ignore"):
            told: FloatArray = ndtr(np.where(gap == 0.0, 0.0, self.z * gap / self.width))
        return told

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return int(self.blocks.max()) + 1

    @property
    def block_sizes(self) -> IntArray:
        """(n_blocks,), documents in each block, best block first."""
        return np.bincount(self.blocks).astype(np.int64)
