"""The quick readers of bodies against the strict ones: what they take they read alike, and the rest they leave."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.errors import InputError
from pairrank.service.http import arrow, plain_json
from pairrank.service.http.rank_request import Query, from_arrow, from_json

N_FEATURES = 2


def outcome(read: Callable[[], Query]) -> tuple[Any, ...]:
    """What came of reading a body: its parts, or the sentence that refused it."""
    try:
        query = read()
    except InputError as problem:
        return type(problem), str(problem)
    found = query._asdict() | {"features": query.features.tobytes()}
    return *found.values(), query.features.dtype, query.features.shape


def both(module: Any, read: Callable[[], Query]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What came of it with the quick reader, and without."""
    quick = outcome(read)
    with patch.object(module, "read", lambda *_: None):
        return quick, outcome(read)


def stream(*batches: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def batch(ids: list[str | None], rows: list[list[float]], kind: pa.DataType | None = None) -> pa.RecordBatch:
    flat = pa.array([value for row in rows for value in row], kind or pa.float32())
    features = pa.FixedSizeListArray.from_arrays(flat, len(rows[0]))
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.string()), features], ["id", "features"])


numbers = st.floats(-1e6, 1e6, width=32)
documents = st.lists(
    st.tuples(st.text(max_size=5), st.tuples(numbers, numbers).map(list)),
    min_size=1,
    max_size=6,
    unique_by=lambda document: document[0],
)


@given(documents, st.sampled_from([pa.float32(), pa.float64()]), st.booleans(), st.booleans())
def test_an_arrow_stream_is_read_alike(
    given: list[tuple[str, list[float]]], kind: pa.DataType, features_first: bool, cut: bool
) -> None:
    made = batch([name for name, _ in given], [row for _, row in given], kind)
    body = stream(made.select(["features", "id"]) if features_first else made)
    body = body[:-8] if cut else body  # the end-of-stream mark is optional
    found = arrow.read(body)
    assert (found is None) == any(name == "" for name, _ in given)
    if found is not None:
        assert found.ids == [name for name, _ in given]
        assert found.features.tolist() == [row for _, row in given]
    quick, strict = both(arrow, lambda: from_arrow(body, N_FEATURES, 5, {"k": "3", "query_id": "q"}))
    assert quick == strict


ROWS = [[0.5, 1.0], [2.0, 3.0]]
PLAIN = batch(["a", "b"], ROWS)


@pytest.mark.parametrize(
    "body",
    [
        stream(PLAIN, PLAIN),
        stream(PLAIN, options=pa.ipc.IpcWriteOptions(compression="zstd")),
        stream(batch(["a", None], ROWS)),
        stream(PLAIN.slice(0, 0)),
        stream(PLAIN.add_column(2, "more", pa.array([1, 2]))),
        stream(PLAIN.set_column(0, "id", PLAIN.column(0).cast(pa.large_string()))),
        stream(PLAIN.set_column(0, "id", PLAIN.column(0).dictionary_encode())),
        stream(PLAIN.set_column(0, "id", pa.array([1, 2]))),
        stream(PLAIN.set_column(1, "features", pa.array(ROWS))),
        stream(batch(["a", "b"], [[1, 2], [3, 4]], pa.int32())),
        stream(PLAIN) + b"more",
        stream(PLAIN)[:-40],
        b"",
    ],
)
def test_any_other_arrow_is_left_to_the_library(body: bytes) -> None:
    assert arrow.read(body) is None
    quick, strict = both(arrow, lambda: from_arrow(body, N_FEATURES, 5, {}))
    assert quick == strict


def test_a_stream_that_begins_with_no_schema_is_not_read_as_one() -> None:
    """pyarrow's `read_schema` ends the whole process where a message is something else."""
    body = bytearray(stream(PLAIN))
    kind = 8 + arrow._field(body[8:], arrow._table(body[8:], 0), 1)
    assert body[kind] == 1
    body[kind] = 2  # a dictionary
    with patch("pyarrow.ipc.read_schema") as read:
        assert arrow.read(bytes(body)) is None
        assert not read.called
    with pytest.raises(InputError, match="cannot be read as Arrow IPC"):
        from_arrow(bytes(body), N_FEATURES, 5, {})


def test_an_arrow_stream_of_another_width_is_refused_in_the_same_words() -> None:
    quick, strict = both(arrow, lambda: from_arrow(stream(PLAIN), 3, 5, {}))
    assert quick == strict
    assert "2 features" in quick[1]


@given(st.integers(0, len(stream(PLAIN)) - 1), st.integers(0, 255))
def test_a_damaged_arrow_stream_never_reads_as_something_else(place: int, byte: int) -> None:
    body = bytearray(stream(PLAIN))
    body[place] = byte
    found = arrow.read(bytes(body))
    if found is None:
        return
    quick, strict = both(arrow, lambda: from_arrow(bytes(body), N_FEATURES, 5, {}))
    # Metadata that only the library looks at may be damaged; what both can read is the same.
    assert quick == strict or strict[0].__name__ == "MalformedError"


@pytest.mark.parametrize(
    "body",
    [
        stream(PLAIN, options=pa.ipc.IpcWriteOptions(compression="zstd")),
        stream(PLAIN.slice(0, 1), PLAIN.slice(1, 1)),
        stream(PLAIN.set_column(0, "id", PLAIN.column(0).cast(pa.large_string()))),
        stream(PLAIN.set_column(0, "id", PLAIN.column(0).dictionary_encode())),
        stream(PLAIN.set_column(1, "features", pa.array(ROWS))),
    ],
)
def test_other_arrow_streams_are_read_too(body: bytes) -> None:
    found = from_arrow(body, N_FEATURES, 5, {})
    assert (found.ids, found.features.tolist()) == (["a", "b"], ROWS)


@pytest.mark.parametrize(
    "body",
    [
        stream(PLAIN, PLAIN),
        stream(batch(["a", None], ROWS)),
        stream(PLAIN.slice(0, 0)),
        stream(PLAIN.add_column(2, "more", pa.array([1, 2]))),
        stream(PLAIN.set_column(0, "id", pa.array([1, 2]))),
        stream(PLAIN)[:-40],
        b"",
    ],
)
def test_what_is_no_request_in_arrow_is_refused(body: bytes) -> None:
    with pytest.raises(InputError):
        from_arrow(body, N_FEATURES, 5, {})


values = st.one_of(
    numbers, st.integers(-(2**70), 2**70), st.booleans(), st.none(), st.just("1"), st.lists(numbers, max_size=2)
)
rows = st.one_of(st.tuples(numbers, numbers).map(list), st.lists(values, max_size=3), st.just({"x": 1.0}))
texts = st.one_of(st.text(max_size=3), st.integers(), st.none())
bodies = st.fixed_dictionaries(
    {"documents": st.lists(st.fixed_dictionaries({"id": texts, "features": rows}), max_size=4)},
    optional={"k": st.one_of(st.integers(-1, 5), values), "query_id": texts, "explain": values, "other": st.just(1)},
)


@given(bodies)
def test_json_is_read_alike(request: dict[str, Any]) -> None:
    quick, strict = both(plain_json, lambda: from_json(json.dumps(request).encode(), N_FEATURES, None, 3))
    assert quick == strict


@pytest.mark.parametrize(
    "document",
    [
        b'{"id": "a", "id": "b", "features": [1, 2]}',
        b'{"id": "a", "features": [[1], [2]]}',
        b'{"id": "a", "features": [true, 2]}',
        b'{"id": "a", "features": [NaN, 2]}',
        b'{"id": "a", "features": [1e999, 2]}',
        b'{"id": "a", "features": [1, 2, 3]}',
        b'{"id": "\\ud800", "features": [1, 2]}',
        b'{"id": "\xff", "features": [1, 2]}',
        b'{"id": "a", "features": [01, 2]}',
        b'{"id": "a", "features": [-0, -0.0]}',
        b'{"id": "[", "features": [1, 2]}',
        b'{"id": "a", "features": [1, 2]}, {"id": {}, "features": [1, 2]}',
    ],
)
@pytest.mark.parametrize(
    "frame", [b'{"documents": [%s]}', b'\xef\xbb\xbf{"documents": [%s]}', b'{"documents": [%s]} x']
)
def test_odd_json_is_read_alike(document: bytes, frame: bytes) -> None:
    body = frame % (b'{"documents": [%s]}' % document)
    quick, strict = both(plain_json, lambda: from_json(body, N_FEATURES, None, 3))
    assert quick == strict


def test_usual_json_is_read_quickly_where_simdjson_is_installed() -> None:
    pytest.importorskip("simdjson")
    assert plain_json._PARSER is not None  # before the first request, which may find no file left to import it with
    body = orjson.dumps({"documents": [{"id": "a", "features": [1, 2.5]}], "k": 1})
    for _ in range(3):  # the parser can be used again
        found = plain_json.read(body, N_FEATURES)
        assert found is not None
        assert found[:2] == ({"k": 1}, ["a"])
        np.testing.assert_array_equal(found[2], [[1.0, 2.5]])


ANY_ID = "expected a text of 1 to 256 characters"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"y": "3"}, 'features must be finite numbers; feature 1 of document 1 (counted from 0) is "3"'),
        ({"y": [1]}, "features must be finite numbers; feature 1 of document 1 (counted from 0) is [1]"),
        ({"y": {}}, "features must be finite numbers; feature 1 of document 1 (counted from 0) is {}"),
        ({"y": True}, "features must be numbers; feature 1 of document 1 (counted from 0) is true"),
        ([1.0], "document 1 (counted from 0) has 1 features; this ranker was made for 2"),
    ],
)
def test_the_features_that_are_wrong_are_named(wrong: Any, sentence: str) -> None:
    documents = [{"id": "a", "features": [1.0, 2.0]}, {"id": "b", "features": wrong}]
    with pytest.raises(InputError) as caught:
        from_json(json.dumps({"documents": documents}).encode(), N_FEATURES, ["x", "y"], 10)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"id": 5}, f"the id of document 1 (counted from 0) is 5; {ANY_ID}"),
        ({"id": ""}, f'the id of document 1 (counted from 0) is ""; {ANY_ID}'),
        ({"id": {"n": 1}}, f'the id of document 1 (counted from 0) is {{"n":1}}; {ANY_ID}'),
        (
            {"id": "x", "title": "y"},
            "document 1 (counted from 0) must be an object with id and features, and nothing else",
        ),
        ({}, "document 1 (counted from 0) must be an object with id and features, and nothing else"),
    ],
)
def test_the_document_that_is_wrong_is_named(more: dict[str, Any], sentence: str) -> None:
    documents = [{"id": "a", "features": [1.0, 2.0]}, {"features": [1.0, 2.0], **more}]
    with pytest.raises(InputError) as caught:
        from_json(json.dumps({"documents": documents}).encode(), N_FEATURES, None, 10)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("name", ["query_id", "client_id", "page_of"])
def test_null_characters_are_named(name: str) -> None:
    body = json.dumps({"documents": [{"id": "a", "features": [1.0, 2.0]}], name: "a\0b"}).encode()
    with pytest.raises(InputError, match=f"{name} must be a text of at most 256 characters, none of them null"):
        from_json(body, N_FEATURES, None, 10)


@pytest.mark.parametrize("kind", [pa.list_(pa.float64(), 2), pa.list_(pa.float32()), pa.list_(pa.int64(), 2)])
def test_null_is_a_missing_value_in_arrow_too(kind: pa.DataType) -> None:
    made = PLAIN.set_column(1, "features", pa.array([[1, None], [2, 3]], kind))
    np.testing.assert_array_equal(from_arrow(stream(made), N_FEATURES, 5, {}).features, [[1.0, np.nan], [2.0, 3.0]])


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_few_bytes_that_become_very_many_are_not_decompressed(codec: str) -> None:
    made = PLAIN.set_column(0, "id", pa.array(["a" * 2**20, "b"]))
    for body in (stream(made, options=pa.ipc.IpcWriteOptions(compression=codec)), dictionaries(made, codec)):
        with patch("pyarrow.ipc.read_record_batch"), patch("pyarrow.ipc.open_stream") as opened:
            with pytest.raises(InputError, match=r"decompressed it has 10486\d\d bytes"):
                from_arrow(body, N_FEATURES, 5, {})
            assert not opened.called


def dictionaries(made: pa.RecordBatch, codec: str) -> bytes:
    """The same as a file, its ids in a dictionary."""
    made, sink = made.set_column(0, "id", made.column(0).dictionary_encode()), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, made.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(made)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    "wrong",
    [
        PLAIN.add_column(2, "more", pa.array([1, 2])),
        PLAIN.set_column(0, "id", pa.array([{"a": "x"}, {"a": "y"}])),
        PLAIN.set_column(0, "id", pa.DictionaryArray.from_arrays([0, 0], pa.array([{"a": "x"}]))),
        PLAIN.set_column(1, "features", pa.array([["1"], ["2"]])),
    ],
)
def test_columns_that_nobody_asked_for_are_not_validated(wrong: pa.RecordBatch) -> None:
    """Thousands of them may share one buffer: three megabytes took a worker many seconds."""
    with patch("pyarrow.ipc.open_stream") as opened:
        with pytest.raises(InputError, match=r"Arrow type|has the columns"):
            from_arrow(stream(wrong), N_FEATURES, 5, {})
        assert not opened.called


@pytest.mark.parametrize("quick", [True, False])
def test_features_do_not_keep_a_body_that_is_much_larger(quick: bool) -> None:
    made = batch(["a" * 250, "b" * 250], ROWS, pa.float64())
    with patch.object(arrow, "read", arrow.read if quick else lambda _: None):
        features = from_arrow(stream(made), N_FEATURES, 5, {}).features
    while not isinstance(features, bytes) and features.base is not None:
        features = features.base
    assert features.nbytes == 32


@pytest.mark.parametrize(("text", "asked"), [(None, False), ("false", False), ("true", True)])
def test_arrow_is_explained_by_its_address(text: str | None, asked: bool) -> None:
    body = stream(batch(["a"], [[1.0, 2.0]]))
    assert from_arrow(body, N_FEATURES, 5, {} if text is None else {"explain": text}).explain is asked
    with pytest.raises(InputError, match="explain must be true or false"):
        from_arrow(body, N_FEATURES, 5, {"explain": "yes"})


def test_null_is_a_missing_value() -> None:
    documents = [{"id": "a", "features": [None, 2.0]}, {"id": "b", "features": {"y": 3}}]
    body = json.dumps({"documents": documents}).encode()
    np.testing.assert_array_equal(from_json(body, N_FEATURES, ["x", "y"], 10).features, [[np.nan, 2.0], [0.0, 3.0]])
    left_out = from_json(body, N_FEATURES, ["x", "y"], 10, np.nan)
    np.testing.assert_array_equal(left_out.features, [[np.nan, 2.0], [np.nan, 3.0]])
