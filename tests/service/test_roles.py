"""Every route and every kind of caller: who may come in. A route without a row here fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from web import running_server

from pairrank.service.app import make_app
from pairrank.service.auth import new_key
from pairrank.service.playground.documents import collect
from pairrank.service.playground.index import build
from pairrank.service.playground.routes import routes
from pairrank.service.store import open_store

SHOP = "shop-of-tests"
# Who is let in: "open" everybody; "any" every known key; a role, keys with it and administrators.
TABLE = {
    ("GET", "/openapi.json"): "open",
    ("GET", "/docs"): "open",
    ("GET", "/healthz"): "open",
    ("GET", "/readyz"): "open",
    ("GET", "/pairrank.js"): "open",
    ("GET", "/static/drawing.css"): "open",
    ("GET", "/static/*"): "open",
    ("POST", "/v1/rankers/{name}/rank"): "rank",
    ("POST", "/v1/rerank"): "rank",
    ("POST", "/infinity/rerank"): "rank",
    ("POST", "/v2/rerank"): "rank",
    ("POST", "/rerank"): "rank",
    ("POST", "/v1/rankers/{name}/feedback"): "feedback",
    ("POST", "/v1/rankers/{name}/events"): "feedback",
    ("GET", "/v1/rankers"): "any",
    ("GET", "/v1/rankers/{name}"): "any",
    ("PUT", "/v1/rankers/{name}"): "admin",
    ("GET", "/v1/rankers/{name}/versions"): "any",
    ("POST", "/v1/rankers/{name}/freeze"): "admin",
    ("POST", "/v1/rankers/{name}/limits"): "admin",
    ("POST", "/v1/rankers/{name}/pin"): "admin",
    ("POST", "/v1/rankers/{name}/rollback"): "admin",
    ("GET", "/v1/rankers/{name}/impressions"): "admin",
    ("GET", "/v1/rankers/{name}/statistics"): "any",
    ("GET", "/v1/rankers/{name}/weights"): "any",
    ("GET", "/v1/rankers/{name}/model"): "admin",
    ("PUT", "/v1/rankers/{name}/launch"): "admin",
    ("GET", "/v1/rankers/{name}/launch"): "any",
    ("GET", "/v1/experiments"): "any",
    ("PUT", "/v1/experiments/{name}"): "admin",
    ("GET", "/v1/experiments/{name}"): "any",
    ("POST", "/v1/experiments/{name}/stop"): "admin",
    ("GET", "/v1/audit"): "admin",
    ("GET", "/v1/stream"): "any",
    ("GET", "/metrics"): "any",
    ("GET", "/"): "any",
    ("GET", "/experiments"): "any",
    ("GET", "/impressions/{name}/{number}"): "admin",
    ("GET", "/impressions/{name}/{number}/drawing.svg"): "admin",
    ("GET", "/impressions/{name}/{number}/pairs"): "admin",
    ("GET", "/play"): "admin",
    ("GET", "/play/state"): "admin",
    ("POST", "/play/search"): "admin",
    ("POST", "/play/compare"): "admin",
    ("POST", "/play/simulate"): "admin",
    ("POST", "/play/reset"): "admin",
    ("GET", "/play/static/*"): "open",
    ("DELETE", "/v1/rankers/{name}"): "admin",  # last: it takes away what the others ask about
}
# Pages answer a browser without a key with a form that asks for one, and tell it nothing.
FORMS = {"/", "/experiments", "/play"}
# The administrator's turn would start the playground's users: others are refused all the same.
COSTLY = {"/play/simulate"}
play_routes = partial(routes, index=build(*collect([])))


def walk(routes: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Method and path of every route, those of included routers too."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from walk(inner.routes)
        elif getattr(route, "methods", None):
            yield from ((method, route.path) for method in route.methods - {"HEAD"})
        else:
            yield "GET", f"{route.path}/*"


def test_the_table_has_every_route(tmp_path: Path) -> None:
    found = sorted(walk(make_app(tmp_path / "s.db", routes=(play_routes,)).routes))
    assert found == sorted(TABLE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A service with a key of each role: its address, and the header of each caller."""
    file = tmp_path_factory.mktemp("roles") / "s.db"
    store = open_store(file)
    headers = {"nobody": "", "stranger": "Bearer prk_unknown"}
    for role in ("rank", "feedback", "admin"):
        key, secret = new_key(role, [role], 1.0)
        store.put_key(key, "test")
        headers[role] = f"Bearer {secret}"
    store.close()
    with running_server(file, routes=(play_routes,)) as address:
        created = httpx.put(
            f"{address}/v1/rankers/{SHOP}", json={"n_features": 2}, headers={"authorization": headers["admin"]}
        )
        assert created.status_code == 201
        yield address, headers


def expected(caller: str, needed: str) -> int | None:
    """The status of a refusal, or None where the caller is let in."""
    if needed == "open":
        return None
    if caller in ("nobody", "stranger"):
        return 401
    return None if needed in ("any", caller) or caller == "admin" else 403


@pytest.mark.parametrize(("method", "path"), list(TABLE))
def test_every_route_lets_in_whom_it_should_and_nobody_else(
    server: tuple[str, dict[str, str]], method: str, path: str
) -> None:
    address, headers = server
    place = path.replace("{name}", SHOP).replace("{number}", "0").replace("{impression_id}", "0-x")
    for caller, header in headers.items():
        if caller == "admin" and path in COSTLY:
            continue
        given = {"authorization": header} if header else {}
        body = {"json": {}} if method != "GET" else {}
        refused = expected(caller, TABLE[method, path])
        with httpx.stream(
            method,
            address + place.replace("*", "play.js" if "/play" in path else "pairrank.css"),
            headers=given,
            **body,
        ) as answer:
            status = answer.status_code
            if refused == 401 and path in FORMS:
                assert status == 200, (caller, status)
                assert SHOP not in answer.read().decode()
            elif refused is not None:
                assert status == refused, (caller, status)
            else:
                assert status not in (401, 403, 405), (caller, status)
                assert status < 500, (caller, status)
