"""A server, a real Chromium, and pages that fail their test when anything goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stage import Server, Watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def index_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp().parent / "pairrank-index"


@pytest.fixture
def server(tmp_path: Path, index_cache: Path) -> Iterator[Server]:
    running = Server(tmp_path / "play.db", index_cache)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Watched]]:
    """Opens pages; at the end none may have had a problem."""
    opened: list[tuple[Any, Watched]] = []

    def open_one(address: str, *, dark: bool = False, width: int = 1280, **options: Any) -> Watched:
        scheme = "dark" if dark else "light"
        context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        context.set_default_timeout(20_000)
        watched = Watched(context.new_page())
        opened.append((context, watched))
        watched.page.goto(address)
        return watched

    yield open_one
    problems = [problem for _, watched in opened for problem in watched.problems]
    for context, _ in opened:
        context.close()
    assert problems == []
