"""Headers over a raw socket: as many and as long as anybody needs, and no more."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from web import running_server

from pairrank.client import Client
from pairrank.service.auth import new_key
from pairrank.service.http.protocol import MAX_HEAD_BYTES, MAX_HEADERS, HttpProtocol
from pairrank.service.worker.admission import BUSY, Door

LINE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    path: Path = tmp_path_factory.mktemp("protocol") / "store.db"
    with running_server(path) as url:
        yield "127.0.0.1", int(url.rpartition(":")[2])


def ask(address: tuple[str, int], *parts: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to what is sent; the server may hang up before all of it was."""
    with socket.create_connection(address, timeout=30) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            for part in parts:
                connection.sendall(part)
        answer = b""
        with suppress(ConnectionResetError):
            while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
                more = connection.recv(65_536)
                if not more:
                    break
                answer += more
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def fields(count: int) -> bytes:
    return b"".join(b"x-%d: y\r\n" % number for number in range(count))


def test_what_is_usual_goes_through(address: tuple[str, int]) -> None:
    assert ask(address, LINE + fields(MAX_HEADERS - 1) + b"\r\n")[0] == 200
    assert ask(address, LINE + b"x: " + b"y" * (MAX_HEAD_BYTES - 200) + b"\r\n\r\n")[0] == 200
    assert ask(address, *(bytes([byte]) for byte in LINE + b"\r\n"))[0] == 200


def test_too_many_headers(address: tuple[str, int]) -> None:
    status, body = ask(address, LINE + fields(MAX_HEADERS) + b"\r\n")
    assert status == 431
    assert json.loads(body)["error"] == "headers"
    assert ask(address, LINE, *[fields(1000)] * 1000, b"\r\n")[0] in (431, 0)  # 0: it hung up while we were sending


@pytest.mark.parametrize("wrong", [b"FOO / HTTP/1.1\r\n\r\n", LINE + b"Content-Length: -1\r\n\r\n", b"\x16\x03\x01"])
def test_what_is_no_request_hears_so_as_json(address: tuple[str, int], wrong: bytes) -> None:
    status, body = ask(address, wrong)
    assert (status, json.loads(body)["error"]) == (400, "http")


@pytest.mark.parametrize("start", [LINE + b"x: ", LINE, b"GET /"], ids=["value", "name", "address"])
def test_a_head_without_end_is_not_kept(address: tuple[str, int], start: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert ask(address, start, *[b"y" * 2**20] * 100)[0] in (431, 400, 0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024  # kB, of the server in this process
    status, _ = ask(address, start + b"y" * (MAX_HEAD_BYTES + 20_000) + b": z\r\n\r\n")
    assert status == 431


def test_the_limit_holds_for_every_request_of_a_connection(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=30) as connection:
        for _ in range(3):
            connection.sendall(LINE + b"x: " + b"y" * 40_000 + b"\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 200")
        connection.sendall(LINE + b"x: " + b"y" * 100_000 + b"\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 431")


def test_a_body_is_not_a_header(address: tuple[str, int]) -> None:
    body = b" " * 1_000_000
    head = b"PUT /v1/rankers/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert ask(address, head + body)[0] == 400


@pytest.mark.parametrize(
    "offer",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n",
        b"Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n",
        b"Connection: Upgrade\r\nupgrade: websocket, h2c",  # the last line of the head
    ],
)
def test_an_offer_of_another_protocol_does_not_cost_the_body(address: tuple[str, int], offer: bytes) -> None:
    """As Java's own client makes it with its first request, and Apache's."""
    body = b'{"n_features": 2}'
    head = b"PUT /v1/rankers/java HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n" % len(body) + offer.removesuffix(b"\r\n")
    status, answer = ask(address, head + b"\r\n\r\n" + body)
    assert status in (200, 201)
    assert json.loads(answer)["n_features"] == 2


def test_a_full_worker_refuses_at_the_door_and_the_connection_goes_on(tmp_path: Path) -> None:
    refused: list[int] = []

    class Protocol(HttpProtocol):
        door = Door(1, 1, refused=refused.append)

    def post(name: str, what: str, more: str = "", size: int = 300_000) -> bytes:
        head = f"POST /v1/rankers/{name}/{what}?k=3 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n{more}\r\n"
        return head.encode() + b" " * size

    room = Protocol.door._rooms[b"rank"]
    room.take(("a", ""))
    with running_server(tmp_path / "store.db", Protocol) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(place, timeout=30) as connection, connection.makefile("rb") as answers:
            for sent, status, error in (
                (post("a", "rank"), 503, "busy"),
                (post("b", "rank"), 404, "unknown"),  # another ranker's share is free
                (post("a", "feedback"), 404, "unknown"),  # and so is the room for writes
                (LINE + b"\r\n", 200, None),
                (post("a", "rank", size=0), 503, "busy"),
            ):
                connection.sendall(sent)
                head = list(iter(answers.readline, b"\r\n"))
                fields = dict(line.decode().strip().lower().split(": ", 1) for line in head[1:])
                body = json.loads(answers.read(int(fields["content-length"])))
                assert (int(head[0].split()[1]), body.get("error")) == (status, error)
                assert ("retry-after" in fields) == (status == 503)
        assert body["message"] == BUSY
        status, _ = ask(place, post("a", "rank", "Expect: 100-continue\r\n", 0))
        assert status == 503
        room.take(("a", ""), -1)
        assert ask(place, post("a", "rank", size=2))[0] == 404
    assert refused == [503] * 3
    assert not room._inside


def test_the_more_are_refused_the_longer_connections_wait() -> None:
    door = Door(1, 1)
    pauses = [door.refused(503, 7.0) for _ in range(2000)]
    assert pauses[0] < 0.01
    assert pauses[-1] == 1.0


def test_who_comes_back_too_soon_waits_unless_there_is_room_by_then(tmp_path: Path) -> None:
    class Slow(Door):
        silence = 0.5

        def refused(self, status: int, now: float) -> float:
            return self.silence

    class Protocol(HttpProtocol):
        door = Slow(1, 1)

    head = b"POST /v1/rankers/a/rank HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n"
    room = Protocol.door._rooms[b"rank"]
    room.take(("a", ""))
    with running_server(tmp_path / "store.db", Protocol) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(place, timeout=30) as connection:

            def heard(*parts: bytes) -> bytes:
                for part in parts:
                    connection.sendall(part)
                    time.sleep(0.05)
                return connection.recv(65_536)

            assert heard(head + b"{}").startswith(b"HTTP/1.1 503")
            first = time.monotonic()
            Protocol.door.silence = 60.0
            assert heard(head + b"{", b"}").startswith(b"HTTP/1.1 503")
            assert time.monotonic() - first > 0.4
            answers = heard(head + b"{", b"}" + LINE + b"\r\n")  # what comes behind it is not kept waiting
            while answers.count(b"HTTP/1.1 ") < 2:
                answers += connection.recv(65_536)
            assert answers.index(b" 503 ") < answers.index(b" 200 ")
        with socket.create_connection(place, timeout=30) as connection:
            assert heard(head + b"{}").startswith(b"HTTP/1.1 503")
            room.take(("a", ""), -1)
            assert heard(head + b"{}").startswith(b"HTTP/1.1 404")


def test_a_key_that_sends_too_much_hears_it_and_no_other_does(tmp_path: Path) -> None:
    made = {name: new_key(name, ["rank"], 0.0) for name in ("shop", "other")}
    refused: list[int] = []

    class Protocol(HttpProtocol):
        door = Door(9, 9, 0.5, refused=refused.append, keys=lambda: [key for key, _ in made.values()])

    def ask_as(secret: str) -> tuple[int, bytes]:
        return ask(place, LINE + b"Authorization: Bearer %s\r\n\r\n" % secret.encode())

    with running_server(tmp_path / "store.db", Protocol) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        answers = [ask_as(made["shop"][1]) for _ in range(2)]
        assert sorted({status for status, _ in answers}) == [200, 429]
        assert answers[0][0] == 200
        problem = next(json.loads(body) for status, body in answers if status == 429)
        assert problem["error"] == "rate"
        assert problem["message"].startswith("the key 'shop' has sent more than 0.5 requests per second")
        assert ask_as(made["other"][1])[0] == 200
        assert [ask_as("wrong")[0] for _ in range(4)] == [200] * 4  # health needs no key
        until(lambda: ask_as(made["shop"][1])[0] == 200)
    assert set(refused) == {429}


def test_requests_that_are_sent_together_count_for_the_rate_of_a_key(tmp_path: Path) -> None:
    key, secret = new_key("shop", ["rank"], 0.0)
    refused: list[int] = []

    class Protocol(HttpProtocol):
        door = Door(9, 9, 0.5, refused=refused.append, keys=lambda: [key])

    with running_server(tmp_path / "store.db", Protocol) as url:
        request = LINE + b"Authorization: Bearer %s\r\n\r\n" % secret.encode()
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as connection:
            connection.sendall(request * 5 + LINE + b"\r\n")
            answers = b""
            while answers.count(b"HTTP/1.1 ") < 6 or not answers.endswith(b"}"):
                answers += connection.recv(65_536)
        together = [request, request.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")]
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as connection:
            connection.sendall(LINE + b"\r\n" + b"".join(together))
            with connection.makefile("rb") as file:
                last = file.read().lower()  # to its end: whether a body comes now nobody knows
    assert [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]] == [200, 429, 429, 429, 429, 200]
    assert refused == [429] * 6
    assert last.count(b"retry-after: 2\r\n") == 2  # the seconds until the key may send another


@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n"])
def test_who_asks_for_the_head_is_refused_without_a_body(tmp_path: Path, length: bytes) -> None:
    """Else the next answer of the connection would begin with it."""
    key, secret = new_key("shop", ["rank"], 0.0)

    class Protocol(HttpProtocol):
        door = Door(9, 9, 0.5, keys=lambda: [key])

    with running_server(tmp_path / "store.db", Protocol) as url:
        request = LINE.replace(b"GET", b"HEAD") + length + b"Authorization: Bearer %s\r\n\r\n" % secret.encode()
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as connection:
            for status in (b"200", b"429", b"429"):
                connection.sendall(request)
                answer = connection.recv(65_536)
                assert answer.startswith(b"HTTP/1.1 " + status)
                assert answer.endswith(b"\r\n\r\n")


def test_a_slow_body_holds_no_place(tmp_path: Path) -> None:
    class Protocol(HttpProtocol):
        door = Door(1, 1)

    room = Protocol.door._rooms[b"rank"]
    head = b"POST /v1/rankers/a/rank HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n"
    with running_server(tmp_path / "store.db", Protocol) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        with Client(url) as client:
            client.create("a", 2)
        with socket.create_connection(place, timeout=30) as slow:
            slow.sendall(head + b"{")
            until(lambda: room._inside["a", ""] == 1)
            assert ask(place, head + b"{}")[0] == 503
            until(lambda: not room._inside["a", ""])
            assert ask(place, head + b"{}")[0] == 422
            slow.sendall(b"}")
            assert b" 422 " in slow.recv(65_536)
    assert not room._inside


@pytest.mark.parametrize(
    "sent", [b"", LINE, LINE + b"\r\n" + LINE], ids=["nothing", "half a head", "half a second one"]
)
def test_a_connection_that_never_asks_is_closed(tmp_path: Path, sent: bytes) -> None:
    class Protocol(HttpProtocol):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.timeout_keep_alive = 0.3  # type: ignore[assignment]

    with (
        running_server(tmp_path / "store.db", Protocol) as url,
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as idle,
    ):
        idle.sendall(sent)
        received = b""
        while more := idle.recv(65_536):
            received += more
            idle.sendall(b"x: y\r\n")  # a byte now and then does not help
        assert received.count(b"200 OK") == sent.count(b"\r\n\r\n")


def test_a_connection_that_was_answered_before_its_body_came_is_closed_too(tmp_path: Path) -> None:
    class Protocol(HttpProtocol):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.timeout_keep_alive = 0.3  # type: ignore[assignment]

    size = 9 * 2**20
    with (
        running_server(tmp_path / "store.db", Protocol) as url,
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as idle,
    ):
        idle.sendall(b"PUT /v1/rankers/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % size)
        assert idle.recv(65_536).startswith(b"HTTP/1.1 413")
        idle.sendall(b" " * size)
        assert idle.recv(65_536) == b""


def test_a_connection_that_was_refused_is_closed_as_late_as_any_other(tmp_path: Path) -> None:
    class Protocol(HttpProtocol):
        door = Door(1, 1)

        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.timeout_keep_alive = 1

    Protocol.door._rooms[b"rank"].take(("a", ""))
    with (
        running_server(tmp_path / "store.db", Protocol) as url,
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as idle,
    ):
        time.sleep(0.3)  # the time runs since then, and begins anew
        idle.sendall(b"POST /v1/rankers/a/rank HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}")
        asked, received = time.monotonic(), b""
        while more := idle.recv(65_536):
            received += more
        assert received.startswith(b"HTTP/1.1 503")
        assert time.monotonic() - asked > 0.9
