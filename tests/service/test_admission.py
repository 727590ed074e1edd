"""Room at the door: in equal shares for the rankers that are asked for, and what clients hear when there is none."""

from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from httpx import Response
from web import DOCUMENTS, clicked, ranked, running_app

from pairrank.service.http import observation
from pairrank.service.worker.admission import Admission, Rates


def test_one_ranker_alone_has_all_of_it() -> None:
    room = Admission(4)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(room.enter("a"))
        assert not room.fits("a")
    assert room.fits("a")


def test_a_busy_ranker_shuts_out_no_other() -> None:
    room = Admission(4)
    with ExitStack() as busy, ExitStack() as other:
        for _ in range(4):
            busy.enter_context(room.enter("a"))
        for _ in range(2):
            other.enter_context(room.enter("b"))  # its half, although all is taken
        assert not room.fits("b")
        assert not room.fits("a")
        assert room.fits("c")
        other.close()
        assert not room.fits("a")
    assert room.fits("a", 4)
    assert not room._inside


def test_a_busy_key_shuts_out_no_other_of_the_same_ranker() -> None:
    room = Admission(4)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(room.enter(("a", "busy")))
        stack.enter_context(room.enter(("a", "other")))
        assert room.fits(("a", "other"))
        assert not room.fits(("a", "busy"))


def test_a_key_sends_so_many_per_second_and_a_second_of_them_at_once() -> None:
    now = 100.0
    rates = Rates(10.0, lambda: now)
    assert [rates.wait("a") for _ in range(10)] == [0.0] * 10
    assert rates.wait("a") == pytest.approx(0.1)
    assert rates.wait("b") == 0.0  # another key's are its own
    now += 0.1
    assert [rates.wait("a") > 0 for _ in range(2)] == [False, True]
    now += 1000.0
    assert [rates.wait("a") > 0 for _ in range(12)] == [False] * 10 + [True] * 2


def test_many_events_count_as_many_but_one_request_always_fits() -> None:
    room = Admission(10)
    with room.enter("a", 1000):
        assert not room.fits("a")
        assert room.fits("b", 1000)
    with room.enter("a", 3):
        assert room.fits("a", 7)
        assert not room.fits("a", 8)


def test_while_the_store_is_slow_few_wait_and_the_rest_hears_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with running_app(path, max_ranking=2, max_writing=2) as client, ThreadPoolExecutor(8) as pool:
        for name in "ab":
            client.put(f"/v1/rankers/{name}", json={"n_features": 2})
            client.post(f"/v1/rankers/{name}/rank", json={"documents": DOCUMENTS})  # loads it
        lists = [ranked(client) for _ in range(3)]

        def rank(name: str) -> Response:
            return client.post(f"/v1/rankers/{name}/rank", json={"documents": DOCUMENTS})

        with closing(sqlite3.connect(path, isolation_level=None)) as slow:
            slow.execute("BEGIN IMMEDIATE")  # nobody else can write
            waiting = [pool.submit(clicked, client, shown) for shown in lists[:2]]
            waiting += [pool.submit(rank, "a") for _ in range(2)]
            state = client.app.state.worker  # type: ignore[attr-defined]
            while min(state.ranking._inside["a", "local"], state.writing._inside["a", "local"]) < 2:
                time.sleep(0.005)
            for refused in (clicked(client, lists[2]), rank("a")):
                assert (refused.status_code, refused.json()["error"]) == (503, "busy")
                assert refused.headers["retry-after"] == "1"
            other = pool.submit(rank, "b")  # another ranker's share is free
            while not state.ranking._inside["b", "local"]:
                time.sleep(0.005)
            assert client.get("/healthz").status_code == 200
            slow.execute("ROLLBACK")
        assert [one.result().status_code for one in [*waiting, other]] == [200] * 5
        assert clicked(client, lists[2]).json() == {"status": "accepted"}
        assert rank("a").status_code == 200


def test_the_store_that_does_not_answer_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "READY_SECONDS", 0.05)
    monkeypatch.setattr(observation, "SCRAPE_SECONDS", 0.05)
    with running_app(tmp_path / "store.db") as client:
        assert client.get("/readyz").status_code == 200
        free = threading.Event()
        worker = client.app.state.worker  # type: ignore[attr-defined]
        worker.models._thread.submit(free.wait, 5)
        assert client.get("/readyz").json()["error"] == "slow"
        assert client.get("/healthz").status_code == 200
        assert "pairrank_requests_total" in client.get("/metrics").text
        assert client.get("/readyz").json()["error"] == "slow"
        free.set()
