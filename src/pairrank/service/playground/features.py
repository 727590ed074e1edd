"""What the ranker sees of a document under a query: named, explained, and scaled within the query."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from pairrank.data.normalize import Normaliser
from pairrank.service.playground.documents import Document
from pairrank.service.playground.index import Index
from pairrank.service.playground.words import query_words
from pairrank.types import FloatArray, IntArray

# In the order of the columns. The explanations are shown beside the weights.
FEATURES: Mapping[str, str] = MappingProxyType(
    {
        "bm25 name": "BM25 of the query in the document's own name",
        "bm25 path": "BM25 in the full dotted name",
        "bm25 signature": "BM25 in the names and defaults of the arguments",
        "bm25 summary": "BM25 in the first sentence",
        "bm25 text": "BM25 in the whole docstring",
        "exact name": "the query, written together, is the document's name",
        "exact path": "the query, written together, is the full dotted name",
        "name starts": "the name starts with a word of the query",
        "words in name": "share of the query's words in the name",
        "words in path": "share of the query's words in the full dotted name",
        "words in summary": "share of the query's words in the first sentence",
        "words in text": "share of the query's words in the docstring",
        "early match": "how early in the docstring the first word of the query stands",
        "phrase": "neighbouring words of the query that are neighbours in the docstring",
        "text length": "words in the docstring, on a log scale",
        "name length": "characters in the name, on a log scale",
        "module popularity": "files of the standard library that import its module, on a log scale",
        "depth": "dots in the full name",
        "is module": "the document is a module",
        "is class": "the document is a class",
        "is method": "the document is a method",
        "private": "a part of its name starts with an underscore",
        "deprecated": "its docstring speaks of deprecation",
    }
)
NAMES = tuple(FEATURES)
_JOIN = re.compile(r"[^a-z0-9]")


class Features:
    """Turns a query and its candidates into numbers; what does not depend on the query is worked out once."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._names = [_JOIN.sub("", document.name.lower()) for document in index.documents]
        self._paths = [_JOIN.sub("", document.qualified.lower()) for document in index.documents]
        popularity = np.log1p(index.popularity)
        lengths = np.log1p([len(text) for text in index.texts])
        rest = np.array([_own_features(document) for document in index.documents], dtype=np.float64)
        self._own = np.column_stack([lengths, rest[:, 0], popularity, rest[:, 1:]])

    def __call__(self, query: str, candidates: IntArray) -> FloatArray:
        """(n_candidates, n_features), each column scaled to [0, 1] within the query; a constant one is 0."""
        terms, n_asked = self._index.lookup(query), max(len(query_words(query)), 1)
        scores, found = self._index.bm25(terms), self._index.matches(terms)
        columns = [
            *(scores[field][candidates] for field in ("name", "qualified", "signature", "summary", "text")),
            *self._name_columns(query, candidates),
            *(found[field][candidates] / n_asked for field in ("name", "qualified", "summary", "text")),
            *self._place_columns(terms, candidates),
        ]
        X = np.column_stack([*columns, self._own[candidates]])
        return Normaliser("query").apply(X).astype(np.float64)

    def _name_columns(self, query: str, candidates: IntArray) -> list[FloatArray]:
        joined, starts = _JOIN.sub("", query.lower()), tuple(query_words(query))
        names = [self._names[number] for number in candidates]
        exact_path = [self._paths[number] == joined for number in candidates]
        exact_name, prefix = [name == joined for name in names], [name.startswith(starts) for name in names]
        return [np.array(column, dtype=np.float64) for column in (exact_name, exact_path, prefix)]

    def _place_columns(self, terms: Sequence[int], candidates: IntArray) -> list[FloatArray]:
        """How early in the docstring the query begins, and how many of its neighbours stand together."""
        early, phrase = np.zeros(len(candidates)), np.zeros(len(candidates))
        for row, number in enumerate(candidates):
            text = self._index.texts[number]
            hits = [text == term for term in terms]
            first = [int(hit.argmax()) for hit in hits if hit.any()]
            early[row] = 1.0 / (1.0 + min(first)) if first else 0.0
            together = [(a[:-1] & b[1:]).any() for a, b in pairwise(hits)]
            phrase[row] = sum(together) / max(len(together), 1)
        return [early, phrase]


def _own_features(document: Document) -> list[float]:
    kinds = [float(document.kind == kind) for kind in ("module", "class", "method")]
    depth = float(document.qualified.count("."))
    own = [float(np.log1p(len(document.name))), depth, *kinds]
    return [*own, float(document.private), float(document.deprecated)]
