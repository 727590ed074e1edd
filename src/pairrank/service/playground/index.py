"""An inverted index with BM25 over five fields, in numpy, kept on disk without pickle."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairrank import archive
from pairrank.errors import FileFormatError, StorageError
from pairrank.service.playground.documents import Document, collect, source_files
from pairrank.service.playground.words import query_words, words
from pairrank.types import AnyArray, FloatArray, IntArray

# What the BM25 of a field counts for when the candidates are gathered; ranking them is the learner's work.
FIELDS = {"name": 2.0, "qualified": 1.0, "signature": 0.5, "summary": 1.5, "text": 1.0}
_K1, _B = 1.2, 0.75  # the customary constants of BM25
_MAX_WORDS = 400  # of a docstring; the rest neither helps nor hurts
_VERSION = 1


@dataclass(frozen=True, eq=False, slots=True)
class Postings:
    """One field: term t has the documents ``docs[starts[t]:starts[t + 1]]``, with their BM25 ``parts``."""

    starts: IntArray
    docs: IntArray
    parts: FloatArray

    def scores(self, terms: Sequence[int], n_docs: int) -> FloatArray:
        """(n_docs,), the sum over ``terms`` of each document's BM25 part."""
        total = np.zeros(n_docs)
        for term in terms:
            place = slice(self.starts[term], self.starts[term + 1])
            total[self.docs[place]] += self.parts[place]  # a document stands once in a term's list
        return total

    def matches(self, terms: Sequence[int], n_docs: int) -> IntArray:
        """(n_docs,), how many of ``terms`` each document has in this field."""
        total = np.zeros(n_docs, dtype=np.int64)
        for term in terms:
            total[self.docs[self.starts[term] : self.starts[term + 1]]] += 1
        return total


@dataclass(frozen=True, eq=False, slots=True)
class Index:
    """Documents, their words and how popular their modules are.

    Attributes
    ----------
    documents : in the order of their qualified names.
    popularity : (n,), in how many files of the standard library the document's module is imported.
    terms : number of each word.
    fields : postings by field.
    texts, text_starts : the words of each docstring in order, as term numbers, one after another.
    """

    documents: Sequence[Document]
    popularity: IntArray
    terms: Mapping[str, int]
    fields: Mapping[str, Postings]
    texts: IntArray
    text_starts: IntArray

    def lookup(self, query: str) -> list[int]:
        """Term numbers of the query's words that occur anywhere."""
        return [self.terms[word] for word in query_words(query) if word in self.terms]

    def text(self, document: int) -> IntArray:
        """The docstring's words as term numbers, in order."""
        return self.texts[self.text_starts[document] : self.text_starts[document + 1]]

    def bm25(self, terms: Sequence[int]) -> dict[str, FloatArray]:
        """(n,) by field."""
        return {name: field.scores(terms, len(self.documents)) for name, field in self.fields.items()}

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
    texts = tokens["text"]
    return Index(
        documents=documents,
        popularity=np.array([imports.get(d.module, 0) for d in documents], dtype=np.int64),
        terms=terms,
        fields={name: _postings(lists, len(terms)) for name, lists in tokens.items()},
        texts=np.array([term for text in texts for term in text], dtype=np.int64),
        text_starts=np.cumsum([0, *map(len, texts)]),
    )


def _postings(lists: Sequence[Sequence[int]], n_terms: int) -> Postings:
    """BM25 parts: idf(t) · tf (k1 + 1) / (tf + k1 (1 - b + b · length / mean length))."""
    rows = [(term, doc, tf) for doc, found in enumerate(lists) for term, tf in Counter(found).items()]
    table = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)
    lengths = np.array([len(found) for found in lists], dtype=np.float64)
    frequency = np.bincount(table[:, 0], minlength=n_terms)
    idf = np.log1p((len(lists) - frequency + 0.5) / (frequency + 0.5))
    tf = table[:, 2].astype(np.float64)
    damping = _K1 * (1 - _B + _B * lengths[table[:, 1]] / (lengths.mean() or 1.0))
    return Postings(
        starts=np.concatenate([[0], np.cumsum(frequency)]).astype(np.int64),
        docs=table[:, 1].copy(),
        parts=idf[table[:, 0]] * tf * (_K1 + 1) / (tf + damping),
    )


def to_bytes(index: Index) -> bytes:
    """The index whole, as bytes that hold no pickle."""
    rows = [[d.name, d.qualified, d.module, d.kind, d.signature, d.text] for d in index.documents]
    arrays: dict[str, AnyArray] = {
        "documents": np.frombuffer(json.dumps(rows).encode(), dtype=np.uint8),
        "terms": np.frombuffer(json.dumps(list(index.terms)).encode(), dtype=np.uint8),
        "popularity": index.popularity,
        "texts": index.texts.astype(np.int32),
        "text_starts": index.text_starts.astype(np.int64),
    }
    for name, field in index.fields.items():
        arrays[f"{name}.starts"] = field.starts
        arrays[f"{name}.docs"] = field.docs.astype(np.int32)
        arrays[f"{name}.parts"] = field.parts
    return archive.pack("search index", {"version": _VERSION, "python": sys.version}, arrays)


def from_bytes(blob: bytes, source: str = "these bytes") -> Index:
    """The index that `to_bytes` wrote on this Python; `FileFormatError` for any other."""
    values, arrays = archive.unpack(blob, "search index", source=source)
    if (values.get("version"), values.get("python")) != (_VERSION, sys.version):
        raise FileFormatError(f"{source} was made for another version of Python or PairRank")
    try:
        terms = json.loads(arrays["terms"].tobytes())
        return Index(
            documents=[Document(*row) for row in json.loads(arrays["documents"].tobytes())],
            popularity=arrays["popularity"],
            terms={term: number for number, term in enumerate(terms)},
            fields={
                name: Postings(arrays[f"{name}.starts"], arrays[f"{name}.docs"], arrays[f"{name}.parts"])
                for name in FIELDS
            },
            texts=arrays["texts"],
            text_starts=arrays["text_starts"],
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise FileFormatError(f"{source} is damaged: {problem}") from None


def open_index(cache: Path, progress: Callable[[int, int], object] = lambda done, total: None) -> Index:
    """The index kept in the folder ``cache``, or a new one (some seconds), kept there when the disk allows.

    ``progress(done, total)`` is called as files are read.
    """
    path = cache / "standard-library.index"
    try:
        return from_bytes(archive.read_file(path), str(path))
    except (FileFormatError, StorageError):  # absent, of another Python, or damaged: build it
        pass
    files = source_files()
    steps = iter(range(1, len(files) + 1))
    index = build(*collect(files, tick=lambda: progress(next(steps), len(files))))
    try:
        cache.mkdir(parents=True, exist_ok=True)
        archive.write_atomically(path, to_bytes(index))
    except (OSError, StorageError):  # a search without a cache is slow to start, and works
        pass
    return index
