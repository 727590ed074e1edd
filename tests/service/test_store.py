"""What any store must do; every test runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import Postgres
from scene import RETENTION, SHOWN, WINDOW, Scene

from pairrank import archive
from pairrank.errors import InputError, NewerFormatError, StorageError, UnknownNameError
from pairrank.rankers import Ranker, priors
from pairrank.service.auth import new_key
from pairrank.service.http.trial_schemas import LaunchBody
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.model import Log, load_head
from pairrank.service.learning.replay import load_whole, replay
from pairrank.service.learning.verify import verify
from pairrank.service.store import SqlStore, database, log, open_store, sqlite, sqlite_path
from pairrank.service.store.launches import Move
from pairrank.service.store.log import NEWEST_KEPT
from pairrank.service.store.schema import MIGRATIONS, TABLES, VERSION
from pairrank.service.store.sqlite import SqliteDatabase
from pairrank.service.store.transfer import backup, restore
from pairrank.service.store.values import Config, Feedback, Limits, Prior, RankerExistsError, Status, VersionError


def test_a_ranker_is_created_once_and_its_configuration_is_frozen(store: SqlStore) -> None:
    row, new = store.create("a", Config(2), Limits(), 1.0, "me")
    assert new
    assert (row.version, row.applied, row.log_seq, row.feedback_count) == (0, 0, 0, 0)
    assert row.digest == Config(2).make().digest()
    assert store.create("a", Config(2), Limits(locked=1), 2.0, "me") == (row, False)
    with pytest.raises(RankerExistsError, match="frozen"):
        store.create("a", Config(3), Limits(), 2.0, "me")
    assert store.ranker("a") == row
    assert store.find("b") is None


def test_configurations_with_equal_numbers_are_equal(store: SqlStore) -> None:
    row, _ = store.create("a", Config(2, options={"z": 1, "lam": 2.0}), Limits(), 1.0, "me")
    assert store.create("a", Config(2, options={"z": 1.0, "lam": 2}), Limits(), 2.0, "me") == (row, False)
    with pytest.raises(RankerExistsError, match="frozen"):
        store.create("a", Config(2, options={"z": 1.5, "lam": 2}), Limits(), 2.0, "me")
    named = Config(2, feature_names=("x", "y"), options={"monotone": {0: 1}}, prior=Prior((1.0, None), 2.0))
    row, _ = store.create("b", named, Limits(), 1.0, "me")
    whole = replace(named, prior=Prior((1, None), 2))
    assert store.create("b", whole, Limits(), 2.0, "me") == (row, False)


def at_once(*works: Callable[[], object]) -> None:
    """Each in a thread of its own; raises what one of them has raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result(60)


def test_a_model_that_the_store_could_not_hold_is_refused(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as gone:  # it is known before these, which would take many seconds and gigabytes
        gone.setattr(Ranker, "to_bytes", None)
        gone.setattr(priors, "from_weights", None)
        for prior in (None, Prior((1.0,) * 9999, 10.0)):
            with pytest.raises(InputError, match=r"9999 features is .* bytes; this store takes .* for one: use fewer"):
                store.create("wide", Config(9999, prior=prior), Limits(), 1.0, "me")
    assert store.rankers() == []
    assert store.create("narrow", Config(10), Limits(), 1.0, "me")[1]
    assert store.create("weights", Config(9999, ranker="pdgd"), Limits(), 1.0, "me")[1]


def test_who_creates_the_same_ranker_at_the_same_moment_gets_it(open_another: Callable[[], SqlStore]) -> None:
    stores = [open_another() for _ in range(4)]
    for name in "abcdef":
        at_once(*(partial(each.create, name, Config(2), Limits(), 1.0, "me") for each in stores))
    assert [row.name for row in stores[0].rankers()] == [*"abcdef"]


def test_limits_that_two_change_at_the_same_moment_are_both_changed(open_another: Callable[[], SqlStore]) -> None:
    stores = [open_another() for _ in range(2)]
    stores[0].create("a", Config(2), Limits(), 1.0, "me")
    for value in range(1, 9):
        changes = ({"locked": value}, {"max_open": value})
        at_once(*(partial(each.set_limits, "a", c, 1.0, "me") for each, c in zip(stores, changes, strict=True)))
        assert stores[0].rankers()[0].limits == Limits(locked=value, max_open=value)


def test_a_configuration_survives_the_store(store: SqlStore) -> None:
    config = Config(2, "pairrank-c", 7, {"alpha": 0.5}, ("x", "ÿ\0"))
    row, _ = store.create("a", config, Limits(explore_share=0.25), 1.0, "me")
    assert row.config == config
    assert row.limits == Limits(explore_share=0.25)


def test_feedback_is_logged_once(store: SqlStore) -> None:
    scene = Scene(store)
    items = scene.serve(3)
    assert [v.status for v in scene.feedback(items[:2])] == [Status.ACCEPTED] * 2
    assert [v.status for v in scene.feedback(items)] == [Status.DUPLICATE, Status.DUPLICATE, Status.ACCEPTED]
    assert scene.row.feedback_count == scene.row.log_seq == 3
    entries = store.log(scene.row.id, 0, 10)
    assert [entry.seq for entry in entries] == [1, 2, 3]
    assert [entry.body for entry in entries] == [item.body for item in items]
    assert {entry.clicks for entry in entries} == {b"\1" + bytes(SHOWN - 1)}


def test_doubles_within_one_batch(store: SqlStore) -> None:
    scene = Scene(store)
    (item,) = scene.serve()
    assert [v.status for v in scene.feedback([item, item])] == [Status.ACCEPTED, Status.DUPLICATE]


def test_unknown_foreign_and_expired_feedback_change_nothing(store: SqlStore) -> None:
    scene = Scene(store)
    first, second = scene.serve(2)
    wrong = [
        Feedback(first.ranker_id, first.number, "guess", frozenset()),
        Feedback(first.ranker_id, 99, first.token, frozenset()),
        Feedback(first.ranker_id + 1, first.number, first.token, frozenset()),
        Feedback(first.ranker_id, first.number, first.token, frozenset(["d99"])),
    ]
    got = [v.status for v in store.feedback(wrong, scene.now)]
    assert got == [Status.UNKNOWN, Status.UNKNOWN, Status.UNKNOWN, Status.FOREIGN]
    scene.now += RETENTION
    assert scene.feedback([first])[0].status is Status.EXPIRED  # not yet swept away
    assert store.expire(scene.now) == 2
    assert scene.feedback([second])[0].status is Status.EXPIRED
    assert scene.row.log_seq == 0


def test_a_wrong_token_learns_nothing_about_logged_impressions(store: SqlStore) -> None:
    scene = Scene(store)
    (item,) = scene.serve()
    scene.feedback([item])
    guess = Feedback(item.ranker_id, item.number, "guess", frozenset())
    assert store.feedback([guess], scene.now)[0].status is Status.UNKNOWN


def test_late_feedback_is_accepted_and_says_so(store: SqlStore) -> None:
    scene = Scene(store)
    early, late = scene.serve(2)
    assert not scene.feedback([early])[0].late
    scene.now += WINDOW
    verdict = scene.feedback([late])[0]
    assert (verdict.status, verdict.late) == (Status.ACCEPTED, True)


def test_events_gather_until_the_window_closes(store: SqlStore) -> None:
    scene = Scene(store)
    item, other = scene.serve(2)
    assert scene.event(item, "e1", 0).status is Status.ACCEPTED
    assert scene.event(item, "e1", 0).status is Status.DUPLICATE
    assert scene.event(item, "e2", 2).status is Status.ACCEPTED
    assert scene.event(item, "e3", 2).status is Status.DUPLICATE  # it is there, and no row for it
    assert store.database.all("SELECT event_id FROM events ORDER BY event_id") == [("e1",), ("e2",)]
    assert store.close_windows(scene.now) == 0
    scene.now += WINDOW
    assert scene.event(other, "e4").status is Status.LATE
    assert store.close_windows(scene.now) == 1
    (entry,) = store.log(scene.row.id, 0, 10)
    assert entry.clicks == b"\1\0\1"
    assert scene.event(item, "e5").status is Status.DUPLICATE
    assert scene.feedback([item])[0].status is Status.DUPLICATE


def test_whole_feedback_supersedes_events(store: SqlStore) -> None:
    scene = Scene(store)
    (item,) = scene.serve()
    scene.event(item, "e1", 0)
    assert scene.feedback([item], position=2)[0].status is Status.ACCEPTED
    scene.now += WINDOW
    assert store.close_windows(scene.now) == 0
    (entry,) = store.log(scene.row.id, 0, 10)
    assert entry.clicks == b"\0\0\1"


def test_an_impression_with_events_does_not_expire(store: SqlStore) -> None:
    scene = Scene(store)
    item, _ = scene.serve(2)
    scene.event(item, "e1")
    scene.now += RETENTION
    assert store.expire(scene.now) == 1
    assert store.close_windows(scene.now) == 1


@pytest.mark.parametrize("path", ["text.db", "no/store.db"])
def test_what_cannot_be_opened_is_named(tmp_path: Path, path: str) -> None:
    (tmp_path / "text.db").write_text("no store at all, but long enough to be looked at as one" * 20)
    needed = "cannot be opened as a store .*in a folder that can be written"
    with pytest.raises(StorageError, match=f"{path} {needed}") as told:
        open_store(tmp_path / path)
    assert str(tmp_path / path) not in [os.path.realpath(handle) for handle in Path("/proc/self/fd").iterdir()]
    del told  # whose frames would have kept a connection open


def test_what_is_no_store_is_not_made_one_by_who_wants_to_read(store_url: str) -> None:
    """An empty file, as a full disk leaves it, is no backup that is whole; nor does another's database get tables."""
    path = sqlite_path(store_url)
    if path is not None:
        path.touch()
    with pytest.raises(StorageError, match="there is no store at"):
        open_store(store_url, create=False)
    with closing(open_store(store_url)) as made:
        assert made.rankers() == []
    with closing(open_store(store_url, create=False)) as read:
        assert read.rankers() == []


def test_what_is_no_store_stays_as_it_is(tmp_path: Path) -> None:
    other, empty = tmp_path / "other.db", tmp_path / "empty.db"
    with closing(sqlite3.connect(other)) as file:
        file.execute("CREATE TABLE notes (text TEXT)")
    empty.touch()
    before = other.read_bytes()
    for path in (other, empty):
        with pytest.raises(StorageError, match="there is no store at"):
            open_store(path, create=False)
    with pytest.raises(StorageError, match="another program's tables"):
        open_store(other)
    assert (other.read_bytes(), empty.read_bytes()) == (before, b"")
    assert {path.name for path in tmp_path.iterdir()} == {"other.db", "empty.db"}


def test_numbers_are_never_given_twice(store: SqlStore, open_another: Callable[[], SqlStore]) -> None:
    scene = Scene(store)
    stores, taken = [open_another() for _ in range(4)], []

    def take(mine: SqlStore) -> None:
        for _ in range(10):
            first = mine.allocate(scene.row.id, 5)
            taken.extend(range(first, first + 5))

    threads = [threading.Thread(target=take, args=(mine,)) for mine in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(200))
    assert store.allocate(10**6, 5) < 0


def test_many_writers_make_one_log(store: SqlStore, open_another: Callable[[], SqlStore]) -> None:
    scene = Scene(store)
    items = scene.serve(60)
    accepted = []

    def send(mine: SqlStore) -> None:  # every writer sends everything; each impression is accepted from one
        for item in items:
            clicks = frozenset(json.loads(item.ids)[:1])
            verdict = mine.feedback([Feedback(item.ranker_id, item.number, item.token, clicks)], scene.now)[0]
            if verdict.status is Status.ACCEPTED:
                accepted.append(item.number)

    threads = [threading.Thread(target=send, args=(open_another(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(accepted) == [item.number for item in items]
    assert [entry.seq for entry in store.log(scene.row.id, 0, 100)] == list(range(1, 61))
    assert verify(store) == []


def test_the_model_is_the_replay_of_the_log(store: SqlStore) -> None:
    scene = Scene(store)
    twin = scene.row.config.make()
    items = scene.serve(20)
    for place, item in enumerate(items):
        scene.feedback([item], place % SHOWN)
        if place % 7 == 0:
            scene.learn()
    scene.learn()
    for place, item in enumerate(items):
        from pairrank.types import Impression

        clicks = [position == place % SHOWN for position in range(SHOWN)]
        assert twin.learn(Impression.from_bytes(item.body), clicks)
    row = scene.row
    assert row.digest == twin.digest()
    assert (row.version, row.applied, row.learned, row.skipped) == (20, 20, 20, 0)
    result = replay(store, row)
    assert result.same
    assert result.versions_checked == 4  # after entries 1, 8, 15 and 20
    assert verify(store) == []


def test_frozen_feedback_is_logged_and_never_learned(store: SqlStore) -> None:
    scene = Scene(store)
    first, second, third = scene.serve(3)
    scene.feedback([first])
    scene.learn()
    before = scene.row
    store.set_frozen("a", True, scene.now, "me")
    assert scene.feedback([second])[0].status is Status.ACCEPTED
    scene.learn()
    assert (scene.row.version, scene.row.digest) == (before.version, before.digest)
    assert scene.row.applied == 2
    store.set_frozen("a", False, scene.now, "me")
    scene.feedback([third])
    scene.learn()
    assert (scene.row.version, scene.row.learned) == (3, 2)
    assert replay(store, scene.row).same


def test_rollback_continues_from_the_old_version(store: SqlStore) -> None:
    scene = Scene(store)
    items = scene.serve(6)
    scene.feedback(items[:2])
    scene.learn()
    old = scene.row
    scene.feedback(items[2:4], 1)
    scene.learn()
    with pytest.raises(VersionError, match="not kept"):
        store.roll_back("a", 3, scene.now, "me")
    assert store.roll_back("a", old.version, scene.now, "me") == 5
    scene.learn()
    assert (scene.row.digest, scene.row.version, scene.row.learned) == (old.digest, 5, 2)
    scene.feedback(items[4:])
    scene.learn()
    assert (scene.row.version, scene.row.learned) == (7, 4)
    assert replay(store, scene.row).same


def test_a_pin_serves_an_old_version_while_learning_goes_on(store: SqlStore) -> None:
    scene = Scene(store)
    store.pin("a", 0, scene.now, "me")
    scene.feedback(scene.serve(2))
    scene.learn()
    assert (scene.row.pinned, scene.row.version) == (0, 2)
    with pytest.raises(VersionError, match="not kept"):
        store.pin("a", 77, scene.now, "me")
    store.pin("a", None, scene.now, "me")
    assert scene.row.pinned is None


def test_a_deleted_ranker_takes_everything_with_it(store: SqlStore) -> None:
    scene = Scene(store)
    first, second = scene.serve(2)
    scene.event(first, "e1")
    scene.feedback([second])
    assert store.delete("a", scene.now, "me")
    assert not store.delete("a", scene.now, "me")
    for table in ("impressions", "events", "log", "snapshots", "heads", "set_aside"):
        assert store.database.all(f"SELECT * FROM {table}") == []
    store.serve([first])  # served by a worker that does not know yet
    assert store.database.all("SELECT * FROM impressions") == []
    again = Scene(store)
    assert again.row.id != first.ranker_id
    assert [act["act"] for act in store.audit()] == ["create", "delete", "create"]
    with pytest.raises(UnknownNameError, match="no ranker"):
        store.set_frozen("b", True, 1.0, "me")


def test_every_act_leaves_a_line_and_a_new_epoch(store: SqlStore) -> None:
    scene = Scene(store)
    key, secret = new_key("k", ["rank", "feedback"], 5.0)
    acts: dict[str, Callable[[], object]] = {
        "limits": lambda: store.set_limits("a", {"locked": 2}, 2.0, "me"),
        "freeze": lambda: store.set_frozen("a", True, 2.0, "me"),
        "unfreeze": lambda: store.set_frozen("a", False, 2.0, "me"),
        "pin": lambda: store.pin("a", 0, 2.0, "me"),
        "compact": lambda: store.compact(scene.row, load_head(store, scene.row).ranker, 2.0, "me"),
        "rollback": lambda: store.roll_back("a", 0, 2.0, "me"),
        "key": lambda: store.put_key(key, "me"),
        "revoke": lambda: store.drop_key("k", 2.0, "me"),
        "delete": lambda: store.delete("a", 2.0, "me"),
    }
    for act, do in acts.items():
        epoch = store.epoch()
        do()
        assert store.epoch() > epoch
        assert store.audit(1)[0]["act"] == act
        assert secret not in json.dumps(store.audit())


def test_keys_are_kept_as_digests(store: SqlStore) -> None:
    key, secret = new_key("k", ["admin"], 5.0)
    store.put_key(key, "me")
    assert store.access_keys() == [key]
    assert secret not in repr(store.database.all("SELECT * FROM keys"))
    newer, _ = new_key("k", ["rank"], 6.0)
    store.put_key(newer, "me")
    assert store.access_keys() == [newer]


def test_compaction_keeps_the_model_and_goes_on(store: SqlStore) -> None:
    scene = Scene(store)
    items = scene.serve(8)
    scene.feedback(items[:5])
    scene.learn()
    scene.feedback(items[5:6])
    before = scene.row
    model = load_head(store, before)
    model.read_back(Log(store, before.id))
    assert store.compact(before, model.ranker, scene.now, "me") == 5
    assert [entry.seq for entry in store.log(before.id, 0, 10)] == [6]
    assert scene.feedback(items[:1])[0].status is Status.EXPIRED
    scene.feedback(items[6:])
    scene.learn()
    row = scene.row
    assert (row.base, row.version, row.learned, row.feedback_count) == (5, 8, 8, 8)
    assert replay(store, row).same
    assert verify(store) == []


@pytest.mark.parametrize("again", [False, True])
def test_compaction_of_a_model_that_an_older_program_published(store: SqlStore, again: bool) -> None:
    scene = Scene(store)
    scene.feedback(scene.serve(3))
    scene.learn()
    older = archive.sealed(store.snapshot(scene.row.id, 3).body)  # other bytes for the same model
    digest = hashlib.sha256(older).hexdigest()
    store.database.all("UPDATE snapshots SET body = ?, digest = ? WHERE version = 3", (older, digest))
    store.database.all("UPDATE heads SET digest = ?", (digest,))
    assert not replay(store, scene.row).same
    if again:  # by an entry that teaches nothing
        store.set_frozen("a", True, scene.now, "me")
        scene.feedback(scene.serve())
        scene.learn()
    assert (scene.row.version, scene.row.applied) == (3, 3 + again)
    assert verify(store) == []
    store.compact(scene.row, load_whole(store, scene.row).ranker, scene.now, "me")
    assert verify(store) == []
    assert replay(store, scene.row).same


def test_compaction_beside_a_learner_that_goes_on(store: SqlStore) -> None:
    scene = Scene(store)
    for _ in range(3):
        scene.feedback(scene.serve())
        scene.learn()
    before = scene.row
    model = load_head(store, before)
    for _ in range(NEWEST_KEPT + 1):
        scene.feedback(scene.serve())
        scene.learn()
    store.thin(before.id, scene.now)
    assert store.snapshot(before.id, before.version) is None
    model.read_back(Log(store, before.id))
    assert store.compact(before, model.ranker, scene.now, "me") == 3
    assert verify(store) == []
    assert replay(store, scene.row).same
    store.compact(scene.row, load_whole(store, scene.row).ranker, scene.now, "me")
    assert store.compact(before, model.ranker, scene.now, "me") == 0  # what a slower one drops is gone
    assert verify(store) == []
    assert replay(store, scene.row).same
    scene.feedback(scene.serve(2))
    scene.learn()
    before = scene.row
    model = load_whole(store, before)
    store.roll_back("a", before.base, scene.now, "me")
    assert store.compact(before, model.ranker, scene.now, "me") == 0  # a learner may have gone back with these lists
    scene.learn()
    assert store.compact(scene.row, load_whole(store, scene.row).ranker, scene.now, "me") == 3
    assert replay(store, scene.row).same
    store.delete("a", scene.now, "me")
    assert store.compact(before, model.ranker, scene.now, "me") == 0


def test_compaction_waits_for_a_rollback_under_way(
    store: SqlStore, open_another: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, other = Scene(store), open_another()
    scene.feedback(scene.serve(2))
    scene.learn()
    row = scene.row
    head = load_whole(store, row).ranker
    with ThreadPoolExecutor(1) as pool:
        dropped = []
        record = store._record

        def later(*values: Any) -> None:
            dropped.append(pool.submit(other.compact, row, head, scene.now, "me"))
            time.sleep(0.5)  # it waits for this transaction
            record(*values)

        monkeypatch.setattr(store, "_record", later)
        store.roll_back("a", 0, scene.now, "me")
        assert dropped[0].result() == 0


@pytest.mark.parametrize("begun", ["compacted", "imported"])
def test_a_restart_finds_lists_that_only_the_first_model_has(store: SqlStore, begun: str) -> None:
    """A log that was compacted, or that begins with a model that had learned elsewhere, has not all that it keeps."""
    rng, scene = np.random.default_rng(0), Scene(store)

    def visit(learner: Learner, times: int) -> None:
        for _ in range(times):
            (item,) = scene.serve(features=rng.random((5, 2)))
            click = json.loads(item.ids)[rng.integers(SHOWN)]
            store.feedback([Feedback(item.ranker_id, item.number, item.token, frozenset([click]))], scene.now)
            learner.step(publish=True)

    first = Learner(store, clock=lambda: scene.now)
    visit(first, 80)
    if begun == "imported":
        start = first._models[scene.row.id].ranker
        store.delete("a", scene.now, "me")
        store.create("a", Config(2), Limits(), scene.now, "me", start=start)
    for _ in range(2):  # the second time what the first left is no longer in the log
        if begun == "compacted":
            row = scene.row
            store.compact(row, load_whole(store, row).ranker, scene.now, "me")
        visit(Learner(store, clock=lambda: scene.now), 40)
        assert verify(store) == []
    visit(Learner(store, clock=lambda: scene.now), 150)
    assert replay(store, scene.row).same
    store.roll_back("a", scene.row.base, scene.now, "me")
    for _ in range(2):
        visit(Learner(store, clock=lambda: scene.now), 20)
        assert replay(store, scene.row).same


def test_a_ranker_is_deleted_while_its_model_is_published(
    store: SqlStore, open_another: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, other = Scene(store), open_another()
    scene.feedback(scene.serve(2))
    insert, deleting = store.database.insert, ThreadPoolExecutor(1)

    def slowly(*words: Any) -> Any:
        begun.append(deleting.submit(other.delete, "a", 1000.0, "me"))
        time.sleep(0.5)  # it waits for what this transaction has
        return insert(*words)

    begun: list[Any] = []
    monkeypatch.setattr(store.database, "insert", slowly)
    scene.learn()
    assert [one.result() for one in begun] == [True]
    assert store.rankers() == []


def test_a_learner_reads_a_ranker_that_is_deleted_meanwhile(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(store)
    scene.feedback(scene.serve(2))
    snapshot = store.snapshot

    def gone(ranker_id: int, version: int) -> Any:
        store.delete("a", 1000.0, "me")
        return snapshot(ranker_id, version)

    monkeypatch.setattr(store, "snapshot", gone)
    Learner(store, clock=lambda: 1000.0).step(publish=True)
    assert caplog.messages == []


def test_counting_what_waits_takes_a_tenth_of_a_learner_at_most(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        store.create(name, Config(2), Limits(), 1.0, "me")
    learner, now, counted = Learner(store), 1000.0, []

    def count(ranker_id: int) -> int:
        nonlocal now
        now += 0.3  # as with a million rows
        counted.append((ranker_id, now))
        return 0

    monkeypatch.setattr("pairrank.service.learning.learner.time.monotonic", lambda: now)
    monkeypatch.setattr(store, "count_open", count)
    while now < 1020.0:
        learner.step()
        now += 0.01
    assert {ranker_id for ranker_id, _ in counted} == set(store.ranker_ids())
    assert 6 <= len(counted) <= 7


def test_a_learner_forgets_rankers_that_were_deleted(store: SqlStore) -> None:
    learner = Learner(store, clock=lambda: 1000.0)
    for name in "abc":
        scene = Scene(store, name)
        scene.feedback(scene.serve(2))
        store.launch(name, LaunchBody.model_validate({"mode": "guarded"}).model_dump(), 1000.0, "test")
        learner._hold()
        learner.step(publish=True)
        assert learner._models
        assert learner._shared
        store.delete(name, 1000.0, "test")
    learner._hold()
    assert not any((learner._models, learner._trials, learner._published, learner._shared, learner._since))


def test_a_compaction_that_was_interrupted_is_ended_by_the_next(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "DROPPED", 2)
    scene = Scene(store)
    scene.feedback(scene.serve(5))
    scene.learn()
    whole, begun = store.database.transaction, []

    def transaction(**how: bool) -> AbstractContextManager[None]:
        begun.append(how)
        if len(begun) == 3:
            raise StorageError("the disk is gone")
        return whole(**how)

    head = load_head(store, scene.row).ranker
    with monkeypatch.context() as patched:
        patched.setattr(store.database, "transaction", transaction)
        with pytest.raises(StorageError, match="disk"):
            store.compact(scene.row, head, scene.now, "me")
    assert [entry.seq for entry in store.log(scene.row.id, 0, 10)] == [3, 4, 5]
    assert verify(store) == []
    assert replay(store, scene.row).same
    assert store.compact(scene.row, head, scene.now, "me") == 3
    assert store.log(scene.row.id, 0, 10) == []
    assert replay(store, scene.row).same


def test_verify_finds_what_is_wrong(store: SqlStore) -> None:
    scene = Scene(store)
    scene.feedback(scene.serve(4))
    scene.learn()
    assert verify(store) == []
    body = store.database.all("SELECT body FROM log WHERE seq = 2")[0][0]
    damaged = body[:-1] + bytes([body[-1] ^ 1])
    with store.database.transaction():
        store.database.all("UPDATE log SET body = ? WHERE seq = 2", (damaged,))
    assert len(verify(store)) == 1
    assert "entry 2" in verify(store)[0]
    with store.database.transaction():
        store.database.all("UPDATE log SET body = ? WHERE seq = 2", (body,))
        store.database.all("DELETE FROM log WHERE seq = 3")
    assert verify(store) == ["a: the log has a gap: entry 3 is missing"]
    with store.database.transaction():
        store.database.all("DELETE FROM log WHERE seq = 4")
        store.database.all("UPDATE snapshots SET body = ? WHERE version = 4", (b"x",))
    assert len(verify(store)) == 2


def test_a_damaged_head_is_built_again_from_the_log(store: SqlStore) -> None:
    scene = Scene(store)
    items = scene.serve(4)
    scene.feedback(items[:3])
    scene.learn()
    with store.database.transaction():
        store.database.all("UPDATE snapshots SET body = ? WHERE version = 3", (b"x",))
    scene.feedback(items[3:])
    scene.learn()
    assert scene.row.version == 4
    twin = replay(store, scene.row)
    assert twin.replayed == twin.stored


def test_one_damaged_ranker_does_not_stop_the_others(store: SqlStore) -> None:
    broken, sound = Scene(store, "broken"), Scene(store, "sound")
    broken.feedback(broken.serve())
    sound.feedback(sound.serve())
    with store.database.transaction():
        store.database.all("UPDATE snapshots SET body = ? WHERE ranker_id = ?", (b"x", broken.row.id))
    sound.learn()
    assert (broken.row.applied, sound.row.applied) == (0, 1)


def test_backup_and_restore_carry_everything(store: SqlStore, store_url: str, tmp_path, request) -> None:
    scene = Scene(store)
    items = scene.serve(6)
    scene.feedback(items[:4])
    scene.event(items[4], "e1")
    scene.learn()
    file = tmp_path / "copy.db"
    backup(store, file)
    target = f"sqlite:///{tmp_path / 'restored.db'}"
    if store_url.startswith("postgresql"):
        target = request.getfixturevalue("postgres").new_database()
    restore(str(file), target)
    copy = open_store(target)
    try:
        assert copy.rankers() == store.rankers()
        assert copy.audit() == store.audit()
        assert verify(copy) == []
        assert replay(copy, copy.rankers()[0]).same
        twin = Scene.__new__(Scene)
        twin.store, twin.name, twin.now = copy, "a", scene.now
        assert twin.feedback([items[5]])[0].status is Status.ACCEPTED
        assert [row.name for row in (copy.create("b", Config(2), Limits(), 1.0, "me")[0],)] == ["b"]
    finally:
        copy.close()


def test_a_damaged_backup_is_not_restored_and_leaves_nothing(store: SqlStore, tmp_path: Path) -> None:
    scene = Scene(store)
    scene.feedback(scene.serve(3))
    file, target = tmp_path / "copy.db", tmp_path / "restored.db"
    backup(store, file)
    assert [*tmp_path.glob("*.part*"), *tmp_path.glob(".*")] == []
    with closing(sqlite3.connect(file)) as copy:
        (root,), (size,) = (
            copy.execute(sql).fetchone()
            for sql in ("SELECT rootpage FROM sqlite_master WHERE name = 'log'", "PRAGMA page_size")
        )
    with open(file, "r+b") as bytes_of:
        bytes_of.seek((root - 1) * size)
        bytes_of.write(b"\xff" * size)
    with pytest.raises(StorageError, match="malformed"):
        restore(str(file), str(target))
    assert list(tmp_path.glob("restored*")) == []


@pytest.mark.postgres
def test_a_backup_whose_server_goes_says_so_and_leaves_nothing(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = postgres.new_database()
    with closing(open_store(address)) as store, closing(open_store(address)) as other:
        store.create("a", Config(2), Limits(), 1.0, "me")
        process = store.database.one("SELECT pg_backend_pid()")
        assert process is not None
        ended = partial(other.database.all, "SELECT pg_terminate_backend(?)", process)
        monkeypatch.setattr(SqliteDatabase, "many", lambda *_: ended())
        with pytest.raises(StorageError, match=r"terminating|closed|lost"):
            backup(store, tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


def test_a_breach_while_a_launch_is_decided_anew(
    store: SqlStore, open_another: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, other = Scene(store), open_another()
    store.launch("a", {"mode": "guarded", "most_lost": 1.0}, scene.now, "me")
    row_id, launch = scene.row.id, scene.row.launch
    assert launch is not None
    breach = Move(launch.epoch, "frozen", 0, {})

    def stop() -> None:
        with other.database.transaction():
            other._move_launch(row_id, breach, scene.now)

    log_act, stopped = store._log_act, []
    with ThreadPoolExecutor(1) as pool:

        def later(*values: Any, **named: Any) -> int:
            stopped.append(pool.submit(stop))
            time.sleep(0.5)  # it waits for this transaction
            return log_act(*values, **named)

        monkeypatch.setattr(store, "_log_act", later)
        assert store.launch("a", {"mode": "guarded", "most_lost": 2.0}, scene.now, "me")
        stopped[0].result()
    assert scene.row.launch is not None
    assert scene.row.launch.mode == "guarded"  # the breach was of what was decided before


def test_one_learner_of_a_ranker_at_a_time(store: SqlStore, open_another: Callable[[], SqlStore]) -> None:
    first, second = open_another(), open_another()
    assert first.database.hold([7]) == {7}
    assert first.database.hold([7]) == {7}
    assert second.database.hold([7]) == set()
    first.close()
    for _ in range(500):  # a server needs a moment to see that a client has gone
        if second.database.hold([7]):
            break
        time.sleep(0.01)
    assert second.database.hold([7]) == {7}


def test_a_second_learner_cannot_take_the_model_back(store: SqlStore) -> None:
    scene = Scene(store)
    items = scene.serve(3)
    slow = Learner(store, clock=lambda: scene.now)
    scene.feedback(items[:1])
    slow.step()
    scene.feedback(items[1:])
    scene.learn()
    head = scene.row
    slow.step(publish=True)
    assert scene.row == head


def test_waiting_impressions_are_counted(store: SqlStore) -> None:
    scene = Scene(store)
    scene.feedback(scene.serve(4)[:3])
    assert store.count_open(scene.row.id) == 1
    assert scene.row.open_count == 1


def test_impressions_are_shown_with_their_state(store: SqlStore) -> None:
    scene = Scene(store)
    open_one, collecting, logged, learned = scene.serve(4)
    scene.event(collecting, "e1")
    scene.feedback([learned])
    scene.learn()
    scene.feedback([logged], 1)
    rows = store.impressions(scene.row.id, 10)
    assert [row.state for row in rows] == ["learned", "logged", "collecting", "open"]
    assert rows[1].clicks == (False, True, False)
    assert rows[3].clicks is None
    (one,) = store.impressions(scene.row.id, 1, open_one.number)
    assert one.body == open_one.body
    assert one.ids == tuple(json.loads(open_one.ids))


def test_a_newer_schema_is_refused_and_left_alone(store: SqlStore, store_url: str) -> None:
    Scene(store)
    with store.database.transaction():
        store.database.all("UPDATE meta SET value = ? WHERE name = 'schema'", (VERSION + 1,))
    with pytest.raises(NewerFormatError, match="upgrade"):
        open_store(store_url)
    assert store.database.all("SELECT value FROM meta WHERE name = 'schema'") == [(VERSION + 1,)]


def test_who_runs_already_works_on_while_a_newer_version_adds_to_the_schema(
    store: SqlStore, open_another: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(store)
    before = scene.serve(2)
    added = "ALTER TABLE impressions ADD COLUMN new BIGINT; ALTER TABLE heads ADD COLUMN new BIGINT NOT NULL DEFAULT 0;"
    monkeypatch.setattr(database, "MIGRATIONS", (*MIGRATIONS, f"{added} CREATE TABLE later (id SERIAL_KEY)"))
    monkeypatch.setattr(database, "VERSION", VERSION + 1)
    newer = open_another()
    assert newer.database.schema() == VERSION + 1
    assert {verdict.status for verdict in scene.feedback(before[:1])} == {Status.ACCEPTED}
    after = scene.serve(2)  # by the older one, learned by the newer
    scene.feedback(after)
    Learner(newer, clock=lambda: scene.now).step(publish=True)
    assert (scene.row.applied, scene.row.learned) == (3, 3)
    scene.feedback(before[1:])
    scene.learn()  # and the other way round
    assert newer.rankers() == store.rankers()
    assert replay(newer, newer.rankers()[0]).same


@pytest.mark.parametrize("version", range(1, VERSION))
def test_an_older_schema_is_migrated(store: SqlStore, store_url: str, version: int) -> None:
    with store.database.transaction():  # as that version left it
        for table in reversed(TABLES):
            store.database.all(f"DROP TABLE {table}")
        for script in MIGRATIONS[:version]:
            store.database.script(script)
        if version == 2:
            store.database.script("CREATE TABLE shown (minute BIGINT); CREATE TABLE clicked (minute BIGINT)")
        store.database.all("UPDATE meta SET value = ? WHERE name = 'schema'", (version,))
    migrated = open_store(store_url)
    try:
        assert migrated.database.schema() == VERSION
        assert not any(map(migrated.database.has_table, ("shown", "clicked")))
        scene = Scene(migrated)
        scene.feedback(scene.serve())
        scene.learn()
        assert verify(migrated) == []
    finally:
        migrated.close()


def test_thinning_spares_the_head_and_what_is_kept(store: SqlStore) -> None:
    scene = Scene(store)
    for item in scene.serve(NEWEST_KEPT + 5):
        scene.feedback([item])
        scene.learn()
        if scene.row.version == 2:
            store.pin("a", 2, scene.now, "me")
    store.thin(scene.row.id, scene.now)
    versions = [item.version for item in store.versions(scene.row.id)]
    assert versions[0] == scene.row.version
    assert versions[-2:] == [2, 0]
    assert len(versions) == NEWEST_KEPT + 2
    assert replay(store, scene.row).same


def test_what_is_on_a_full_disk_can_be_read_after_a_write_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite, "RENEW_SECONDS", 0.0)
    with closing(open_store(tmp_path / "store.db")) as store:
        store.create("a", Config(2), Limits(), 1.0, "me")
        store.database.all("PRAGMA max_page_count = 1")
        monkeypatch.setattr(SqliteDatabase, "_flush_again", full)  # the new connection has no such limit
        for _ in range(2):
            with pytest.raises(StorageError, match="full"):
                store.create("b", Config(200), Limits(), 1.0, "me")
            assert [row.name for row in store.rankers()] == ["a"]
        monkeypatch.undo()
        time.sleep(2 * sqlite.RENEW_SECONDS)
        assert store.create("b", Config(200), Limits(), 1.0, "me")[1]


def test_a_store_that_was_deleted_takes_nothing_more_and_one_put_in_its_place_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "RENEW_SECONDS", 0.0)
    with closing(open_store(tmp_path / "store.db")) as store:
        store.create("a", Config(2), Limits(), 1.0, "me")
        backup(store, tmp_path / "copy.db")
        for name in ("store.db", "store.db-wal", "store.db-shm"):
            (tmp_path / name).unlink()
        for _ in range(2):
            with pytest.raises(StorageError, match="cannot be used"):
                store.create("b", Config(2), Limits(), 1.0, "me")
            with pytest.raises(StorageError, match="cannot be used"):
                store.rankers()
        (tmp_path / "copy.db").rename(tmp_path / "store.db")
        assert store.create("b", Config(2), Limits(), 1.0, "me")[1]
    with closing(open_store(tmp_path / "store.db")) as store:
        assert [row.name for row in store.rankers()] == ["a", "b"]


def test_a_learner_hears_that_another_store_was_put_in_the_place_of_its_own(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "store.db")) as store, closing(open_store(tmp_path / "store.db")) as learning:
        scene, learner = Scene(store), Learner(learning)
        learner._hold()
        scene.feedback(scene.serve(2))
        learner.step(publish=True)
        backup(store, tmp_path / "copy.db")
        scene.feedback(scene.serve(3))
        learner.step(publish=True)
        store.database.tend()
        (tmp_path / "store.db-wal").unlink()
        (tmp_path / "store.db-shm").unlink()
        (tmp_path / "copy.db").rename(tmp_path / "store.db")
        assert not store.database.hold([1])
        with pytest.raises(StorageError, match="replaced"):  # what it has in memory is not the model of this log
            learner.step()
        assert store.database.hold([1])
