"""Entries that make a ranker fail: set aside in the open, passed over alike by every replay, no ranker stopped."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scene import FEATURES, Scene
from web import clicked, ranked, running_app

from pairrank import PairRank, threads
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.replay import load_whole, replay
from pairrank.service.store import SqlStore, open_store
from pairrank.service.store.values import Feedback

POISON = 666.0


@pytest.fixture
def fragile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rankers that spoil their own state and then fail when a list holds a document with the poison."""
    take, rank = PairRank._take, PairRank.rank

    def failing(self: Any, impression: Any, clicks: Any) -> None:
        take(self, impression, clicks)
        if (impression.features == POISON).any():
            raise np.linalg.LinAlgError("Matrix is not positive definite")

    def failing_rank(self: Any, features: Any, *args: Any, **more: Any) -> Any:
        if (np.asarray(features) == -POISON).any():
            raise ZeroDivisionError("float division by zero")
        return rank(self, features, *args, **more)

    monkeypatch.setattr(PairRank, "_take", failing)
    monkeypatch.setattr(PairRank, "rank", failing_rank)


def serve_poison(scene: Scene) -> None:
    """One list with the poison, with its feedback."""
    row = scene.row
    number = scene.store.allocate(row.id, 1)
    features = FEATURES.copy()
    features[0] = POISON
    shown = scene.ranker.rank(features, number=number)
    item = scene._served(row, shown)
    scene.store.serve([item])
    first = json.loads(item.ids)[0]
    scene.store.feedback([Feedback(row.id, number, item.token, frozenset([first]))], scene.now)


def test_what_was_set_aside_is_so_once_when_a_model_is_built_again(store: SqlStore, fragile: None) -> None:
    scene = Scene(store)
    scene.feedback(scene.serve(3))
    scene.learn()
    row = scene.row
    store.compact(row, load_whole(store, row).ranker, scene.now, "me")
    serve_poison(scene)
    scene.feedback(scene.serve(2))
    scene.learn()
    scene.feedback(scene.serve(2))
    Learner(store, clock=lambda: scene.now).step(publish=True)  # after a restart
    row = scene.row
    assert (row.log_seq, row.applied, row.learned, row.skipped, row.set_aside) == (8, 8, 7, 1, 1)
    assert replay(store, row).same


def test_an_entry_that_fails_is_set_aside_and_the_others_are_learned(store: SqlStore, fragile: None) -> None:
    poisoned, other = Scene(store, "a"), Scene(store, "b")
    poisoned.feedback(poisoned.serve(3))
    serve_poison(poisoned)
    poisoned.feedback(poisoned.serve(2))
    serve_poison(poisoned)
    serve_poison(poisoned)
    other.feedback(other.serve(5))
    poisoned.learn()
    row = poisoned.row
    assert (row.applied, row.learned, row.set_aside, row.version) == (8, 5, 3, 6)
    assert row.last_set_aside is not None
    assert row.last_set_aside.log_entry == 8
    assert row.last_set_aside.reason == "LearningError: impression 7 cannot be learned: Matrix is not positive definite"
    assert [item.log_entry for item in store.set_aside(row.id)] == [4, 7, 8]
    assert row.stopped is None
    assert other.row.learned == 5
    result = replay(store, row)
    assert result.same
    assert result.set_aside == (4, 7, 8)
    assert not dataclasses.replace(result, set_aside_stored=(4, 7)).same


def test_the_ranker_is_as_if_the_entry_had_never_come(store: SqlStore, fragile: None) -> None:
    with_it, without = Scene(store, "a"), Scene(store, "b")
    items = with_it.serve(4)
    with_it.feedback(items[:2])
    serve_poison(with_it)
    with_it.feedback(items[2:])
    with_it.learn()
    without.feedback(without.serve(4))
    without.learn()
    assert with_it.row.set_aside == 1
    assert with_it.row.digest == without.row.digest


def test_a_restart_does_not_try_it_again_and_goes_on(store: SqlStore, fragile: None) -> None:
    scene = Scene(store)
    serve_poison(scene)
    scene.learn()
    scene.feedback(scene.serve(1))
    serve_poison(scene)
    scene.learn()  # another learner
    assert (scene.row.learned, scene.row.set_aside) == (1, 2)
    assert replay(store, scene.row).same


def test_a_state_that_is_not_finite_counts_as_a_failure(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(store)
    scene.feedback(scene.serve(2))
    monkeypatch.setattr(PairRank, "_sound", lambda self: 0 not in self._learned)
    scene.learn()
    assert (scene.row.learned, scene.row.set_aside) == (1, 1)


def test_a_ranker_with_a_damaged_log_is_named_and_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = open_store(path)
    scene = Scene(store)
    scene.feedback(scene.serve(3))
    store.database.all("UPDATE log SET body = x'00' WHERE seq = 2")
    scene.learn()
    assert scene.row.applied == 1  # what came before the damage was learned
    reason = scene.row.stopped
    assert reason == "FileFormatError: this impression is truncated or was not written by PairRank"
    store.close()
    with running_app(path) as client:
        assert client.get("/readyz").status_code == 200
        assert client.get("/v1/rankers/a?wait=0").json()["stopped"] == reason
        assert 'pairrank_stopped{ranker="a"} 1.0' in client.get("/metrics").text


def test_through_http_and_after_a_restart(tmp_path: Path, fragile: None) -> None:
    path = tmp_path / "store.db"
    poison = [{"id": "p", "features": [POISON, 0.0]}, {"id": "q", "features": [0.5, 0.5]}]
    with running_app(path) as client:
        client.put("/v1/rankers/a", json={"n_features": 2})
        client.put("/v1/rankers/b", json={"n_features": 2})
        for _ in range(2):
            answer = client.post("/v1/rankers/a/rank", json={"documents": poison})
            clicked(client, answer.json(), "p")
        shown = client.post("/v1/rankers/b/rank", json={"documents": poison[1:]}).json()
        client.post("/v1/rankers/b/feedback", json={"impression_id": shown["impression_id"], "clicks": ["q"]})
        assert client.get("/v1/rankers/b?wait=30").json()["learned_count"] == 1
        found = client.get("/v1/rankers/a?wait=30").json()
        assert (found["set_aside"], found["lag"]) == (2, 0)
        assert found["last_set_aside"]["log_entry"] == 2
        assert "positive definite" in found["last_set_aside"]["reason"]
        assert 'pairrank_set_aside_entries{ranker="a"} 2.0' in client.get("/metrics").text
    with running_app(path) as client:
        assert client.get("/readyz").status_code == 200
        shown = ranked(client)
        clicked(client, shown, "d1")
        assert client.get("/v1/rankers/a?wait=30").json()["learned_count"] == 1


def test_a_ranker_that_fails_to_rank_answers_in_one_sentence(tmp_path: Path, fragile: None) -> None:
    with running_app(tmp_path / "store.db") as client:
        client.put("/v1/rankers/a", json={"n_features": 2})
        bad = [{"id": "p", "features": [-POISON, 0.0]}, {"id": "q", "features": [0.5, 0.5]}]
        answer = client.post("/v1/rankers/a/rank", json={"documents": bad})
        assert answer.status_code == 500
        assert answer.json() == {"error": "ranker", "message": "the ranker 'a' failed on these documents"}
        ranked(client)


def test_the_learner_uses_one_blas_thread(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(store)
    scene.feedback(scene.serve(1))
    seen: list[list[int]] = []
    take = PairRank._take

    def noting(self: Any, impression: Any, clicks: Any) -> None:
        seen.append(threads.counts())
        take(self, impression, clicks)

    monkeypatch.setattr(PairRank, "_take", noting)
    before = threads.counts()
    for _, set_ in threads._pools():
        set_(2)
    try:
        Learner(store, clock=lambda: scene.now).step(publish=True)
        replay(store, scene.row)
    finally:
        for (_, set_), count in zip(threads._pools(), before, strict=True):
            set_(count)
    assert len(seen) == 2
    assert {count for counts in seen for count in counts} == {1}
