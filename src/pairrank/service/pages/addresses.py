"""The live page's addresses: HTML for people, JSON and drawings for its script."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from pairrank import drawing
from pairrank.errors import InputError, UnknownNameError
from pairrank.service.auth import NoKeyError
from pairrank.service.desk import Desk, answer
from pairrank.service.pages.frame import POLICY
from pairrank.service.pages.live import Address, closed_page, impression_page, live_page
from pairrank.service.pages.markup import Markup
from pairrank.service.pages.views import PAGE, Scene, Views

T = TypeVar("T")

PATIENCE = 0.25  # seconds that an answer may spend on reading logs


def html(text: Markup) -> Response:
    """A page, under the policy of the pages."""
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
    return Response(text, media_type="text/html", headers=headers)


def svg(text: str) -> Response:
    """A drawing; opened by itself it may use its own style and nothing else."""
    headers = {
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
        "Cache-Control": "no-store",
    }
    return Response(text, media_type="image/svg+xml", headers=headers)


class Reader:
    """The views of one worker, made when first needed: the store is open only while the application runs."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._views: Views | None = None

    async def read(self, work: Callable[[Views], T]) -> T:
        """Ask the views, off the event loop."""
        if self._views is None or self._views.store is not self._desk.store:
            self._views = Views(self._desk.store, self._desk.recent, self._desk.clock)
        return await self._desk.shelf.read(work, self._views)

    async def catch_up(self) -> bool:
        """Follow the logs for a moment; whether there is more to read: a long log does not hold up a page."""
        deadline = time.monotonic() + PATIENCE
        while more := await self.read(Views.catch_up):
            if time.monotonic() > deadline:
                break
        return more


def live_routes(desk: Desk) -> list[BaseRoute]:
    """The routes of the live page and of what both pages load."""
    reader = Reader(desk)

    async def home(request: Request) -> Response:
        try:
            desk.allow(request, None)
        except NoKeyError:
            return html(closed_page())
        await reader.catch_up()
        wanted = request.query_params.get("ranker")
        to = Address(str(request.base_url).rstrip("/"), bool(desk.shelf.keys))
        return html(await reader.read(lambda views: _home(views, wanted, to)))

    async def rankers(request: Request) -> Response:
        desk.allow(request, None)
        behind = await reader.catch_up()
        return answer({"rankers": await reader.read(Views.rankers), "behind": behind})

    async def ranker(request: Request) -> Response:
        desk.allow(request, None)
        name = request.path_params["name"]
        behind = await reader.catch_up()
        found = await reader.read(lambda views: {"rankers": views.rankers(), "detail": views.detail(name)})
        return answer({**found, "behind": behind})

    async def impressions(request: Request) -> Response:
        desk.allow(request, None)
        name, offset = request.path_params["name"], whole(request, "offset", 0, 0, 10**6)
        found = await reader.read(lambda views: views.impressions(name, offset, PAGE))
        return answer({"impressions": found})

    async def impression(request: Request) -> Response:
        desk.allow(request, None)
        return html(impression_page(request.path_params["name"], await _scene(reader, request)))

    async def facts(request: Request) -> Response:
        desk.allow(request, None)
        scene = await _scene(reader, request)
        return answer({**scene.facts, "drawable": scene.panel is not None})

    async def picture(request: Request) -> Response:
        desk.allow(request, None)
        panel = _panel(await _scene(reader, request))
        given = request.query_params
        alone = "embed" not in given
        return svg(drawing.blocks(panel, compact="compact" in given, standalone=alone, titles=alone))

    async def pairs(request: Request) -> Response:
        desk.allow(request, None)
        panel = _panel(await _scene(reader, request))
        return answer(sentences(panel, whole(request, "row", 0, 0, len(panel.inspection.order) - 1)))

    async def model(request: Request) -> Response:
        desk.allow(request, "admin")
        name = request.path_params["name"]
        body = await reader.read(lambda views: views.model(name))
        headers = {"Content-Disposition": f'attachment; filename="{name}.pairrank"'}
        return Response(body, media_type="application/octet-stream", headers=headers)

    async def style(_: Request) -> Response:
        return Response(drawing.STYLE, media_type="text/css")

    one = "/live/rankers/{name}/impressions/{number:int}"
    return [
        Route("/", home),
        Route("/impressions/{name}/{number:int}", impression),
        Route("/live/rankers", rankers),
        Route("/live/rankers/{name}", ranker),
        Route("/live/rankers/{name}/model", model),
        Route("/live/rankers/{name}/impressions", impressions),
        Route(one, facts),
        Route(f"{one}/drawing.svg", picture),
        Route(f"{one}/pairs", pairs),
        Route("/static/drawing.css", style),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]


def whole(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number from the address, within bounds."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
        raise InputError(f"{name} is {text[:20]!r}; expected a whole number from {low} to {high}")
    return int(text)


def sentences(panel: drawing.Panel, row: int) -> list[str | None]:
    """For each candidate why its order against ``row`` is kept or open; None for itself."""
    return [None if other == row else drawing.explain(panel, row, other) for other in range(len(panel.labels))]


def _home(views: Views, wanted: str | None, to: Address) -> Markup:
    rankers = views.rankers()
    names = [row["name"] for row in rankers]
    # The one asked for, else the one that heard from its users last.
    newest = max(rankers, key=lambda row: row["recent"]["at"])["name"] if rankers else None
    name = newest if wanted is None else wanted
    detail = views.detail(name) if name is not None and name in names else None
    return live_page(rankers, detail, to=to, missing=wanted if detail is None else None)


async def _scene(reader: Reader, request: Request) -> Scene:
    name, number = request.path_params["name"], request.path_params["number"]
    as_served = request.query_params.get("when", "served") == "served"
    return await reader.read(lambda views: views.scene(name, number, as_served=as_served))


def _panel(scene: Scene) -> drawing.Panel:
    if scene.panel is None:
        raise UnknownNameError("this ranker has no notion of blocks, so there is nothing to draw")
    return scene.panel


def json_of(value: Any) -> Response:
    """Plain values as JSON, never kept by a browser."""
    response = answer(value)
    response.headers["Cache-Control"] = "no-store"
    return response
