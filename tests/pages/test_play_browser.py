"""The playground from end to end, in a real browser against a real server."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from stage import AUDIT, Server, Watched, until

import pairrank

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

Open = Callable[..., Watched]


def results(page: Page) -> list[str]:
    return page.locator(".hit .path").all_inner_texts()


def search(page: Page, query: str) -> None:
    page.fill("#query", query)
    with page.expect_response(re.compile("/play/search")):
        page.keyboard.press("Enter")
    page.wait_for_selector(".hit")


def test_the_playground_learns_what_a_person_clicks(server: Server, open_page: Open) -> None:
    watched = open_page(f"{server.address}/play")
    page = watched.page
    until(page, "document.getElementById('learnt').textContent === 'nothing yet'")
    search(page, "temporary file")
    assert len(results(page)) == 10
    assert "60 documents in open order" in page.inner_text(".band .of")
    assert page.evaluate(AUDIT) == []
    watched.shot("play-before")

    # A click on the row marks it, a second one takes the mark away, and so do the button and the keyboard.
    page.locator(".hit .summary").first.click()
    assert page.locator(".useful[aria-pressed=true]").count() == 1
    page.locator(".hit .path").first.click()
    assert page.locator(".useful[aria-pressed=true]").count() == 0
    page.locator(".useful").first.click()
    assert page.locator(".useful[aria-pressed=true]").count() == 1
    page.get_by_role("button", name="Clear").click()

    # Somebody who wants things of the module tempfile, whatever their order.
    for _ in range(12):
        wanted = [i for i, name in enumerate(results(page)) if name.startswith("tempfile.")]
        if not wanted:
            search(page, "temporary file")
            continue
        for i in wanted:
            page.locator(".useful").nth(i).focus()
            page.keyboard.press("Space")
        assert page.locator(".useful[aria-pressed=true]").count() == len(wanted)
        with page.expect_response(re.compile("/play/search")):
            page.get_by_role("button", name="Learn from this").click()
        page.wait_for_selector("#teach", state="hidden")
    lesson = re.search(
        r"\((\d+)\) stood at place ([\d.]+) .* and at ([\d.]+) in the latest", page.inner_text("#lesson")
    )
    assert lesson is not None
    assert int(lesson[1]) >= 1
    assert float(lesson[3]) < float(lesson[2])  # the success is told
    learned = int(re.findall(r"from (\d+) searches", page.inner_text("#learnt"))[0])
    assert learned > 3
    assert page.locator(".weights .value").first.inner_text().split()[0] != "0.00"
    # The order has changed: without exploration, what was clicked now stands on top, and blocks are smaller.
    greedy = server.call("POST", "/play/compare", {"query": "temporary file"})["lists"][1]["results"]
    assert sum(hit["id"].startswith("tempfile.") for hit in greedy[:5]) >= 4
    shown = server.call("POST", "/play/search", {"query": "temporary file"})
    assert len(shown["blocks"]) > 2
    watched.shot("play-after")
    watched.fits("play")


def test_the_playground_simulates_compares_exports_and_resets(server: Server, open_page: Open) -> None:
    watched = open_page(f"{server.address}/play")
    page = watched.page
    search(page, "parse json string")
    page.select_option("#users", "perfect")
    page.get_by_role("switch").click()
    until(page, "document.getElementById('simbar').value >= 150")
    assert page.get_by_role("switch").get_attribute("aria-checked") == "true"
    watched.shot("play-simulating")
    page.get_by_role("switch").click()
    until(page, "document.getElementById('simtext').textContent.startsWith('Stopped after')")
    assert page.locator("#curve .line").count() == 3
    until(page, "/from \\d+ searches/.test(document.getElementById('learnt').textContent)")
    feedback = server.call("GET", "/v1/rankers/playground?wait=30")["feedback_count"]
    assert feedback >= 150

    page.get_by_role("tab", name="Side by side").click()
    page.wait_for_selector(".side li")
    assert page.locator(".side h3").all_inner_texts() == ["PairRank", "Greedy", "BM25", "Random"]
    assert page.locator(".side li").count() == 40
    watched.shot("play-side-by-side")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#drawing .pr-document")
    assert page.locator("#drawing .pr-document").count() == 60
    assert page.locator("#drawing .pr-band-open").count() + page.locator("#drawing .pr-band").count() > 1
    watched.shot("play-blocks")

    with page.expect_download() as coming:
        page.get_by_role("link", name="Download the model").click()
    model = pairrank.load(coming.value.path())
    assert model.n_features == page.locator("#weights li").count()
    heaviest = max(abs(model.weights))
    assert page.locator(".weights .value").first.inner_text().split()[0].lstrip("−") == f"{heaviest:.2f}"

    page.get_by_role("button", name="Start over").click()
    page.wait_for_timeout(300)
    assert server.call("GET", "/v1/rankers/playground")["feedback_count"] == feedback  # it asks first
    page.get_by_role("button", name="Delete what was learned?").click()
    until(page, "document.getElementById('learnt').textContent === 'nothing yet'")
    assert server.call("GET", "/v1/rankers/playground")["feedback_count"] == 0
