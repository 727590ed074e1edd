"""The playground's routes. Clicks of a person go to the service's own feedback endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Literal

import orjson
from pydantic import Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from pairrank.service.answers import RefusalError
from pairrank.service.http.endpoints import parse
from pairrank.service.http.schemas import Body
from pairrank.service.pages.routes import json_of, keyed
from pairrank.service.playground.index import Index
from pairrank.service.playground.play import MOST_SHOWN, SHOWN, Playground
from pairrank.service.worker.state import WorkerState

SCRIPT = "play/static/play.js"


class SearchBody(Body):
    """What is looked for, and how many results to show."""

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=256, pattern=r"^[^\x00]*$")]
    k: Annotated[int, Field(ge=1, le=MOST_SHOWN)] = SHOWN


class SimulateBody(Body):
    """Who searches, and how often."""

    users: Literal["perfect", "navigational", "informational"] = "navigational"
    searches: Annotated[int, Field(ge=1, le=10_000)] = 1000


def routes(worker: WorkerState, index: Index) -> list[BaseRoute]:
    """The routes of the playground over an index. It makes and resets a ranker: that takes an administrator."""
    play = Playground(worker, index)

    async def home(request: Request) -> Response:
        return keyed(worker, request, "admin", "Playground", Path(__file__).parent / "play.html", "play", SCRIPT)

    async def state(request: Request) -> Response:
        worker.allow(request, "admin")
        return json_of(await play.state())

    async def search(request: Request) -> Response:
        worker.allow(request, "admin")
        return json_of(await play.search(**vars(parse(SearchBody, await _body(worker, request)))))

    async def compare(request: Request) -> Response:
        worker.allow(request, "admin")
        return json_of(await play.compare(**vars(parse(SearchBody, await _body(worker, request)))))

    async def simulate(request: Request) -> Response:
        worker.allow(request, "admin")
        body = parse(SimulateBody, await _body(worker, request))

        async def events() -> AsyncIterator[bytes]:
            async for step in play.simulate(body.users, body.searches):
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
