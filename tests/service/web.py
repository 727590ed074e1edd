"""The application over a SQLite file, in this process, with its learner: for tests that speak HTTP."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from pairrank.service.app import make_app
from pairrank.service.http.protocol import HttpProtocol
from pairrank.service.learning.replay import replay
from pairrank.service.learning.verify import verify
from pairrank.service.settings import Settings
from pairrank.service.store import open_store

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette would rather have a successor of httpx, which is not out yet
    from starlette.testclient import TestClient

ADDRESS = "http://127.0.0.1"
DOCUMENTS = [{"id": f"d{i}", "features": [i / 5, 1 - i / 5]} for i in range(5)]


class Clock:
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def running_app(
    path: Path | str, clock: Clock | None = None, *, learner: bool = True, **settings: Any
) -> Iterator[TestClient]:
    """A client of the running application."""
    app = make_app(path, Settings(**settings), clock=clock or Clock(), learner=learner)
    with TestClient(app, ADDRESS, raise_server_exceptions=False) as client:
        yield client


@contextmanager
def running_server(path: Path | str, protocol: type[HttpProtocol] = HttpProtocol, **more: Any) -> Iterator[str]:
    """The address of the application behind a real server, in a thread."""
    app = make_app(path, Settings(), learner=True, **more)
    config = uvicorn.Config(app, http=protocol, port=0, log_level="critical", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def ranked(client: TestClient, **more: Any) -> dict[str, Any]:
    """A list for the five documents."""
    response = client.post("/v1/rankers/a/rank", json={"documents": DOCUMENTS, **more})
    assert response.status_code == 200, response.text
    return dict(response.json())


def clicked(client: TestClient, shown: dict[str, Any], *ids: str) -> Any:
    """Feedback on a list."""
    return client.post("/v1/rankers/a/feedback", json={"impression_id": shown["impression_id"], "clicks": list(ids)})


def check_store(url: str) -> None:
    """Whole, and every state is the log's."""
    store = open_store(url)
    try:
        assert verify(store) == []
        assert all(replay(store, row).same for row in store.rankers())
    finally:
        store.close()
