"""A real server in a process of its own, and a page that remembers what went wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCREENSHOTS = Path(__file__).resolve().parents[2] / "artifacts" / "screenshots"


class Server:
    """`pairrank play` on a file of its own: it can be killed and started again at the same address."""

    def __init__(self, store: Path, cache: Path) -> None:
        self.store, self._cache = store, cache
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "pairrank", "play", "--no-browser"]
        settings = {**os.environ, "PAIRRANK_CACHE": str(self._cache)}
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port), "--store", str(self.store)],
            env=settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 90  # the first start builds the index
        while True:
            try:
                self.call("GET", "/healthz")
                return
            except (OSError, urllib.error.URLError):
                assert self._process.poll() is None, "the server ended before it was ready"
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.1)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(how)
        code = self._process.wait(30)
        self._process = None
        return code

    def call(self, method: str, path: str, body: object = None, key: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if answer.headers["Content-Type"] == "application/json" else text

    def traffic(self, name: str, lists: int, *, seed: int = 0, **names: Any) -> None:
        """Some lists with clicks for a ranker: documents, queries and features may have given names."""
        documents = names.get("documents", [f"item {i}" for i in range(14)])
        features = names.get("features", ["price", "match", "age"])
        query, k = names.get("query", "rain jacket"), names.get("k", 10)
        self.call(
            "PUT",
            f"/v1/rankers/{name}",
            {"n_features": 3, "feature_names": features, "options": names.get("options", {"lam": 1.0})},
        )
        rng = np.random.default_rng(seed)
        for _ in range(lists):
            X = rng.random((len(documents), 3))
            rows = [{"id": d, "features": x} for d, x in zip(documents, X.tolist(), strict=True)]
            shown = self.call("POST", f"/v1/rankers/{name}/rank", {"query_id": query, "documents": rows, "k": k})
            wanted = {documents[i] for i in np.argsort(-X[:, 1])[:3]}
            clicks = [hit["id"] for hit in shown["ranking"] if hit["id"] in wanted]
            body = {"impression_id": shown["impression_id"], "clicks": clicks}
            self.call("POST", f"/v1/rankers/{name}/feedback", body)


@contextmanager
def stripping(port: int, prefix: str = "/rank") -> Iterator[str]:
    """The address of a proxy before a port, which takes a path before ours away and answers 404 to every other."""

    class Proxy(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            method, path, *_ = self.rfile.readline().decode().split() or ("", "")
            head = list(iter(self.rfile.readline, b"\r\n"))
            if not path.startswith(prefix + "/"):
                self.wfile.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            given = {name.lower(): value for name, _, value in (line.partition(b":") for line in head)}
            kept = [line for line in head if not line.lower().startswith(b"connection:")]
            start = f"{method} {path.removeprefix(prefix)} HTTP/1.1\r\nConnection: close\r\n".encode()
            body = self.rfile.read(int(given.get(b"content-length", 0)))
            with socket.create_connection(("127.0.0.1", port)) as service, suppress(ConnectionError):
                service.sendall(start + b"".join(kept) + b"\r\n" + body)
                while data := service.recv(1 << 16):
                    self.wfile.write(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        proxy.daemon_threads, proxy.block_on_close = True, False
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{proxy.server_address[1]}{prefix}"
        proxy.shutdown()


class Watched:
    """A page whose console errors, dialogs and faults are remembered."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.tolerated: tuple[str, ...] = ()
        page.on("console", self._line)
        page.on("pageerror", lambda fault: self._note(f"fault: {fault}"))
        page.on("dialog", lambda dialog: (self._note(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", self._request)

    def _line(self, line: Any) -> None:
        if line.type == "error":
            self._note(f"console: {line.text} ({line.location['url']})")

    def _note(self, text: str) -> None:
        if not any(part in text for part in self.tolerated):
            self.problems.append(text)

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self._note(f"request to another host: {request.url}")

    def shot(self, name: str, *, full_page: bool = True) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=full_page)

    def fits(self, name: str) -> None:
        """On telephones, a tablet and a desk, by day and by night: nothing sticks out, is cut or is hard to read."""
        for width in (390, 820, 1400):
            self.page.set_viewport_size({"width": width, "height": 800})
            for scheme in ("dark", "light"):
                self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                self.page.wait_for_timeout(100)
                assert self.page.evaluate("document.documentElement.scrollWidth") <= width
                assert self.page.evaluate(CONTRAST) == []
                assert (cut := self.page.evaluate(CUT)) == [], (width, cut[0])
                ground = self.page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (scheme == "dark")
                self.shot(f"{name}-{width}-{scheme}", full_page=False)


def until(page: Page, truth: str, seconds: float = 60.0) -> None:
    """Wait until an expression is true; Playwright's own way needs eval, which the pages' policy forbids."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(truth):
        assert time.monotonic() < deadline, f"never came true: {truth}"
        page.wait_for_timeout(50)


# Every button, link and field has words; every picture is named or hidden; headings and landmarks are there.
AUDIT = """() => {
  const problems = [];
  const said = (e) => (e.getAttribute('aria-label') || e.textContent || e.getAttribute('title') || '').trim();
  for (const e of document.querySelectorAll('button, a, input, select, [role=button], [role=tab]'))
    if (!said(e) && !(e.labels && e.labels.length)) problems.push(`no name: ${e.outerHTML.slice(0, 120)}`);
  for (const e of document.querySelectorAll('svg'))
    if (!e.closest('[aria-hidden=true]') && !e.querySelector(':scope > title'))
      problems.push(`no title: ${e.outerHTML.slice(0, 120)}`);
  for (const e of document.querySelectorAll('th')) if (!e.scope) problems.push('a heading without scope');
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  if (new Set(ids).size !== ids.length) problems.push('an id stands twice');
  if (!document.documentElement.lang || !document.querySelector('main h1')) problems.push('no language or no h1');
  return problems;
}"""


# How many visible controls there are, those left out that match; of a group of tabs, arrows reach the others.
CONTROLS = """(but = '[inert]') =>
  [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')].filter(
    (e) => e.checkVisibility() && !e.disabled && e.tabIndex >= 0 && !e.matches(but)).length"""


# Text that its box does not show whole, nor lets be scrolled to, nor tells in a title.
CUT = """() => [...document.querySelectorAll('body *')].filter((e) => {
  const style = getComputedStyle(e);
  const shut = ['hidden', 'clip'].includes(style.overflowX) && e.scrollWidth > e.clientWidth + 1;
  return shut && !e.ownerSVGElement && !e.matches('.away, .skip, svg') && e.checkVisibility()
    && !(e.closest('[title]')?.title ?? '').includes(e.textContent.trim());
}).map((e) => e.outerHTML.slice(0, 150))"""


# The contrast of every visible text with what is behind it, by the formula of the accessibility guidelines (WCAG 2).
CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const luminance = ([r, g, b]) => [r, g, b]
    .map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.ownerSVGElement || e.matches(':disabled, .away, .skip, option') || !e.checkVisibility()) continue;
    const style = getComputedStyle(e);
    const [a, b] = [luminance(parse(style.color)), luminance(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5))
      poor.push(`${ratio.toFixed(2)}: ${e.outerHTML.slice(0, 100)}`);
  }
  return poor;
}"""
