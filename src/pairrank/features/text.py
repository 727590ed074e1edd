"""Features of texts: a query and the documents that a first stage found for it, as numbers that a ranker can weigh.

An extractor is a value with a name and a version, ``text-1``: the same name always gives the same columns with the same
meaning, so that what was learned from yesterday's features holds for those of today. All columns lie within [0, 1] and
are made from the list alone: no model, no index, no clock.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from pairrank.checking import check_number_in, check_numbers
from pairrank.errors import FeatureError, InputError, OptionError
from pairrank.types import FloatArray

# Scripts that put no spaces between words (Thai, Lao, Burmese, Khmer, Japanese, Chinese): there every character counts
# as a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Vowel signs and points, parts of a word that are no letters to `re`: accents, Hebrew, Arabic, the scripts of India.
_MARKS = (
    "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0963\u0966-\u0dff"
)
_WORD = re.compile(rf"[^\W{_UNSPACED}]+(?:[{_MARKS}]+[^\W{_UNSPACED}]*)*|[{_UNSPACED}]")
# Where documents commonly say how old they are; the first that is there counts.
DATES = ("date", "updated_at", "updated", "last_modified", "modified", "published_at", "published", "created_at")
TEN_YEARS = 3652.5  # days

# How a ranker of texts starts: with the order that came in, at this weight, worth so many pairs of feedback. Worth 100,
# it is left within 50 questions of `examples/rag.py`, on whose corpus these were chosen; where it is the best there
# is, exploration costs 0.04 of recall@3 in the first hundred questions and 0.01 in the third.
TRUST, STRENGTH = 4.0, 100.0
# Whatever answers from a prompt reads all of it: there is no position bias to guard against.
OPTIONS: Mapping[str, Any] = MappingProxyType({"pairs": "averaged", "offsets": False})


@dataclass(frozen=True, slots=True)
class Passage:
    """One document as the extractor sees it: its text, and what else is known about it by name."""

    text: str
    metadata: Mapping[str, Any]


Document = str | Mapping[str, Any]


def passage(document: Document) -> Passage:
    """A text, or a mapping with ``text``; its ``metadata``, and whatever else it holds, is metadata.

    >>> passage({"text": "Paris", "title": "France", "metadata": {"views": 3}}).metadata
    {'title': 'France', 'views': 3}
    """
    if isinstance(document, str):
        return Passage(document, {})
    if not isinstance(document, Mapping):
        raise InputError(f"a document is {type(document).__name__}; expected a text or a mapping with 'text'")
    text, more = document.get("text"), document.get("metadata")
    if not isinstance(text, str):
        raise InputError("a document has no text; expected a string under 'text'")
    own = {name: value for name, value in document.items() if name not in ("text", "metadata")}
    return Passage(text, own | dict(more) if isinstance(more, Mapping) else own)


@dataclass(frozen=True)
class TextFeatures:
    """From a query and documents, in the order in which they came, to features of shape (n_docs, n_features).

    - ``first_rank``: 1/log₂(1 + rank) of the order that came in, rank from 1
    - ``first_score``: the score that came in, min-max over the list; 0 where none came
    - ``upstream``: the score of another re-ranker or of embeddings, min-max over the list; 0 where none is configured
    - ``bm25``: BM25 with the list as its collection, over the list's best
    - ``overlap``: Σ idf(t) over the query's words in the text, over the same sum for the whole query
    - ``phrase``: the share of the query's neighbouring words that are neighbours in the text
    - ``early``: overlap with each word weighted by 1 - (place of its first occurrence)/(length of the text)
    - ``title``: overlap with metadata's ``title``
    - ``length``: log(1 + words), over the list's longest
    - ``recency``: 1 for the newest of the list, falling with log(1 + days) to 0 for ten years older
    - ``number:x``: metadata's number ``x``: sign(x) log(1 + |x|), min-max over the list; for each of ``numbers``

    A value that one document lacks is the mean of the others': it speaks neither for nor against.

    >>> extract = TextFeatures()
    >>> X = extract("blue car", ["a red car", "a blue car"])
    >>> dict(zip(extract.names, X[1].round(2).tolist()))["overlap"]
    1.0

    Parameters
    ----------
    numbers : names of numbers in the documents' metadata (views, rating, price) that shall be features too.
    dates : where in the metadata a document's date stands (ISO text, seconds or a datetime); the first found counts.
    """

    numbers: tuple[str, ...] = ()
    dates: tuple[str, ...] = DATES

    def __post_init__(self) -> None:
        given: tuple[Any, ...] = (self.numbers, self.dates)
        for names in given:
            if isinstance(names, str):  # of which every letter would be a name
                raise OptionError(f"the names in the metadata are {names!r}; expected a tuple, as in ({names!r},)")

    version: ClassVar[str] = "text-1"
    K1: ClassVar[float] = 1.5
    B: ClassVar[float] = 0.75
    _NAMES: ClassVar[tuple[str, ...]] = (
        "first_rank",
        "first_score",
        "upstream",
        "bm25",
        "overlap",
        "phrase",
        "early",
        "title",
        "length",
        "recency",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """(n_features,), the columns' names."""
        return self._NAMES + tuple(f"number:{name}" for name in self.numbers)

    @classmethod
    def of(cls, names: Sequence[str]) -> Self | None:
        """The extractor whose columns have these names, or None: a new version has other names."""
        extract = cls(tuple(name.removeprefix("number:") for name in names[len(cls._NAMES) :]))
        return extract if extract.names == tuple(names) else None

    def start(self, trust: float = TRUST) -> FloatArray:
        """(n_features,), weights that keep the order that came in."""
        weights = np.zeros(len(self.names))
        weights[0] = check_number_in("trust", trust, -1e6, 1e6)
        return weights

    def __call__(
        self,
        query: str,
        documents: Sequence[Document],
        *,
        scores: ArrayLike | None = None,
        upstream: ArrayLike | None = None,
    ) -> FloatArray:
        """Features (n_docs, n_features) of ``documents`` in the order in which they came.

        Parameters
        ----------
        scores : (n_docs,), those of the first stage, higher is better; NaN where a document has none.
        upstream : (n_docs,), those of another re-ranker; NaN where a document has none.
        """
        if not isinstance(query, str):
            raise InputError(f"the query is {type(query).__name__}; expected a text")
        # Of a text every character would be a document, of a mapping every key, of a frame every column's name.
        one = isinstance(documents, (str, Mapping)) or hasattr(documents, "columns")
        if one or not isinstance(documents, Iterable):
            raise InputError(f"documents are one {type(documents).__name__}; expected a list of them")
        passages = [passage(document) for document in documents]
        n = len(passages)
        if n == 0:
            raise FeatureError("there are no documents; expected one at least")
        texts, asked = [words(p.text) for p in passages], words(query)
        terms = list(dict.fromkeys(asked))
        counts = [Counter(text) for text in texts]
        occurs = np.array([[count[term] for term in terms] for count in counts], dtype=np.float64).reshape(n, -1)
        idf = inverse_frequency(occurs)
        lengths = np.array([len(text) for text in texts], dtype=np.float64)
        early = np.array([_early(terms, text) for text in texts])
        titles = [set(words(_title(p.metadata))) for p in passages]
        in_title = np.array([[term in title for term in terms] for title in titles], dtype=np.float64)
        neighbours = set(pairwise(asked))
        columns = [
            1.0 / np.log2(2.0 + np.arange(n)),
            _min_max(_column("scores", scores, n)),
            _min_max(_column("upstream", upstream, n)),
            _of_best(bm25(occurs, lengths, idf, k1=self.K1, b=self.B)),
            _share(occurs > 0, idf),
            np.array([len(neighbours & set(pairwise(text))) / max(len(neighbours), 1) for text in texts]),
            _share(early.reshape(n, -1), idf),
            _share(in_title.reshape(n, -1), idf),
            _of_best(np.log1p(lengths)),
            _recency(np.array([_seconds(p.metadata, self.dates) for p in passages])),
        ]
        for name in self.numbers:
            given = np.array([_number(p.metadata.get(name)) for p in passages])
            columns.append(_min_max(np.sign(given) * np.log1p(np.abs(given))))
        return np.column_stack(columns)


def words(text: str) -> list[str]:
    """The words of a text in one spelling: case and width folded, punctuation dropped.

    >>> words("Zürich's LAKE, 湖")
    ['zürich', 's', 'lake', '湖']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _is_gap(value: Any) -> bool:
    """Whether a value is None or, as frames write that, NaN, NaT or NA."""
    nan = isinstance(value, (float, np.floating, datetime)) and value != value
    return value is None or bool(nan) or type(value).__name__ == "NAType"


def _title(metadata: Mapping[str, Any]) -> str:
    """The title as a text; none where there is none."""
    title = metadata.get("title")
    return "" if _is_gap(title) else str(title)


def _early(terms: list[str], text: list[str]) -> list[float]:
    """For each term 1 - (place of its first occurrence)/(length of the text), 0 where it does not occur."""
    place: dict[str, int] = {}
    for at, word in enumerate(text):
        place.setdefault(word, at)
    return [1.0 - place[term] / len(text) if term in place else 0.0 for term in terms]


def inverse_frequency(occurs: FloatArray) -> FloatArray:
    """(n_terms,): log(1 + (n - f + ½)/(f + ½)) with f the documents that have the term; ``occurs`` (n, n_terms)."""
    n, found = len(occurs), (occurs > 0).sum(axis=0)
    result: FloatArray = np.log1p((n - found + 0.5) / (found + 0.5))
    return result


def bm25(occurs: FloatArray, lengths: FloatArray, idf: FloatArray, *, k1: float, b: float) -> FloatArray:
    """(n,): Σ_t idf(t)·f/(f + k1(1 - b + b·length/mean length)), f = ``occurs`` (n, n_terms), as Lucene has it.

    A list to re-rank is its own small collection, made anew for every query, and the counts are there for the other
    columns: this sum adds 0.02 ms. A library indexes every word first: bm25s, which gives the same numbers, takes
    5.5 ms for 50 texts of 100 words, as long as all features together, and a base install would need it.
    """
    scale = k1 * (1.0 - b + b * lengths / max(float(lengths.mean()), 1.0))
    return (occurs / (occurs + scale[:, None])) @ idf


def _share(weight: ArrayLike, idf: FloatArray) -> FloatArray:
    total = float(idf.sum())
    return np.asarray(weight, dtype=np.float64) @ idf / (total if total > 0 else 1.0)


def _of_best(values: FloatArray) -> FloatArray:
    best = float(values.max())
    return values / best if best > 0 else values


def _column(name: str, values: ArrayLike | None, n: int) -> FloatArray:
    if values is None:
        return np.full(n, np.nan)
    column = check_numbers(name, values, FeatureError)
    if column.shape != (n,):
        raise FeatureError(f"{name} have shape {column.shape}; expected one per document, ({n},)")
    if np.isinf(column).any():
        raise FeatureError(f"{name} hold infinity; expected numbers, NaN where a document has none")
    return column


def _min_max(values: FloatArray) -> FloatArray:
    """To [0, 1] over the list; what is missing becomes the mean, and a list that has or tells nothing 0."""
    known = np.isfinite(values)
    if not known.any():
        return np.zeros(len(values))
    low, high = float(values[known].min()), float(values[known].max())
    # In halves, so that the range of numbers near the largest does not overflow.
    spread = high / 2 - low / 2
    scaled = (values / 2 - low / 2) / spread if spread > 0 else np.zeros(len(values))
    return np.where(known, scaled, scaled[known].mean())


def _recency(seconds: FloatArray) -> FloatArray:
    known = np.isfinite(seconds)
    if not known.any():
        return np.zeros(len(seconds))
    days = (seconds[known].max() - np.where(known, seconds, seconds[known].max())) / 86_400.0
    value: FloatArray = 1.0 - np.minimum(np.log1p(days) / math.log1p(TEN_YEARS), 1.0)
    return np.where(known, value, value[known].mean())


def _number(value: Any) -> float:
    """``value`` as a finite number, or NaN: metadata is whatever people keep there."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal, np.integer, np.floating)):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _seconds(metadata: Mapping[str, Any], names: tuple[str, ...]) -> float:
    """A document's date in seconds since 1970, or NaN."""
    found = next((metadata[name] for name in names if not _is_gap(metadata.get(name))), None)
    try:
        if isinstance(found, str) and (len(found) == 8 or math.isnan(_number(found))):  # 20260501 is ISO, too
            found = datetime.fromisoformat(found)
        if isinstance(found, datetime):
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except ValueError:  # no date
        return math.nan
    if isinstance(found, date):
        return datetime(found.year, found.month, found.day, tzinfo=UTC).timestamp()
    number = _number(found)
    if 1000 <= number < 3000:  # a year
        return (number - 1970.0) * 365.2425 * 86_400.0
    # So large a number of seconds would be a day after the year 5000: it counts thousandths.
    number = number / 1000.0 if number > 1e11 else number
    return number if abs(number) <= 1e12 else math.nan
