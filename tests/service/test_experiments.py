"""Experiments in the service: what is shown, what counts, the same bits after a restart, one sentence for mistakes."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from cluster import until
from web import DOCUMENTS, Clock, TestClient, check_store, clicked, ranked, running_app

import pairrank
from pairrank.cli import main
from pairrank.rankers import Ranker
from pairrank.service.learning.replay import load_whole, replay
from pairrank.service.store import open_store
from pairrank.trials.experiment import Arm, Definition
from pairrank.types import Impression

IDS = [document["id"] for document in DOCUMENTS]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("experiments") / "store.db")


@pytest.fixture(scope="module")
def service(file: str) -> Iterator[TestClient]:
    with running_app(file, Clock()) as client:
        yield client


@pytest.fixture
def app(service: TestClient) -> TestClient:
    """The service with the ranker a, which nothing has happened to."""
    for row in service.get("/v1/experiments").json()["experiments"]:
        service.post(f"/v1/experiments/{row['name']}/stop")
    for row in service.get("/v1/rankers").json()["rankers"]:
        service.delete(f"/v1/rankers/{row['name']}")
    service.put("/v1/rankers/a", json={"n_features": 2})
    return service


def started(client: TestClient, name: str = "new", **body: Any) -> dict[str, Any]:
    answer = client.put(f"/v1/experiments/{name}", json={"a": "a", "b": "as-sent", **body})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def told(client: TestClient, name: str = "new") -> dict[str, Any]:
    return dict(client.get(f"/v1/experiments/{name}?wait=30").json())


def rows(client: TestClient, columns: str, table: str = "log") -> list[Any]:
    """Straight from the store."""
    worker = client.app.state.worker
    return list(client.portal.call(worker.models.read, worker.store.database.all, f"SELECT {columns} FROM {table}"))


def test_two_orders_in_one_list_until_it_is_decided(app: TestClient, file: str) -> None:
    """Users want d0, which stands first as sent; a new ranker shows anything."""
    made = started(app, learn=False)
    assert (made["impressions"], made["verdict"], made["interval"]) == (0, "undecided", [-1.0, 1.0])
    assert made["sentence"] == "No list has come back yet."
    for _ in range(80):
        shown = ranked(app, k=3)
        ids = [document["id"] for document in shown["ranking"]]
        assert len(set(ids)) == 3
        clicked(app, shown, *({"d0"} & set(ids)))
    found = told(app)
    assert found["impressions"] == 80
    assert found["wins_a"] + found["wins_b"] + found["ties"] == 80
    assert found["wins_b"] > found["wins_a"]
    assert found["verdict"] == "b"
    assert found["interval"][1] <= 0.0
    assert found["p_value"] <= 0.05
    assert found["sentence"].startswith("as-sent is better than a: decided after")
    assert [point["lists"] for point in found["points"]][:3] == [1, 2, 3]
    assert found["points"][-1]["lists"] <= 80
    assert app.get("/v1/rankers/a?wait=30").json()["model_version"] == 80  # read, and nothing learned
    check_store(file)


def test_the_ranker_learns_from_mixed_lists(app: TestClient) -> None:
    started(app)
    for _ in range(30):
        shown = ranked(app, k=4)
        ids = [document["id"] for document in shown["ranking"]]
        clicked(app, shown, max(ids))
    app.get("/v1/rankers/a?wait=30")
    weights = {row["name"]: row["weight"] for row in app.get("/v1/rankers/a/weights").json()["features"]}
    assert weights["feature 1"] > 0 > weights["feature 2"]


def test_teams_stay_in_the_impression(app: TestClient) -> None:
    started(app, credit="team")
    shown = ranked(app, k=4)
    clicked(app, shown, shown["ranking"][0]["id"])
    ((trial, body, ids),) = rows(app, "trial, body, ids")
    noted = json.loads(trial)
    assert sorted(noted["teams"]) == list("aabb")
    assert noted["credit"] == [1.0 if team == "a" else -1.0 for team in noted["teams"]]
    assert json.loads(ids) == [document["id"] for document in shown["ranking"]]
    assert len(Impression.from_bytes(body)) == 4
    found = told(app)
    assert (found["wins_a"], found["wins_b"]) == ((1, 0) if noted["teams"][0] == "a" else (0, 1))


def test_a_split_is_sticky_and_each_client_counts_once(app: TestClient, file: str) -> None:
    started(app, kind="split", a="as-sent", b="a@0")
    clock = app.app.state.worker.clock
    arms = {}
    for client in (f"client {i}" for i in range(12)):
        lists = [[d["id"] for d in ranked(app, k=3, client_id=client)["ranking"]] == IDS[:3] for _ in range(2)]
        arms[client] = lists
    shown = ranked(app, k=3, client_id="client 0")
    assert clicked(app, shown, shown["ranking"][1]["id"]).json() == {"status": "accepted"}
    assert clicked(app, shown).json() == {"status": "duplicate"}
    newest = app.get("/v1/rankers/a/impressions?limit=1").json()["impressions"][0]
    assert (newest["state"], newest["clicks"]) == ("collecting", [False, True, False])
    assert told(app)["impressions"] == 0  # held until the windows close, those without a click as well
    assert rows(app, "count(*)", "impressions") == [(25,)]
    clock.now += 601.0
    while rows(app, "count(*)", "impressions") != [(0,)]:
        pass
    found = told(app)
    assert found["impressions"] == 12
    assert Counter(counts for (counts,) in rows(app, "counts")) == {0: 13, 1: 12}
    digest = Definition(**json.loads(rows(app, "definition", "experiments")[0][0]))
    assert all(all(same) for client, same in arms.items() if digest.gets_a(client))
    empty = found["guardrails"]["lists_without_a_click"]
    assert [empty[arm]["share"] for arm in "ab"] == [1.0, 1.0]
    assert all(0.0 <= arm["interval"][0] < arm["interval"][1] == 1.0 for arm in empty.values())
    served = [at for (at,) in rows(app, "number")]
    assert served == sorted(served)
    check_store(file)


def event(client: TestClient, shown: dict[str, Any], kind: str, document: str | None = None, name: str = "") -> str:
    body = {"event_id": name or f"{kind} {document}", "impression_id": shown["impression_id"], "type": kind}
    sent = [body if document is None else {**body, "document_id": document}]
    return str(client.post("/v1/rankers/a/events", json=sent).json()[0]["status"])


def closed(client: TestClient) -> None:
    """Until all windows are over and their lists are logged."""
    client.app.state.worker.clock.now += 601.0
    while rows(client, "count(*)", "impressions") != [(0,)]:
        pass


@pytest.mark.parametrize("kind", ["interleave", "split"])
def test_purchases_and_reformulations_are_counted_beside_clicks(app: TestClient, file: str, kind: str) -> None:
    """Everybody clicks d4, and only those who get it first buy it, which b does; users of b ask again."""
    made = started(app, kind=kind, a="as-sent", b="a@0", signals=["reformulation", "purchase"])
    assert made["signals"]["purchase"]["interval"] == made["interval"]
    bought = again = 0
    for client in range(40):
        shown = ranked(app, k=3, client_id=f"client {client}")
        ids = [document["id"] for document in shown["ranking"]]
        clicked(app, shown, ids[0])
        if ids[0] == "d4":
            bought += 1
            assert event(app, shown, "purchase", "d4") == "accepted"  # after whole feedback, which is of clicks
            assert event(app, shown, "purchase", "d4") == "duplicate"
            assert event(app, shown, "purchase", "d4", "another") == "duplicate"  # of the same document: once
        if ids != IDS[:3]:
            again += 1
            assert event(app, shown, "reformulation") == "accepted"
    assert event(app, shown, "click", ids[1]) == "duplicate"
    assert event(app, shown, "purchase", "d9") == "foreign"
    assert bought > 2
    assert told(app)["impressions"] == 0  # purchases come after clicks: all lists count when their window closes
    closed(app)
    assert event(app, shown, "purchase", ids[0], "late") == "duplicate"
    found = told(app)
    purchase, guard = found["signals"]["purchase"], found["guardrails"]["reformulations"]
    assert (found["impressions"], found["guardrails"]["lists_without_a_click"].keys()) == (40, guard.keys())
    assert purchase["effect"] < 0.0
    assert purchase["interval"][0] < purchase["effect"] < purchase["interval"][1]
    assert 0.0 < purchase["p_value"] <= 1.0
    if kind == "split":
        assert guard["a"]["share"] == 0.0 < guard["b"]["share"]
    else:
        assert purchase["wins_b"] == bought
        assert guard["both"]["share"] == again / 40
    check_store(file)


def test_other_signals_teach_nothing_and_wait_for_clicks(app: TestClient) -> None:
    shown = ranked(app)
    assert event(app, shown, "purchase", "d1") == "accepted"
    newest = app.get("/v1/rankers/a/impressions?limit=1").json()["impressions"][0]
    assert (newest["state"], any(newest["clicks"])) == ("collecting", False)
    clicked(app, shown, "d2")
    assert event(app, shown, "purchase", "d2") == "duplicate"  # logged; no experiment keeps it open
    assert json.loads(rows(app, "signals")[0][0]).keys() == {"purchase"}
    for wrong, why in (({"type": "wish"}, "'purchase'"), ({"type": "purchase"}, "no document_id")):
        answer = app.post("/v1/rankers/a/events", json=[{"event_id": "e", "impression_id": "1-x", **wrong}])
        assert answer.status_code == 422
        assert why in answer.json()["message"]


def test_without_a_client_nobody_takes_part_in_a_split(app: TestClient) -> None:
    found = started(app, kind="split")
    assert "client_id" in found["sentence"]
    clicked(app, ranked(app), "d0")
    clicked(app, ranked(app, client_id=""), "d0")  # all visitors without a name are not one client
    assert rows(app, "experiment_id, trial") == 2 * [(None, None)]


def test_a_share_by_list_or_by_client(app: TestClient) -> None:
    started(app, share=0.3)
    started(app, "other", share=0.5)
    for _ in range(100):
        ranked(app, k=2)
    took = Counter(number for (number,) in rows(app, "experiment_id", "impressions"))
    assert took[None] == pytest.approx(20, abs=14)
    assert min(took.values()) > 5
    before = rows(app, "max(number)", "impressions")[0][0]
    for _ in range(5):
        ranked(app, k=2, client_id="always the same")
    same = rows(app, "DISTINCT experiment_id", f"impressions WHERE number > {before}")
    assert len(same) == 1


def test_definitions_are_frozen(app: TestClient) -> None:
    body = {"a": "a", "b": "as-sent", "share": 0.4}
    first = started(app, **body)
    again = app.put("/v1/experiments/new", json=body)
    assert (again.status_code, again.json()) == (200, first)
    changed = app.put("/v1/experiments/new", json={**body, "share": 0.5})
    assert changed.status_code == 409
    assert changed.json()["message"] == (
        "experiment 'new' exists with another definition, and definitions are frozen: choose another name"
    )
    assert told(app)["share"] == 0.4


def test_an_ended_experiment_takes_nobody_and_still_counts(app: TestClient) -> None:
    started(app)
    shown = ranked(app)
    ended = app.post("/v1/experiments/new/stop").json()
    assert ended["ended"] is not None
    assert app.post("/v1/experiments/new/stop").json() == ended
    ranked(app)
    (first, second) = rows(app, "experiment_id", "impressions ORDER BY number")
    assert first[0] is not None
    assert second[0] is None
    clicked(app, shown, "d1")
    assert told(app)["impressions"] == 1
    assert started(app, "next")["share"] == 1.0  # its share is free again


def test_another_ranker_and_a_kept_version_are_arms(app: TestClient) -> None:
    app.put("/v1/rankers/other", json={"n_features": 2, "ranker": "pdgd", "seed": 3})
    started(app, a="a@0", b="other")
    shown = ranked(app, k=5)
    assert sorted(document["id"] for document in shown["ranking"]) == IDS
    clicked(app, shown, "d3")
    assert told(app)["impressions"] == 1


def test_models_of_arms_are_kept_while_they_are_shown(app: TestClient) -> None:
    """There is always an experiment; its arms change."""
    models = app.app.state.worker.models
    for number in range(4):
        version = app.get("/v1/rankers/a?wait=30").json()["model_version"]
        assert version == number
        started(app, f"turn-{number}", b=f"a@{version}", share=0.5)
        if number:
            app.post(f"/v1/experiments/turn-{number - 1}/stop")
        shown = ranked(app, k=3)
        clicked(app, shown, shown["ranking"][1]["id"])
        assert [key[1] for key in models._pinned] == [version]


def test_lists_that_come_together_read_the_model_of_an_arm_once(app: TestClient) -> None:
    """Every administrative act forgets these models."""
    models = app.app.state.worker.models

    async def together() -> list[Ranker | None]:
        return await asyncio.gather(*(models.arm(Arm("a", 0)) for _ in range(20)))

    app.portal.call(models.get, "a")
    with mock.patch.object(models, "_open", wraps=models._open) as opened:
        assert len(set(map(id, app.portal.call(together)))) == 1
    assert opened.call_count == 1


def test_an_arm_that_is_gone_stops_nobody(app: TestClient) -> None:
    """As after a restore of something else, or a deletion at the very moment that the experiment began."""
    app.put("/v1/rankers/other", json={"n_features": 2})
    started(app, b="other")
    worker = app.app.state.worker

    def lose() -> None:
        with worker.store.database.transaction():
            worker.store.database.all("DELETE FROM rankers WHERE name = 'other'")
            worker.store.database.bump()

    app.portal.call(worker.models.read, lose)
    app.portal.call(worker.models.refresh)
    clicked(app, ranked(app), "d1")
    assert rows(app, "experiment_id") == [(None,)]


def test_a_list_with_gaps_that_an_arm_does_not_take_is_served(app: TestClient) -> None:
    for name in "bc":
        app.put(f"/v1/rankers/{name}", json={"n_features": 2, "options": {"model": "additive"}})
    documents = [*DOCUMENTS, {"id": "gap", "features": [None, 0.5]}]
    for other, asked, takes_part in (("a", documents, False), ("a", DOCUMENTS, True), ("c", documents, True)):
        started(app, f"b-{other}-{takes_part}", a="b", b=other)
        answer = app.post("/v1/rankers/b/rank", json={"documents": asked})
        assert answer.status_code == 200, answer.text
        number = int(answer.json()["impression_id"].partition("-")[0])
        served = rows(app, "experiment_id", f"impressions WHERE number = {number} AND trial IS NOT NULL")
        assert len(served) == takes_part
        app.post(f"/v1/experiments/b-{other}-{takes_part}/stop")


def test_an_arm_learns_a_list_with_gaps_as_it_takes_them(app: TestClient) -> None:
    for name, options in (("b", {"model": "additive"}), ("c", {"missing": "mean"})):
        app.put(f"/v1/rankers/{name}", json={"n_features": 2, "options": options})
    started(app, a="b", b="c")
    documents = [*DOCUMENTS, {"id": "gap", "features": [None, 0.5]}]
    shown = app.post("/v1/rankers/b/rank", json={"documents": documents}).json()
    body = {"impression_id": shown["impression_id"], "clicks": ["gap"]}
    assert app.post("/v1/rankers/b/feedback", json=body).status_code == 200
    for name in "bc":
        row = app.get(f"/v1/rankers/{name}?wait=30").json()
        assert (row["learned_count"], row["set_aside"]) == (1, 0), name


def test_both_rankers_learn_from_one_list(app: TestClient, file: str) -> None:
    app.put("/v1/rankers/other", json={"n_features": 2, "seed": 3})
    started(app, b="other")
    for _ in range(30):
        shown = ranked(app, k=4)
        clicked(app, shown, max(document["id"] for document in shown["ranking"]))
    for name in ("a", "other"):
        app.get(f"/v1/rankers/{name}?wait=30")
        row = app.get(f"/v1/rankers/{name}?wait=30").json()
        assert (row["feedback_count"], row["learned_count"], row["set_aside"]) == (30, 30, 0)
        weights = {row["name"]: row["weight"] for row in app.get(f"/v1/rankers/{name}/weights").json()["features"]}
        assert weights["feature 1"] > 0 > weights["feature 2"]
    check_store(file)
    app.post("/v1/experiments/new/stop")
    started(app, "neither", b="other", learn=False)
    clicked(app, ranked(app), "d1")
    app.get("/v1/rankers/a?wait=30")
    assert app.get("/v1/rankers/other?wait=30").json()["feedback_count"] == 30


def test_as_sent_is_the_order_of_arrow_rows_too(app: TestClient) -> None:
    started(app, a="as-sent", b="as-sent", ranker="a", credit="team")
    order = [3, 1, 4, 0, 2]
    table = pa.table(
        {
            "id": [IDS[i] for i in order],
            "features": pa.array([DOCUMENTS[i]["features"] for i in order], pa.list_(pa.float64(), 2)),
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answer = app.post(
        "/v1/rankers/a/rank?k=9&client_id=me",  # more than there are: all of them
        content=sink.getvalue(),
        headers={"Content-Type": "application/vnd.apache.arrow.stream"},
    )
    assert [document["id"] for document in answer.json()["ranking"]] == [IDS[i] for i in order]
    assert rows(app, "experiment_id IS NOT NULL", "impressions") == [(True,)]


def refused(client: TestClient, status: int, **body: Any) -> str:
    answer = client.put("/v1/experiments/wrong", json={"a": "a", "b": "as-sent", **body})
    assert answer.status_code == status, answer.text
    assert client.get("/v1/experiments/wrong").status_code == 404
    return str(answer.json()["message"])


def test_mistakes_get_one_sentence_each(app: TestClient) -> None:
    app.put("/v1/rankers/wide", json={"n_features": 3})
    app.put("/v1/rankers/trees", json={"n_features": 2, "ranker": "pdgd"})
    started(app, "half", share=0.5)
    assert refused(app, 422, b="nobody") == "arm 'nobody' is unknown: no ranker is called 'nobody'"
    assert "arm 'a@12' is unknown: version 12 of ranker 'a' is not kept" in refused(app, 422, b="a@12")
    assert "shop@1200" in refused(app, 422, b="a b")
    assert "the same documents" in refused(app, 422, b="wide")
    assert "both arms" in refused(app, 422, b="a")
    assert "whose requests" in refused(app, 422, a="as-sent", credit="team")
    assert "no gap of that width" in refused(app, 422, share=0.6)
    for share in (0.0, -0.1, 1.1):
        assert "share is" in refused(app, 422, share=share)
    assert "level is" in refused(app, 422, level=0.0)
    assert "signals.0" in refused(app, 422, signals=["wish"])
    assert 'send "learn": false' in refused(app, 422, a="trees", learn=True)
    gone = app.delete("/v1/rankers/a")
    assert gone.status_code == 409
    assert gone.json()["message"] == "experiment 'half' runs and needs ranker 'a': stop the experiment first"
    ranked(app)  # nothing is lost
    app.post("/v1/experiments/half/stop")
    assert app.delete("/v1/rankers/a").status_code == 200
    assert app.get("/v1/experiments/half").status_code == 404


def test_the_newest_are_listed_and_all_that_run(app: TestClient) -> None:
    for name, share in (("runs", 0.1), ("old", 0.2), ("newer", 0.2), ("newest", 0.2)):
        started(app, name, share=share)
        if name != "runs":
            app.post(f"/v1/experiments/{name}/stop")
    for limit, expected in {1: ["newest", "runs"], 2: ["newest", "newer", "runs"]}.items():
        listed = app.get(f"/v1/experiments?limit={limit}").json()["experiments"]
        assert [row["name"] for row in listed] == expected
    assert app.get("/v1/experiments?limit=0").status_code == 422


def test_pages_neither_repeat_nor_lose_documents(app: TestClient) -> None:
    for name, body in {"none": None, "mixed": {}, "split": {"kind": "split"}}.items():
        if body is not None:
            started(app, name, **body)
        seen: list[str] = []
        more: dict[str, Any] = {}
        for page in range(3):
            shown = ranked(app, k=2, client_id="me", **more)
            more = {"page_of": shown["impression_id"]}
            assert shown["ranking"][0]["position"] == 2 * page + 1
            seen += [document["id"] for document in shown["ranking"]]
            clicked(app, shown, seen[-1])  # the next page may be asked for before or after
        assert sorted(seen) == IDS
        last = app.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS, **more})
        assert (last.status_code, last.json()["error"]) == (422, "input")
        assert "earlier page" in last.json()["message"]
        if body is not None:
            app.post(f"/v1/experiments/{name}/stop")
    assert told(app, "mixed")["impressions"] == 3


@pytest.mark.parametrize("locked", [0, 1, 3])
@pytest.mark.parametrize("mixed", [False, True])
def test_positions_of_a_page_count_from_the_top_of_the_list(app: TestClient, locked: int, mixed: bool) -> None:
    """Documents alike, and a click on the upper one of two of the second page: β is its mode under its prior."""
    alike = [{"id": name, "features": [0, 0]} for name in IDS]
    app.post("/v1/rankers/a/limits", json={"locked": locked})
    if mixed:
        app.put("/v1/rankers/other", json={"n_features": 2})
        started(app, b="other", learn=True)
    page = {"page_of": ranked(app, documents=alike, k=2)["impression_id"]}
    free = 0 if mixed else max(locked - 2, 0)  # of a mixed list everything is learned from
    shown = ranked(app, documents=alike, k=free + 2, **page)
    clicked(app, shown, shown["ranking"][free]["id"])
    far = np.log((2 + free + 2) / (2 + free + 1))
    for name in ("a", "other") if mixed else ("a",):
        until(lambda name=name: app.get(f"/v1/rankers/{name}?wait=30").json()["feedback_count"] == 1)
        beta, _ = pairrank.rankers.from_bytes(app.get(f"/v1/rankers/{name}/model").content).position_bias()
        assert beta == pytest.approx(far / (1 + np.exp(beta * far)), rel=1e-3)


def test_a_page_of_an_expired_list_says_so(app: TestClient) -> None:
    shown = ranked(app, k=2)
    worker = app.app.state.worker
    worker.clock.now += 2 * 86_400.0
    app.portal.call(worker.models.read, worker.store.expire, worker.clock.now)
    answer = app.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS, "page_of": shown["impression_id"]})
    assert answer.status_code == 410
    assert answer.json()["message"] == "the list to go on with has expired; ask for it from the top"
    for unknown in ("7-x", "x"):
        answer = app.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS, "page_of": unknown})
        assert (answer.status_code, answer.json()["error"]) == (404, "unknown")


def test_a_restart_and_a_compaction_keep_every_bit(store_url: str, tmp_path: Path) -> None:
    """On both databases, with an interleaved experiment and a split side by side."""
    clock = Clock()
    states = []
    for life in range(2):
        with running_app(store_url, clock) as client:
            client.put("/v1/rankers/a", json={"n_features": 2})
            client.put("/v1/experiments/new", json={"a": "a", "b": "as-sent", "share": 0.5})
            body = {"a": "a@0", "b": "as-sent", "share": 0.5, "kind": "split", "signals": ["purchase", "reformulation"]}
            client.put("/v1/experiments/split", json=body)
            for number in range(8):
                shown = ranked(client, k=3, client_id=f"client {number + 4 * life}")
                clicked(client, shown, shown["ranking"][-1]["id"])
                event(client, shown, "purchase", shown["ranking"][0]["id"])
                event(client, shown, "reformulation")
            clock.now += 601.0
            while rows(client, "count(*)", "impressions") != [(0,)]:
                pass
            states.append({name: told(client, name) for name in ("new", "split")})
        check_store(store_url)
        if life == 0:
            assert main(["store", "compact", store_url]) == 0
            check_store(store_url)
    copy = tmp_path / "copy.db"
    assert main(["store", "backup", store_url, str(copy)]) == 0
    check_store(str(copy))
    with running_app(copy, clock) as client:
        assert {name: told(client, name) for name in ("new", "split")} == states[-1]
    # Twelve clients, of whom four came in both lives: in the split they count once.
    assert states[-1]["split"]["impressions"] < 12
    assert {arm["share"] for arm in states[-1]["split"]["guardrails"]["reformulations"].values()} == {1.0}
    assert states[-1]["new"]["impressions"] > states[-2]["new"]["impressions"] > 0


def test_a_compaction_forgets_who_took_part_in_what_has_ended(tmp_path: Path) -> None:
    file, clock = str(tmp_path / "store.db"), Clock()
    with running_app(file, clock) as client:
        client.put("/v1/rankers/a", json={"n_features": 2})
        for name in ("ended", "running"):
            started(client, name, kind="split", share=0.5)
        for visitor in range(40):
            clicked(client, ranked(client, client_id=f"v{visitor}"), "d1")
        clock.now += 700.0  # every window has closed
        until(lambda: sum(told(client, name)["impressions"] for name in ("ended", "running")) == 40)
        client.post("/v1/experiments/ended/stop")
        assert {row[0] for row in rows(client, "experiment_id", "clients")} == {1, 2}
    store = open_store(file)
    for later, left in ((0.0, [1, 2]), (4000.0, [2])):
        row = store.ranker("a")
        store.compact(row, load_whole(store, row).ranker, clock.now + later, "test")
        assert sorted({row[0] for row in store.database.all("SELECT experiment_id FROM clients")}) == left
    store.close()
    check_store(file)


def test_a_state_that_is_not_the_logs_is_found(app: TestClient, file: str) -> None:
    started(app)
    shown = ranked(app)
    clicked(app, shown, "d1")
    told(app)
    store = open_store(file)
    with store.database.transaction():  # as a program wrote it that knew no signals
        store.database.all("UPDATE trials SET state = replace(state, '\"signals\": [], ', '')")
    assert replay(store, store.rankers()[0]).same
    with store.database.transaction():
        store.database.all("UPDATE trials SET state = replace(state, '\"lists\": 1', '\"lists\": 2')")
    result = replay(store, store.rankers()[0])
    store.close()
    assert (result.same, result.wrong_trials) == (False, ("new",))


def test_an_a_a_experiment_of_the_present_order(app: TestClient) -> None:
    """Nothing differs: whatever is clicked, both sides win about as often."""
    started(app, a="as-sent", b="as-sent", ranker="a", credit="team")
    rng = np.random.default_rng(0)
    for _ in range(40):
        clicked(app, ranked(app, k=4), f"d{rng.integers(4)}")
    found = told(app)
    assert found["verdict"] == "undecided"
    assert found["ties"] == 0


def test_missing_and_late_feedback(app: TestClient) -> None:
    """In a split silence is no click, told when the window closes; what comes later changes nothing."""
    started(app, kind="split")
    shown = [ranked(app, k=3, client_id=f"client {number}") for number in range(4)]
    clicked(app, shown[0], shown[0]["ranking"][0]["id"])
    closed(app)
    before = told(app)
    assert before["impressions"] == 4
    assert sum(row["share"] for row in before["guardrails"]["lists_without_a_click"].values()) > 0.0
    click = shown[1]["ranking"][0]["id"]
    assert clicked(app, shown[1], click).json() == {"status": "duplicate"}
    assert event(app, shown[1], "click", click) == "duplicate"
    assert told(app) == before
