"""Which names the service answers to, and which pages may write: in itself, over HTTP, and in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from web import DOCUMENTS, running_app, running_server

from pairrank.service.auth import new_key
from pairrank.service.http.hosts import host_name, is_own_host, may_write
from pairrank.service.settings import Settings
from pairrank.service.store import open_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8000", "localhost"),
        ("LocalHost.", "localhost"),
        ("[::1]:80", "::1"),
        ("::1", "::1"),
        ("a.example", "a.example"),
        ("127.0.0.1:x", "127.0.0.1:x"),
    ],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


def test_own_hosts() -> None:
    plain = Settings(host="rank.example")
    own = ["localhost", "localhost:1", "x.localhost", "127.0.0.1", "[::1]:8000", "10.0.0.1:80", "Rank.example:8000"]
    assert all(is_own_host(header, plain) for header in own)
    for header in ("evil.example", "rank.example.evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example"):
        assert not is_own_host(header, plain), header
    assert is_own_host("b.example:80", Settings(allowed_hosts="a.example, B.example"))
    assert is_own_host("b.example:80", Settings(allowed_hosts="b.example:443"))
    assert is_own_host("anything", Settings(allowed_hosts="*"))


@pytest.mark.parametrize(
    ("origin", "good"),
    [
        ("http://127.0.0.1:8000", True),
        ("https://127.0.0.1:8000", False),
        ("x://127.0.0.1:8000", False),
        ("127.0.0.1:8000", False),
        ("http://127.0.0.1", False),
        ("http://127.0.0.1:8001", False),
        ("null", False),
        ("", False),
        ("https://shop.example", True),
        ("http://shop.example", False),
    ],
)
def test_an_origin_is_compared_whole(origin: str, good: bool) -> None:
    settings = Settings(allow_origins="https://shop.example")
    headers = {b"origin": origin.encode(), b"host": b"127.0.0.1:8000"}
    assert may_write("POST", "http", headers, settings) is good
    assert may_write("GET", "http", headers, settings)
    assert may_write("POST", "http", {b"host": b"x"}, settings)


def test_another_host_is_refused_on_every_path(tmp_path: Path) -> None:
    with running_app(tmp_path / "s.db", allowed_hosts="rank.example") as client:
        client.put("/v1/rankers/a", json={"n_features": 2})
        for method, path in (
            ("GET", "/v1/rankers"),
            ("GET", "/"),
            ("GET", "/healthz"),
            ("POST", "/v1/rankers/a/rank"),
            ("DELETE", "/v1/rankers/a"),
        ):
            answer = client.request(method, path, headers={"host": "evil.example:8000"})
            assert (answer.status_code, answer.json()["error"]) == (421, "host"), path
            assert "the host 'evil.example:8000'" in answer.json()["message"]
        body = {"documents": DOCUMENTS}
        assert client.post("/v1/rankers/a/rank", json=body, headers={"host": "rank.example"}).status_code == 200


def test_keys_make_up_for_names_where_they_are_demanded(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = open_store(path)
    key, secret = new_key("me", ["admin"], 1.0)
    store.put_key(key, "me")
    store.close()
    headers = {"host": "rank.example", "authorization": f"Bearer {secret}"}
    with running_app(path, host="0.0.0.0") as client:
        assert client.get("/v1/rankers", headers=headers).status_code == 200
    for settings in ({"host": "127.0.0.1"}, {"host": "0.0.0.0", "allowed_hosts": "other.example"}):
        with running_app(path, **settings) as client:
            assert client.get("/v1/rankers", headers=headers).status_code == 421


def test_without_a_key_the_outside_is_refused_though_the_last_one_was_revoked(tmp_path: Path) -> None:
    with running_app(tmp_path / "s.db", host="0.0.0.0") as client:
        assert client.get("/v1/rankers").status_code == 401
        assert client.put("/v1/rankers/a", json={"n_features": 2}).status_code == 401
        assert client.get("/healthz").status_code == 200
    with running_app(tmp_path / "s.db") as client:
        assert client.get("/v1/rankers").json() == {"rankers": []}


@pytest.mark.browser
def test_a_page_whose_name_is_made_to_mean_this_machine_reads_and_writes_nothing(
    tmp_path: Path, chromium: Browser
) -> None:
    script = """async ([path, method]) => {
        try { const answer = await fetch(path, {method}); return [answer.status, await answer.text()]; }
        catch (problem) { return [0, String(problem)]; }
    }"""
    with running_server(tmp_path / "s.db") as url:
        port = url.rpartition(":")[2]
        with httpx.Client(base_url=url) as client:
            client.put("/v1/rankers/a", json={"n_features": 2})
        page = chromium.new_page()
        assert page.goto(f"{url}/healthz").status == 200  # the browser works
        assert page.evaluate(script, ["/v1/rankers", "GET"])[0] == 200
        assert page.goto(f"http://evil.example:{port}/healthz").status == 421
        for asked in (["/v1/rankers", "GET"], ["/v1/rankers/a", "DELETE"], ["/v1/rankers/a/freeze", "POST"]):
            status, text = page.evaluate(script, asked)
            assert (status, '"host"' in text) == (421, True), asked
        page.close()
        with httpx.Client(base_url=url) as client:
            assert client.get("/v1/rankers/a").json()["frozen"] is False
