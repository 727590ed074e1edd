"""The client: what it sends, what it makes of answers, and that it tries again."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from pairrank import client as client_module
from pairrank.client import AsyncClient, Client, Explanation, Neighbours, Ranked, ServiceError, UnreachableError
from pairrank.errors import InputError, OptionError

Answer = tuple[int, Any]


class Script:
    """A server that gives scripted answers and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []
        self.answers: list[Answer | None] = []  # None: hang up

    def handler(self) -> type[BaseHTTPRequestHandler]:
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                script.asked.append((self.command, self.path, body, dict(self.headers)))
                answer = script.answers.pop(0)
                if answer is None:
                    self.close_connection = True
                    return
                data = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Script, str]]:
    monkeypatch.setattr(client_module, "MAX_PAUSE", 0.001)
    scripted = Script()
    server = ThreadingHTTPServer(("127.0.0.1", 0), scripted.handler())
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield scripted, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


SHOWN = {
    "impression_id": "1-x",
    "model_version": 4,
    "explored": True,
    "ranking": [
        {"id": "b", "position": 1, "score": 0.5, "block": 0},
        {"id": "a", "position": 2, "score": 0.1, "block": 1},
    ],
}


def test_rank_and_feedback(script: tuple[Script, str]) -> None:
    scripted, url = script
    scripted.answers = [(200, SHOWN), (200, {"status": "accepted"}), (200, [{"event_id": "e", "status": "late"}])]
    with Client(url + "/", key="secret") as client:
        shown = client.rank("shop", {"a": [1, 2.5], "b": {"x": 1}}, k=2, query_id="q")
        assert shown.ids == ("b", "a")
        assert shown.documents[0] == Ranked("b", 1, 0.5, 0)
        assert client.feedback("shop", shown.impression_id, iter(["b"])) == "accepted"
        assert client.click("shop", shown.impression_id, "b", event_id="e") == "late"
    (rank, feedback, click) = scripted.asked
    assert rank[:3] == (
        "POST",
        "/v1/rankers/shop/rank",
        {
            "documents": [{"id": "a", "features": [1.0, 2.5]}, {"id": "b", "features": {"x": 1.0}}],
            "k": 2,
            "query_id": "q",
        },
    )
    assert rank[3]["Authorization"] == "Bearer secret"
    assert feedback[2] == {"impression_id": "1-x", "clicks": ["b"]}
    assert click[2][0]["event_id"] == "e"


def test_rows_of_a_frame_are_taken_by_name(script: tuple[Script, str]) -> None:
    pandas = pytest.importorskip("pandas")
    scripted, url = script
    scripted.answers = [(200, SHOWN)] * 3
    frame = pandas.DataFrame({"rating": [4.5, None], "price": [89, 25]}, index=["a", "b"])
    with Client(url) as client:
        client.rank("shop", dict(frame.iterrows()))
        client.rank("shop", dict(frame.convert_dtypes().iterrows()))  # in which what is missing is NA
        client.rank("shop", dict(pandas.DataFrame(frame.to_numpy(), index=frame.index).iterrows()))
    named, nullable, numbered = ([row["features"] for row in asked[2]["documents"]] for asked in scripted.asked)
    assert named == nullable == [{"rating": 4.5, "price": 89.0}, {"rating": None, "price": 25.0}]
    assert numbered == [[4.5, 89.0], [None, 25.0]]


@pytest.mark.parametrize(
    ("act", "method", "path", "body"),
    [
        (lambda c: c.ranker("a/b"), "GET", "/v1/rankers/a%2Fb", None),
        (lambda c: c.pin("a", 3), "POST", "/v1/rankers/a/pin", {"version": 3}),
        (lambda c: c.rollback("a", 3), "POST", "/v1/rankers/a/rollback", {"version": 3}),
        (lambda c: c.freeze("a", False), "POST", "/v1/rankers/a/freeze", {"frozen": False}),
        (lambda c: c.limit("a", {"locked": 1}), "POST", "/v1/rankers/a/limits", {"locked": 1}),
        (lambda c: c.delete("a"), "DELETE", "/v1/rankers/a", None),
        (
            lambda c: c.create("a", 2, seed=1, feature_names=["x", "y"], limits={"locked": 1}),
            "PUT",
            "/v1/rankers/a",
            {
                "n_features": 2,
                "ranker": "pairrank",
                "seed": 1,
                "options": {},
                "feature_names": ["x", "y"],
                "locked": 1,
            },
        ),
    ],
)
def test_administration(
    script: tuple[Script, str], act: Callable[[Client], object], method: str, path: str, body: object
) -> None:
    scripted, url = script
    scripted.answers = [(200, {})]
    with Client(url) as client:
        act(client)
    assert scripted.asked[0][:3] == (method, path, body)


def test_it_tries_again_when_that_is_safe(script: tuple[Script, str]) -> None:
    scripted, url = script
    busy = (503, {"error": "store", "message": "the disk is full"})
    scripted.answers = [None, busy, (429, {}), (502, b"<html>"), (200, {"status": "duplicate"})]
    with Client(url, retries=4) as client:
        assert client.feedback("a", "1-x", []) == "duplicate"
    assert len({json.dumps(asked[2]) for asked in scripted.asked}) == 1
    scripted.answers = [busy, busy]
    with Client(url, retries=1) as client, pytest.raises(UnreachableError, match="2 attempts: the disk is full"):
        client.feedback("a", "1-x", [])


def test_a_refusal_is_told_at_once(script: tuple[Script, str]) -> None:
    scripted, url = script
    scripted.answers = [(410, {"error": "expired", "message": "too late"}), (404, b"<html>"), (404, {}), (404, {})]
    with Client(url) as client:
        with pytest.raises(ServiceError, match="too late") as caught:
            client.feedback("a", "1-x", [])
        assert (caught.value.status, caught.value.code) == (410, "expired")
        with pytest.raises(ServiceError, match="answered 404"):
            client.ranker("a")
        client.delete("a")
    assert len(scripted.asked) == 3


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_PAUSE", 0.001)
    with pytest.raises(UnreachableError, match=r"gave up on 127\.0\.0\.1:9 after 3 attempts: .* is a service running"):
        Client("http://me:secret@127.0.0.1:9", retries=2).rankers()


def test_wrong_use_is_told_before_anything_is_sent() -> None:
    for url in ("ftp://x", "nonsense", "http://", "http://me:secret@x:99999", "http://x:y"):
        with pytest.raises(OptionError, match="http://host:port") as told:
            Client(url)
        assert "secret" not in str(told.value)
    for key in ("from-a-file\n", "schlüssel"):
        with pytest.raises(OptionError, match="no header can carry") as told:
            Client(key=key)
        assert key.strip() not in str(told.value)
    with pytest.raises(InputError, match="infinity"):
        Client().rank("a", {"x": [float("inf")]})
    with pytest.raises(InputError, match="the features of document 'x' are not numbers: must be real number, not str"):
        Client().rank("a", {"x": ["12"]})  # type: ignore[list-item]
    for documents in ([[0.1]], [{"id": "x", "features": [0.1]}]):
        with pytest.raises(InputError, match="documents are a list; expected a mapping from ids to features"):
            Client().rank("a", documents)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="something that JSON cannot: Object of type int64"):
        Client().feedback("a", "0-1", np.array([1]))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the features of document 'x' are not numbers: int too large"):
        Client().rank("a", {"x": [10**400]})
    for clicks in ("12", {"1": False}, None):
        with pytest.raises(InputError, match="expected a list of ids"):
            Client().feedback("a", "0-1", clicks)  # type: ignore[arg-type]
    for timeout in (0, -1.0, "5"):
        with pytest.raises(OptionError, match=r"timeout is .*; expected a number"):
            Client(timeout=timeout)  # type: ignore[arg-type]
    for retries in (-1, 1.5, None):
        with pytest.raises(OptionError, match=r"retries is .*; expected a whole number, 0 or more"):
            Client(retries=retries)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="connections is 0"):
        AsyncClient(connections=0)


def test_what_a_newer_service_tells_besides_is_passed_over(script: tuple[Script, str]) -> None:
    scripted, url = script
    ranking = [document | {"group": "g"} for document in SHOWN["ranking"]]
    told = WHY | {"neighbours": [pair | {"odds": 2.0} for pair in WHY["neighbours"]]}  # type: ignore[operator]
    scripted.answers = [(200, SHOWN | {"explanation": WHY}), (200, SHOWN | {"ranking": ranking, "explanation": told})]
    with Client(url) as client:
        plain, more = (client.rank("shop", {"a": [1.0]}, explain=True) for _ in range(2))
    assert more == plain


def test_a_page_that_is_no_service_is_told(script: tuple[Script, str]) -> None:
    scripted, url = script
    scripted.answers = [(200, b"<html>It works!</html>")]
    with Client(url) as client, pytest.raises(ServiceError, match="something else than JSON"):
        client.rankers()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # the scripted server is a thread
def test_a_forked_process_has_a_connection_of_its_own(script: tuple[Script, str]) -> None:
    """Of one that they shared, parent and child would read each other's answers: lists of other people."""
    scripted, url = script
    scripted.answers = [(200, {"rankers": []})] * 3
    with Client(url) as client:
        client.rankers()
        ports = {connection.sock.getsockname() for connection in client._connections.values()}
        child = os.fork()
        if child == 0:
            client.rankers()
            mine = {connection.sock.getsockname() for connection in client._connections.values()}
            os._exit(0 if mine > ports else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.rankers() == []


def test_a_copy_has_connections_of_its_own(script: tuple[Script, str]) -> None:
    scripted, url = script
    scripted.answers = [(200, {"rankers": []})] * 3
    with Client(url) as client:
        client.rankers()
        for other in (copy.deepcopy(client), pickle.loads(pickle.dumps(client))):
            assert other.rankers() == []
            other.close()


WHY = {
    "contributions": {"b": {"x": 0.2}, "a": {"x": -0.2}},
    "neighbours": [{"above": "b", "below": "a", "gap": 0.4, "width": None, "certain": False}],
}


def test_an_explanation_is_asked_for_and_told(script: tuple[Script, str]) -> None:
    scripted, url = script
    scripted.answers = [(200, SHOWN), (200, SHOWN | {"explanation": WHY})]
    with Client(url) as client:
        assert client.rank("shop", {"a": [None, 1]}).explanation is None
        shown = client.rank("shop", {"a": {"x": float("nan")}}, explain=True)
    assert shown.explanation == Explanation(WHY["contributions"], (Neighbours("b", "a", 0.4, None, False),))  # type: ignore[arg-type]
    plain, explained = (asked[2] for asked in scripted.asked)
    assert "explain" not in plain
    assert plain["documents"][0]["features"] == [None, 1.0]
    assert explained["explain"] is True
    assert explained["documents"][0]["features"] == {"x": None}


def test_the_same_methods_awaited(script: tuple[Script, str]) -> None:
    scripted, url = script
    refused = (410, {"error": "expired", "message": "too late"})
    told = SHOWN | {"explanation": WHY}
    scripted.answers = [(200, told), (200, {"status": "accepted"}), (200, {"rankers": []}), refused]

    async def exchange() -> None:
        async with AsyncClient(url, key="secret", connections=1) as client:
            shown = await client.rank("shop", {"a": [1, 2.5]}, k=2, explain=True)
            assert shown.explanation is not None
            assert await client.feedback("shop", shown.impression_id, iter(["b"])) == "accepted"
            assert await client.rankers() == []
            with pytest.raises(ServiceError, match="too late"):
                await client.feedback("shop", "1-x", [])
            with pytest.raises(AttributeError, match="neither AsyncClient nor Client has 'fly'"):
                client.fly()

    asyncio.run(exchange())
    assert [asked[1] for asked in scripted.asked][2] == "/v1/rankers"
    assert all(asked[3]["Authorization"] == "Bearer secret" for asked in scripted.asked)
    assert scripted.answers == []
