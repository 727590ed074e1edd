"""The snippet for clicks in a real browser: a shop's page sends its visitors' clicks to a service of another origin."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from stage import Watched

from pairrank.client import Client
from pairrank.service.auth import new_key
from pairrank.service.store import SqlStore, open_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DOCUMENTS = {"sandals": [0.9, 0.1], "boots": [0.1, 0.9], "slippers": [0.7, 0.2]}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """The origin of a web site whose pages lie in a folder."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class Service(NamedTuple):
    """A running service: its address, its owner's client, and what the owner can read."""

    address: str
    client: Client
    secret: str

    def read(self, path: str) -> str:
        request = urllib.request.Request(self.address + path, headers={"Authorization": f"Bearer {self.secret}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.read().decode())

    def state(self, impression: str) -> tuple[str, Any]:
        kept = json.loads(self.read("/v1/rankers/shop/impressions"))["impressions"]
        (found,) = (item for item in kept if item["impression_id"] == impression)
        return found["state"], found["clicks"]


@contextmanager
def service(store: Path, origin: str) -> Iterator[Service]:
    """A service with keys that takes events without one from pages of ``origin``."""
    key, secret = new_key("owner", ["admin"], 0.0)
    opened = open_store(store)
    opened.put_key(key, "test")
    opened.close()
    command = [sys.executable, "-m", "pairrank", "serve", "--port", "0", "--store", str(store)]
    process = subprocess.Popen(
        [*command, "--allow-origins", origin, "--public-events", "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PAIRRANK_COMPILED": "0"},
    )
    try:
        assert process.stdout is not None
        with process.stdout:
            found = re.search(r"(http://\S+),", process.stdout.readline())
        assert found is not None
        with Client(found[1], key=secret, retries=20) as client:
            client.create("shop", 2)
            yield Service(found[1], client, secret)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def write_pages(folder: Path, service: str, impression: str) -> None:
    item = '<li data-document="{0}"><a href="{0}.html">{0}</a> <b>more</b></li>'
    items = "".join(item.format(name) for name in DOCUMENTS)
    head = '<!doctype html><title>shop</title><link rel="icon" href="data:,">'
    script = f'<script src="{service}/pairrank.js" data-ranker="shop"></script>'
    (folder / "index.html").write_text(f'{head}{script}<p>none</p><ol data-impression="{impression}">{items}</ol>')
    for name in DOCUMENTS:
        (folder / f"{name}.html").write_text(f"{head}<h1>{name}</h1>")


def until(truth: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not truth():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def clicks_in(store: SqlStore) -> list[int]:
    """The positions that were clicked, one for every click."""
    with store.database.reading():
        return [int(row[0]) for row in store.database.all("SELECT position FROM events ORDER BY position")]


def test_clicks_arrive_also_when_they_leave_the_page(open_page: Callable[..., Watched], tmp_path: Path) -> None:
    with site(tmp_path) as origin, service(tmp_path / "store.db", origin) as running:
        shown = running.client.rank("shop", DOCUMENTS)
        write_pages(tmp_path, running.address, shown.impression_id)
        page = open_page(f"{origin}/index.html").page
        page.click("p")  # outside of the list: nobody's click
        page.click("[data-document=slippers] b")  # stays on the page
        page.click("[data-document=boots] a")  # leaves it
        page.wait_for_url("**/boots.html")
        store = open_store(tmp_path / "store.db")
        until(lambda: len(clicks_in(store)) == 2)
        assert clicks_in(store) == sorted(shown.ids.index(name) for name in ("slippers", "boots"))
        store.close()
        so_far = [name in ("slippers", "boots") for name in shown.ids]
        assert running.state(shown.impression_id) == ("collecting", so_far)


def test_the_middle_button_is_a_click_and_the_right_one_is_none(
    open_page: Callable[..., Watched], tmp_path: Path
) -> None:
    with site(tmp_path) as origin, service(tmp_path / "store.db", origin) as running:
        shown = running.client.rank("shop", DOCUMENTS)
        write_pages(tmp_path, running.address, shown.impression_id)
        page = open_page(f"{origin}/index.html").page
        page.click("[data-document=slippers] a", button="right")
        page.click("[data-document=boots] a", button="middle")
        until(lambda: running.state(shown.impression_id)[0] == "collecting")
        assert running.state(shown.impression_id)[1] == [name == "boots" for name in shown.ids]


def test_a_list_within_a_web_component_is_seen(open_page: Callable[..., Watched], tmp_path: Path) -> None:
    with site(tmp_path) as origin, service(tmp_path / "store.db", origin) as running:
        shown = running.client.rank("shop", DOCUMENTS)
        write_pages(tmp_path, running.address, shown.impression_id)
        page = open_page(f"{origin}/index.html").page
        page.evaluate("""() => {
            const list = document.querySelector("ol");
            list.replaceWith(document.createElement("div"));
            document.querySelector("div").attachShadow({ mode: "open" }).append(list);
        }""")
        page.click("[data-document=boots] b")
        until(lambda: running.state(shown.impression_id)[0] == "collecting")
        assert running.state(shown.impression_id)[1] == [name == "boots" for name in shown.ids]


def test_pages_of_another_origin_may_not_send_clicks(chromium: Browser, tmp_path: Path) -> None:
    with site(tmp_path) as allowed, site(tmp_path) as other, service(tmp_path / "store.db", allowed) as running:
        shown = running.client.rank("shop", DOCUMENTS)
        write_pages(tmp_path, running.address, shown.impression_id)
        page = chromium.new_page()
        page.goto(f"{other}/index.html")
        page.click("[data-document=slippers] b")
        until(lambda: 'pairrank_requests_total{status="403"} 1.0' in running.read("/metrics"))
        page.close()
        assert running.state(shown.impression_id) == ("open", None)
