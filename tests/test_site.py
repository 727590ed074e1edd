"""The documentation's site: it builds without a warning, asks nobody, and opens in a real browser."""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pages.stage import CONTRAST, CUT
from pairrank import cli, rankers

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="module")
def site(once: Once) -> Path:
    """The site, built as `make docs` builds it: a warning is an error."""

    def build(folder: Path) -> None:
        command = [ROOT / "scripts" / "docs", folder]
        done = subprocess.run(command, env=os.environ | {"PYTHON": sys.executable}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    return once("site", build)


@pytest.mark.slow
def test_the_site_is_whole_and_asks_nobody(site: Path) -> None:
    from pairrank.service.app import make_app

    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file()
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?([^\s\">]+)", text)
        loaded += re.findall(r"<link[^>]*rel=\"?(?:stylesheet|preconnect|icon)[^>]*href=\"?([^\s\">]+)", text)
        assert loaded
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []
        assert "=====" not in text, f"{file.name} shows the rules of a table that Markdown does not know"
    reference = (site / "reference" / "library.html").read_text()
    assert "half_life" in reference
    assert "set_prior" in reference
    http_reference = (site / "reference" / "http.html").read_text()
    assert all(path in http_reference for path in make_app("sqlite:///never-opened.db").openapi()["paths"])
    assert all(word in http_reference for word in ("start.strength", "reformulation", "shadow", "to wait until"))
    listed = (site / "reference" / "rankers.html").read_text()
    assert all(path.rpartition(".")[2] in listed for path in rankers.paths())
    commands = (site / "reference" / "cli.html").read_text()
    assert all(f"pairrank {command}" in commands for command in cli.COMMANDS)


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.mark.slow
@pytest.mark.browser
def test_the_site_opens_in_a_browser(address: str, site: Path, chromium: Browser) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    # What a page still loads when the next one is opened is aborted, and no problem.
    page.on("requestfailed", lambda r: None if r.failure == "net::ERR_ABORTED" else problems.append(r.url))
    page.on("request", lambda request: None if request.url.startswith(address) else problems.append(request.url))
    page.on("response", lambda answer: problems.append(answer.url) if answer.status >= 400 else None)

    page.goto(f"{address}/index.html")
    assert page.title().startswith("PairRank")
    assert page.evaluate("document.querySelector('article img').naturalWidth") > 0
    page.get_by_role("link", name="How PairRank works").first.click()
    page.wait_for_url("**/how-it-works.html")
    assert page.locator("h1").inner_text().startswith("How PairRank works")

    search(page)

    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(f"{address}/index.html")
        for width in (390, 820, 1400):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            # The theme's own words for screen readers alone are meant not to be seen.
            found = page.evaluate(CONTRAST) + page.evaluate(CUT)
            assert [text for text in found if "md-skip" not in text and "md-visually-hidden" not in text] == []

    for file in sorted(site.rglob("*.html")):
        page.goto(f"{address}/{file.relative_to(site).as_posix()}")
        wide = "pre => pre.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText)"
        assert page.locator("article pre code").evaluate_all(wide) == [], f"lines of code in {file.name} do not fit"
    assert problems == []
    context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_the_site_opens_from_a_folder_and_can_be_searched(site: Path, chromium: Browser) -> None:
    page = chromium.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith("file:") else problems.append(request.url))
    page.goto((site / "index.html").as_uri())
    assert page.locator("h1").inner_text().startswith("PairRank")
    search(page)
    assert problems == []
    page.close()


def search(page: Page) -> None:
    """Search for words of one page, and open what is found."""
    page.keyboard.press("/")
    page.get_by_role("combobox").or_(page.locator("input[placeholder=Search]")).first.fill("paper authors program ours")
    page.locator("a", has_text="authors").and_(page.locator("[href*=how-it-works]")).first.click()
    page.wait_for_url("**/how-it-works.html*")
