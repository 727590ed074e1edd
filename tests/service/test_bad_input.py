"""Whatever is sent, nothing is a 500, and nothing that was refused leaves a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pytest
import schemathesis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from schemathesis import checks
from web import DOCUMENTS, Clock, TestClient, running_app, running_server

from pairrank.client import Client
from pairrank.errors import InputError
from pairrank.service.app import make_app
from pairrank.service.http.rank_request import ARROW_TYPES, from_arrow, from_json
from pairrank.service.settings import Settings


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with running_app(tmp_path_factory.mktemp("bad") / "store.db", Clock()) as client:
        client.put("/v1/rankers/a", json={"n_features": 2})
        yield client


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(tmp_path_factory.mktemp("bad") / "store.db") as address:
        with Client(address) as client:
            client.create("a", 2)
        yield address


@schemathesis.serializer(ARROW_TYPES[0])
def raw(_: object, value: object) -> bytes:
    """Arrow bodies are any bytes."""
    return value if isinstance(value, bytes) else str(value).encode()


SCHEMA = schemathesis.openapi.from_dict(
    make_app("unused.db", Settings()).openapi(), config=schemathesis.Config()
).exclude(path="/v1/stream")


CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.mark.parametrize("path", ["/v1/rankers/%00", "/v1/rankers/a%00/versions", "/?ranker=a%00"])
def test_addresses_hold_no_null_characters_which_not_every_store_can_look_for(client: TestClient, path: str) -> None:
    told = client.get(path)
    assert (told.status_code, told.json()["error"]) == (422, "input")


@SCHEMA.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_one_that_is_declared(case: schemathesis.Case, address: str) -> None:
    if "name" in case.path_parameters:
        case.path_parameters["name"] = "a" if case.method != "DELETE" else "nobody"
    response = case.call(base_url=address)
    case.validate_response(response, checks=CHECKS)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
documents = st.fixed_dictionaries(
    {}, optional={"id": scalars, "features": st.lists(scalars, max_size=3) | trees, "more": scalars}
)
requests = st.fixed_dictionaries(
    {}, optional={"documents": st.lists(documents, max_size=3), "k": scalars, "x": scalars}
)


@given(value=trees | requests)
@settings(max_examples=300)
def test_any_json_is_a_query_or_an_input_error(value: object) -> None:
    body = json.dumps(value).encode()  # NaN and infinity come out as words that JSON does not have
    try:
        query = from_json(body, 2, None, 100)
    except InputError:
        return
    assert query.features.shape == (len(query.ids), 2)
    assert len(set(query.ids)) == len(query.ids)


@given(rows=st.lists(st.lists(st.floats(-1e9, 1e9) | st.integers(-(10**9), 10**9), min_size=3, max_size=3), min_size=1))
def test_features_arrive_as_they_were_sent(rows: list[list[float]]) -> None:
    sent = {"documents": [{"id": str(number), "features": row} for number, row in enumerate(rows)]}
    query = from_json(orjson.dumps(sent), 3, None, 1000)
    assert np.array_equal(query.features, np.array(rows, dtype=np.float64))


@given(body=st.binary(max_size=300))
@settings(max_examples=200)
def test_any_bytes_are_arrow_or_an_input_error(body: bytes) -> None:
    with pytest.raises(InputError):
        from_arrow(body, 2, 100, {})


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
@settings(max_examples=300)
def test_a_damaged_arrow_body_is_a_query_or_an_input_error(place: int, byte: int) -> None:
    body = bytearray(_arrow())
    body[place % len(body)] = byte
    try:
        query = from_arrow(bytes(body), 2, 100, {"k": "3"})
    except InputError:
        return
    assert query.features.shape == (len(query.ids), 2)


def _arrow() -> bytes:
    import pyarrow as pa

    rows = [document["features"] for document in DOCUMENTS]
    ids = [document["id"] for document in DOCUMENTS]
    table = pa.table({"id": ids, "features": pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(rows)), 2)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@given(path=st.sampled_from(["rank", "feedback", "events", "freeze", "limits", "pin", "rollback"]), value=trees)
@example(path="freeze", value={"\n": None})
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_any_body_anywhere_is_answered_in_one_sentence(client: TestClient, path: str, value: object) -> None:
    answer = client.post(f"/v1/rankers/a/{path}", content=json.dumps(value).encode())
    assert answer.status_code < 500
    if answer.status_code >= 400:
        told = answer.json()
        assert told.keys() == {"error", "message"}
        assert "\n" not in told["message"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"documents": [{"id": %b, "features": [1, 2]}]}',
        b'{"documents": [{"id": "a", "features": [%b, 2]}]}',
        b'{"query": "q", "documents": [{"text": "a", "more": %b}], "return_documents": true}',
    ],
)
def test_what_is_nested_deeper_than_answers_can_be_is_no_fault_of_the_program(client: TestClient, body: bytes) -> None:
    address = "/v1/rerank" if b"query" in body else "/v1/rankers/a/rank"
    for depth in (*range(245, 260), 900):
        for deep in (b"[" * depth + b"]" * depth, b'{"a": ' * depth + b"1" + b"}" * depth):
            told = client.post(address, content=body % deep)
            if depth > 255 or b"query" not in body:
                assert (told.status_code, told.json()["error"]) == (422, "input")
            assert told.status_code in (200, 422)


def test_the_schema_names_every_endpoint(client: TestClient) -> None:
    paths = set(client.get("/openapi.json").json()["paths"])
    for act in ("rank", "feedback", "events", "versions", "rollback", "freeze", "pin", "limits"):
        assert f"/v1/rankers/{{name}}/{act}" in paths
    assert {"/healthz", "/readyz", "/metrics"} <= paths


def test_nothing_unused_was_made() -> None:
    assert not Path("unused.db").exists()
