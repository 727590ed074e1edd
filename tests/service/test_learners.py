"""Several services on one PostgreSQL: learners share the rankers, one that was paused cannot publish any more, and a
newer version changes the tables beneath those that run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from cluster import Postgres, free_port, until
from scene import Scene
from web import running_app

from pairrank.cli import main
from pairrank.errors import StorageError
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.replay import replay
from pairrank.service.store import SqlStore, database, open_store
from pairrank.service.store.schema import MIGRATIONS, VERSION
from pairrank.service.store.transfer import backup, restore
from pairrank.service.store.values import Config, Limits

pytestmark = pytest.mark.postgres
TAKEOVER_SECONDS = 30.0


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


def test_who_held_a_ranker_hears_that_the_tables_were_made_anew(
    store: SqlStore, store_url: str, open_another: Callable[[], SqlStore], tmp_path: Path
) -> None:
    first, second = open_another().database, open_another().database
    assert first.hold([1]) == {1}
    backup(store, tmp_path / "saved.db")
    for act in ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public"):
        store.database.all(act)
    restore(str(tmp_path / "saved.db"), store_url)
    assert second.hold([1]) == {1}
    with pytest.raises(StorageError):
        first.hold([1])
    assert first.hold([1]) == set()
    second.close()
    until(lambda: first.hold([1]))


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


def test_stores_in_two_schemas_of_one_database_do_not_share_learners(store_url: str) -> None:
    """Each has its own role as a rule; an address may name the schema as well."""
    import psycopg

    with psycopg.connect(store_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA one; CREATE SCHEMA two")
    stores = [open_store(f"{store_url}?options=-csearch_path%3D{schema}") for schema in ("one", "two")]
    try:
        assert not any(store.database.hold([1, 2]) != {1, 2} for store in stores * 2)
        stores[0].create("shop", Config(2), Limits(), 0.0, "test")
        assert [len(store.rankers()) for store in stores] == [1, 0]
    finally:
        for store in stores:
            store.close()


def test_what_the_database_has_by_default_does_not_act(store_url: str) -> None:
    import psycopg

    name = store_url.rpartition("/")[2]
    chosen = {
        "client_encoding": "latin1",
        "default_transaction_isolation": "serializable",
        "lock_timeout": "5s",
        "idle_session_timeout": "5s",
        "idle_in_transaction_session_timeout": "5s",
        "statement_timeout": "5s",
        "synchronous_commit": "off",
    }
    with psycopg.connect(store_url, autocommit=True) as connection:
        for setting, value in chosen.items():
            connection.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    store = open_store(store_url)
    try:
        store.database.vacuum()
        shown = [store.database.all(f"SHOW {setting}")[0][0] for setting in chosen]
        assert shown == ["UTF8", "read committed", "0", "0", "0", "30s", "on"]
        store.create("shop", Config(2), Limits(), 0.0, "\u65e5\u672c")
        assert store.audit(1)[0]["actor"] == "\u65e5\u672c"
    finally:
        store.close()


def test_a_service_on_a_read_only_database_is_not_ready(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As on a standby: it can read everything, and every list must be written."""
    import psycopg

    open_store(store_url).close()
    with psycopg.connect(store_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {store_url.rpartition('/')[2]} SET default_transaction_read_only = on")
    with running_app(store_url, learner=False) as client:
        answer = client.get("/readyz")
        assert (answer.status_code, "the database is read-only" in answer.json()["message"]) == (503, True)
    assert main(["serve", "--check", "--store", store_url]) == 1
    assert "the database is read-only" in capsys.readouterr().err
    assert main(["store", "verify", store_url]) == 0


def test_a_database_that_cannot_hold_every_text_is_refused(postgres: Postgres) -> None:
    import psycopg

    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE bytes TEMPLATE template0 ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C'")
    with pytest.raises(StorageError, match="encoding UTF8; this one has SQL_ASCII"):
        open_store(postgres.url("bytes"))


def test_an_older_server_is_refused(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairrank.service.store.postgres.OLDEST", 99)
    with pytest.raises(StorageError, match="needs PostgreSQL 99 or newer; this is"):
        open_store(store_url)


def test_what_a_role_may_not_do_is_told_without_the_statement(store_url: str) -> None:
    with pytest.raises(StorageError, match=r"no schema has been selected to create in$"):
        open_store(f"{store_url}?options=-csearch_path%3Dnone")


@pytest.mark.parametrize("sessions", [[7, 1, 1, 1, 1], [7, 1, 2, 1, 1], [7, 1, 2, 3, 2]])
def test_a_session_that_others_get_too_is_refused(
    store_url: str, monkeypatch: pytest.MonkeyPatch, sessions: list[int]
) -> None:
    answers = iter(sessions)
    monkeypatch.setattr("pairrank.service.store.postgres._session", lambda _: next(answers))
    with pytest.raises(StorageError, match="a pooler that shares them between transactions"):
        open_store(store_url)


@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="install the package pgbouncer")
def test_a_pooler_may_pool_sessions_and_not_transactions(postgres: Postgres, store_url: str) -> None:
    name, port, folder = store_url.rpartition("/")[2], free_port(), postgres.folder
    pooled = f"postgresql://pairrank@127.0.0.1:{port}/{name}"
    (folder / "users").write_text('"pairrank" ""\n')
    for mode in ("session", "transaction"):
        (folder / "pooler.ini").write_text(
            f"[databases]\n{name} = host={postgres.host} port={postgres.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users\n"
            f"pool_mode = {mode}\n"
        )
        pooler = subprocess.Popen(
            ["pgbouncer", "-q", folder / "pooler.ini"], user=postgres.user, cwd=folder, stderr=subprocess.DEVNULL
        )
        try:
            until(partial(_says, pooled, "pooler that shares" if mode == "transaction" else ""), 20)
        finally:
            pooler.kill()
            pooler.wait()


def _says(address: str, refusal: str) -> bool:
    try:
        store = open_store(address)
    except StorageError as problem:
        return bool(refusal) and refusal in str(problem)
    assert not refusal
    assert store.database.hold([1, 2]) == {1, 2}
    store.close()
    return True
