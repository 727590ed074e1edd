"""The pages' routes without a browser: HTML, JSON, drawings, keys, and ten thousand impressions."""

from __future__ import annotations

import json
import time
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

import pairrank
from pairrank import rankers
from pairrank.service import log_statistics
from pairrank.service.app import make_app
from pairrank.service.auth import new_key
from pairrank.service.log_statistics import POINTS
from pairrank.service.pages.layout import Markup, join, tag
from pairrank.service.playground.documents import collect
from pairrank.service.playground.index import build
from pairrank.service.playground.routes import routes as play_routes
from pairrank.service.store import open_store
from pairrank.types import Impression

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette would rather have a successor of httpx
    from starlette.testclient import TestClient

PAGE = 20
DOCUMENTS = [f"d{i}" for i in range(8)]
# An index of what is written in C alone: seconds less.
IN_C = build(*collect([]))


def running(path: Path, **options: Any) -> TestClient:
    """The service with both pages."""
    app = make_app(path, routes=(partial(play_routes, index=IN_C),), **{"learner": True, **options})
    return TestClient(app, base_url="http://127.0.0.1")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with running(tmp_path / "store.db") as opened:
        yield opened


def rank(client: TestClient, name: str = "shop", seed: int = 0, k: int = 5) -> dict[str, Any]:
    X = np.random.default_rng(seed).random((len(DOCUMENTS), 2)).tolist()
    body = {
        "query_id": "boots",
        "k": k,
        "documents": [{"id": d, "features": x} for d, x in zip(DOCUMENTS, X, strict=True)],
    }
    answer: dict[str, Any] = client.post(f"/v1/rankers/{name}/rank", json=body).json()
    return answer


def fill(client: TestClient, lists: int, name: str = "shop", **config: Any) -> None:
    client.put(f"/v1/rankers/{name}", json={"n_features": 2, "feature_names": ["near", "far"], **config})
    for seed in range(lists):
        shown = rank(client, name, seed)
        body = {"impression_id": shown["impression_id"], "clicks": [shown["ranking"][1]["id"]]}
        assert client.post(f"/v1/rankers/{name}/feedback", json=body).json()["status"] == "accepted"
    client.get(f"/v1/rankers/{name}?wait=30")


def test_the_series_is_what_the_lists_were(client: TestClient) -> None:
    fill(client, 6)
    told = client.get("/v1/rankers/shop/statistics").json()
    points = told["points"]
    assert [point["lists"] for point in points] == [1] * 6
    # One click on the second place: 1/log2(3) where 1/log2(2) = 1 was possible.
    assert [point["ndcg"] for point in points] == pytest.approx([1 / np.log2(3)] * 6)
    assert {point["ctr"] for point in points} == {1.0}
    first = points[0]
    assert first["explored"] == 1.0
    assert first["blocks"] == 1
    assert first["size_1"] == first["size_5"] == len(DOCUMENTS)  # all of them, also those that were not shown
    assert first["size_10"] is None  # only five were shown
    assert told["newest"]["log_entry"] == 6
    weights = client.get("/v1/rankers/shop/weights").json()
    assert [feature["name"] for feature in weights["features"]] in (["near", "far"], ["far", "near"])
    assert weights["features"][0]["deviation"] > 0
    assert weights["model_version"] == 6


def test_the_page_is_a_frame_for_its_script(client: TestClient) -> None:
    empty = client.get("/")
    assert "No rankers yet" in empty.text
    assert "curl -X PUT http://127.0.0.1/v1/rankers/mine" in empty.text
    fill(client, 3)
    fill(client, 1, "other", ranker="pdgd")
    fill(client, 0, "new")
    page = client.get("/?ranker=shop")
    assert page.headers["content-type"].startswith("text/html")
    assert "unsafe-inline" not in page.headers["content-security-policy"]
    assert 'data-ranker="shop"' in page.text
    assert "style=" not in page.text
    assert page.text.count("<script") == 1
    assert "curl" not in page.text
    # One that has heard nothing is shown with what to send to it.
    assert "curl http://127.0.0.1/v1/rankers/new/rank" in client.get("/?ranker=new").text
    client.delete("/v1/rankers/new")
    # The one that heard from its users last comes first; a name that nobody has is no reason to fail.
    assert 'data-ranker="other"' in client.get("/").text
    missed = client.get("/?ranker=nobody")
    assert missed.status_code == 200
    assert 'data-ranker="nobody"' in missed.text
    assert "curl" not in missed.text


def test_the_api_is_a_page_that_tells_every_operation(client: TestClient) -> None:
    page = client.get("/docs")
    assert "unsafe" not in page.headers["content-security-policy"]
    paths = client.get("/openapi.json").json()["paths"]
    assert page.text.count("<details") == sum(len(item) for item in paths.values())
    for path in paths:
        assert f"<code>{path}</code>" in page.text
    assert "&quot;impression_id&quot;: string" in page.text
    assert "&quot;clicks&quot;: [string, …]" in page.text  # the fields of a body, not only what it is for
    assert "&quot;kind&quot;?: &quot;interleave&quot; or &quot;split&quot; = interleave" in page.text
    assert "by hand" not in page.text
    assert "curl -X PUT http://127.0.0.1/v1/rankers/mine" in page.text


def test_kept_orders_are_told_with_the_models_own_doubt(client: TestClient) -> None:
    client.put("/v1/rankers/shop", json={"n_features": 2, "options": {"z": 0.2}})
    for seed in range(12):  # somebody who likes the first feature
        liked = np.random.default_rng(seed).random((len(DOCUMENTS), 2))[:, 0] > 0.5
        shown = rank(client, "shop", seed)
        clicks = [hit["id"] for hit in shown["ranking"] if liked[DOCUMENTS.index(hit["id"])]]
        client.post("/v1/rankers/shop/feedback", json={"impression_id": shown["impression_id"], "clicks": clicks})
    assert client.get("/v1/rankers/shop?wait=30").json()["lag"] == 0
    kept = client.get("/v1/rankers/shop/statistics").json()["kept"]
    model = pairrank.rankers.from_bytes(client.get("/v1/rankers/shop/model").content)
    doubts, pairs = [], 0
    for number in range(12):
        (found,) = client.app.state.worker.store.impressions(1, 1, number)
        view = model.inspect(Impression.from_bytes(found.body).features)
        doubts.extend((1 - view.chance[view.certain]).tolist())
        pairs += 10  # five documents were shown
    assert kept["share"] == pytest.approx(len(doubts) / pairs)
    assert kept["wrong"] == pytest.approx(np.mean(doubts))
    assert 0 < kept["wrong"] < 0.42
    fill(client, 2, "paper", ranker="pairrank-c")
    told = client.get("/v1/rankers/paper/statistics").json()["kept"]
    assert told["wrong"] is None  # its widths are no standard deviations


def test_the_functions_of_an_additive_model_are_told_as_far_as_documents_reach(client: TestClient) -> None:
    fill(client, 70, options={"model": "additive"})
    client.get("/v1/rankers/shop?wait=30")
    told = client.get("/v1/rankers/shop/weights").json()
    assert told["features"] is None
    assert told["total"] == 2
    model = served_model(client)
    ranges = [max(f["value"]) - min(f["value"]) for f in told["functions"]]
    assert ranges == sorted(ranges, reverse=True)
    for function in told["functions"]:
        effect = model.effect(function["name"], function["x"])
        np.testing.assert_allclose(function["value"], effect.value)
        np.testing.assert_allclose(function["deviation"], effect.sd)
        assert function["x"][0] <= function["documents"][0]
        assert function["documents"][-1] <= function["x"][-1]
        assert function["documents"] == sorted(set(function["documents"]))
        assert function["missing"] is None
    fill(client, 1, "line")
    assert client.get("/v1/rankers/line/weights").json()["functions"] is None


def served_model(client: TestClient) -> pairrank.PairRank:
    found = rankers.from_bytes(client.get("/v1/rankers/shop/model").content)
    assert isinstance(found, pairrank.PairRank)
    return found


def test_an_impression_is_drawn_with_all_candidates_while_they_are_remembered(client: TestClient) -> None:
    fill(client, 4)
    address = "/impressions/shop/3"
    drawn = client.get(f"{address}/drawing.svg")
    assert drawn.headers["content-type"] == "image/svg+xml"
    rows = [e.get("data-row") for e in ET.fromstring(drawn.text).iter() if e.get("class") == "pr-document"]
    assert len(rows) == len(DOCUMENTS)
    assert "<style>" in drawn.text
    assert "<style>" not in client.get(f"{address}/drawing.svg?embed=1").text
    sentences = client.get(f"{address}/pairs?row=2").json()
    assert len(sentences) == len(DOCUMENTS)
    assert sentences[2] is None
    assert all("d2" in sentence for sentence in sentences if sentence)
    alone = client.get(address).text
    assert "<svg" in alone
    assert "Query: boots." in alone


def test_after_a_restart_the_shown_documents_are_drawn(tmp_path: Path) -> None:
    with running(tmp_path / "store.db") as client:
        fill(client, 4)
    with running(tmp_path / "store.db") as client:
        drawn = ET.fromstring(client.get("/impressions/shop/3/drawing.svg").text)
        assert sum(e.get("class") == "pr-document" for e in drawn.iter()) == 5
        assert client.get("/v1/rankers/shop/statistics").json()["points"][-1]["log_entry"] == 4


def test_served_and_now_are_two_models(client: TestClient) -> None:
    fill(client, 12)
    served = client.get("/impressions/shop/0/drawing.svg?when=served").text
    now = client.get("/impressions/shop/0/drawing.svg?when=now").text
    assert ">By model 0<" in served
    assert ">By model 12<" in now
    assert served.replace("By model 0", "By model 12") != now


def test_a_ranker_without_blocks_says_so(client: TestClient) -> None:
    fill(client, 2, ranker="pdgd")
    refused = client.get("/impressions/shop/0/drawing.svg")
    assert refused.status_code == 404
    assert "no notion of blocks" in refused.json()["message"]
    assert "no notion of blocks" in client.get("/impressions/shop/0").text


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/impressions/nobody/0", 404),
        ("/impressions/shop/99", 404),
        (f"/impressions/shop/{2**63}", 404),
        (f"/impressions/shop/{'9' * 5000}/pairs", 404),
        ("/impressions/shop/99/drawing.svg", 404),
        ("/impressions/shop/0/pairs?row=99", 422),
        ("/impressions/shop/0/pairs?row=-1", 422),
        ("/v1/rankers/shop/impressions?offset=x", 422),
        ("/live/rankers", 404),
        ("/static/../app.py", 404),
        ("/static/nothing.js", 404),
    ],
)
def test_wrong_addresses_are_refused_in_a_sentence(client: TestClient, address: str, status: int) -> None:
    fill(client, 1)
    answer = client.get(address)
    assert answer.status_code == status
    assert answer.json()["message"]


def test_the_model_that_is_downloaded_is_the_one_that_learned(client: TestClient, tmp_path: Path) -> None:
    fill(client, 5)
    answer = client.get("/v1/rankers/shop/model")
    path = tmp_path / "model.pairrank"
    path.write_bytes(answer.content)
    model = pairrank.load(path)
    assert model.digest() == client.get("/v1/rankers/shop").json()["state_digest"]


def test_a_ranker_made_anew_has_no_past(client: TestClient) -> None:
    fill(client, 5)
    assert len(client.get("/v1/rankers/shop/statistics").json()["points"]) == 5
    client.delete("/v1/rankers/shop")
    fill(client, 2)
    told = client.get("/v1/rankers/shop/statistics").json()
    assert len(told["points"]) == 2
    assert told["model_version"] == 2


def test_keys_close_the_pages(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db")
    reader, read = new_key("reader", ["rank"], time.time())
    owner, own = new_key("owner", ["admin"], time.time())
    store.put_key(reader, "test")
    store.put_key(owner, "test")
    store.close()
    with running(tmp_path / "store.db") as client:
        assert "keyform" in client.get("/").text
        assert "keyform" in client.get("/play").text
        for address in ("/v1/rankers", "/v1/rankers/shop/statistics", "/play/state", "/impressions/shop/0"):
            assert client.get(address).status_code == 401
        headers = {"Authorization": f"Bearer {read}"}
        mine = {"Authorization": f"Bearer {own}"}
        client.put("/v1/rankers/shop", json={"n_features": 2}, headers=mine)
        page = client.get("/", headers=headers).text
        assert "keyform" not in page
        # What was shown and clicked is for administrators, as under /v1.
        for address in ("/play", "/impressions/shop/0", "/v1/rankers/shop/impressions", "/v1/rankers/shop/model"):
            assert client.get(address, headers=headers).status_code == 403
        assert client.get("/play/state", headers={"Authorization": f"Bearer {own}"}).status_code == 200


def test_many_impressions_cost_no_more_than_a_hundred(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer stays small, and once the log was read its time does not depend on the log's length."""
    monkeypatch.setattr(log_statistics, "LOOK_BACK", 2000)
    took = {}
    for lists in (100, 3000):
        path = tmp_path / f"{lists}.db"
        with running(path) as client:
            client.put("/v1/rankers/shop", json={"n_features": 2})
        _logged(path, lists)
        with running(path, learner=False) as client:
            answer = client.get("/v1/rankers/shop/statistics")
            while answer.json()["behind"]:
                answer = client.get("/v1/rankers/shop/statistics")
            times = []
            for _ in range(7):
                began = time.perf_counter()
                answer = client.get("/v1/rankers/shop/statistics")
                times.append(time.perf_counter() - began)
            took[lists] = min(times)
            points = answer.json()["points"]
            assert sum(point["lists"] for point in points) == min(lists, 2000)
            assert len(points) <= POINTS
            assert len(answer.content) < 100_000
            page = f"/v1/rankers/shop/impressions?limit={PAGE}&offset="
            assert len(client.get(f"{page}{80}").json()["impressions"]) == PAGE
            assert len(client.get(f"{page}{500}").json()["impressions"]) == (PAGE if lists > 500 else 0)
    with capsys.disabled():
        print(f"\nan answer with 3000 impressions takes {took[3000] / took[100]:.2f} times that with 100")


def _logged(path: Path, lists: int) -> None:
    """Lists with feedback, written to the log directly: HTTP would take minutes."""
    store = open_store(path)
    row = store.ranker("shop")
    ranker = row.config.make()
    X = np.random.default_rng(0).random((6, 2))
    first = store.allocate(row.id, lists)
    body = ranker.rank(X, 5).to_bytes()  # the same list over and over: the page reads it, nobody learns from it
    with store.database.transaction(flush=False):
        for seq in range(1, lists + 1):
            store.database.all(
                "INSERT INTO log (ranker_id, seq, kind, created, number, served, version, query_id, ids, clicks, body) "
                "VALUES (?, ?, 'feedback', ?, ?, ?, 0, 'q', ?, ?, ?)",
                (row.id, seq, float(seq), first + seq - 1, float(seq), json.dumps(DOCUMENTS[:5]), b"\0\1\0\0\0", body),
            )
        store.database.all("UPDATE rankers SET log_seq = ?, feedback_count = ? WHERE id = ?", (lists, lists, row.id))
    store.close()


def test_markup_escapes_what_is_not_markup() -> None:
    evil = '<b a="1">&'
    assert tag("p", evil, title=evil) == '<p title="&lt;b a=&quot;1&quot;&gt;&amp;">&lt;b a=&quot;1&quot;&gt;&amp;</p>'
    assert tag("p", tag("b", "x"), None, 3) == "<p><b>x</b>3</p>"
    assert tag("p", hidden=True, inert=False, class_="a", data_x=None) == '<p hidden class="a"></p>'
    assert join("<", Markup("<br>")) == "&lt;<br>"


def test_playground_requests_are_checked(client: TestClient) -> None:
    for body in (
        {},
        {"query": ""},
        {"query": "  "},
        {"query": "a\0b"},
        {"query": "x" * 300},
        {"query": 1},
        {"query": "x", "k": 0},
        {"query": "x", "z": 1},
        [],
    ):
        for address in ("/play/search", "/play/compare"):
            assert client.post(address, json=body).status_code == 422
    assert client.post("/play/search", content=b"{", headers={"Content-Type": "application/json"}).status_code == 400
    for wrong in ({"users": "nobody"}, {"searches": 0}, {"searches": 1.5}, {"searches": True}, {"more": 1}):
        assert client.post("/play/simulate", json=wrong).status_code == 422


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_pages_of_other_sites_cannot_play(client: TestClient, kind: str) -> None:
    """What a browser sends across sites without asking first is refused."""
    for address in ("search", "compare", "simulate", "reset"):
        answer = client.post(f"/play/{address}", content=b'{"query": "x"}', headers={"Content-Type": kind})
        assert answer.status_code == 415
    assert client.get("/v1/rankers").json()["rankers"] == []


def test_the_playground_without_a_browser(tmp_path: Path) -> None:
    with running(tmp_path / "store.db") as client:
        found = client.post("/play/search", json={"query": "square root", "k": 7}).json()
        assert len(found["results"]) == 7
        assert sum(found["blocks"]) == found["candidates"]
        assert {hit["size"] for hit in found["results"]} == {found["candidates"]}  # every order is open yet
        nothing = client.post("/play/search", json={"query": "qqqzzz"}).json()
        assert nothing == {"query": "qqqzzz", "candidates": 0, "results": []}
        assert client.post("/play/compare", json={"query": "qqqzzz"}).json()["lists"] == []

        root = "math.sqrt"
        for _ in range(6):
            found = client.post("/play/search", json={"query": "square root", "k": 60}).json()
            body = {"impression_id": found["impression_id"], "clicks": [root]}
            assert client.post("/v1/rankers/playground/feedback", json=body).json() == {"status": "accepted"}
            client.get("/v1/rankers/playground?wait=30")
        state = client.get("/play/state").json()
        assert state["feedback"] == 6
        assert max(abs(row["weight"]) for row in state["weights"]) > 0.1

        served = client.get("/v1/rankers/playground/impressions").json()["impressions"]
        lists = client.post("/play/compare", json={"query": "square root", "k": 60}).json()["lists"]
        ours, greedy, bm25, random = ([hit["id"] for hit in one["results"]] for one in lists)
        assert root in greedy[:3]  # its twin for complex numbers is almost the same document
        assert [one["name"] for one in lists] == ["PairRank", "Greedy", "BM25", "Random"]
        assert set(ours) == set(greedy) == set(bm25) == set(random)
        assert random != greedy
        assert client.get("/v1/rankers/playground/impressions").json()["impressions"] == served  # nothing was kept

        stream = client.post("/play/simulate", json={"users": "perfect", "searches": 12}).text
        last = json.loads(stream.strip().split("\n\n")[-1].partition("data: ")[2])
        assert last["done"] == last["total"] == 12
        assert 0 <= last["ndcg"] <= 1
        assert 0 < last["bm25"] <= 1
        assert last["feedback"] == 18
        assert client.get("/v1/rankers/playground?wait=30").json()["feedback_count"] == 18
        again = client.post("/play/reset", json={}).json()
        assert again["feedback"] == 0
        assert all(row["weight"] == 0 for row in again["weights"])
