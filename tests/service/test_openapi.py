"""The OpenAPI text says what is so: real answers are held against it, every operation and every refusal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from web import DOCUMENTS, Clock, TestClient, clicked, ranked, running_app, running_server

from pairrank.service.auth import new_key
from pairrank.service.store import open_store

Operation = tuple[str, str]


class Walk:
    """Sends requests and holds every answer against the text; remembers what was seen."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.text: dict[str, Any] = client.get("/openapi.json").json()
        self.seen: dict[Operation, set[int]] = {}
        self._patterns = [
            (path, re.compile(re.sub(r"\{\w+\}", "[^/]+", path) + r"(\?.*)?")) for path in sorted(self.text["paths"])
        ]

    def __call__(self, method: str, path: str, status: int, **sent: Any) -> Any:
        answer = self.client.request(method, path, **sent)
        assert answer.status_code == status, answer.text
        template = next(name for name, pattern in self._patterns if pattern.fullmatch(path))
        self.seen.setdefault((method.lower(), template), set()).add(status)
        declared = self.text["paths"][template][method.lower()]["responses"][str(status)]
        kind = answer.headers["content-type"].partition(";")[0]
        kinds = {name.partition(";")[0]: body for name, body in declared["content"].items()}
        assert set(kinds) == {kind}
        if kind == "application/json":
            schema = closed({**kinds[kind]["schema"], "components": self.text["components"]})
            jsonschema.validate(answer.json(), schema)
            return answer.json()
        return answer.text


def closed(schema: Any) -> Any:
    """The schema with no room for fields that it does not name: an answer must not hold more than was told."""
    if isinstance(schema, dict):
        tight = {name: closed(value) for name, value in schema.items()}
        return {**tight, "additionalProperties": False} if "properties" in schema else tight
    return [closed(value) for value in schema] if isinstance(schema, list) else schema


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    with running_app(tmp_path / "store.db", Clock(), max_body_bytes=10_000, max_rankers=3) as client:
        yield Walk(client)


def operations(text: dict[str, Any]) -> dict[Operation, set[int]]:
    """Every operation with the statuses below 300 that it declares."""
    return {
        (method, path): {int(status) for status in operation["responses"] if status < "300"}
        for path, item in text["paths"].items()
        for method, operation in item.items()
    }


def test_every_good_answer_is_the_one_declared(walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    one = "/v1/rankers/a"
    walk("PUT", one, 201, json={"n_features": 2, "feature_names": ["near", "far"], "options": {"z": 0.3}})
    walk("PUT", one, 200, json={"n_features": 2, "feature_names": ["near", "far"], "options": {"z": 0.3}})
    assert walk("GET", f"{one}/impressions", 200) == {"impressions": []}
    first = walk("POST", f"{one}/rank", 200, json={"documents": DOCUMENTS, "query_id": "q"})
    told = {"impression_id": first["impression_id"], "clicks": ["d1"]}
    assert walk("POST", f"{one}/feedback", 200, json=told) == {"status": "accepted"}
    assert walk("POST", f"{one}/feedback", 200, json=told) == {"status": "duplicate"}
    second = walk("POST", f"{one}/rank", 200, json={"documents": DOCUMENTS, "explain": True})
    event = {"event_id": "e", "impression_id": second["impression_id"], "document_id": "d2"}
    sent = [event, event, {**event, "event_id": "f", "document_id": "x"}, {**event, "impression_id": "9-x"}]
    statuses = [item["status"] for item in walk("POST", f"{one}/events", 200, json=sent)]
    assert statuses == ["accepted", "duplicate", "foreign", "unknown"]
    collecting = walk("GET", f"{one}/impressions", 200)["impressions"][0]
    assert collecting["state"] == "collecting"
    assert collecting["clicks"] == [name == "d2" for name in collecting["ids"]]
    assert collecting["closes"] == collecting["time"] + 600.0
    third = walk("POST", f"{one}/rank", 200, json={"documents": DOCUMENTS})
    walk.client.app.state.worker.clock.now += 601.0
    assert walk("POST", f"{one}/feedback", 200, json={**told, "impression_id": third["impression_id"]})["late"]

    assert walk("GET", f"{one}?wait=30", 200)["feedback_count"] >= 2
    walk("GET", "/v1/rankers", 200)
    walk("GET", f"{one}/versions", 200)
    states = {item["state"] for item in walk("GET", f"{one}/impressions", 200)["impressions"]}
    assert "learned" in states
    statistics = walk("GET", f"{one}/statistics", 200)
    assert statistics["newest"]["lists"] >= 1
    assert {row["name"] for row in walk("GET", f"{one}/weights", 200)["features"]} == {"near", "far"}
    assert len(walk("GET", f"{one}/weights?limit=1", 200)["features"]) == 1
    walk("GET", f"{one}/model", 200)
    walk("GET", f"{one}/model?version=0", 200)
    walk("PUT", "/v1/rankers/trees", 201, json={"n_features": 2, "ranker": "pdgd"})
    walk("GET", "/v1/rankers/trees/statistics", 200)
    walk("POST", f"{one}/limits", 200, json={"locked": 1})
    walk("POST", f"{one}/freeze", 200, json={})
    walk("POST", f"{one}/pin", 200, json={"version": 0})
    walk("POST", f"{one}/rollback", 200, json={"version": 0})
    walk("PUT", f"{one}/launch", 200, json={"mode": "shadow"})
    walk("GET", f"{one}/launch", 200)
    trial = {"a": "a", "b": "as-sent", "share": 0.5}
    assert walk("PUT", "/v1/experiments/new", 201, json=trial)["verdict"] == "undecided"
    walk("PUT", "/v1/experiments/new", 200, json=trial)
    walk("GET", "/v1/experiments/new", 200)
    walk("GET", "/v1/experiments", 200)
    walk("POST", "/v1/experiments/new/stop", 200)
    walk("POST", "/v1/rerank", 200, json={"model": "texts", "query": "red shoes", "documents": ["red", "shoes"]})
    walk("GET", "/v1/audit", 200)
    walk("GET", "/healthz", 200)
    walk("GET", "/readyz", 200)
    assert "pairrank_" in walk("GET", "/metrics", 200)
    worker = walk.client.app.state.worker
    monkeypatch.setattr(worker, "stopping", True)  # the stream ends at once
    walk("GET", "/v1/stream", 200)
    walk("DELETE", one, 200)
    assert {operation: {s for s in seen if s < 300} for operation, seen in walk.seen.items()} == operations(walk.text)


def test_every_refusal_is_the_one_declared(walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    one = "/v1/rankers/a"
    walk("PUT", one, 201, json={"n_features": 2})
    walk("PUT", one, 409, json={"n_features": 3})
    walk("PUT", one, 422, json={"n_features": 0})
    walk("PUT", one, 400, content=b"{")
    walk("PUT", one, 413, content=b" " * 10_001)
    walk("PUT", "/v1/rankers/-", 422, json={"n_features": 2})
    for name in "bc":
        walk("PUT", f"/v1/rankers/{name}", 201, json={"n_features": 2})
    walk("PUT", "/v1/rankers/d", 429, json={"n_features": 2})
    walk("PUT", one, 403, json={"n_features": 2}, headers={"Origin": "http://elsewhere.example"})
    walk("POST", f"{one}/rank", 415, content=b"x", headers={"Content-Type": "text/csv"})
    walk("PUT", one, 422, json={"n_features": 2, "ranker": "nobody"})
    walk("POST", f"{one}/limits", 200, json={"max_open": 1, "window_seconds": 1, "retention_seconds": 60})
    shown = walk("POST", f"{one}/rank", 200, json={"documents": DOCUMENTS})
    worker = walk.client.app.state.worker
    full = worker.models.head(worker.store.ranker("a").id)._replace(open_count=1)  # counted now and then only
    monkeypatch.setattr(worker.models, "head", lambda _: full)
    walk("POST", f"{one}/rank", 429, json={"documents": DOCUMENTS})
    worker.clock.now += 61.0
    told = {"impression_id": shown["impression_id"], "clicks": []}
    walk("POST", f"{one}/feedback", 410, json=told)
    walk("POST", f"{one}/feedback", 404, json={**told, "impression_id": "1-x"})
    walk("POST", f"{one}/events", 422, json={})
    walk("POST", f"{one}/pin", 404, json={"version": 99})
    walk("GET", f"{one}/model?version=99", 404)
    for path in ("", "/versions", "/impressions", "/statistics", "/weights", "/model"):
        walk("GET", f"/v1/rankers/nobody{path}", 404)
    walk("GET", f"{one}?wait=99", 422)
    walk("GET", f"{one}/impressions?limit=0", 422)
    walk("GET", "/v1/audit?limit=x", 422)
    walk("DELETE", "/v1/rankers/nobody", 404)
    walk("GET", f"{one}/launch", 404)
    walk("PUT", f"{one}/launch", 422, json={"mode": "guarded", "margin": 2.0})
    walk("PUT", "/v1/experiments/new", 201, json={"a": "a", "b": "as-sent"})
    walk("PUT", "/v1/experiments/new", 409, json={"a": "a", "b": "b"})
    walk("PUT", "/v1/experiments/more", 422, json={"a": "a", "b": "nobody"})
    walk("DELETE", one, 409)
    for path in ("", "/stop"):
        walk("POST" if path else "GET", f"/v1/experiments/nobody{path}", 404)
    for path in ("/healthz", "/metrics", "/v1/stream", f"{one}/weights"):
        walk("GET", path, 421, headers={"Host": "elsewhere.example"})


def test_headers_without_end_are_refused_as_declared(tmp_path: Path) -> None:
    with running_server(tmp_path / "store.db") as address:
        told = httpx.get(f"{address}/v1/rankers", headers={"X-Long": "x" * 200_000})
        text = httpx.get(f"{address}/openapi.json").json()
    assert told.status_code == 431
    schema = text["components"]["schemas"]["Problem"]
    jsonschema.validate(told.json(), closed(schema))
    assert all("431" in item["responses"] for path in text["paths"].values() for item in path.values())


def test_keys_are_declared_as_they_are_asked_for(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db")
    key, secret = new_key("ranks", ["rank"], 0.0)
    store.put_key(key, "test")
    store.close()
    with running_app(tmp_path / "store.db") as client:
        walk = Walk(client)
        assert walk.text["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
        for method, path in operations(walk.text):
            wanted = "security" in walk.text["paths"][path][method]
            address = path.replace("{name}", "a").replace("{impression_id}", "1-x")
            if wanted:
                walk(method.upper(), address, 401)
            else:
                walk(method.upper(), address, 200)
        mine = {"Authorization": f"Bearer {secret}"}
        walk("PUT", "/v1/rankers/a", 403, json={"n_features": 2}, headers=mine)
        walk("GET", "/v1/audit", 403, headers=mine)


def test_a_store_in_trouble_is_declared(walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    from pairrank.errors import StorageError

    def broken(*_: object) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(walk.client.app.state.worker.store, "rankers", broken)
    walk("GET", "/v1/rankers", 503)


def test_nothing_of_the_frameworks_own_refusals_is_declared(walk: Walk) -> None:
    assert "HTTPValidationError" not in walk.text["components"]["schemas"]
    for path, item in walk.text["paths"].items():
        for method, operation in item.items():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    shape = answer["content"]["application/json"]["schema"]
                    assert shape == {"$ref": "#/components/schemas/Problem"}, (method, path, status)


def test_the_walk_can_fail(walk: Walk) -> None:
    """An answer with one field more than was told, or another status, does not pass."""
    walk.client.put("/v1/rankers/a", json={"n_features": 2})
    clicked(walk.client, ranked(walk.client), "d1")
    del walk.text["components"]["schemas"]["RankerAnswer"]["properties"]["lag"]
    with pytest.raises(jsonschema.ValidationError):
        walk("GET", "/v1/rankers/a", 200)
    del walk.text["paths"]["/v1/rankers"]["get"]["responses"]["200"]
    with pytest.raises(KeyError):
        walk("GET", "/v1/rankers", 200)


def test_every_reference_leads_somewhere(walk: Walk) -> None:
    known = {f"#/components/schemas/{name}" for name in walk.text["components"]["schemas"]}
    found = set(re.findall(r"'\$ref': '([^']+)'", str(walk.text)))
    assert found
    assert found <= known
