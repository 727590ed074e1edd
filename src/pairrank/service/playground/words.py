"""Text to words; identifiers are taken apart, so that "ordered" finds ``OrderedDict``."""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Za-z0-9]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_EMPTY = frozenset(
    ["a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "if", "in", "into", "is", "it", "its"]
).union(["of", "on", "or", "that", "the", "this", "to", "was", "which", "will", "with"])


def words(text: str) -> list[str]:
    """Lower-case words of ``text`` in order; a compound gives its parts and then itself."""
    found: list[str] = []
    for token in _WORD.findall(text):
        parts = [_fold(part) for part in _PART.findall(token)]
        found.extend(parts)
        if len(parts) > 1:
            found.append(_fold(token))
    return found


def query_words(text: str) -> list[str]:
    """The different words of a query, at most 12; those that say nothing count only when alone."""
    found = list(dict.fromkeys(words(text)))
    telling = [word for word in found if word not in _EMPTY]
    return (telling or found)[:12]


def _fold(token: str) -> str:
    """Lower case without the plural's s: crude, the same for queries and documents, and enough here."""
    word = token.lower()
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
