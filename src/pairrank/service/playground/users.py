"""Simulated users of the playground: each wants one document and asks with a few of its own words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pairrank.rng import Purpose, generator
from pairrank.service.playground.index import Index
from pairrank.service.playground.words import query_words
from pairrank.types import IntArray

GRADES = 3  # 2 the document itself, 1 one that would nearly do, 0 any other
_LIKE = 0.5  # documents whose summaries share this many of their words would nearly do
_TRIES = 50


@dataclass(frozen=True, eq=False, slots=True)
class Need:
    """One search: who is looked for (a document's number), the query, the candidates and their grades."""

    document: int
    query: str
    candidates: IntArray
    grades: IntArray


def need(index: Index, seed: int, number: int, n_candidates: int) -> Need:
    """Search number ``number`` of the users with ``seed``: a function of the two, whatever was searched before.

    A document is picked at random; the query is one or two words of its name and one or two of its first
    sentence. A query that does not bring the document among the candidates is given up for a new need.
    """
    rng = generator(seed, number, Purpose.QUERIES)
    for _ in range(_TRIES):
        wanted = int(rng.integers(len(index.documents)))
        document = index.documents[wanted]
        if document.private or document.deprecated:
            continue
        drawn = _draw(query_words(document.name), rng, 2) + _draw(query_words(document.summary), rng, 2)
        query = " ".join(dict.fromkeys(drawn))
        candidates = index.gather(query, n_candidates)
        if wanted in candidates and len(candidates) > 1:
            return Need(wanted, query, candidates, grades(index, wanted, candidates))
    # Fifty misses in a row do not happen with real documentation; a tiny index still gets an answer.
    candidates = np.arange(min(len(index.documents), n_candidates))
    return Need(0, index.documents[0].name, candidates, grades(index, 0, candidates))


def grades(index: Index, wanted: int, candidates: IntArray) -> IntArray:
    """(n_candidates,): 2 for the wanted document, 1 for namesakes and those with a like summary, else 0."""
    target = index.documents[wanted]
    summary = set(query_words(target.summary))
    found = []
    for number in candidates:
        other = index.documents[number]
        words = set(query_words(other.summary))
        alike = bool(summary) and len(summary & words) >= _LIKE * len(summary | words)
        nearly = other.name == target.name or alike
        found.append(2 if number == wanted else int(nearly))
    return np.array(found, dtype=np.int64)


def _draw(words: Sequence[str], rng: np.random.Generator, most: int) -> list[str]:
    """One to ``most`` of ``words``, in their own order."""
    if not words:
        return []
    count = min(int(rng.integers(1, most + 1)), len(words))
    return [words[i] for i in np.sort(rng.choice(len(words), size=count, replace=False))]
