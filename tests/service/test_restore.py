"""Ids of before a restore: never given out again, never taken for those of another list."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from scene import Scene
from web import clicked, ranked, running_app

from pairrank.service.store import SqlStore, open_store
from pairrank.service.store.transfer import backup, restore
from pairrank.service.store.values import Feedback, Status


@pytest.mark.parametrize("way", ["restored", "copied"])
def test_no_id_comes_twice_and_none_is_taken_for_another(tmp_path: Path, way: str) -> None:
    path, saved, again = tmp_path / "store.db", tmp_path / "saved.db", tmp_path / "again.db"
    with running_app(path) as client:
        client.put("/v1/rankers/a", json={"n_features": 2})
        before = open_store(path)
        backup(before, saved)
        before.close()
        old = [ranked(client) for _ in range(300)]
    if way == "restored":
        restore(str(saved), f"sqlite:///{again}")
    else:
        shutil.copy(saved, again)
    with running_app(again) as client:
        new = [ranked(client) for _ in range(300)]
        numbers = [{shown["impression_id"].partition("-")[0] for shown in lists} for lists in (old, new)]
        assert numbers[0] == numbers[1]  # the counter went back: this is what ids must not depend on alone
        assert not {shown["impression_id"] for shown in old} & {shown["impression_id"] for shown in new}
        answer = clicked(client, old[0], "d0")
        assert (answer.status_code, answer.json()["error"]) == (410, "expired")
        event = {"event_id": "e", "type": "click", "impression_id": old[1]["impression_id"], "document_id": "d0"}
        assert client.post("/v1/rankers/a/events", json=[event]).json()[0]["status"] == "expired"
        assert clicked(client, new[0], "d0").json() == {"status": "accepted"}
        assert clicked(client, old[0], "d0").status_code == 410  # not a duplicate: another list has that number
        kept = client.get("/v1/rankers/a/impressions").json()["impressions"]
        assert old[0]["impression_id"] not in {item["impression_id"] for item in kept}
        assert client.get("/v1/rankers/a?wait=30").json()["feedback_count"] == 1


def test_ids_from_before_tokens_had_a_batch_are_still_good(store: SqlStore) -> None:
    scene = Scene(store)
    item, other = (served._replace(token="0123456789abcdef") for served in scene.serve(2))
    store.database.all("UPDATE impressions SET token = ?", (item.token,))
    assert [verdict.status for verdict in scene.feedback([item])] == [Status.ACCEPTED]
    assert [verdict.status for verdict in scene.feedback([item])] == [Status.DUPLICATE]
    guess = Feedback(other.ranker_id, other.number, "fedcba9876543210", frozenset())
    assert store.feedback([guess], scene.now)[0].status is Status.UNKNOWN
