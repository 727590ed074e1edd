"""The playground's addresses."""

from __future__ import annotations

from starlette.routing import BaseRoute

from pairrank.service.desk import Desk


def play_routes(desk: Desk) -> list[BaseRoute]:
    """The routes of the playground."""
    return []
