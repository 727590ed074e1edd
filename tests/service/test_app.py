"""The endpoints: what they answer when all is well, and when it is not."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from cluster import Postgres
from starlette.applications import Starlette
from starlette.routing import Mount
from web import ADDRESS, DOCUMENTS, Clock, TestClient, clicked, ranked, running_app, running_server

from pairrank import rankers
from pairrank.client import Client
from pairrank.errors import MissingExtraError, StorageError
from pairrank.service.app import make_app
from pairrank.service.auth import new_key
from pairrank.service.http.ranking import parse_impression
from pairrank.service.settings import METRICS_FOLDER
from pairrank.service.store import SqlStore, open_store, sqlite
from pairrank.service.store.transfer import backup, restore
from pairrank.service.store.values import Config, Limits, Status, Verdict
from pairrank.service.worker import models
from pairrank.service.worker.lists import explores
from pairrank.service.worker.metrics import Metrics
from pairrank.service.worker.models import Models
from pairrank.types import Impression

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(tmp_path: Path, clock: Clock) -> Iterator[TestClient]:
    """A client, with a ranker "a" of two features."""
    with running_app(tmp_path / "store.db", clock) as client:
        assert client.put("/v1/rankers/a", json={"n_features": 2}).status_code == 201
        yield client


def state(client: TestClient) -> dict[str, Any]:
    return dict(client.get("/v1/rankers/a?wait=30").json())


def test_rank_click_and_learn(client: TestClient) -> None:
    for _ in range(60):
        shown = ranked(client, k=3)
        best = max(shown["ranking"], key=lambda item: item["id"])
        assert clicked(client, shown, best["id"]).json() == {"status": "accepted"}
    final = state(client)
    assert (final["feedback_count"], final["model_version"], final["learned_count"]) == (60, 60, 60)
    shown = ranked(client)
    assert [item["position"] for item in shown["ranking"]] == [1, 2, 3, 4, 5]
    assert shown["ranking"][0]["id"] == "d4"
    assert shown["model_version"] <= 60


def test_the_answer_has_the_documents_scores(client: TestClient) -> None:
    shown = ranked(client, k=2, query_id="q")
    assert shown.keys() == {"impression_id", "model_version", "explored", "ranking"}
    assert len(shown["ranking"]) == 2
    assert {item["id"] for item in shown["ranking"]} <= {item["id"] for item in DOCUMENTS}
    assert shown["explored"]  # nothing is known yet


def test_creating_is_idempotent_and_frozen(client: TestClient) -> None:
    assert client.put("/v1/rankers/a", json={"n_features": 2}).status_code == 200
    other = client.put("/v1/rankers/a", json={"n_features": 3})
    assert other.status_code == 409
    assert client.put("/v1/rankers/b", json={"n_features": 2, "ranker": "pdgd", "seed": 4}).status_code == 201
    assert [row["name"] for row in client.get("/v1/rankers").json()["rankers"]] == ["a", "b"]
    assert client.delete("/v1/rankers/b").json() == {"status": "deleted"}
    assert client.delete("/v1/rankers/b").status_code == 404
    assert client.get("/v1/rankers/b").status_code == 404
    assert client.post("/v1/rankers/b/rank", json={"documents": DOCUMENTS}).status_code == 404


def test_a_ranker_whose_extra_is_missing_is_refused_by_the_line_that_installs_it(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    told = client.put("/v1/rankers/b", json={"n_features": 2, "ranker": "olranknet"})
    assert (told.status_code, told.json()["error"]) == (422, "input")
    assert "pip install 'pairrank[neural]'" in told.json()["message"]


def test_a_stored_ranker_whose_extra_is_gone_is_a_fault_of_the_service(
    client: TestClient, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise MissingExtraError("PyTorch", "neural")

    monkeypatch.setattr(rankers, "from_bytes", gone)
    with running_app(tmp_path / "store.db", clock, learner=False) as other:
        told = other.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS})
        assert (told.status_code, told.json()["error"]) == (500, "internal")  # no caller can mend it


def test_feedback_has_an_answer_for_every_case(client: TestClient, clock: Clock) -> None:
    first, second, third = (ranked(client, k=2) for _ in range(3))
    assert clicked(client, first).json() == {"status": "accepted"}
    assert clicked(client, first).json() == {"status": "duplicate"}
    clock.now += 601
    assert clicked(client, second).json() == {"status": "accepted", "late": True}
    foreign = clicked(client, third, "elsewhere")
    assert (foreign.status_code, foreign.json()["error"]) == (422, "foreign")
    assert foreign.json()["message"] == "clicks name 'elsewhere', which the impression did not show"
    clock.now += 86_400
    expired = clicked(client, third)
    assert (expired.status_code, expired.json()["error"]) == (410, "expired")
    for name in ("nonsense", "0-feed", "999-feed", "-1-feed", "١-feed", f"{10**30}-x", "0-"):
        unknown = clicked(client, {"impression_id": name})
        assert (unknown.status_code, unknown.json()["error"]) == (404, "unknown")
    assert state(client)["feedback_count"] == 2


def test_events_are_learned_when_the_window_closes(client: TestClient, clock: Clock) -> None:
    shown = ranked(client, k=3)
    names = [item["id"] for item in shown["ranking"]]
    event = {"event_id": "e1", "impression_id": shown["impression_id"], "document_id": names[1], "type": "click"}
    others = [
        event | {"event_id": "e2", "document_id": "elsewhere"},
        event | {"event_id": "e3", "impression_id": "77-x"},
        event | {"event_id": "e4", "impression_id": "what"},
    ]
    answer = client.post("/v1/rankers/a/events", json=[event, event, *others])
    assert [item["status"] for item in answer.json()] == ["accepted", "duplicate", "foreign", "unknown", "unknown"]
    assert [item["event_id"] for item in answer.json()] == ["e1", "e1", "e2", "e3", "e4"]
    assert state(client)["feedback_count"] == 0
    clock.now += 601
    for _ in range(500):
        if state(client)["model_version"] == 1:
            break
        time.sleep(0.02)
    assert state(client)["feedback_count"] == 1
    (impression,) = client.get("/v1/rankers/a/impressions").json()["impressions"]
    assert impression["clicks"] == [False, True, False]
    late = client.post("/v1/rankers/a/events", json=[event | {"event_id": "e9"}])
    assert late.json()[0]["status"] == "duplicate"
    assert client.post("/v1/rankers/a/events", json=[]).json() == []


def test_versions_pin_and_rollback(client: TestClient) -> None:
    digest = state(client)["state_digest"]
    for _ in range(3):
        clicked(client, ranked(client), "d4")
    learned = state(client)
    assert learned["state_digest"] != digest
    versions = client.get("/v1/rankers/a/versions").json()["versions"]
    assert versions[0]["current"]
    assert versions[-1]["version"] == 0
    pinned = client.post("/v1/rankers/a/pin", json={"version": 0}).json()
    assert (pinned["served_version"], pinned["model_version"]) == (0, 3)
    assert ranked(client)["model_version"] == 0
    client.post("/v1/rankers/a/pin", json={"version": None})
    assert ranked(client)["model_version"] == 3
    back = client.post("/v1/rankers/a/rollback", json={"version": 0}).json()
    assert back["state_digest"] == digest
    assert back["model_version"] == 4
    assert client.post("/v1/rankers/a/rollback", json={"version": 2**62}).status_code == 404
    assert client.post("/v1/rankers/a/pin", json={"version": 77}).status_code == 404


def test_a_frozen_ranker_serves_and_does_not_learn(client: TestClient) -> None:
    assert client.post("/v1/rankers/a/freeze").json()["frozen"]
    digest = state(client)["state_digest"]
    assert clicked(client, ranked(client), "d4").json() == {"status": "accepted"}
    assert state(client)["state_digest"] == digest
    assert not client.post("/v1/rankers/a/freeze", json={"frozen": False}).json()["frozen"]
    clicked(client, ranked(client), "d4")
    assert state(client)["state_digest"] != digest
    assert state(client)["learned_count"] == 1


def test_limits_change_without_a_restart(client: TestClient) -> None:
    client.post("/v1/rankers/a/limits", json={"explore_share": 0.25})
    explored = [ranked(client)["explored"] for _ in range(40)]
    assert sum(explored) == sum(explores(number, 0.25) for number in range(40)) < 20
    limits = client.post("/v1/rankers/a/limits", json={"explore_share": 1.0, "locked": 2}).json()["limits"]
    assert (limits["explore_share"], limits["locked"]) == (1.0, 2)
    for _ in range(5):
        assert [item["id"] for item in ranked(client)["ranking"][:2]] == ["d0", "d1"]  # ties keep their order
    bad = client.post("/v1/rankers/a/limits", json={"window_seconds": 1e6, "retention_seconds": 1.0})
    assert bad.status_code == 422
    assert state(client)["limits"] == limits


def test_candidates_of_a_deleted_ranker_are_not_drawn_for_another_of_its_name(
    client: TestClient, clock: Clock, tmp_path: Path
) -> None:
    ranked(client)
    client.delete("/v1/rankers/a")
    client.put("/v1/rankers/a", json={"n_features": 3})
    documents = [{"id": item["id"], "features": [*item["features"], 1.0]} for item in DOCUMENTS]
    with running_app(tmp_path / "store.db", clock, learner=False) as other:  # another worker
        assert other.post("/v1/rankers/a/rank", json={"documents": documents}).json()["impression_id"][:2] == "0-"
    assert client.get("/impressions/a/0/pairs").status_code == 200


def test_too_many_open_impressions(tmp_path: Path) -> None:
    with running_app(tmp_path / "store.db") as client:
        client.put("/v1/rankers/a", json={"n_features": 2, "max_open": 3})
        for _ in range(3):
            ranked(client)
        store = open_store(tmp_path / "store.db")
        store.count_open(store.rankers()[0].id)
        store.close()
        client.get("/readyz")  # reads the store anew
        refused = client.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS})
        assert refused.status_code == 429
        assert refused.headers["retry-after"]


def test_the_share_that_explores_is_even() -> None:
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        for start in (0, 12_345):
            count = sum(explores(number, share) for number in range(start, start + 1000))
            assert abs(count - 1000 * share) <= 3


def test_features_by_name(tmp_path: Path) -> None:
    with running_app(tmp_path / "store.db") as client:
        body = {"n_features": 2, "feature_names": ["x", "y"]}
        assert client.put("/v1/rankers/a", json=body).json()["feature_names"] == ["x", "y"]
        named = [{"id": "p", "features": {"y": 2.0}}, {"id": "q", "features": [1.0, 0.5]}]
        shown = client.post("/v1/rankers/a/rank", json={"documents": named}).json()
        number, token = parse_impression(shown["impression_id"])
        (kept,) = client.app.state.worker.store.impressions(1, 1, number)
        assert kept.token == token
        by_id = dict(zip(kept.ids, Impression.from_bytes(kept.body).features.tolist(), strict=True))
        assert by_id == {"p": [0.0, 2.0], "q": [1.0, 0.5]}
        wrong = client.post("/v1/rankers/a/rank", json={"documents": [{"id": "p", "features": {"z": 1.0}}]})
        assert wrong.status_code == 422
        for names in (["x"], ["x", "x"]):
            assert client.put("/v1/rankers/b", json={"n_features": 2, "feature_names": names}).status_code == 422


def test_health_metrics_headers_and_ids(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    ready = client.get("/readyz").json()
    assert ready.pop("store").startswith(f"SQLite {sqlite3.sqlite_version}")
    assert ready == {"status": "ready"}
    clicked(client, ranked(client, k=3), "d4")
    clicked(client, {"impression_id": "nobody"})
    state(client)
    text = client.get("/metrics").text
    for line in (
        'pairrank_feedback_total{ranker="a",status="unknown"} 1.0',
        'pairrank_rank_seconds_count{ranker="a"} 1.0',
        'pairrank_shown_at_position_total{position="3",ranker="a"}',
        'pairrank_model_version{ranker="a"}',
        'pairrank_learner_lag_events{ranker="a"}',
        'pairrank_learner_lag_seconds{ranker="a"}',
        'pairrank_explored_total{ranker="a"} 1.0',
        'pairrank_blocks_total{ranker="a"}',
    ):
        assert line in text
    answer = client.get("/nowhere")
    assert answer.status_code == 404
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-request-id"] != client.get("/nowhere").headers["x-request-id"]
    assert client.post("/healthz").status_code == 405
    assert client.get("/v1/rankers/", follow_redirects=False).json()["error"] == "http"
    assert client.patch("/v1/rankers/a").headers["allow"] == "DELETE, GET, HEAD, PUT"
    assert client.get("/v1/rankers/a/rank").headers["allow"] == "POST"
    for path in ("/healthz", "/v1/rankers/a"):
        assert client.head(path).status_code == 200
    assert client.head("/v1/rankers/a/rank").status_code == 405
    assert "sendBeacon" in client.get("/pairrank.js").text


def test_a_later_page_counts_at_the_positions_of_the_whole_list(client: TestClient) -> None:
    first = ranked(client, k=2)
    clicked(client, first)
    rest = ranked(client, k=2, page_of=first["impression_id"])
    assert rest["ranking"][1]["position"] == 4
    clicked(client, rest, rest["ranking"][1]["id"])
    state(client)
    text = client.get("/metrics").text
    shown = [f'pairrank_shown_at_position_total{{position="{place}",ranker="a"}} 1.0' for place in range(1, 5)]
    assert all(line in text for line in shown)
    (line,) = (line for line in text.splitlines() if line.startswith("pairrank_clicks_at_position_total"))
    assert 'position="4"' in line
    newest = client.get("/v1/rankers/a/statistics").json()["newest"]
    assert newest["ndcg"] == pytest.approx(1 / np.log2(5))
    assert newest["size_1"] is None


def test_rankers_that_come_and_go_leave_nothing_behind(client: TestClient) -> None:
    worker, sizes = client.app.state.worker, set()
    for number in range(12):
        name = f"temporary-{number}"
        client.put(f"/v1/rankers/{name}", json={"n_features": 2})
        shown = client.post(f"/v1/rankers/{name}/rank", json={"documents": DOCUMENTS}).json()
        client.post(f"/v1/rankers/{name}/feedback", json={"impression_id": shown["impression_id"], "clicks": ["d1"]})
        assert f'pairrank_rank_seconds_count{{ranker="{name}"}} 1.0' in client.get("/metrics").text
        client.delete(f"/v1/rankers/{name}")
        text = client.get("/metrics").text
        assert "temporary" not in text
        assert 'pairrank_requests_total{status="201"}' in text
        sizes.add((len(worker.metrics._rows), len(worker.metrics._places), len(worker.models._heads)))
    assert len(sizes) == 1


def test_a_ranker_that_goes_while_it_is_looked_at_is_forgotten(tmp_path: Path) -> None:
    """Another worker deletes it between two reads of one refresh."""
    store = open_store(tmp_path / "store.db")
    store.create("a", Config(2), Limits(), 0.0, "test")
    models = Models(store)

    async def go() -> None:
        await models.refresh()
        await models.get("a")
        look = models._look

        def deleted(watched: set[int]) -> Any:
            seen = look(watched)
            store.delete("a", 0.0, "test")
            return seen

        models._epoch = -1
        with mock.patch.object(models, "_look", deleted):
            await models.refresh()
        assert (models._items, models._heads) == ({}, {})
        await models.close()

    asyncio.run(go())
    store.close()


def test_a_version_that_cannot_be_read_holds_up_nobody_else(client: TestClient) -> None:
    client.put("/v1/rankers/b", json={"n_features": 2})
    shown = client.post("/v1/rankers/b/rank", json={"documents": DOCUMENTS}).json()
    store = open_store(client.app.state.worker.url)
    first = ranked(client)
    with store.database.transaction():  # as if it had been deleted a moment ago
        store.database.all("UPDATE heads SET version = 7 WHERE ranker_id = ?", (store.ranker("a").id,))
    store.close()
    assert client.get("/readyz").status_code == 200
    told = client.post("/v1/rankers/b/feedback", json={"impression_id": shown["impression_id"], "clicks": ["d1"]})
    assert told.status_code == 200
    assert client.get("/v1/rankers/b?wait=30").json()["model_version"] == 1
    assert client.post("/v1/rankers/b/rank", json={"documents": DOCUMENTS}).json()["model_version"] == 1
    assert ranked(client)["model_version"] == first["model_version"]


def test_counters_of_all_workers_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path / "store.db")
    rows = [store.create(f"r{number}", Config(2), Limits(), 0.0, "test")[0] for number in range(30)]
    store.close()
    (tmp_path / "counted").mkdir()
    monkeypatch.setenv(METRICS_FOLDER, str(tmp_path / "counted"))
    workers = [Metrics(), Metrics()]
    for number, worker in enumerate(workers):
        for row in rows:
            worker.took(row, 0.003)
            worker.clicked(row, Verdict(Status.ACCEPTED, positions=(0, 25), shown=30))
            worker.count(row, "feedback", [Status.ACCEPTED, Status.LATE, Status.LATE])
        worker.listed(rows[0], documents=7, blocks=2, explored=number > 0)
        worker.answered(200)
        worker.answered(299)  # a route of somebody's own
    texts = [worker.render(rows, {}).decode() for worker in workers]
    assert texts[0] == texts[1]
    for line in (
        'pairrank_rank_seconds_bucket{le="0.002",ranker="r29"} 0.0',
        'pairrank_rank_seconds_bucket{le="0.005",ranker="r29"} 2.0',
        'pairrank_rank_seconds_bucket{le="+Inf",ranker="r29"} 2.0',
        'pairrank_rank_seconds_sum{ranker="r29"} 0.006',
        'pairrank_documents_total{ranker="r0"} 14.0',
        'pairrank_explored_total{ranker="r0"} 1.0',
        'pairrank_feedback_total{ranker="r3",status="late"} 4.0',
        'pairrank_shown_at_position_total{position="20",ranker="r3"} 2.0',
        'pairrank_clicks_at_position_total{position="1",ranker="r3"} 2.0',
        'pairrank_requests_total{status="200"} 2.0',
        'pairrank_requests_total{status="other"} 2.0',
    ):
        assert f"{line}\n" in texts[0]
    size = sum(file.stat().st_size for file in (tmp_path / "counted").iterdir())
    workers[0].keep(rows[1:])  # the other one has died
    assert 'documents_total{ranker="r0"} 7.0' in workers[0].render([], {}).decode()
    assert '"r0"' not in workers[0].render(rows[1:], {}).decode()
    workers[0].took(replace(rows[0], id=99, name="new"), 1.0)  # in its place
    assert sum(file.stat().st_size for file in (tmp_path / "counted").iterdir()) == size
    assert 'pairrank_rank_seconds_sum{ranker="new"} 1.0' in Metrics().render([], {}).decode()


def test_a_worker_counts_on_without_the_folder_of_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tidies up /tmp takes it away after some days without a request."""
    monkeypatch.setenv(METRICS_FOLDER, str(tmp_path / "counted"))
    (tmp_path / "counted").mkdir()
    workers = [Metrics()]
    shutil.rmtree(tmp_path / "counted")
    workers.append(Metrics())  # a worker that starts later
    for worker in workers:
        worker.answered(200)
        assert 'pairrank_requests_total{status="200"} 1.0' in worker.render([], {}).decode()


def test_impressions_and_audit(client: TestClient) -> None:
    shown = ranked(client, k=3, query_id="shoes")
    clicked(client, shown, shown["ranking"][0]["id"])
    state(client)
    (found,) = client.get("/v1/rankers/a/impressions").json()["impressions"]
    assert (found["impression_id"], found["state"], found["query_id"]) == (shown["impression_id"], "learned", "shoes")
    assert found["clicks"] == [True, False, False]
    assert [act["act"] for act in client.get("/v1/audit").json()["audit"]] == ["create"]
    assert client.get("/v1/rankers/a/impressions?limit=0").status_code == 422


def test_keys_and_roles(client: TestClient, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db")
    secrets = {}
    for role in ("rank", "feedback", "admin"):
        key, secrets[role] = new_key(role, [role], 1.0)
        store.put_key(key, "test")
    client.get("/readyz")

    def status(method: str, path: str, role: str | None, **body: Any) -> int:
        headers = {} if role is None else {"authorization": f"Bearer {secrets.get(role, role)}"}
        return int(client.request(method, f"/v1/rankers{path}", headers=headers, **body).status_code)

    rank = {"json": {"documents": DOCUMENTS}}
    assert status("POST", "/a/rank", None, **rank) == 401
    assert status("POST", "/a/rank", "prk_wrong", **rank) == 401
    assert status("POST", "/a/rank", "feedback", **rank) == 403
    assert status("POST", "/a/rank", "rank", **rank) == 200
    assert status("POST", "/a/rank", "admin", **rank) == 200
    assert status("POST", "/a/feedback", "rank", json={}) == 403
    assert status("POST", "/a/feedback", "feedback", json={}) == 422
    assert status("POST", "/a/events", None, json=[]) == 401
    assert status("PUT", "/b", "rank", json={"n_features": 2}) == 403
    assert status("DELETE", "/a", "feedback") == 403
    assert status("GET", "/a", "rank") == 200
    assert status("GET", "/a", None) == 401
    assert status("GET", "/a/impressions", "rank") == 403
    assert client.get("/metrics").status_code == 401
    assert client.get("/healthz").status_code == 200
    store.drop_key("rank", 2.0, "test")  # takes effect without a restart
    client.get("/readyz")
    assert status("POST", "/a/rank", "rank", **rank) == 401
    store.close()


def test_public_events_need_no_key_and_origins_are_told(tmp_path: Path) -> None:
    origin = "https://shop.example"
    with running_app(tmp_path / "s.db", public_events=True, allow_origins=f"{origin}, https://b.example") as client:
        client.put("/v1/rankers/a", json={"n_features": 2})
        shown = ranked(client)
        store = open_store(tmp_path / "s.db")
        store.put_key(new_key("k", ["admin"], 1.0)[0], "test")
        store.close()
        client.get("/readyz")
        event = {"event_id": "e", "impression_id": shown["impression_id"], "document_id": "d1", "type": "click"}
        headers = {"origin": origin, "content-type": "text/plain"}
        answer = client.post("/v1/rankers/a/events", content=json.dumps([event]), headers=headers)
        assert answer.json()[0]["status"] == "accepted"
        assert answer.headers["access-control-allow-origin"] == origin
        encoded = client.post("/v1/rankers/a/events", content=b"", headers=headers | {"content-encoding": "gzip"})
        assert (encoded.status_code, encoded.headers["access-control-allow-origin"]) == (415, origin)
        other = client.post("/v1/rankers/a/events", content=b"[]", headers={"origin": "https://evil.example"})
        assert (other.status_code, other.json()["error"]) == (403, "origin")
        assert "access-control-allow-origin" not in other.headers
        asks = {"origin": origin, "access-control-request-method": "POST"}
        assert client.options("/v1/rankers/a/events", headers=asks).status_code == 200


def test_pages_of_other_sites_may_not_write(client: TestClient) -> None:
    evil, own = {"origin": "https://evil.example"}, {"origin": "http://127.0.0.1"}
    assert client.post("/v1/rankers/a/freeze", headers=evil).status_code == 403
    assert client.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS}, headers=evil).status_code == 403
    assert client.get("/v1/rankers/a", headers=evil).status_code == 200
    assert client.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS}, headers=own).status_code == 200
    assert not state(client)["frozen"]


def test_a_store_in_trouble_is_a_503_and_recovers(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ranked(client)
    before = state(client)
    store_class = type(client.app.state.worker.store)

    def fail(*_: object) -> None:
        raise StorageError("the store cannot be used right now: database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store_class, "serve", fail)
        patch.setattr(store_class, "feedback", fail)
        for answer in (clicked(client, shown), client.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS})):
            assert answer.status_code == 503
            assert "full" in answer.json()["message"]
            assert answer.headers["retry-after"]
    assert state(client) == before
    assert clicked(client, shown).json() == {"status": "accepted"}


def test_numbers_keys_and_limits_are_those_of_a_store_that_was_put_in_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "NUMBERS", 10)
    monkeypatch.setattr(sqlite, "RENEW_SECONDS", 0.0)
    path, saved, again = tmp_path / "store.db", tmp_path / "saved.db", tmp_path / "again.db"
    with running_app(path) as client:
        client.put("/v1/rankers/a", json={"n_features": 2})  # the epoch is 2, as that of what is restored
        with closing(open_store(path)) as store:
            backup(store, saved)
        with closing(open_store(saved)) as store:
            store.set_limits("a", {"max_open": 77}, 1.0, "test")
        restore(str(saved), f"sqlite:///{again}")
        for _ in range(7):
            ranked(client)
        with closing(open_store(path)) as store:
            store.database.tend()
        for name in ("store.db-wal", "store.db-shm"):
            (tmp_path / name).unlink()
        again.rename(path)
        client.get("/readyz")
        assert [clicked(client, ranked(client), "d0").status_code for _ in range(20)] == [200] * 20
        assert client.app.state.worker.models._items["a"].row.limits.max_open == 77


def test_another_ranker_of_the_same_name_in_a_store_that_was_put_in_the_place_of_another(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "RENEW_SECONDS", 0.0)
    ranked(client)
    with closing(open_store(tmp_path / "store.db")) as store, closing(open_store(tmp_path / "other.db")) as other:
        store.database.tend()
        other.create("a", Config(3), Limits(), 1.0, "me")  # with the number and version that ours has
    for name in ("store.db-wal", "store.db-shm"):
        (tmp_path / name).unlink()
    (tmp_path / "other.db").rename(tmp_path / "store.db")
    client.get("/readyz")
    documents = [{"id": "x", "features": [1, 2, 3]}, {"id": "y", "features": [3, 2, 1]}]
    assert client.post("/v1/rankers/a/rank", json={"documents": documents}).status_code == 200


@pytest.mark.postgres
def test_numbers_are_those_of_a_database_that_was_emptied_and_filled_from_a_backup(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "NUMBERS", 10)
    url = postgres.new_database()
    open_store(url).close()
    with running_app(url, learner=False) as client:
        client.put("/v1/rankers/a", json={"n_features": 2})
        with closing(open_store(url)) as store:
            backup(store, tmp_path / "saved.db")
        for _ in range(7):
            ranked(client)
        with closing(open_store(url)) as store:  # the connections of the service stay
            store.database.all("DROP SCHEMA public CASCADE")
            store.database.all("CREATE SCHEMA public")
        assert client.get("/readyz").status_code == 503
        time.sleep(5 * models.POLL_SECONDS)
        restore(str(tmp_path / "saved.db"), url)
        client.get("/readyz")
        assert [clicked(client, ranked(client), "d0").status_code for _ in range(20)] == [200] * 20


def test_a_read_only_database_is_a_503_and_recovers(client: TestClient) -> None:
    shown = ranked(client)
    before = state(client)
    writer = client.app.state.worker.writer
    connections = [writer._store.database, writer._at_once.database]
    for connection in connections:
        connection.all("PRAGMA query_only = ON")
    for answer in (clicked(client, shown), client.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS})):
        assert answer.status_code == 503
        assert "readonly" in answer.json()["message"]
    assert client.get("/readyz").status_code == 503
    assert state(client) == before
    for connection in connections:
        connection.all("PRAGMA query_only = OFF")
    assert clicked(client, shown).json() == {"status": "accepted"}
    assert client.get("/readyz").status_code == 200


def test_a_worker_is_ready_again_some_seconds_after_a_failed_write(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = client.app.state.worker.writer._at_once.database
    database.all("PRAGMA query_only = ON")
    assert client.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS}).status_code == 503
    assert client.get("/readyz").status_code == 503
    monkeypatch.setattr("pairrank.service.worker.group_commit.AILING_SECONDS", 0.0)
    assert client.get("/readyz").status_code == 200


def test_a_fault_in_the_program_tells_the_client_nothing(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret details")

    monkeypatch.setattr(type(client.app.state.worker.store), "rankers", fail)
    answer = client.get("/v1/rankers")
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_not_ready_while_recovering(tmp_path: Path) -> None:
    from scene import Scene

    from pairrank.service.learning.learner import Learner

    store = open_store(tmp_path / "s.db")
    scene = Scene(store)
    scene.feedback(scene.serve())
    assert store.database.hold([0])  # nobody else may learn
    with running_app(tmp_path / "s.db") as client:
        waiting = client.get("/readyz")
        assert (waiting.status_code, waiting.json()["error"]) == (503, "recovering")
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/rankers/a?wait=0").json()["lag"] == 1
        assert ranked(client)["model_version"] == 0
        Learner(store).step(publish=True)
        assert client.get("/readyz").status_code == 200
    store.close()


def test_the_stream_tells_of_changes(tmp_path: Path) -> None:
    with running_server(tmp_path / "s.db") as address, Client(address) as client:
        connection = HTTPConnection(address.removeprefix("http://"), timeout=30)
        connection.request("GET", "/v1/stream")
        response = connection.getresponse()
        assert response.headers["content-type"].startswith("text/event-stream")
        seen = []
        while len(seen) < 2:
            line = response.readline()
            if line.startswith(b"data: "):
                seen.append([row["name"] for row in json.loads(line[6:])["rankers"]])
                client.create("a", 2)
        assert seen == [[], ["a"]]
        response.close()
        connection.close()
        connection.request("HEAD", "/v1/stream")  # has an end, so that the connection goes on
        assert connection.getresponse().read() == b""
        connection.request("HEAD", "/healthz")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["content-length"], answer.read()) == (200, "15", b"")
        connection.close()


def test_a_stream_ends_with_the_key_that_it_was_opened_with(tmp_path: Path) -> None:
    with running_server(tmp_path / "s.db") as address, closing(open_store(tmp_path / "s.db")) as store:
        for name in ("shop", "other"):
            key, secret = new_key(name, ["rank"], 1.0)
            store.put_key(key, "test")
        connection = HTTPConnection(address.removeprefix("http://"), timeout=30)
        while True:
            connection.request("GET", "/v1/stream", headers={"Authorization": f"Bearer {secret}"})
            if (response := connection.getresponse()).status == 200:  # the worker has seen the keys
                break
            response.read()
        store.drop_key(name, 2.0, "test")
        deadline = time.monotonic() + 10.0
        while response.readline():
            assert time.monotonic() < deadline
        connection.close()


def test_impression_ids_parse() -> None:
    assert parse_impression("12-ab") == (12, "ab")
    for text in ("", "-", "12", "12-", "x-y", "1.5-x", " 1-x"):
        assert parse_impression(text) is None


def test_a_worker_answers_when_it_can_rank_however_long_it_takes_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Models.start

    async def load_much(models: Models) -> None:
        await asyncio.sleep(2.5)
        await load(models)

    monkeypatch.setattr(Models, "start", load_much)
    open_store(tmp_path / "store.db").close()
    with running_app(tmp_path / "store.db", learner=False) as client:
        assert client.get("/v1/rankers").status_code == 200


def test_many_streams_ask_the_store_as_often_as_one(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "s.db") as address,
        mock.patch.object(SqlStore, "rankers", autospec=True, side_effect=SqlStore.rankers) as asked,
    ):
        streams = [HTTPConnection(address.removeprefix("http://"), timeout=60) for _ in range(20)]
        for stream in streams:
            stream.request("GET", "/v1/stream")
        answers = [stream.getresponse() for stream in streams]
        for answer in answers:
            assert answer.readline() == b"event: rankers\n"
            while answer.readline() != b": still here\n":
                pass
        for stream in streams:
            stream.close()
    assert 2 <= asked.call_count < 20


def test_an_application_around_it_runs_its_lifespan(tmp_path: Path) -> None:
    service = make_app(tmp_path / "store.db", learner=True)
    mounted = [Mount("/ranking", service)]
    with TestClient(Starlette(routes=mounted), ADDRESS) as client:
        told = client.get("/ranking/v1/rankers")
        assert told.status_code == 503
        assert "lifespan" in told.json()["message"]
    around = Starlette(routes=mounted, lifespan=lambda _: service.router.lifespan_context(service))
    with TestClient(around, ADDRESS) as client:
        assert client.put("/ranking/v1/rankers/a", json={"n_features": 2}).status_code == 201
