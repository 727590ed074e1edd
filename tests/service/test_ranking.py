"""Rank and feedback over HTTP: alike for programs and for pages, also when something goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from web import DOCUMENTS, TestClient, running_app

from pairrank import rankers
from pairrank.service.http import ranking

RANK, FEEDBACK = "/v1/rankers/a/rank", "/v1/rankers/a/feedback"
# A page of the service itself: its requests carry an origin.
PAGE = {"Origin": "http://127.0.0.1"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with running_app(tmp_path / "store.db", max_body_bytes=2000) as client:
        assert client.put("/v1/rankers/a", json={"n_features": 2}).status_code == 201
        yield client


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (RANK, {"documents": DOCUMENTS, "k": 2}),
        (RANK, {"documents": []}),
        (RANK, {"documents": [{"id": "x" * 3000, "features": [1, 2]}]}),
        ("/v1/rankers/none/rank", {"documents": DOCUMENTS}),
        (FEEDBACK, {"impression_id": "0-guess", "clicks": []}),
        (FEEDBACK, {"clicks": []}),
    ],
)
def test_programs_and_pages_are_answered_alike(client: TestClient, path: str, body: dict[str, Any]) -> None:
    program, page = client.post(path, json=body), client.post(path, json=body, headers=PAGE)
    assert program.status_code == page.status_code
    assert program.headers.keys() == page.headers.keys()
    same = program.headers.keys() - {"x-request-id", "content-length"}
    assert {name: program.headers[name] for name in same} == {name: page.headers[name] for name in same}
    assert program.json().keys() == page.json().keys()
    if program.status_code != 200:
        assert program.json() == page.json()


@pytest.mark.parametrize("headers", [{}, PAGE])
def test_a_fault_in_the_program_is_a_500_in_one_sentence(
    client: TestClient, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(ranking, "from_json", broken)
    answer = client.post(RANK, json={"documents": DOCUMENTS}, headers=headers)
    assert answer.status_code == 500
    assert answer.json() == {"error": "internal", "message": "something went wrong; the log tells more"}
    assert "secret" in caplog.text
    assert 'pairrank_requests_total{status="500"} 1.0' in client.get("/metrics").text


def test_a_list_is_of_one_model_also_when_a_newer_one_comes_meanwhile(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post(RANK, json={"documents": DOCUMENTS})
    item = client.app.state.worker.models._items["a"]  # type: ignore[attr-defined]
    X = [document["features"] for document in DOCUMENTS]
    older, newer = item.ranker.score(X).tolist(), rankers.make("pairrank", n_features=2)
    newer._weights = np.array([1.0, 2.0])  # type: ignore[attr-defined]
    assert older != newer.score(X).tolist()

    published: list[int] = []

    async def publish(_: float) -> None:
        if item.next_number == 2:  # the list was drawn, and its answer is yet to be written
            item.ranker, item.version = newer, 7
            published.append(7)

    monkeypatch.setattr(ranking, "asyncio", SimpleNamespace(sleep=publish))
    shown = client.post(RANK, json={"documents": DOCUMENTS}).json()
    # Whoever follows the store may have put the stored version back since.
    assert (item.next_number, published[:1], shown["model_version"]) == (2, [7], 0)
    by_id = dict(zip([document["id"] for document in DOCUMENTS], older, strict=True))
    assert {hit["id"]: hit["score"] for hit in shown["ranking"]} == by_id


def test_a_body_in_pieces_is_put_together(client: TestClient) -> None:
    pieces = iter([b'{"documents": [{"id": "a", ', b'"features": [1, 2]}]}'])
    answer = client.post(RANK, content=pieces)
    assert [item["id"] for item in answer.json()["ranking"]] == ["a"]
