"""The playground's routes. Clicks of a person go to the service's own feedback endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from pairrank.errors import InputError
from pairrank.service.answers import RefusalError
from pairrank.service.auth import NoKeyError
from pairrank.service.http.rank_request import parse_json
from pairrank.service.pages.layout import filled, page
from pairrank.service.pages.live import closed_page
from pairrank.service.pages.markup import join, tag
from pairrank.service.pages.routes import html, json_of
from pairrank.service.playground.index import Index
from pairrank.service.playground.play import MOST_SHOWN, SHOWN, Playground
from pairrank.service.playground.users import USERS
from pairrank.service.worker.state import WorkerState

MOST_SEARCHES = 10_000
MAX_QUERY = 256
SCRIPT = "/play/static/play.js"


def routes(worker: WorkerState, index: Index) -> list[BaseRoute]:
    """The routes of the playground over an index. It makes and resets a ranker: that takes an administrator."""
    play = Playground(worker, index)

    async def home(request: Request) -> Response:
        nav = request.app.state.nav
        try:
            worker.allow(request, "admin")
        except NoKeyError:
            return html(closed_page(nav, "/play", SCRIPT))
        users = join(*(tag("option", name, value=name, selected=name == USERS[1]) for name in USERS))
        body = filled(Path(__file__).parent / "play.html", users=users)
        return html(page("Playground", body, nav=nav, current="/play", script=SCRIPT))

    async def state(request: Request) -> Response:
        worker.allow(request, "admin")
        return json_of(await play.state())

    async def search(request: Request) -> Response:
        worker.allow(request, "admin")
        query, k = _query(await _body(worker, request))
        return json_of(await play.search(query, k))

    async def compare(request: Request) -> Response:
        worker.allow(request, "admin")
        query, k = _query(await _body(worker, request))
        return json_of(await play.compare(query, k))

    async def simulate(request: Request) -> Response:
        worker.allow(request, "admin")
        body = _object(await _body(worker, request), {"users", "searches"})
        users, searches = body.get("users", USERS[1]), body.get("searches", 1000)
        if users not in USERS:
            raise InputError(f"users are {str(users)[:40]!r}; expected one of {', '.join(USERS)}")
        if type(searches) is not int or not 1 <= searches <= MOST_SEARCHES:
            raise InputError(f"searches must be a whole number from 1 to {MOST_SEARCHES}")

        async def events() -> AsyncIterator[bytes]:
            async for step in play.simulate(users, searches):
                yield b"event: progress\ndata: " + orjson.dumps(step) + b"\n\n"
                if worker.stopping:
                    return

        return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def reset(request: Request) -> Response:
        worker.allow(request, "admin")
        await _body(worker, request)
        await play.reset()
        return json_of(await play.state())

    return [
        Route("/play", home),
        Route("/play/state", state),
        Route("/play/search", search, methods=["POST"]),
        Route("/play/compare", compare, methods=["POST"]),
        Route("/play/simulate", simulate, methods=["POST"]),
        Route("/play/reset", reset, methods=["POST"]),
        Mount("/play/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]


async def _body(worker: WorkerState, request: Request) -> bytes:
    """A JSON body. A page of another site cannot send this type unasked, so it cannot play in a reader's name."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusalError(415, "type", f"the content type is {kind[:80]!r}; expected application/json")
    return await worker.body(request)


def _object(body: bytes, names: set[str]) -> dict[str, object]:
    value = parse_json(body or b"{}")
    if not isinstance(value, dict) or not value.keys() <= names:
        raise InputError(f"the body must be a JSON object with {', '.join(sorted(names))}")
    return value


def _query(body: bytes) -> tuple[str, int]:
    value = _object(body, {"query", "k"})
    query, k = value.get("query"), value.get("k", SHOWN)
    if not isinstance(query, str) or not query.strip() or len(query) > MAX_QUERY or "\0" in query:
        raise InputError(f"query must be a text of 1 to {MAX_QUERY} characters")
    if type(k) is not int or not 1 <= k <= MOST_SHOWN:
        raise InputError(f"k must be a whole number from 1 to {MOST_SHOWN}")
    return query, k
