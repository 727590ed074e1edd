"""The documentation: every block of code runs, the site builds without a warning, and opens in a real browser.

Blocks of ``python`` and ``bash`` run, one after the other in one folder a page. ``console`` holds commands that need a
server, real data or hours: they are checked against the parser and the service's schema. ``json`` must parse; ``text``
is not code.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pairrank import cli

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# Reports that `pairrank reproduce` wrote; they quote commands and hold no code.
PAGES = sorted(page for page in DOCS.rglob("*.md") if "results" not in page.relative_to(DOCS).parts[:-1])
FENCE = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
LANGUAGES = {"python", "bash", "console", "json", "text", "html"}
# Pages whose blocks another test runs: the first starts a service, and needs a free port.
ELSEWHERE = {
    "quickstart-service.md": "tests/service/test_quickstart.py",
    "guide/export.md": "tests/test_guides.py",
    "guide/logs.md": "tests/test_guides.py",
    "guide/warmstart.md": "tests/test_guides.py",
}


class Block(NamedTuple):
    language: str
    code: str


def name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def blocks(page: Path) -> list[Block]:
    return [
        Block(language, re.sub(rf"(?m)^{indent}", "", code))
        for indent, language, code in FENCE.findall(page.read_text(encoding="utf-8"))
    ]


RUNNABLE = [
    page
    for page in PAGES
    if name(page) not in ELSEWHERE and any(block.language in ("python", "bash") for block in blocks(page))
]


def test_there_is_something_to_run() -> None:
    assert len(RUNNABLE) >= 10
    assert sum(block.language in ("python", "bash") for page in RUNNABLE for block in blocks(page)) >= 40
    assert all(Path(page).stem in (ROOT / test).read_text() for page, test in ELSEWHERE.items())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES
    # A fence that the pattern does not see would be a block that is never run.
    assert page.read_text(encoding="utf-8").count("```") == 2 * len(blocks(page))


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if name(page) == "operations.md":
        make_store("pairrank.db")
    # Dataclasses look their module up by its name.
    module = type(sys)("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for language, code in blocks(page):
        if language == "python":
            exec(compile(code, name(page), "exec"), module.__dict__)
        elif language == "bash":
            if "pip install" in code:
                continue  # tests/test_distribution.py installs
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], capture_output=True, text=True)
            assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
def test_the_readme_runs_and_its_links_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = ROOT / "README.md"
    monkeypatch.chdir(tmp_path)
    code = [block.code for block in blocks(readme) if block.language == "python"]
    assert code
    exec(compile("\n".join(code), readme.name, "exec"), {})
    # Its session with the service is the quick start's, which a test of its own runs.
    session = {block for block in blocks(readme) if block.language == "bash"}
    assert session <= set(blocks(DOCS / "quickstart-service.md"))
    for text in (readme.read_text(encoding="utf-8"), (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        targets = re.findall(r"\]\(([^)#]+)\)", text)
        assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []


def make_store(path: str) -> None:
    """A store with a ranker that has learned something."""
    from pairrank.service.app import make_app

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient
    documents = [{"id": "a", "features": [0.0, 1.0]}, {"id": "b", "features": [1.0, 0.0]}]
    with TestClient(make_app(path, learner=True)) as client:
        client.put("/v1/rankers/shop", json={"n_features": 2})
        for _ in range(3):
            shown = client.post("/v1/rankers/shop/rank", json={"documents": documents}).json()
            click = {"impression_id": shown["impression_id"], "clicks": ["a"]}
            assert client.post("/v1/rankers/shop/feedback", json=click).json() == {"status": "accepted"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_are_not_run_are_right(page: Path) -> None:
    for block in blocks(page):
        if block.language == "json":
            for text in block.code.splitlines() if block.code.count("\n{") else [block.code]:
                json.loads(text)
        if block.language != "console":
            continue
        for line in block.code.splitlines():
            assert line.startswith("$ "), f"{line!r} is no command"
            check_command(shlex.split(line.removeprefix("$ "), comments=True))


def check_command(words: list[str]) -> None:
    if words[0] == "pairrank":
        cli.parser().parse_args(words[1:])
    elif words[0] == "curl":
        check_request(words)
    else:
        assert words[0] in ("pip", "make", "mkdocs", "python", "open")


def check_request(words: list[str]) -> None:
    """A curl of the docs asks for what the service has, with a body that its schema knows."""
    paths = schema()["paths"]
    asked = next(word for word in words if "/v1" in word)
    path = re.sub("^(/v1/rankers/)[^/]+", r"\1{name}", "/v1" + asked.partition("/v1")[2])
    method = words[words.index("-X") + 1].lower() if "-X" in words else "post" if "-d" in words else "get"
    assert method in paths[path]
    if "-d" in words:
        known = paths[path][method]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        assert json.loads(words[words.index("-d") + 1]).keys() <= known.keys()


@functools.cache
def schema() -> dict[str, Any]:
    from pairrank.service.app import make_app

    return dict(make_app("sqlite:///never-opened.db").openapi())


# The site.


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    # Material for MkDocs announces its plans on standard error unless told that nobody reads them.
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_is_whole_and_asks_nobody(site: Path) -> None:
    for page in PAGES:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file()
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?([^\s\">]+)", text)
        loaded += re.findall(r"<link[^>]*rel=\"?(?:stylesheet|preconnect|icon)[^>]*href=\"?([^\s\">]+)", text)
        assert loaded
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []
    reference = (site / "reference" / "library.html").read_text()
    assert "biased_weight" in reference
    assert "set_prior" in reference
    http_reference = (site / "reference" / "http.html").read_text()
    assert all(path in http_reference for path in schema()["paths"])
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


@pytest.fixture
def chromium() -> Iterator[Browser]:
    path = os.environ.get("PAIRRANK_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("no Chromium: install Debian's package chromium, or set PAIRRANK_CHROMIUM to its path")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        # Nothing of Chromium's own may go out, and a container has no sandbox to offer.
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


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
    assert page.title() == "PairRank"
    assert page.evaluate("document.querySelector('article img').naturalWidth") > 0
    page.get_by_role("link", name="How PairRank works").first.click()
    page.wait_for_url("**/how-it-works.html")
    assert page.locator("h1").inner_text().startswith("How PairRank works")

    page.keyboard.press("/")
    page.keyboard.type("fair coins")
    page.locator(".md-search-result__item a").first.wait_for()
    assert "how-it-works" in (page.locator(".md-search-result__item a").first.get_attribute("href") or "")

    for file in sorted(site.rglob("*.html")):
        page.goto(f"{address}/{file.relative_to(site).as_posix()}")
    assert problems == []
    page.goto((site / "index.html").as_uri())  # and from a folder, without a server: all but the search
    assert page.locator("h1").inner_text().startswith("PairRank")
    context.close()
