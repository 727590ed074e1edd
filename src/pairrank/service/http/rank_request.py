"""The documents of a rank request, from JSON or Arrow IPC, checked once at the door."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, NamedTuple

import numpy as np
import orjson

from pairrank.errors import FeatureError, InputError
from pairrank.service.http import arrow, plain_json
from pairrank.types import FloatArray

ARROW_TYPES = ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file")
# JSON by its name; and what curl -d and sendBeacon say when nobody tells them.
JSON_TYPES = ("application/json", "application/x-www-form-urlencoded", "text/plain")
MAX_ID = 256
_TEXTS = ("query_id", "client_id", "page_of")
_DOCUMENT = {"id", "features"}


class MalformedError(InputError):
    """A body that is not what its content type says."""


class Query(NamedTuple):
    """A checked rank request: ids and features of the candidates in the order as sent, how many to show.

    client_id : who asks, for experiments. page_of : the id of the impression whose list goes on.
    explain : whether the answer shall say why. A feature that is missing is NaN.
    """

    query_id: str | None
    ids: list[str]
    features: FloatArray
    k: int | None
    client_id: str | None = None
    page_of: str | None = None
    explain: bool = False


def parse_json(body: bytes) -> Any:
    """Strict JSON: UTF-8, no NaN, no infinity, nothing after the value."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise MalformedError(f"the body is not JSON: {problem}") from None


def from_json(
    body: bytes, n_features: int, names: Sequence[str] | None, max_documents: int, left_out: float = 0.0
) -> Query:
    """A rank request in JSON; with ``names``, a document may give its features by name.

    Features that are null are NaN, and those left out by name are ``left_out``.
    """
    plain = plain_json.read(body, n_features)
    return _query(*(plain or _strict(body, n_features, names, max_documents, left_out)), max_documents)


def _query(request: Mapping[str, Any], ids: list[Any], features: FloatArray, max_documents: int) -> Query:
    check_count(len(ids), max_documents)
    query_id, client_id, page_of = (_text(name, request.get(name)) for name in _TEXTS)
    explain = flag("explain", request.get("explain"))
    return Query(query_id, _check_ids(ids), features, _k(request.get("k")), client_id, page_of, explain)


def _strict(
    body: bytes, n_features: int, names: Sequence[str] | None, max_documents: int, left_out: float
) -> plain_json.Request:
    request = parse_json(body)
    if not isinstance(request, dict):
        raise InputError("the body is not a JSON object with documents")
    unknown = request.keys() - {"documents", "k", *_TEXTS, "explain"}
    if unknown:
        raise InputError(f"the body has {min(unknown)!r}; expected documents, k, {', '.join(_TEXTS)}, explain")
    documents = request.get("documents")
    if not isinstance(documents, list) or not documents:
        raise InputError("documents must be a list with one document at least")
    check_count(len(documents), max_documents)
    for i, document in enumerate(documents):
        if not isinstance(document, dict) or document.keys() != _DOCUMENT:
            raise InputError(f"document {i} (counted from 0) must be an object with id and features, and nothing else")
    ids = [document["id"] for document in documents]
    rows = [document["features"] for document in documents]
    if names is not None:
        rows = [_by_name(row, names, left_out) if isinstance(row, dict) else row for row in rows]
    return request, ids, _matrix(rows, n_features, b"true" in body or b"false" in body)


def _matrix(rows: list[Any], n_features: int, booleans: bool) -> FloatArray:
    """(n_docs, n_features) from lists of numbers; null is NaN.

    A bool is a number to Python: all values are asked where there may be ``booleans``, which takes its time.
    """
    if set(map(type, rows)) != {list}:
        raise FeatureError("features must be a list of numbers (or, where the ranker has feature names, an object)")
    if set(map(len, rows)) != {n_features}:
        i, wrong = next((i, len(row)) for i, row in enumerate(rows) if len(row) != n_features)
        raise FeatureError(f"document {i} (counted from 0) has {wrong} features; this ranker was made for {n_features}")
    if booleans and any(type(value) is bool for row in rows for value in row):
        raise FeatureError(f"features must be numbers{_culprit(rows)}")
    pack = Struct(f"{n_features}d").pack  # three times as quick as numpy from lists of Python numbers
    try:
        flat = b"".join([pack(*row) for row in rows])
    except (StructError, OverflowError):
        if any(None in row for row in rows):
            full = [[math.nan if value is None else value for value in row] for row in rows]
            return _matrix(full, n_features, booleans)
        raise FeatureError(f"features must be finite numbers{_culprit(rows)}") from None
    return np.frombuffer(flat, dtype=np.float64).reshape(len(rows), n_features)


def _culprit(rows: list[list[Any]]) -> str:
    """Which value is none, counted from 0 as arrays are."""
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            if type(value) not in (int, float):
                return f"; feature {j} of document {i} (counted from 0) is {_told(value)}"
    return ""


def _told(value: Any) -> str:
    """The beginning of a value for a message."""
    try:
        return orjson.dumps(value, default=repr).decode()[:40]
    except orjson.JSONEncodeError:  # which reads more brackets in each other than it writes
        return "nested too deeply"


def _by_name(row: Mapping[str, Any], names: Sequence[str], left_out: float) -> list[Any]:
    unknown = row.keys() - set(names)
    if unknown:
        raise FeatureError(f"no feature is called {min(unknown)!r}; see the ranker's feature_names")
    return [row.get(name, left_out) for name in names]


def from_arrow(body: bytes, n_features: int, max_documents: int, given: Mapping[str, str]) -> Query:
    """A rank request as an Arrow IPC stream or file with columns id and features; the rest comes with the address."""
    k = given.get("k")
    if k is not None and not (k.isascii() and k.isdigit() and len(k) < 10):
        raise InputError(f"k is {k[:20]!r}; expected a whole number")
    ids, features = arrow.read(body) or _arrow_columns(body, n_features, max_documents)
    if features.shape[1] != n_features:
        raise FeatureError(f"a document has {features.shape[1]} features; this ranker was made for {n_features}")
    if 2 * features.nbytes < len(body):  # a view keeps all of the body, and documents are kept for a while
        features = features.copy()
    explain = {None: None, "true": True, "false": False}.get(given.get("explain"), "text")
    request = {**given, "k": None if k is None else int(k), "explain": explain}
    return _query(request, ids, features.astype(np.float64, copy=False), max_documents)


def _arrow_columns(body: bytes, n_features: int, max_documents: int) -> arrow.Columns:
    """The columns of any Arrow stream or file."""
    import pyarrow as pa

    stream = body[8:] if body[:6] == b"ARROW1" else body  # a file holds a stream, and tells again where its parts lie
    try:
        # First: thousands of columns may share one buffer, and each of them would be validated.
        _check_types(pa, pa.ipc.read_schema(pa.py_buffer(stream)))
        arrow.check_inflated(stream, max_documents * (8 * n_features + 4 * MAX_ID + 64))
        table = pa.ipc.open_stream(stream).read_all()
        table.validate(full=True)
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, StructError) as problem:
        raise MalformedError(f"the body cannot be read as Arrow IPC: {' '.join(str(problem).split())[:120]}") from None
    if table.num_rows == 0:
        raise InputError("the Arrow table has no rows; expected one document at least")
    check_count(table.num_rows, max_documents)
    matrix = _arrow_matrix(pa, table.column("features").combine_chunks(), table.num_rows, n_features)
    return arrow.Columns(table.column("id").to_pylist(), matrix)


def _check_types(pa: Any, schema: Any) -> None:
    if sorted(schema.names) != ["features", "id"]:
        columns = ", ".join(schema.names)[:80]
        raise InputError(f"the Arrow table has the columns {columns}; expected id and features, and no other")
    ids, kind = schema.field("id").type, schema.field("features").type
    texts = ids.value_type if pa.types.is_dictionary(ids) else ids
    if str(texts) not in ("string", "large_string", "string_view"):
        raise InputError(f"ids have Arrow type {str(ids)[:80]}; expected string")
    lists = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not lists or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        told = f"features have Arrow type {str(kind)[:80]}"
        raise FeatureError(f"{told}; expected a (fixed-size) list of float32 or float64")


def _arrow_matrix(pa: Any, column: Any, n_docs: int, n_features: int) -> FloatArray:
    kind = column.type
    fixed = pa.types.is_fixed_size_list(kind)
    if column.null_count:
        raise FeatureError("a document has no features at all, but null; expected a list of numbers for each")
    values = column.values if fixed else column.flatten()  # a fixed list from IPC starts where its values do
    if fixed and kind.list_size != n_features:
        raise FeatureError(f"a document has {kind.list_size} features; this ranker was made for {n_features}")
    if not (fixed or np.all(np.diff(column.offsets.to_numpy()) == n_features)) or len(values) != n_docs * n_features:
        raise FeatureError(f"a document has another number of features than the {n_features} of this ranker")
    matrix: FloatArray = values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)  # null is NaN
    return matrix.reshape(n_docs, n_features)


def check_count(count: int, max_documents: int) -> None:
    """`InputError` for more documents than a request may have."""
    if count > max_documents:
        raise InputError(f"there are {count} documents; at most {max_documents} are allowed in a request")


def _check_ids(ids: list[Any]) -> list[str]:
    lengths = set(map(len, ids)) if set(map(type, ids)) == {str} else {0}
    if min(lengths) < 1 or max(lengths) > MAX_ID:
        i = next(i for i, name in enumerate(ids) if type(name) is not str or not 0 < len(name) <= MAX_ID)
        raise InputError(
            f"the id of document {i} (counted from 0) is {_told(ids[i])}; expected a text of 1 to {MAX_ID} characters"
        )
    if len(set(ids)) != len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise InputError(f"two documents have the id {twice[:50]!r}; ids must differ")
    return ids


def _text(name: str, value: Any) -> str | None:
    if value is not None and (type(value) is not str or len(value) > MAX_ID or "\0" in value):
        raise InputError(f"{name} must be a text of at most {MAX_ID} characters, none of them null")
    return None if value is None else str(value)


def flag(name: str, value: Any) -> bool:
    """A yes or no that may be left out."""
    if value is not None and type(value) is not bool:
        raise InputError(f"{name} must be true or false")
    return bool(value)


def _k(value: Any) -> int | None:
    if value is not None and (type(value) is not int or not 1 <= value <= sys.maxsize):
        raise InputError("k must be a whole number of positions, 1 or more")
    return None if value is None else int(value)
