"""An inverted index with BM25 over five fields, in numpy, of documents kept in the cache of `pairrank.data`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from scipy.sparse import csr_array

from pairrank.data import cache
from pairrank.service.playground.documents import Document, collect, source_files
from pairrank.service.playground.words import query_words, words
from pairrank.types import FloatArray, IntArray

# What the BM25 of a field counts for when the candidates are gathered; ranking them is the learner's work.
FIELDS = {"name": 2.0, "qualified": 1.0, "signature": 0.5, "summary": 1.5, "text": 1.0}
_K1, _B = 1.2, 0.75  # the customary constants of BM25
_MAX_WORDS = 400  # of a docstring; the rest neither helps nor hurts
_VERSION = 3


@dataclass(frozen=True, eq=False, slots=True)
class Index:
    """Documents, their words and how popular their modules are.

    documents : in the order of their qualified names.
    popularity : (n,), in how many files of the standard library the document's module is imported.
    terms : number of each word.
    fields : by field, what each term adds to each document's BM25, a sparse (n_terms, n).
    texts : the words of each docstring in order, as term numbers.
    """

    documents: Sequence[Document]
    popularity: IntArray
    terms: Mapping[str, int]
    fields: Mapping[str, csr_array]
    texts: Sequence[IntArray]

    def lookup(self, query: str) -> list[int]:
        """Term numbers of the query's words that occur anywhere."""
        return [self.terms[word] for word in query_words(query) if word in self.terms]

    def bm25(self, terms: Sequence[int]) -> dict[str, FloatArray]:
        """(n,) by field."""
        return {name: self._summed(name, terms, parts.data) for name, parts in self.fields.items()}

    def matches(self, terms: Sequence[int]) -> dict[str, FloatArray]:
        """(n,) by field, how many of ``terms`` each document has there."""
        return {name: self._summed(name, terms, np.broadcast_to(1.0, parts.nnz)) for name, parts in self.fields.items()}

    def _summed(self, field: str, terms: Sequence[int], values: FloatArray) -> FloatArray:
        """(n,), the sum of the rows ``terms`` of a field's sparse parts, with ``values`` in their places."""
        parts, total = self.fields[field], np.zeros(len(self.documents))
        for term in terms:
            row = slice(*parts.indptr[term : term + 2])
            total[parts.indices[row]] += values[row]  # a document stands once in a row
        return total

    def gather(self, query: str, limit: int) -> IntArray:
        """The ``limit`` documents with the best weighted BM25, best first; fewer when fewer match."""
        total = sum((FIELDS[name] * scores for name, scores in self.bm25(self.lookup(query)).items()))
        scores = np.asarray(total, dtype=np.float64)
        best = np.argsort(-scores, kind="stable")[:limit]
        return best[scores[best] > 0].astype(np.int64)


def build(documents: Sequence[Document], imports: Mapping[str, int]) -> Index:
    """An index of ``documents``; ``imports`` counts the files that import a module."""
    terms: dict[str, int] = {}
    tokens = {
        name: [[terms.setdefault(w, len(terms)) for w in words(getattr(d, name))[:_MAX_WORDS]] for d in documents]
        for name in FIELDS
    }
    return Index(
        documents=documents,
        popularity=np.array([imports.get(d.module, 0) for d in documents], dtype=np.int64),
        terms=terms,
        fields={name: _parts(lists, len(terms)) for name, lists in tokens.items()},
        texts=[np.array(found, dtype=np.int32) for found in tokens["text"]],
    )


def _parts(lists: Sequence[Sequence[int]], n_terms: int) -> csr_array:
    """(n_terms, n_docs): idf(t) · tf (k1 + 1) / (tf + k1 (1 - b + b · length / mean length))."""
    lengths = np.array([len(found) for found in lists])
    place = [term for found in lists for term in found], np.repeat(np.arange(len(lists)), lengths)
    parts = csr_array((np.ones(len(place[0])), place), shape=(n_terms, len(lists)))  # what comes twice counts as 2
    frequency, tf = np.diff(parts.indptr), parts.data
    idf = np.log1p((len(lists) - frequency + 0.5) / (frequency + 0.5))
    damping = _K1 * (1 - _B + _B * lengths[parts.indices] / (lengths.mean() or 1.0))
    parts.data = np.repeat(idf, frequency) * tf * (_K1 + 1) / (tf + damping)
    return parts


def open_index(progress: Callable[[int, int], object] = lambda done, total: None) -> Index:
    """The index of this Python, of documents from the cache, or read now (some seconds) and kept there when the disk
    allows.

    ``progress(done, total)`` is called as files are read.
    """
    name = cache.key(kind="search index", version=_VERSION, python=sys.version)
    if entry := cache.get(name):
        return build([Document(*row) for row in entry[0]["documents"]], entry[0]["imports"])
    files = source_files()
    steps = iter(range(1, len(files) + 1))
    documents, imports = collect(files, tick=lambda: progress(next(steps), len(files)))
    cache.put(name, {"documents": [astuple(document) for document in documents], "imports": imports}, {})
    return build(documents, imports)
