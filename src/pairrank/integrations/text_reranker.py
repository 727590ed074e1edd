"""Re-ranking texts by what was cited, opened or thumbed up: all that the adapters share.

A list comes in with the order of a first stage, goes out re-ranked under an impression id, and what was of use comes
back with that id. A new re-ranker keeps the order that came in, as far as it is certain; from there it learns.
"""

from __future__ import annotations

import asyncio
import math
import os
import zlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pairrank import archive, rankers
from pairrank.checking import check_whole
from pairrank.client import Client, ServiceError
from pairrank.errors import ExpiredImpressionError, FileFormatError, InputError, UnknownNameError
from pairrank.features.text import OPTIONS, STRENGTH, TRUST, Document, TextFeatures
from pairrank.kernel.relevance import falling
from pairrank.rankers import priors
from pairrank.types import AnyArray, FloatArray, Impression
from pairrank.upstream import Upstream, scores_of

# The keys under which a document carries its way back to the list that it was shown in.
IMPRESSION, ROW = "impression_id", "impression_row"


@dataclass(frozen=True, slots=True)
class Reranked:
    """A list as it shall be used: row numbers of the documents as they came, best first, with the model's scores.

    >>> Reranked("7-0", order=(2, 0), scores=(0.9, 0.1)).marks()[0]
    {'impression_id': '7-0', 'impression_row': 2}
    """

    impression_id: str
    order: tuple[int, ...]
    scores: tuple[float, ...]

    @property
    def relevance(self) -> tuple[float, ...]:
        """A number in (0, 1) per shown document that falls along the list: what sorts by score keeps the order."""
        return tuple(falling(self.scores).tolist())

    def marks(self) -> list[dict[str, Any]]:
        """For each shown document the two entries that its metadata must carry for `Reranker.feedback_on`."""
        return [{IMPRESSION: self.impression_id, ROW: row} for row in self.order]


class Reranker(ABC):
    """Texts in, order out, feedback by impression id; where the model lives is for a subclass to say.

    >>> reranker: Reranker = TextReranker()
    >>> shown = reranker.rerank("tea", ["a cup of coffee", "green tea"])
    >>> reranker.feedback_on(shown.marks()[:1])  # the marks of what was of use
    1
    """

    def __init__(self, features: TextFeatures | None = None, *, upstream: Upstream | None = None) -> None:
        self.features = features or TextFeatures()
        self.upstream = upstream

    @abstractmethod
    def _rank(self, X: FloatArray, k: int | None) -> Reranked: ...

    @abstractmethod
    def feedback(self, impression_id: str, useful: Iterable[int]) -> bool:
        """Learn which rows (numbers of the documents as they came) were of use; False where it was known before."""

    def rerank(
        self, query: str, documents: Sequence[Document], *, scores: ArrayLike | None = None, top_n: int | None = None
    ) -> Reranked:
        """Order ``documents``, which come as the first stage had them, and keep the best ``top_n``.

        Parameters
        ----------
        documents : texts, or mappings with ``text`` and metadata.
        scores : (n_docs,), those of the first stage, higher is better; NaN where a document has none.
        """
        upstream = scores_of(self.upstream, query, documents)
        return self._rank(self.features(query, documents, scores=scores, upstream=upstream), top_n)

    def feedback_on(self, marked: Iterable[Mapping[str, Any]]) -> int:
        """Learn from the metadata of documents that were of use, of any number of lists; how many lists were new."""
        useful: dict[str, list[int]] = {}
        for marks in marked:
            try:
                name, row = marks[IMPRESSION], float(marks[ROW])
            except (KeyError, TypeError, ValueError):
                name, row = None, math.nan
            if not isinstance(name, str) or not row.is_integer():  # frames make None, NaN and 2.0 of what they merge
                raise InputError(f"a document carries no {IMPRESSION}; expected one that this re-ranker has returned")
            useful.setdefault(name, []).append(int(row))
        new, problems = 0, []
        for impression_id, rows in useful.items():
            try:
                new += self.feedback(impression_id, rows)
            except (InputError, ServiceError) as problem:  # of this list: the others are learned all the same
                problems.append(problem)
        if problems:
            raise problems[0]
        return new

    async def arerank(
        self, query: str, documents: Sequence[Document], *, scores: ArrayLike | None = None, top_n: int | None = None
    ) -> Reranked:
        """`rerank` in a thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.rerank, query, documents, scores=scores, top_n=top_n)

    async def afeedback(self, impression_id: str, useful: Iterable[int]) -> bool:
        """`feedback` in a thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.feedback, impression_id, _rows(useful))

    async def afeedback_on(self, marked: Iterable[Mapping[str, Any]]) -> int:
        """`feedback_on` in a thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.feedback_on, list(marked))


class TextReranker(Reranker):
    """A re-ranker that learns in this process; any number of threads may use it.

    >>> reranker = TextReranker()
    >>> shown = reranker.rerank("tea", ["coffee is hot", "green tea", "tea pots"], top_n=2)
    >>> reranker.feedback(shown.impression_id, [shown.order[0]])
    True

    Parameters
    ----------
    features : the extractor. upstream : another re-ranker, whose score becomes a feature.
    strength : how many pairs of feedback the order that comes in is worth.
    trust : the weight of that order at the start: the log-odds that the first document is better than a distant one.
    explore : False shows documents by score alone, and learns nothing.
    seed : of the ranker. options : further options of `pairrank.PairRank`; where people read the list from its top, and
        not a program all of it, {"pairs": "shown", "offsets": True} guards against the bias of positions.
    max_open : impressions that may wait for feedback at once; beyond it the oldest are dropped.
    """

    def __init__(
        self,
        features: TextFeatures | None = None,
        *,
        upstream: Upstream | None = None,
        strength: float = STRENGTH,
        trust: float = TRUST,
        explore: bool = True,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        max_open: int = 10_000,
    ) -> None:
        super().__init__(features, upstream=upstream)
        self.explore, self.max_open = explore, check_whole("max_open", max_open, 1)
        self.ranker = rankers.make(
            "pairrank", n_features=len(self.features.names), seed=seed, **{**OPTIONS, **(options or {})}
        )
        lam = priors.settings_of(self.ranker).lam
        priors.from_weights(self.features.start(trust), lam=lam, strength=strength).apply(self.ranker)
        self._open: OrderedDict[str, Impression] = OrderedDict()
        self._closed: OrderedDict[str, None] = OrderedDict()

    def _rank(self, X: FloatArray, k: int | None) -> Reranked:
        # The ranker's own lock, for which a fork waits: of one beside it the child might find a copy that is taken.
        with self.ranker._turn:
            impression = self.ranker.rank(X, k, explore=self.explore)
            scores = self.ranker.score(impression.features)
            # Another process, or this one before a restart, counts its lists from 0 too: the sum tells lists apart.
            seen = zlib.crc32(impression.features.tobytes() + impression.ranking.tobytes())
            name = f"{impression.ranker}-{impression.number}-{seen:08x}"
            _put(self._open, name, impression, self.max_open)
        return Reranked(name, tuple(impression.ranking.tolist()), tuple(scores.tolist()))

    def feedback(self, impression_id: str, useful: Iterable[int]) -> bool:
        """Learn which rows (numbers of the documents as they came) were of use; False where it was known before."""
        rows = _rows(useful)
        with self.ranker._turn:
            if impression_id in self._closed:
                return False
            impression = self._open.get(impression_id)
            if impression is None:
                raise self._gone(impression_id)
            shown = set(impression.ranking.tolist())
            # True and False are 1 and 0 to Python: a yes or no for each document would pass as row numbers.
            if strange := [row for row in rows if isinstance(row, bool | np.bool_) or row not in shown]:
                raise InputError(
                    f"row {min(strange, key=str)} was not in this list; expected row numbers that rerank returned"
                )
            self.ranker.learn(impression, [row in rows for row in impression.ranking.tolist()])
            del self._open[impression_id]
            _put(self._closed, impression_id, None, self.max_open)
        return True

    def _gone(self, impression_id: str) -> InputError:
        own, number, *_ = f"{impression_id}--".split("-")
        if own == self.ranker.fingerprint and number.isdecimal() and int(number) < self.ranker.n_ranked - self.max_open:
            return ExpiredImpressionError(f"this list is no longer open: the last {self.max_open} are kept")
        return UnknownNameError(f"no list of this re-ranker is called {str(impression_id)[:70]!r}")

    def __getstate__(self) -> dict[str, Any]:
        with self.ranker._turn:
            kept = {"ranker": copy(self.ranker), "_open": self._open.copy(), "_closed": self._closed.copy()}
            return vars(self) | kept

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model and all lists that wait for feedback to one file, atomically."""
        with self.ranker._turn:
            values = {
                "features": self.features.version,
                "numbers": self.features.numbers,
                "dates": self.features.dates,
                "explore": self.explore,
                "max_open": self.max_open,
            }
            bodies = [impression.to_bytes() for impression in self._open.values()]
            names = {"open.names": "\n".join(self._open).encode(), "closed.names": "\n".join(self._closed).encode()}
            blobs = {"ranker": self.ranker.to_bytes(), "open.bodies": b"".join(bodies), **names}
        arrays: dict[str, AnyArray] = {name: np.frombuffer(blob, dtype=np.uint8) for name, blob in blobs.items()}
        arrays["open.ends"] = np.cumsum([len(body) for body in bodies], dtype=np.int64)
        archive.write_atomically(path, archive.sealed(archive.pack("text re-ranker", values, arrays)))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, upstream: Upstream | None = None) -> Self:
        """The re-ranker that `save` wrote; it continues exactly where it stopped."""
        values, arrays = archive.unpack(archive.read_file(path), "text re-ranker", source=str(path))
        if values.get("features") != TextFeatures.version:
            raise FileFormatError(
                f"{path} learned from features {values.get('features')}; this PairRank makes {TextFeatures.version}"
            )
        try:
            features = TextFeatures(tuple(values["numbers"]), tuple(values["dates"]))
            loaded = cls(features, upstream=upstream, explore=values["explore"], max_open=values["max_open"])
            loaded.ranker = rankers.from_bytes(arrays["ranker"].tobytes(), source=str(path))
            if "open" in values:  # older files have an array for each list
                bodies = {name: arrays[f"open.{name}"].tobytes() for name in values["open"]}
                closed = values["closed"]
            else:
                names, closed = (arrays[f"{kind}.names"].tobytes().decode().split() for kind in ("open", "closed"))
                raw, ends = arrays["open.bodies"].tobytes(), arrays["open.ends"].tolist()
                bodies = {name: raw[start:end] for name, start, end in zip(names, [0, *ends], ends, strict=False)}
            loaded._open.update((name, Impression.from_bytes(body)) for name, body in bodies.items())
            loaded._closed.update(dict.fromkeys(closed))
        except (KeyError, TypeError) as problem:
            raise FileFormatError(f"{path} is damaged: {problem}") from None
        return loaded


class ServiceReranker(Reranker):
    """A re-ranker whose model lives in a service; it is created there if it is not there yet.

    >>> reranker = ServiceReranker("notes", "http://127.0.0.1:8000")
    >>> shown = reranker.rerank("tea", ["a cup of coffee", "green tea"], top_n=1)
    >>> reranker.feedback(shown.impression_id, shown.order)
    True
    >>> reranker.close()

    Parameters
    ----------
    name : the ranker in the service. client : a `pairrank.client.Client`, or the service's address.
    features : the extractor. upstream : another re-ranker, whose score becomes a feature.
    """

    def __init__(
        self,
        name: str,
        client: Client | str = "http://127.0.0.1:8000",
        *,
        features: TextFeatures | None = None,
        upstream: Upstream | None = None,
    ) -> None:
        super().__init__(features, upstream=upstream)
        self.name = name
        self.client = Client(client) if isinstance(client, str) else client
        names = self.features.names
        start = {"weights": self.features.start().tolist(), "strength": STRENGTH}
        self.client.create(name, len(names), options=OPTIONS, feature_names=names, start=start)

    def _rank(self, X: FloatArray, k: int | None) -> Reranked:
        shown = self.client.rank(self.name, {str(row): x for row, x in enumerate(X.tolist())}, k=k)
        rows = tuple(int(document.id) for document in shown.documents)
        return Reranked(shown.impression_id, rows, tuple(document.score for document in shown.documents))

    def feedback(self, impression_id: str, useful: Iterable[int]) -> bool:
        """Send which rows (numbers of the documents as they came) were of use; False where it was known before."""
        return self.client.feedback(self.name, impression_id, [str(row) for row in _rows(useful)]) == "accepted"

    def close(self) -> None:
        """Close its connections, those of all threads."""
        self.client.close()


def _rows(useful: Any) -> dict[int, None]:
    """Each row number once, in the order in which they came."""
    try:
        if isinstance(useful, str):  # of which every character would be one
            raise TypeError
        return dict.fromkeys(useful)
    except TypeError:
        raise InputError(f"useful is {useful!r}; expected row numbers that rerank returned, as in [2]") from None


def _put(kept: OrderedDict[str, Any], name: str, value: Any, most: int) -> None:
    kept[name] = value
    while len(kept) > most:
        kept.popitem(last=False)
