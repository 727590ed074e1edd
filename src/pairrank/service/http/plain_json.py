"""The JSON that nearly every client sends, read in half the time where simdjson is installed (`pairrank[fast]`).

That is an object with documents, each of an id and a list of numbers, and perhaps k and some ids. simdjson copies the
numbers into an array without making a Python object of each. Whatever is not exactly this is left to the strict
reader, which also says what is wrong with it.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from pairrank.types import FloatArray

_PARSER: Any = None  # it keeps its memory from one body to the next
with suppress(ImportError):  # not with the first request: clients may have taken all the files that a process may open
    _PARSER = import_module("simdjson").Parser()

_KEYS = ("documents", "k", "query_id", "client_id", "page_of", "explain")


# What stands beside the documents, by name, and their ids, all as they came; and their features.
Request = tuple[dict[str, Any], list[Any], FloatArray]


def read(body: bytes, n_features: int) -> Request | None:
    """A request of the usual kind, or None for the strict reader to look at it."""
    if _PARSER is None or body[:1] != b"{":  # simdjson would read past a byte order mark
        return None
    try:
        return _read(_PARSER, body, n_features)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError):  # not what it seemed to be
        return None


def _read(parser: Any, body: bytes, n_features: int) -> Request | None:
    request = parser.parse(body)
    given = [key for key in _KEYS if key in request]
    documents = request["documents"]
    n_docs = len(documents)
    # simdjson flattens lists in lists and takes the first of two equal keys. Counting tells that there are none.
    if len(request) != len(given) or n_docs < 1 or body.count(b"[") != n_docs + 1:
        return None
    ids, rows = [], []
    for document in documents:
        features = document["features"]
        if len(document) != 2 or len(features) != n_features:
            return None
        ids.append(document["id"])
        rows.append(features.as_buffer(of_type="d"))
    if set(map(type, ids)) != {str}:  # who reads the refusal knows nothing of simdjson's objects, or where they lie
        return None
    matrix = np.frombuffer(b"".join(rows), dtype=np.float64).reshape(n_docs, n_features)
    return {key: request[key] for key in given[1:]}, ids, matrix
