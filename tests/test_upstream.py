"""Scores of another re-ranker: a real HTTP server that answers well, badly, or not at all."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pairrank.errors import OptionError
from pairrank.upstream import RerankEndpoint, UpstreamError


class Handler(BaseHTTPRequestHandler):
    """Answers with the lengths of the texts, except for queries that ask for trouble."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer secret":
            self.send_error(401)
            return
        results = [{"index": n, "relevance_score": len(text)} for n, text in enumerate(asked["documents"])][1:]
        trouble = {
            "shape": {"data": []},
            "index": {"results": [{"index": 99, "relevance_score": 1}]},
            "score": {"results": [{"index": 0, "relevance_score": None}]},
            "infinite": {"results": [{"index": 0, "relevance_score": math.inf}]},
        }
        body = (
            b"<html>"
            if asked["query"] == "text"
            else json.dumps(trouble.get(asked["query"], {"results": results})).encode()
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/rerank"
    server.shutdown()
    thread.join()
    server.server_close()


def test_scores_stand_at_their_texts_and_missing_ones_are_nan(address: str) -> None:
    upstream = RerankEndpoint(address, model="m", key="secret")
    scores = upstream("q", ["a", "bb", "ccc"])
    assert math.isnan(scores[0])
    assert scores[1:] == [2.0, 3.0]
    assert all(map(math.isnan, upstream("infinite", ["a"])))


@pytest.mark.parametrize("query", ["shape", "index", "score", "text"])
def test_other_answers_are_an_error(address: str, query: str) -> None:
    with pytest.raises(UpstreamError, match=r"the upstream http://127\.0\.0\.1:\d+/v1/rerank"):
        RerankEndpoint(address, key="secret")(query, ["a"])


def test_refusals_silence_and_wrong_addresses(address: str) -> None:
    with pytest.raises(UpstreamError, match="answered 401"):
        RerankEndpoint(address)("q", ["a"])
    with pytest.raises(UpstreamError, match="gave no answer"):
        RerankEndpoint("http://127.0.0.1:1/v1/rerank", timeout=1.0)("q", ["a"])
    for wrong in ("127.0.0.1:8000", "http://me:secret@127.0.0.1:8000/v1/rerank"):
        with pytest.raises(OptionError, match="expected http://host:port/v1/rerank") as told:
            RerankEndpoint(wrong)
        assert "secret" not in str(told.value)


def test_no_message_tells_the_key() -> None:
    with pytest.raises(OptionError, match="no header can carry") as told:
        RerankEndpoint("http://127.0.0.1:1/v1/rerank", key="secret\n")
    assert "secret" not in str(told.value) + repr(RerankEndpoint("http://127.0.0.1:1/v1/rerank", key="secret"))


@pytest.mark.parametrize("answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"])
def test_half_an_answer_is_none(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def once() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=once)
        thread.start()
        with pytest.raises(UpstreamError, match="gave no answer"):
            RerankEndpoint(f"http://127.0.0.1:{server.getsockname()[1]}/v1/rerank")("q", ["a"])
        thread.join()
