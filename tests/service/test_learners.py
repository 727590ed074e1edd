"""Several services on one PostgreSQL: learners share the rankers, one that was paused cannot publish any more, and a
newer version changes the tables beneath those that run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster import Postgres, until
from scene import Scene

from pairrank.errors import StorageError
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.replay import replay
from pairrank.service.store import SqlStore, database, open_store
from pairrank.service.store.schema import MIGRATIONS, VERSION
from pairrank.service.store.values import Config, Limits

pytestmark = pytest.mark.postgres
TAKEOVER_SECONDS = 3.0


@pytest.fixture
def store_url(postgres: Postgres) -> str:
    return postgres.new_database()


def test_rankers_are_shared_evenly_by_those_who_live(store_url: str) -> None:
    rankers = range(1, 12)
    first, second, third = stores = [open_store(store_url) for _ in range(3)]

    def held(*of: SqlStore) -> list[set[int]]:
        for one in of:  # who has too much gives back first
            one.database.hold(rankers)
        return [one.database.hold(rankers) for one in of]

    try:
        assert held(first) == [set(rankers)]
        for living in ([first, second], [first, second, third], [second, third]):
            if len(living) == 2 and living[0] is second:
                first.close()
                until(lambda: sum(map(len, held(second, third))) == len(rankers))
            parts = held(*living)
            assert sorted(ranker for part in parts for ranker in part) == list(rankers)
            assert max(map(len, parts)) == -(-len(rankers) // len(living))
            assert held(*living) == parts  # nothing moves without need
    finally:
        for one in stores:
            one.close()


def test_what_is_done_after_the_session_was_lost_is_refused(
    store: SqlStore, open_another: Callable[[], SqlStore]
) -> None:
    scene, slow = Scene(store), open_another()
    ranker = scene.row.id
    late = Learner(slow, clock=lambda: 2000.0)
    assert slow.database.hold([ranker])
    items = scene.serve(2)
    scene.feedback(items)
    late._follow(ranker, 2)  # learned, not published
    store.database.all(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
    )
    other = open_another()
    until(lambda: other.database.hold([ranker]))
    with pytest.raises(StorageError):
        late._publish(ranker)
    assert scene.row.applied == 0
    Learner(other, clock=lambda: 2000.0).step(publish=True)
    assert (scene.row.applied, scene.row.updated) == (2, 2000.0)


def test_a_learner_of_an_older_version_works_alone(store: SqlStore, open_another: Callable[[], SqlStore]) -> None:
    from pairrank.service.store.postgres import LEARNER_LOCK

    old = open_another()
    assert old.database.all("SELECT pg_try_advisory_lock(?)", (LEARNER_LOCK,)) == [(True,)]
    assert store.database.hold([1]) == set()
    old.close()
    until(lambda: store.database.hold([1]))
    assert open_another().database.all("SELECT pg_try_advisory_lock(?)", (LEARNER_LOCK,)) == [(False,)]


def test_a_paused_learner_is_replaced_and_comes_back(
    store: SqlStore, store_url: str, open_another: Callable[[], SqlStore]
) -> None:
    scene = Scene(store)
    scene.now = time.time()  # the other process goes by this clock
    program = (
        "import sys, threading; from pairrank.service.learning.learner import Learner; "
        "from pairrank.service.store import open_store; Learner(open_store(sys.argv[1])).run(threading.Event())"
    )
    paused = subprocess.Popen([sys.executable, "-c", program, store_url])
    try:
        scene.feedback(scene.serve(3))
        until(lambda: scene.row.applied == 3)
        os.kill(paused.pid, signal.SIGSTOP)
        scene.feedback(scene.serve(3))
        other = open_another()
        took = until(lambda: other.database.hold([0, scene.row.id]), TAKEOVER_SECONDS)
        print(f"the rankers of a paused learner were free after {took:.2f} s")
        Learner(other).step(publish=True)
        assert scene.row.applied == 6
        os.kill(paused.pid, signal.SIGCONT)
        other.close()
        scene.feedback(scene.serve(3))
        until(lambda: scene.row.applied == 9)
        assert replay(store, scene.row).same
    finally:
        paused.kill()
        paused.wait()


def test_tables_change_beneath_a_transaction_that_wants_them_in_another_order(
    store: SqlStore, open_another: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would end one of the two; so a change gives up in time, and begins again."""
    added = "ALTER TABLE log ADD COLUMN new BIGINT; ALTER TABLE heads ADD COLUMN new BIGINT"
    monkeypatch.setattr(database, "MIGRATIONS", (*MIGRATIONS, added))
    monkeypatch.setattr(database, "VERSION", VERSION + 1)
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' AND locktype = 'relation'"
    with ThreadPoolExecutor(1) as pool:
        with store.database.transaction():
            store.database.all("UPDATE heads SET version = version")
            newer = pool.submit(open_another)
            until(lambda: store.database.all(waiting))  # it has the log, and wants the heads
            store.database.all("DELETE FROM log")
        assert newer.result().database.schema() == VERSION + 1


def test_who_falls_silent_in_a_transaction_holds_nobody_up_for_long(store_url: str) -> None:
    """A worker that was paused, or whose host has gone, has the lock of a ranker: others wait for seconds."""
    silent, other = open_store(store_url), open_store(store_url)
    try:
        silent.create("shop", Config(2), Limits(), 0.0, "test")
        transaction = silent.database.transaction()
        transaction.__enter__()
        silent.database.all("UPDATE rankers SET log_seq = log_seq")
        other.set_frozen("shop", True, 0.0, "test")  # a statement that waits for half a minute fails
        with pytest.raises(StorageError):
            transaction.__exit__(None, None, None)
        assert silent.rankers()[0].frozen
    finally:
        silent.close()
        other.close()


def test_a_dead_host_is_found_out_by_the_server_too(store_url: str) -> None:
    """By itself it would take hours, and hold the dead one's locks."""
    store = open_store(store_url)
    try:
        shown = [store.database.all(f"SHOW tcp_{name}")[0][0] for name in ("keepalives_idle", "user_timeout")]
        assert shown == ["1", "2000"]
    finally:
        store.close()
