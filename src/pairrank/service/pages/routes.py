"""The live page's routes: HTML for people and drawings. Its script reads ``/v1`` as anybody can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from pairrank import drawing
from pairrank.errors import InputError, UnknownNameError
from pairrank.service.answers import answer
from pairrank.service.auth import NoKeyError
from pairrank.service.pages.api import api_page
from pairrank.service.pages.layout import HTML, POLICY, Markup, filled, page
from pairrank.service.pages.live import Address, closed_page, drawn, impression_page, steps
from pairrank.service.store.values import ImpressionRow
from pairrank.service.worker.state import WorkerState

_SNIPPET = Path(__file__).parent.parent / "pairrank.js"  # what a shop's own pages load


def html(text: Markup) -> Response:
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
    return Response(text, media_type="text/html", headers=headers)


def svg(text: str) -> Response:
    """A drawing; opened by itself it may use its own style and nothing else."""
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "Cache-Control": "no-store"}
    return Response(text, media_type="image/svg+xml", headers=headers)


def keyed(
    worker: WorkerState, request: Request, role: str | None, title: str, body: Path, address: str, script: str
) -> Response:
    """A page around the file ``body`` for who may see it, or the page that asks for a key."""
    nav = request.app.state.nav
    try:
        worker.allow(request, role)
    except NoKeyError:
        return html(closed_page(nav, address, script))
    return html(page(title, filled(body), nav=nav, current=address, script=script))


def routes(worker: WorkerState) -> list[BaseRoute]:
    async def home(request: Request) -> Response:
        try:
            worker.allow(request, None)
        except NoKeyError:
            return html(closed_page(request.app.state.nav))
        rows = await worker.models.read(worker.store.rankers)
        wanted = request.query_params.get("ranker")
        # The one asked for, else the one that learned last.
        newest = max(rows, key=lambda row: row.updated, default=None)
        chosen = newest if wanted is None else next((row for row in rows if row.name == wanted), None)
        to = _reached(request)
        if chosen is None:
            first_steps = steps("No rankers yet", to) if wanted is None else None
        else:
            shape = chosen.name, chosen.config.n_features
            first_steps = None if chosen.feedback_count else steps("No feedback yet", to, *shape)
        name, body = chosen.name if chosen else wanted or "", filled(HTML / "live.html", first_steps=first_steps)
        nav = request.app.state.nav
        return html(page("Live", body, nav=nav, current="./", script="static/live.js", data_ranker=name))

    async def experiments(request: Request) -> Response:
        script = "static/experiments.js"
        return keyed(worker, request, None, "Experiments", HTML / "experiments.html", "experiments", script)

    async def impression(request: Request) -> Response:
        return html(impression_page(request.path_params["name"], *await _drawn(request), request.app.state.nav))

    async def picture(request: Request) -> Response:
        panel = await _panel(request)
        given = request.query_params
        alone = "embed" not in given
        return svg(drawing.blocks(panel, compact="compact" in given, standalone=alone, titles=alone))

    async def pairs(request: Request) -> Response:
        panel = await _panel(request)
        text, last = request.query_params.get("row", "0"), len(panel.labels) - 1
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= last):
            raise InputError(f"row is {text[:20]!r}; expected a whole number from 0 to {last}")
        row = int(text)  # for each candidate why its order against this one is kept or open
        return answer([None if other == row else drawing.explain(panel, row, other) for other in range(last + 1)])

    async def _drawn(request: Request) -> tuple[ImpressionRow, drawing.Panel | None]:
        # As for the impressions under /v1: what people were shown and clicked is not for everybody who may rank.
        worker.allow(request, "admin")
        name, number = request.path_params["name"], request.path_params["number"]
        if not (number.isascii() and number.isdigit() and len(number) < 19):
            raise UnknownNameError(f"{number[:20]!r} is no impression's number")
        return await drawn(worker, name, int(number), as_served=request.query_params.get("when", "served") == "served")

    async def _panel(request: Request) -> drawing.Panel:
        _, panel = await _drawn(request)
        if panel is None:
            raise UnknownNameError("this ranker has no notion of blocks, so there is nothing to draw")
        return panel

    async def api(request: Request) -> Response:
        text: dict[str, Any] = request.app.openapi()
        return html(api_page(text, request.app.state.nav, _reached(request)))

    def _reached(request: Request) -> Address:
        return Address(str(request.base_url).rstrip("/"), bool(worker.models.keys))

    async def snippet(_: Request) -> Response:
        return FileResponse(_SNIPPET, media_type="text/javascript")

    async def style(_: Request) -> Response:
        return Response(drawing.STYLE, media_type="text/css")

    one = "/impressions/{name}/{number}"
    return [
        Route("/", home),
        Route("/experiments", experiments),
        Route("/docs", api),
        Route(one, impression),
        Route(f"{one}/drawing.svg", picture),
        Route(f"{one}/pairs", pairs),
        Route("/pairrank.js", snippet),
        Route("/static/drawing.css", style),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]


def json_of(value: Any) -> Response:
    """Plain values as JSON, never kept by a browser."""
    response = answer(value)
    response.headers["Cache-Control"] = "no-store"
    return response
