"""Launches in the service: shadow, guarded, free, and a breach; the same state after a restart and after a replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web import DOCUMENTS, Clock, TestClient, check_store, clicked, ranked, running_app

from pairrank import PairRank
from pairrank.service.http.experiments import describe_launch
from pairrank.service.learning.trials import TOWARDS, LaunchCourse, place_of
from pairrank.service.store import open_store
from pairrank.service.store.launches import STALE_SECONDS
from pairrank.service.store.values import Entry, LaunchHead, Limits
from pairrank.service.worker.lists import FIRST, Setting, draw
from pairrank.trials import launch as launches
from pairrank.trials.interleaving import exposure

IDS = [document["id"] for document in DOCUMENTS]
# Bold, so that a test sees what it comes to: a launch in earnest takes thousands of lists.
BOLD = {"margin": 0.6, "holdout": 0.3, "delta": 0.5, "most_lost": 1.0}


@pytest.fixture(autouse=True)
def short_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "SHADOW_LISTS", 5)


def begin(client: TestClient) -> None:
    """A ranker that is sure of the opposite of the present order."""
    body = {"n_features": 2, "start": {"weights": [9.0, -9.0], "strength": 1e6}}
    assert client.put("/v1/rankers/a", json=body).status_code == 201
    client.post("/v1/rankers/a/limits", json={"window_seconds": 5})


def decided(client: TestClient, mode: str, **more: Any) -> dict[str, Any]:
    answer = client.put("/v1/rankers/a/launch", json={"mode": mode, **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def told(client: TestClient) -> dict[str, Any]:
    return dict(client.get("/v1/rankers/a/launch?wait=30").json())


def served(client: TestClient, count: int, liked: str) -> list[bool]:
    """Lists to users who click ``liked`` where it stands first; which of them were ours."""
    ours = []
    for _ in range(count):
        shown = ranked(client, k=3, query_id="q")
        ids = [document["id"] for document in shown["ranking"]]
        ours.append(ids == IDS[:-4:-1])
        assert ours[-1] or ids == IDS[:3]
        clicked(client, shown, *({liked} & {ids[0]}))
    return ours


def passed(client: TestClient, clock: Clock) -> None:
    """All windows close, the learner counts what there is and works the share out."""
    clock.now += 6.0
    worker = client.app.state.worker
    waiting = "SELECT count(*) FROM impressions"
    while client.portal.call(worker.models.read, worker.store.database.all, waiting) != [(0,)]:
        pass
    client.get("/v1/rankers/a?wait=30")
    while True:
        row = client.portal.call(worker.models.read, worker.store.ranker, "a")
        if row.launch.mode != "guarded" or row.launch.looked == clock.now:
            break
    client.portal.call(worker.models.refresh)


def test_a_hostile_ranker_is_stopped(store_url: str) -> None:
    clock = Clock()
    for life in range(2):  # the service is stopped in the middle of it
        with running_app(store_url, clock) as client:
            if not life:
                begin(client)
                assert decided(client, "shadow", auto=True, **BOLD)["mode"] == "shadow"
                assert served(client, 6, "d0") == [False] * 6
                shadow = told(client)
                assert (shadow["mode"], shadow["lists"], shadow["agreement"]) == ("guarded", 5, pytest.approx(1 / 3))
            came: list[bool] = []
            for _ in range(6 if life else 3):
                passed(client, clock)
                if told(client)["mode"] == "guarded":
                    came += served(client, 15, "d0")
            assert 0 < sum(came) < 0.8 * len(came)
            state = told(client)
        check_store(store_url)
        if not life:
            with running_app(store_url, clock) as client:
                now_and_then = {"share": 0, "sentence": ""}  # what is on its way is not of the log
                assert told(client) | now_and_then == state | now_and_then
    with running_app(store_url, clock) as client:
        stopped = told(client)
        assert (stopped["mode"], stopped["share"], stopped["breaches"]) == ("frozen", 0.0, 1)
        assert stopped["gain"][1] < -BOLD["margin"]
        assert stopped["sentence"].startswith("Stopped by a breach after")
        row = client.get("/v1/rankers/a?wait=30").json()
        assert row["frozen"]
        assert row["pinned"] <= stopped["good_version"]
        acts = [act for act in client.get("/v1/audit").json()["audit"] if act["act"] == "breach"]
        assert [(act["actor"], act["subject"], act["detail"]["pinned"]) for act in acts] == [
            ("learner", "a", row["pinned"])
        ]
        assert 'pairrank_launch_breaches{ranker="a"} 1.0' in client.get("/metrics").text
        assert not any(served(client, 3, "d0"))  # the present order, and nothing is learned


@pytest.fixture
def app(tmp_path: Path) -> Iterator[TestClient]:
    with running_app(tmp_path / "store.db", Clock()) as client:
        begin(client)
        yield client


def test_a_good_ranker_goes_free(app: TestClient, tmp_path: Path) -> None:
    clock = app.app.state.worker.clock
    decided(app, "guarded", auto=True, **BOLD)
    for _ in range(9):
        passed(app, clock)
        served(app, 15, "d4")
        if told(app)["mode"] == "free":
            break
    free = told(app)
    assert (free["mode"], free["share"]) == ("free", 1.0)
    assert free["gain"][0] > 0.0
    assert served(app, 2, "d4") == [True, True]
    check_store(str(tmp_path / "store.db"))


def test_shadow_serves_as_sent_and_learns(app: TestClient) -> None:
    app.put("/v1/rankers/b", json={"n_features": 2})
    app.put("/v1/rankers/b/launch", json={"mode": "shadow"})
    for _ in range(20):
        shown = app.post("/v1/rankers/b/rank", json={"documents": DOCUMENTS, "k": 3}).json()
        assert [document["id"] for document in shown["ranking"]] == IDS[:3]
        body = {"impression_id": shown["impression_id"], "clicks": ["d2"]}
        app.post("/v1/rankers/b/feedback", json=body)
    app.get("/v1/rankers/b?wait=30")
    weights = {row["name"]: row["weight"] for row in app.get("/v1/rankers/b/weights").json()["features"]}
    assert weights["feature 1"] > 0 > weights["feature 2"]


def test_no_document_loses_more_than_is_allowed(app: TestClient) -> None:
    clock = app.app.state.worker.clock
    decided(app, "guarded", **BOLD | {"most_lost": 0.4})
    seen = set()
    for _ in range(4):
        passed(app, clock)
        for _ in range(8):
            shown = ranked(app, k=3)
            seen.add(tuple(document["id"] for document in shown["ranking"]))
    assert len(seen) > 1
    for ids in seen:
        for rank, name in enumerate(IDS[:3], 1):
            assert exposure(np.array(ids.index(name) + 1)) >= 0.6 * exposure(np.array(rank))


def test_pages_stay_with_the_first(app: TestClient) -> None:
    clock = app.app.state.worker.clock
    decided(app, "guarded", **BOLD)
    passed(app, clock)
    served(app, 15, "d4")
    passed(app, clock)
    ways = set()
    for _ in range(12):
        first = ranked(app, k=2)
        second = ranked(app, k=3, page_of=first["impression_id"])
        ids = [document["id"] for document in (*first["ranking"], *second["ranking"])]
        assert ids in (IDS, IDS[::-1])
        ways.add(ids[0])
    assert ways == {"d0", "d4"}


def test_a_share_is_for_all_lists_that_come_until_it_is_worked_out_again(store_url: str) -> None:
    """A learner that is slow, or starts again, leaves workers with the share that they have for some seconds."""
    clock = Clock()
    with running_app(store_url, clock) as client:
        begin(client)
        decided(client, "guarded", **BOLD | {"margin": 0.3})
        for count in (15, 12):
            passed(client, clock)
            served(client, count, "d4")
        clock.now += 0.8 * STALE_SECONDS
        worker, counted = client.app.state.worker, told(client)
        while (head := client.portal.call(worker.models.read, worker.store.ranker, "a").launch).looked < clock.now:
            pass
        rows = client.portal.call(worker.models.read, worker.store.database.all, "SELECT share FROM impressions")
        shares = [share for (share,) in rows]
    assert (head.mode, counted["guarded_lists"], len(shares)) == ("guarded", 15, 12)
    allowed = 0.3 * (15 + 12 + 1) - counted["lost"] - sum(shares)
    assert head.share == pytest.approx(allowed / 13)
    assert head.share > 0.0


def test_without_a_learner_nobody_gets_ours() -> None:
    """A share that nobody works out any more is not used."""
    X, ranker = np.array([document["features"] for document in DOCUMENTS]), PairRank(2)
    head = LaunchHead("guarded", 1, "{}", 1.0, share=0.9, looked=0.0, breaches=0)
    for now, some in ((1.0, True), (2 * STALE_SECONDS, False)):
        drawn = [draw(Setting(ranker, Limits(), n, X, 3, None, FIRST, (), {}, head, now)) for n in range(20)]
        assert any(item.noted["ours"] for item in drawn) == some
        assert {item.share for item in drawn} == {0.9 if some else 0.0}


def test_the_same_decision_twice_is_one(app: TestClient) -> None:
    decided(app, "shadow")
    decided(app, "shadow")
    acts = [act for act in app.get("/v1/audit").json()["audit"] if act["act"] == "launch"]
    assert [act["detail"]["mode"] for act in acts] == ["shadow"]
    assert app.get("/v1/rankers/a?wait=30").json()["log_length"] == 1


def test_what_users_got_before_is_the_last_good_version_also_where_it_was_pinned(app: TestClient) -> None:
    clicked(app, ranked(app), "d0")
    assert app.get("/v1/rankers/a?wait=30").json()["model_version"] == 1
    app.post("/v1/rankers/a/pin", json={"version": 0})
    decided(app, "guarded", **BOLD)
    assert told(app)["good_version"] == 0  # a breach pins it
    row = app.app.state.worker.store.ranker("a")
    assert describe_launch(row, row.launch, None)["good_version"] == 0, "before the learner has come to it, too"


def test_mistakes_get_one_sentence_each(app: TestClient) -> None:
    app.put("/v1/rankers/trees", json={"n_features": 2, "ranker": "pdgd"})
    for name, body, status, said in (
        ("a", {"mode": "bold"}, 422, "mode"),
        ("a", {"mode": "guarded", "margin": 0.0}, 422, "margin is 0.0"),
        ("a", {"mode": "guarded", "holdout": 0.9}, 422, "holdout is 0.9"),
        ("a", {"mode": "guarded", "most_lost": 1.5}, 422, "most_lost is 1.5"),
        ("trees", {"mode": "shadow"}, 422, "cannot learn from lists that it did not draw alone"),
        ("nobody", {"mode": "shadow"}, 404, "no ranker is called 'nobody'"),
    ):
        answer = app.put(f"/v1/rankers/{name}/launch", json=body)
        assert answer.status_code == status, answer.text
        assert said in answer.json()["message"]
    assert app.get("/v1/rankers/a/launch").status_code == 404
    assert app.put("/v1/rankers/trees/launch", json={"mode": "free"}).json()["sentence"] == "Users see ours."


def test_a_query_is_known_by_its_lists() -> None:
    """The guess of a list's value is the mean of the same query's lists, drawn towards that of all; known again."""
    begun = {"mode": "guarded", "margin": 0.1, "holdout": 0.1, "delta": 0.1, "auto": False}
    course = LaunchCourse.begun(Entry(1, "launch", 0.0, None, None, None, trial=json.dumps(begun), version=0), None)
    noted = {"launch": 1, "mode": "guarded", "ours": False, "share": 0.0}
    for seq in range(2, 42):
        query, clicks = ("easy", b"\1\0") if seq % 2 else ("hard", b"\0\0")
        entry = Entry(seq, "feedback", 0.0, None, clicks, b"", trial=json.dumps(noted), version=0, query_id=query)
        course = course.after(entry, noted)
    assert course.expected(place_of("easy")) == (20 * 1.0 + TOWARDS * 0.5) / (20 + TOWARDS)
    assert course.expected(place_of("hard")) == (TOWARDS * 0.5) / (20 + TOWARDS)
    assert course.expected(place_of("new")) == 0.5
    assert LaunchCourse.from_json(json.loads(course.to_json())) == course


def test_what_is_on_its_way_is_counted_by_an_index_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for four times a second, and with a hundred lists per second there are sixty thousand of them."""
    store = open_store(tmp_path / "store.db")
    asked: list[Any] = []
    one = store.database.one
    monkeypatch.setattr(store.database, "one", lambda *words: asked.append(words) or one(*words))
    store.flight(1, 0, 0.0)
    ((sql, values),) = asked
    plan = [str(row[-1]) for row in store.database.all(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert [line.startswith("SEARCH i USING COVERING INDEX") for line in plan if " i " in line] == [True]
    store.close()
