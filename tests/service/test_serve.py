"""`pairrank serve` as its users meet it: started, stopped, killed, on a full disk, on two machines."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from cluster import Postgres, until
from scene import Scene
from tree import Tree

from pairrank.checking import import_extra
from pairrank.cli import main
from pairrank.client import Client, ServiceError, UnreachableError
from pairrank.errors import PairRankError, StorageError
from pairrank.service.learning.verify import verify
from pairrank.service.settings import Settings
from pairrank.service.store import SqlStore, open_store
from pairrank.service.supervisor import Supervisor

DOCUMENTS = {f"d{i}": [i / 5, 1 - i / 5] for i in range(5)}


def exchange(client: Client) -> str:
    """One list, one click; what was acknowledged."""
    shown = client.rank("a", DOCUMENTS, k=3)
    assert client.feedback("a", shown.impression_id, [max(shown.ids)]) in ("accepted", "duplicate")
    return shown.impression_id


def logged(store: str) -> set[str]:
    opened = open_store(store)
    try:
        assert verify(opened) == []
        return {f"{number}-{token}" for number, token in opened.database.all("SELECT number, token FROM log")}
    finally:
        opened.close()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.mark.slow
@pytest.mark.crash
def test_a_tree_that_loses_any_of_its_processes_recovers(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    tree = Tree(place, "--workers", "2")
    try:
        assert "127.0.0.1" in tree.greeting
        assert "store.db" in tree.greeting
        tree.client.create("a", 2)
        sent = {exchange(tree.client)}
        for victim in ("learner", "worker", "supervisor", "learner", "worker", "supervisor"):
            tree.kill(victim)
            if victim == "supervisor":
                tree.start()
            sent |= {exchange(tree.client) for _ in range(5)}
        for _ in range(200):
            if tree.client.ranker("a")["lag"] == 0:
                break
        answer = tree.client.ranker("a")
        assert answer["feedback_count"] >= len(sent)
        assert answer["learned_count"] == answer["feedback_count"]
    finally:
        assert tree.stop() == 0
    assert sent <= logged(place)
    assert main(["replay", place]) == 0
    assert "the same" in capsys.readouterr().out
    assert not Path(place.removeprefix("sqlite:///") + "-wal").exists()  # all processes are gone and have cleaned up


def asked(port: int, path: str, body: bytes | None = None) -> tuple[int, str | None, dict[str, str]]:
    """Status, `Retry-After` and JSON of an answer."""
    request = Request(f"http://127.0.0.1:{port}{path}", body, {"Authorization": "Bearer of no key"})
    try:
        with urlopen(request, timeout=90) as answer:
            return answer.status, None, json.load(answer)
    except HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.headers["Retry-After"], json.load(refusal)


def check_away(port: int, told: str) -> None:
    """The process says that it lives, and to everything else why it cannot answer."""
    until(lambda: told in asked(port, "/readyz")[2]["message"])
    assert asked(port, "/healthz")[0] == 200
    for path, body in (("/readyz", None), ("/", None), ("/metrics", None), ("/v1/rankers/a/rank", b"{}"), ("/x", None)):
        status, after, answer = asked(port, path, body)
        assert (status, after, answer["error"]) == (503, "1", "store"), path
        assert told in answer["message"]


def test_what_is_installed_and_fails_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "heavy.py").write_text("raise ImportError('heavy.so: cannot allocate memory')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PairRankError, match=r"^heavy is installed and cannot be imported: heavy.so: cannot allocate"):
        import_extra("heavy", "serve")


@pytest.mark.slow
@pytest.mark.parametrize("reads", [True, False])
def test_the_service_outlives_whoever_read_its_log(place: str, reads: bool) -> None:
    """Nobody empties the pipe, or its reader has gone."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    tree = Tree(place, "--access-log", stderr=writer)
    try:
        tree.client.create("a", n_features=2)
        if not reads:
            os.close(reader)
        for _ in range(100):
            exchange(tree.client)
        [worker] = tree.children("worker")
        tree.kill("worker")
        exchange(tree.client)
        assert tree.children("worker") != [worker]
        assert tree.stop() == 0
        assert len(logged(place)) == 101
    finally:
        os.close(writer)
        if reads:
            os.close(reader)
        tree.process.kill()


def test_a_process_that_cannot_be_started_is_tried_again_and_ends_no_other(tmp_path: Path) -> None:
    """As where a container may have no more processes."""
    full = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        supervisor = Supervisor(Settings(), listener, tmp_path)
        (worker, _) = supervisor._children
        with mock.patch.object(supervisor, "_start", side_effect=[full, mock.sentinel.process]) as start:
            supervisor._tend(worker)
            supervisor._tend(worker)
            assert start.call_count == 1
            worker.due = 0.0
            supervisor._tend(worker)
        assert worker.process is mock.sentinel.process


@pytest.mark.slow
def test_a_worker_that_starts_while_the_store_is_away_says_so_and_waits_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    settings = json.dumps({"store": f"sqlite:///{folder / 'store.db'}"}) + "\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        handle, port = listener.fileno(), listener.getsockname()[1]
        command = [sys.executable, "-m", "pairrank.service.process", "worker", str(handle)]
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, pass_fds=[handle], text=True, **pipes) as worker:
            worker.stdin.write(settings)
            worker.stdin.flush()
            check_away(port, "there is no store")
            assert "there is no store" in json.loads(worker.stderr.readline())["message"]
            folder.mkdir()
            open_store(folder / "store.db").close()
            with Client(f"http://127.0.0.1:{port}", timeout=60.0) as client:
                assert client.rankers() == []
            worker.terminate()
            assert worker.stderr.read() == ""  # once was enough


@pytest.mark.postgres
def test_a_wrong_password_is_told_instead_of_waited_for(postgres: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    import psycopg

    address = postgres.url("postgres")
    wrong = address.replace("pairrank@", "locked:wrong@")
    rules = postgres.folder / "data" / "pg_hba.conf"
    rules.write_text(f"host all locked all scram-sha-256\n{rules.read_text()}")

    def is_refused() -> bool:
        try:
            psycopg.connect(wrong).close()
        except psycopg.OperationalError:
            return True
        return False

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        connection.execute("SELECT pg_reload_conf()")
    until(is_refused)
    for store in (wrong, wrong.replace(":wrong", "")):
        with pytest.raises(StorageError, match="password") as told:
            open_store(store)
        assert type(told.value) is StorageError
        assert main(["serve", "--port", "0", "--store", store]) == 1
        assert "password" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.crash
def test_a_host_that_starts_while_postgresql_is_away_serves_once_it_is_back(postgres: Postgres) -> None:
    store = postgres.new_database()
    postgres.kill()
    tree = None
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PAIRRANK_ADMIN_KEY", "a secret for tests")
            tree = Tree(store, "--workers", "2")
        check_away(tree._port, "Connection refused")
        postgres.start()
        boss = Client(f"http://127.0.0.1:{tree._port}", key="a secret for tests")
        until(lambda: asked(tree._port, "/readyz")[0] == 200)
        boss.create("a", 2)
        sent = {exchange(boss)}
        postgres.kill()
        tree.kill("worker")  # those that take their place have never seen it
        check_away(tree._port, "Connection refused")
        postgres.start()
        sent |= {exchange(boss) for _ in range(20)}
        boss.close()
        postgres.kill()
        tree.kill("worker")
        check_away(tree._port, "Connection refused")
    finally:
        if tree is not None:
            assert tree.stop() == 0  # a worker that waits ends when it is told to
        postgres.start()
    assert logged(store) == sent
    assert main(["replay", store]) == 0


@pytest.mark.slow
def test_a_stop_drains_and_learns_what_is_left(place: str) -> None:
    tree = Tree(place)
    tree.client.create("a", 2)
    sent = {exchange(tree.client) for _ in range(20)}
    assert tree.process.stdout is not None
    second = tree.process.stdout.readline()
    named = dict(re.findall(r"(\S[^:]+): (http://\S+)", second))
    assert set(named) == {"Live page", "API and documentation"}
    told = {name: urlopen(address).read().decode() for name, address in named.items()}
    assert "<h1>Rankers" in told["Live page"]
    assert "First steps" in told["API and documentation"]
    assert tree.stop() == 0
    store = open_store(place)
    row = store.rankers()[0]
    store.close()
    assert (row.applied, row.learned) == (20, 20)
    assert logged(place) == sent


def is_refused(here: tuple[str, int]) -> bool:
    """Whether nobody listens; who was let in before that is sent away, and does not wait."""
    try:
        with socket.create_connection(here, timeout=10) as late:
            late.recv(1)
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass
    return False


@pytest.mark.slow
def test_a_stop_answers_what_is_under_way_and_refuses_what_comes(place: str) -> None:
    tree = Tree(place)
    tree.client.create("a", 2)
    here, body = ("127.0.0.1", tree._port), json.dumps({"documents": [{"id": "x", "features": [1, 2]}]}).encode()
    with socket.create_connection(here, timeout=60) as slow:
        head = f"POST /v1/rankers/a/rank HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        slow.sendall(head.encode() + body[:9])
        assert tree.client.rankers()
        tree.process.terminate()
        until(lambda: is_refused(here))
        slow.sendall(body[9:])
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
    assert tree.stop() == 0


# The locks of a learner that died are free at once; another asks four times a second. The rest is for slow machines.
TAKEOVER_SECONDS = 30.0


def learners(store: SqlStore) -> int:
    """How many learners a PostgreSQL has."""
    from pairrank.service.store.postgres import LEARNER_LOCK, PostgresDatabase

    assert isinstance(store.database, PostgresDatabase)
    return store.database.locks()[LEARNER_LOCK]


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.crash
def test_two_machines_on_one_postgresql(postgres: Postgres) -> None:
    store = postgres.new_database()
    trees = [Tree(store), Tree(store)]
    try:
        trees[0].client.create("a", 2)
        sent = {exchange(tree.client) for tree in trees for _ in range(5)}
        until(lambda: trees[0].client.ranker("a")["learned_count"] == 10)
        observer = open_store(store)
        assert learners(observer) == 2
        # The first machine dies whole; the other one's learner takes over, and its clients notice nothing.
        trees[0].kill("supervisor")
        started = time.monotonic()
        sent |= {exchange(trees[1].client) for _ in range(5)}
        while (row := trees[1].client.ranker("a"))["lag"] and time.monotonic() - started < TAKEOVER_SECONDS:
            pass
        assert row["learned_count"] == row["feedback_count"] == 15
        print(f"the other learner had taken over and learned after {time.monotonic() - started:.2f} s")
        assert learners(observer) == 1
        observer.close()
    finally:
        for tree in trees:
            if tree.process.poll() is None:
                tree.stop()
    assert sent == logged(store)
    assert main(["replay", store]) == 0


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of two megabytes, where mounting is allowed.

    Not in pytest's own folder: what a killed run left mounted there could not be cleared away by the next.
    """
    folder = Path(tempfile.mkdtemp(prefix="pairrank-disk-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()


def exchange_until_full(client: Client, documents: dict[str, list[float]]) -> None:
    for _ in range(1000):
        client.feedback("a", client.rank("a", documents).impression_id, [])


def refuse(client: Client) -> None:
    """The store cannot be written: 503 for rank and feedback."""
    documents = {f"d{i}": [float(i)] * 100 for i in range(30)}
    with Client(f"http://127.0.0.1:{client._port}", retries=0, timeout=20.0) as impatient:
        # Twice: a checkpoint may free a little in between, and being full must not be answered only once.
        for _ in range(2):
            with pytest.raises(UnreachableError, match="cannot be used"):
                exchange_until_full(impatient, documents)


@pytest.mark.slow
def test_a_full_disk_is_a_503_and_recovers_when_space_returns(small_disk: Path) -> None:
    store = f"sqlite:///{small_disk / 'store.db'}"
    tree = Tree(store)
    try:
        tree.client.create("a", 100)
        ballast = small_disk / "ballast"
        free = os.statvfs(small_disk)
        ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - 300_000)))
        shown = tree.client.rank("a", {"x": [0.5] * 100, "y": [0.2] * 100})
        refuse(tree.client)
        with pytest.raises(HTTPError, match="503"):  # for five seconds; then what comes shows
            urlopen(f"http://127.0.0.1:{tree.client._port}/readyz")
        assert tree.client.rankers()[0]["name"] == "a"  # reading works all the while
        ballast.unlink()
        assert tree.client.feedback("a", shown.impression_id, ["x"]) == "accepted"
    finally:
        assert tree.stop() == 0
    number = shown.impression_id
    assert number in logged(store)
    assert main(["replay", store]) == 0


def test_a_read_only_disk_is_refused_at_the_start_and_harmless(
    small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = small_disk / "store.db"
    store = open_store(place)
    scene = Scene(store)
    scene.feedback(scene.serve(3))
    scene.learn()
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert main(["serve", "--store", f"sqlite:///{place}", "--port", "0"]) == 1
    assert "in a folder that can be written" in capsys.readouterr().err
    # What only reads does, as from a backup on such a disk.
    assert main(["store", "verify", str(place)]) == main(["replay", str(place)]) == 0
    assert main(["store", "backup", str(place), str(tmp_path / "copy.db")]) == 0
    assert main(["fit", str(place), "--out", str(tmp_path / "fitted.pairrank")]) == 0
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert main(["replay", str(place)]) == 0


def test_neither_the_present_folder_nor_a_closed_standard_input_keeps_workers_from_starting(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pairrank.py").touch()
    monkeypatch.chdir(tmp_path)
    # -P: without the present folder among those of modules, as where the command `pairrank` is called.
    tree = Tree(place, prefix=("bash", "-c", 'exec "$0" -P "$@" <&-'))
    try:
        tree.client.create("a", 2)
        exchange(tree.client)
    finally:
        assert tree.stop() == 0


def test_check_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = f"sqlite:///{tmp_path / 'store.db'}"
    assert main(["serve", "--check", "--store", place]) == 0
    assert "sound" in capsys.readouterr().out
    assert main(["serve", "--check", "--store", place, "--host", "0.0.0.0"]) == 2
    assert "keys" in capsys.readouterr().err
    assert main(["serve", "--check", "--store", f"sqlite:///{tmp_path / 'no' / 'store.db'}"]) == 1
    assert main(["serve", "--check", "--store", "mysql://x"]) == 2
    assert main(["serve", "--check", "--workers", "0"]) == 2
    assert not (tmp_path / "store.db").exists()
    assert main(["store", "keys", place, "--add", "boss", "--role", "admin"]) == 0
    assert capsys.readouterr().out.startswith("prk_")
    assert main(["serve", "--check", "--store", place, "--host", "0.0.0.0"]) == 0


@pytest.mark.slow
def test_without_a_temporary_folder_nothing_is_begun(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "no")])
    assert main(["serve", "--check", "--store", place]) == 1
    assert "No usable temporary directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_another_address_demands_keys(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["store", "keys", place, "--add", "boss", "--role", "admin"])
    secret = capsys.readouterr().out.strip()
    tree = Tree(place, "--host", "0.0.0.0")
    try:
        with pytest.raises(ServiceError, match="needs a key"):
            tree.client.rankers()
        with Client(f"http://127.0.0.1:{tree._port}", key=secret) as boss:
            assert boss.rankers() == []
    finally:
        assert tree.stop() == 0


def test_a_busy_port_is_one_sentence_and_leaves_nothing_behind(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pairrank.service import supervisor

    monkeypatch.setattr(supervisor, "BIND_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--store", place, "--port", str(port)]) == 1
    assert f"port {port}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_commands_on_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "store.db")
    store = open_store(place)
    scene = Scene(store)
    scene.feedback(scene.serve(5))
    scene.learn()
    store.close()
    assert main(["replay", place, "--json"]) == 0
    assert '"same": true' in capsys.readouterr().out
    assert main(["store", "verify", place]) == 0
    assert main(["store", "backup", place, str(tmp_path / "copy.db")]) == 0
    assert main(["store", "backup", place, str(tmp_path / "copy.db")]) == 1
    assert main(["store", "compact", place]) == 0
    assert "5 entries dropped" in capsys.readouterr().out
    assert main(["replay", place]) == 0
    assert main(["store", "restore", str(tmp_path / "copy.db"), str(tmp_path / "new.db")]) == 0
    assert main(["replay", str(tmp_path / "new.db")]) == 0
    assert main(["replay", str(tmp_path / "nothing.db")]) == 1
    assert main(["replay", place, "--ranker", "nobody"]) == 2
    damaged = open_store(place)
    with damaged.database.transaction():
        damaged.database.all("UPDATE heads SET digest = 'wrong'")
    damaged.close()
    capsys.readouterr()
    assert main(["replay", place]) == 1
    assert "NOT THE SAME" in capsys.readouterr().out
    assert main(["store", "verify", place]) == 1
    assert main(["store", "keys", place, "--revoke", "nobody"]) == 2
    assert main(["store", "keys", place, "--add", "x"]) == 2
    assert main(["store", "keys", place, "--add", "x", "--role", "rank", "--revoke", "boss"]) == 2
    assert main(["store", "keys", place, "--role", "rank"]) == 2
    missing = tmp_path / "typo.db"
    assert main(["store", "keys", str(missing)]) == main(["store", "keys", str(missing), "--revoke", "x"]) == 1
    assert not missing.exists()


def test_nothing_is_left_open_when_the_service_ends(place: str) -> None:
    program = "import sys; from pairrank.cli import main; sys.exit(main())"
    command = [sys.executable, "-W", "error", "-c", program, "serve", "--port", "0", "--store", place]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        assert "this learner holds" in service.stderr.readline()
        service.terminate()
        assert "Warning" not in service.stderr.read()
    assert service.returncode == 0
