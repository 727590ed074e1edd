"""`pairrank bench serve`: it runs, its empty endpoints are what they say, and its ratios are of what was measured."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import warnings

import orjson
import pytest

from pairrank.bench import http_load, serve
from pairrank.bench.http_baseline import ARROW_PATH, empty_app
from pairrank.cli import main

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette would rather have a successor of httpx, which is not out yet
    from starlette.testclient import TestClient


def split(request: bytes) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers of a whole request."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return lines[0].split()[1], body, dict(line.split(": ", 1) for line in lines[1:])


def test_processes_with_arguments_in_any_encoding_are_found() -> None:
    command = [sys.executable, "-c", "input()", b"\xff", "worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.pid in http_load.children(os.getpid(), "worker")
            assert process.pid not in http_load.children(os.getpid(), "learner")
        finally:
            process.kill()


def test_the_empty_endpoints_parse_the_body_and_answer_alike() -> None:
    texts, streams = http_load.rank_bodies(3, 2, 2, 1, ARROW_PATH)
    with TestClient(empty_app(), raise_server_exceptions=False) as client:
        for request in (texts[0], streams[0]):
            path, body, headers = split(request)
            answer = client.post(path, content=body, headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.json().keys() == {"impression_id", "model_version", "explored", "ranking"}
            assert len(answer.json()["ranking"]) == 10
            broken = client.post(path, content=body[: len(body) // 2], headers={**headers, "Content-Length": "0"})
            assert broken.status_code in (422, 500)  # it does parse the body
        wrong = orjson.dumps({"documents": [{"id": "a", "features": ["many"]}]})
        assert client.post("/v1/rankers/a/rank", content=wrong).status_code == 422


def test_processor_time_is_that_of_the_processes() -> None:
    own = http_load.Target(0, (os.getpid(),))
    before = own.spent()
    if before is None:
        pytest.skip("the system does not tell processor time by process")
    sum(range(2_000_000))
    after = own.spent()
    assert after is not None
    assert after > before
    assert http_load.Target(0, (2**30,)).spent() is None


@pytest.mark.slow
def test_a_short_run_has_every_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = serve.Load(n_documents=5, n_features=3, k=2, seconds=0.2, clients=2, rate=20.0, feedbacks=64)
    monkeypatch.setattr(serve, "QUICK", small)
    assert main(["bench", "serve", "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["benchmark"] for row in rows] == ["serve"] * 4
    assert ["JSON" in row["case"] for row in rows] == [True, False, False, False]
    for row in rows:
        assert row["value"] > 0
        assert row["limit"] is not None
    for row in rows[:2]:
        assert row["value"] == pytest.approx(row["detail"]["service"] / row["detail"]["empty"])


@pytest.mark.slow
def test_the_load_meets_a_service_that_refuses() -> None:
    wrong = [text.replace(b"/rank ", b"/none ") for text in http_load.rank_bodies(3, 2, 2, 1)[0]]
    with http_load.empty_endpoint() as target, pytest.raises(http_load.StorageError, match="answered 404"):
        asyncio.run(http_load.closed_loop(target.port, wrong, 0.1, 1))
