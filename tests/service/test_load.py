"""`pairrank bench serve`: it runs, its empty endpoints are what they say, and its ratios are of what was measured."""

from __future__ import annotations

import asyncio
import os
import warnings

import orjson
import pytest

from pairrank.service import load
from pairrank.service.bench import FLOORS, run_bench
from pairrank.service.floor import ARROW_PATH, KINDS, floor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette would rather have a successor of httpx, which is not out yet
    from starlette.testclient import TestClient


def split(request: bytes) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers of a whole request."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return lines[0].split()[1], body, dict(line.split(": ", 1) for line in lines[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_every_empty_endpoint_parses_the_body_and_answers_alike(kind: str) -> None:
    texts, streams = load.rank_bodies(3, 2, 2, 1, ARROW_PATH)
    with TestClient(floor(kind), raise_server_exceptions=False) as client:
        for request in (texts[0], streams[0]):
            path, body, headers = split(request)
            answer = client.post(path, content=body, headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.json().keys() == {"impression_id", "model_version", "explored", "ranking"}
            assert len(answer.json()["ranking"]) == 10
            broken = client.post(path, content=body[: len(body) // 2], headers={**headers, "Content-Length": "0"})
            assert broken.status_code in (422, 500)  # it does parse the body


def test_a_plain_endpoint_checks_the_body_as_fastapi_users_expect() -> None:
    with TestClient(floor("plain")) as client:
        wrong = orjson.dumps({"documents": [{"id": "a", "features": ["many"]}]})
        assert client.post("/v1/rankers/a/rank", content=wrong).status_code == 422


def test_processor_time_is_that_of_the_processes() -> None:
    own = load.Target(0, (os.getpid(),))
    before = own.spent()
    if before is None:
        pytest.skip("the system does not tell processor time by process")
    sum(range(2_000_000))
    after = own.spent()
    assert after is not None
    assert after > before
    assert load.Target(0, (2**30,)).spent() is None


@pytest.mark.slow
def test_a_short_run_has_every_row() -> None:
    said: list[str] = []
    rows = run_bench(
        n_documents=5, n_features=3, k=2, seconds=0.2, clients=2, rate=20.0, feedbacks=64, report=said.append
    )
    names = [row["name"] for row in rows]
    floors = [f"rank throughput, {kind}, over the {name} endpoint" for kind in ("JSON", "Arrow") for name in FLOORS]
    assert names == [*floors, "rank p99 while learning", "durable feedback"]
    assert len(said) == len(rows)
    for row in rows:
        assert row["value"] > 0
        assert row["ratio"] == pytest.approx(row["value"] / row["reference"])
    assert [bool(row["wanted"]) for row in rows] == [name == "plain" for _ in range(2) for name in FLOORS] + [True] * 2


@pytest.mark.slow
def test_the_load_meets_a_service_that_refuses() -> None:
    wrong = [text.replace(b"/rank ", b"/none ") for text in load.rank_bodies(3, 2, 2, 1)[0]]
    with load.empty_endpoint("plain") as target, pytest.raises(load.StorageError, match="answered 404"):
        asyncio.run(load.closed_loop(target.port, wrong, 0.1, 1))
