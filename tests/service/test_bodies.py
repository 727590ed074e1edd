"""What comes in: Arrow beside JSON, and bodies, names and configurations that are refused in one sentence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import BaseModel, ValidationError
from web import DOCUMENTS, Clock, TestClient, ranked, running_app

from pairrank.errors import InputError
from pairrank.service.http.endpoints import check
from pairrank.service.http.schemas import CreateBody, FeedbackBody, StartBody

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client, with a ranker "a" of two features: what is refused changes nothing, so one is enough."""
    with running_app(tmp_path_factory.mktemp("bodies") / "store.db", Clock()) as client:
        assert client.put("/v1/rankers/a", json={"n_features": 2}).status_code == 201
        yield client


def state(client: TestClient) -> dict[str, Any]:
    return dict(client.get("/v1/rankers/a?wait=30").json())


def arrow(features: pa.Array, ids: list[Any] | None = None) -> bytes:
    names = [f"d{i}" for i in range(len(features))] if ids is None else ids
    table = pa.table({"id": pa.array(names, pa.string()), "features": features})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_arrow_and_json_agree(tmp_path: Path) -> None:
    rows = [document["features"] for document in DOCUMENTS]
    flat = pa.array(np.ravel(rows))
    bodies = [
        arrow(pa.FixedSizeListArray.from_arrays(flat, 2)),
        arrow(pa.array(rows)),
        arrow(pa.array(rows, pa.large_list(pa.float64()))),
    ]
    answers = []
    for number, body in enumerate([None, *bodies]):
        with running_app(tmp_path / f"{number}.db") as client:
            client.put("/v1/rankers/a", json={"n_features": 2})
            if body is None:
                answer = ranked(client, k=3)
            else:
                url, kind = "/v1/rankers/a/rank?k=3&query_id=q", {"content-type": ARROW}
                answer = client.post(url, content=body, headers=kind).json()
            answers.append(answer["ranking"])
    assert answers[1:] == [answers[0]] * 3


@pytest.mark.parametrize(
    ("body", "query", "status"),
    [
        (b"", "", 400),
        (b"not arrow", "", 400),
        (arrow(pa.array([[1.0, 2.0]])), "?k=0", 422),
        (arrow(pa.array([[1.0, 2.0]])), "?k=x", 422),
        (arrow(pa.array([[1.0, 2.0, 3.0]])), "", 422),
        (arrow(pa.array([[1.0], [1.0, 2.0, 3.0]])), "", 422),
        (arrow(pa.array([[1.0, float("nan")]])), "", 422),
        (arrow(pa.array([[1.0, None]])), "", 422),
        (arrow(pa.array([None, [1.0, 2.0]])), "", 422),
        (arrow(pa.array([["a", "b"]])), "", 422),
        (arrow(pa.array([1.0])), "", 422),
        (arrow(pa.array([[1.0, 2.0]] * 2), ["x", "x"]), "", 422),
        (arrow(pa.array([[1.0, 2.0]]), [None]), "", 422),
        (arrow(pa.array([], pa.list_(pa.float64()))), "", 422),
        (arrow(pa.array([[1.0, 2.0]]))[:200], "", 400),
    ],
)
def test_bad_arrow_is_refused(client: TestClient, body: bytes, query: str, status: int) -> None:
    answer = client.post(f"/v1/rankers/a/rank{query}", content=body, headers={"content-type": ARROW})
    assert answer.status_code == status, answer.text


LONG = "x" * 300
BAD_RANK = [
    (b"", 400),
    (b"{", 400),
    (b"[]", 422),
    (b"null", 422),
    (b'{"documents": []}', 422),
    (b'{"documents": {}}', 422),
    (b'{"documents": [1]}', 422),
    (b'{"documents": ["ab"]}', 422),
    (b'{"documents": [{}]}', 422),
    (b'{"documents": [{"id": "a"}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1, NaN]}]}', 400),
    (b'{"documents": [{"id": "a", "features": [1, Infinity]}]}', 400),
    (b'{"documents": [{"id": "a", "features": [1, 1e999]}]}', None),
    (b'{"documents": [{"id": "a", "features": [1, 1e300]}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1]}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 2, 3]}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1, "2"]}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1, true]}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1, null]}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1, [2]]}]}', 422),
    (b'{"documents": [{"id": "a", "features": {"x": 1}}]}', 422),
    (b'{"documents": [{"id": "a", "features": "ab"}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 1' + b"0" * 400 + b"]}]}", None),
    (b'{"documents": [{"id": 1, "features": [1, 2]}]}', 422),
    (b'{"documents": [{"id": "", "features": [1, 2]}]}', 422),
    (b'{"documents": [{"id": "' + LONG.encode() + b'", "features": [1, 2]}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 2], "more": 1}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 2]}, {"id": "a", "features": [1, 2]}]}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 2]}], "k": 0}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 2]}], "k": 1.5}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 2]}], "k": true}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 2]}], "k": "3"}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 2]}], "query_id": 5}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 2]}], "query_id": "' + LONG.encode() + b'"}', 422),
    (b'{"documents": [{"id": "a", "features": [1, 2]}], "what": 5}', 422),
    (b"\xff\xfe", 400),
]


@pytest.mark.parametrize(("body", "status"), BAD_RANK)
def test_bad_rank_bodies_are_refused_in_one_sentence(client: TestClient, body: bytes, status: int | None) -> None:
    before = client.get("/v1/rankers/a/impressions").json()
    answer = client.post("/v1/rankers/a/rank", content=body)
    assert answer.status_code == status or (status is None and answer.status_code in (400, 422)), answer.text
    told = answer.json()
    assert told.keys() == {"error", "message"}
    assert "\n" not in told["message"]
    assert "Traceback" not in told["message"]
    assert client.get("/v1/rankers/a/impressions").json() == before


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("feedback", b"{}", 422),
        ("feedback", b'{"impression_id": "0-a", "clicks": "d1"}', 422),
        ("feedback", b'{"impression_id": "0-a", "clicks": [1]}', 422),
        ("feedback", b'{"impression_id": 0, "clicks": []}', 422),
        ("feedback", b'{"impression_id": "0-a", "clicks": [], "more": 1}', 422),
        ("feedback", b"NaN", 400),
        ("events", b"{}", 422),
        ("events", b"[1]", 422),
        ("events", b'[{"event_id": "", "impression_id": "0-a", "document_id": "d"}]', 422),
        ("events", b'[{"event_id": "\\u0000", "impression_id": "0-a", "document_id": "d"}]', 422),
        ("events", b'[{"event_id": "e", "impression_id": "0-a", "document_id": "d", "type": "hover"}]', 422),
        ("events", json.dumps([{}] * 1001).encode(), 422),
        ("freeze", b'{"frozen": 1}', 422),
        ("pin", b"{}", 422),
        ("pin", b'{"version": -1}', 422),
        ("rollback", b'{"version": 1.0}', 422),
        ("limits", b'{"explore_share": 1.5}', 422),
        ("limits", b'{"explore_share": NaN}', 400),
        ("limits", b'{"locked": -1}', 422),
        ("limits", b'{"what": 1}', 422),
    ],
)
def test_other_bad_bodies_change_nothing(client: TestClient, path: str, body: bytes, status: int) -> None:
    before = state(client)
    answer = client.post(f"/v1/rankers/a/{path}", content=body)
    assert answer.status_code == status, answer.text
    assert state(client) == before


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"n_features": 0},
        {"n_features": 1.5},
        {"n_features": 2, "ranker": "nobody"},
        {"n_features": 2, "ranker": "pairrank(alpha=what)"},
        {"n_features": 2, "options": {"what": 1}},
        {"n_features": 2, "options": {"lam": -1}},
        {"n_features": 2, "options": {"seed": 1}},
        {"n_features": 2, "options": {"name": "c"}},
        {"n_features": 2, "feature_names": ["a", "b"], "options": {"feature_names": "ab"}},
        {"n_features": 2, "options": {"monotone": {"price": 1}}},
        {"n_features": 2, "options": {"monotone": {"0": 2}}},
        {"n_features": 2, "options": {"monotone": [1, -1]}},
        {"n_features": 2, "seed": -1},
        {"n_features": 2, "explore_share": 2},
        {"n_features": 2, "start": {"weights": [1e300, 1]}},
        {"n_features": 99_999},
    ],
)
def test_bad_configurations_are_refused(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.put("/v1/rankers/b", json=body)
    assert answer.status_code == 422, answer.text
    assert len(client.get("/v1/rankers").json()["rankers"]) == 1


def test_encoded_bodies_are_refused_as_such(client: TestClient) -> None:
    body = gzip.compress(b'{"documents": [{"id": "a", "features": [1, 2]}]}')
    answer = client.post("/v1/rankers/a/rank", content=body, headers={"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["error"]) == (415, "encoding")
    assert "'gzip'" in answer.json()["message"]


def test_options_by_feature(client: TestClient) -> None:
    body = {"n_features": 2, "feature_names": ["price", "stars"], "options": {"monotone": {"price": -1}}}
    assert client.put("/v1/rankers/b", json=body).status_code == 201
    assert client.get("/v1/rankers/b").json()["options"] == body["options"]


@pytest.mark.parametrize(
    ("method", "path", "body", "sentence"),
    [
        ("PUT", "b", b"[]", "the body is no JSON object; expected one with explore_share, locked, window_seconds, "),
        ("PUT", "b", b'{"n_features": "2"}', 'n_features: input should be a valid integer; got "2"'),
        ("PUT", "b", b'{"n_features": 2, "start": {"weights": "a"}}', "start.weights: input should be a valid list; "),
        ("POST", "a/freeze", b'{"freeze": true}', "freeze: there is no such field; expected frozen"),
        ("PUT", "b", b'{"n_features": 2, "start": 5}', "start: input should be a JSON object"),
        ("POST", "a/events", b"[{}]", "event 0 (counted from 0), event_id: field required"),
        ("POST", "a/events", b"[1]", "event 0 (counted from 0) is no JSON object; expected one with event_id, "),
        ("POST", "b", b"{}", "this address takes no POST; expected DELETE, GET, HEAD, PUT"),
        ("GET", "a/nothing", b"", "nothing is at '/v1/rankers/a/nothing'; /docs tells what there is"),
        ("GET", "a?wait=x", b"", "query.wait: input should be a valid number, unable to parse string as a number; "),
    ],
)
def test_refusals_say_what_came_and_what_is_expected(
    client: TestClient, method: str, path: str, body: bytes, sentence: str
) -> None:
    told = client.request(method, f"/v1/rankers/{path}", content=body).json()
    assert told["message"].startswith(sentence)


def test_refusals_are_short_whatever_came(client: TestClient) -> None:
    body = {"n_features": 2, "options": {"z": "y" * 1_000_000}}
    told = client.put("/v1/rankers/b", json=body)
    assert told.status_code == 422
    assert len(told.content) < 2000


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (FeedbackBody, {"impression_id": "0-a", "clicks": [1] * 1000}),
        (CreateBody, {"n_features": 1, "feature_names": [""] * 1000}),
        (StartBody, {"weights": [1.0], "variance": [-1.0] * 1000}),
    ],
)
def test_of_many_faults_the_first_is_looked_for(model: type[BaseModel], body: dict[str, Any]) -> None:
    """Eight megabytes of clicks that are numbers took a worker 27 seconds."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(body)
    assert caught.value.error_count() <= 2  # a list, or the other kind that it may be


def test_of_many_unknown_fields_the_first_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(BaseModel, "model_validate")
    with pytest.raises(InputError, match=r"^x0: there is no such field; expected impression_id, clicks$"):
        check(FeedbackBody, {f"x{number}": 0 for number in range(1000)})


@pytest.mark.parametrize("name", ["-a", "ä", "a b", "x" * 65, "a%2Fb", "."])
def test_bad_names_are_refused(client: TestClient, name: str) -> None:
    assert 400 <= client.put(f"/v1/rankers/{name}", json={"n_features": 2}).status_code < 500


def test_limits_on_bodies_and_documents(tmp_path: Path) -> None:
    with running_app(tmp_path / "s.db", max_body_bytes=2048, max_documents=4, max_features=3, max_rankers=1) as client:
        assert client.put("/v1/rankers/a", json={"n_features": 4}).status_code == 422
        assert client.put("/v1/rankers/a", json={"n_features": 2}).status_code == 201
        assert client.put("/v1/rankers/b", json={"n_features": 2}).status_code == 429
        assert client.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS}).status_code == 422
        assert client.post("/v1/rankers/a/rank", content=b" " * 2049).status_code == 413
        chunks = (b" " * 1000 for _ in range(3))  # no length is announced
        assert client.post("/v1/rankers/a/rank", content=chunks).status_code == 413
        wrong = client.post("/v1/rankers/a/rank", content=b"<x/>", headers={"content-type": "text/xml"})
        assert wrong.status_code == 415
