"""The live page and the playground: HTML that needs no build step and no other host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from pairrank.service.desk import Desk


def routes(desk: Desk) -> list[BaseRoute]:
    """The routes of both pages, for `make_app`."""
    from pairrank.service.pages.addresses import live_routes
    from pairrank.service.playground.addresses import play_routes

    return [*live_routes(desk), *play_routes(desk)]
