"""Both pages from end to end, in a real browser against a real server."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from stage import AUDIT, CONTROLS, SCREENSHOTS, Server, Watched, stripping, until

import pairrank
from pairrank.service.auth import new_key
from pairrank.service.store import open_store

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

Open = Callable[..., Watched]


def test_the_live_page_shows_a_ranker_and_follows_it(server: Server, open_page: Open) -> None:
    server.traffic("shop", 40)
    watched = open_page(f"{server.address}/?ranker=shop")
    page = watched.page
    page.wait_for_selector(".chart .line", state="attached")
    assert page.inner_text("#detail h1") == "shop"
    assert page.locator("#detail .chart").count() == 5
    assert sorted(page.locator(".weights .feature").all_inner_texts()) == ["age", "match", "price"]
    assert page.locator(".weights .feature").first.inner_text() == "match"
    assert "the model itself expects" in page.inner_text(".tiles")
    assert page.inner_text(".helps").startswith("Does it help? There are too few lists with clicks to tell")
    assert page.evaluate(AUDIT) == []

    # One impression: every candidate, hover explains a mark, a chosen document is compared with another.
    page.wait_for_selector(".drawing .pr-document")
    assert page.locator(".drawing .pr-document").count() == 14
    assert page.locator(".drawing .pr-position").count() == 10
    documents = page.locator(".drawing .pr-document")
    documents.nth(0).hover()
    assert re.search(r"item \d+: score .*, block 1", page.inner_text("#hint"))
    with page.expect_response(re.compile("/pairs")):
        documents.nth(0).click()
    documents.nth(13).hover()
    until(page, "document.getElementById('hint').textContent.includes('a chance of')")
    assert re.match(r"(Kept|Open): the model gives “item \d+ before item \d+” a chance of", page.inner_text("#hint"))
    documents.nth(1).focus()
    assert "before" in page.inner_text(".said")
    page.get_by_role("button", name="As of now").click()

    # New feedback arrives without a reload.
    before = page.evaluate("performance.timeOrigin")
    server.traffic("shop", 5, seed=1)
    until(page, "document.querySelector('.tiles').textContent.includes('45 lists with feedback')")
    assert page.evaluate("performance.timeOrigin") == before
    watched.fits("live")


def test_names_as_long_as_they_may_be_fit(server: Server, open_page: Open) -> None:
    name = "N" * 64
    server.call("PUT", f"/v1/rankers/{name}", {"n_features": 1})
    server.call("PUT", f"/v1/experiments/{name}", {"a": name, "b": "as-sent"})
    asked = {"query_id": "W" * 256, "documents": [{"id": "d", "features": [1.0]}]}
    shown = server.call("POST", f"/v1/rankers/{name}/rank", asked)["impression_id"]
    for path in ("experiments", f"impressions/{name}/{shown.partition('-')[0]}"):
        page = open_page(f"{server.address}/{path}", width=390).page
        until(page, f"document.querySelector('main').textContent.includes('{name}')")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_other_pages_fit_everywhere(server: Server, open_page: Open) -> None:
    server.traffic("curved", 5, options={"model": "additive"})
    told = open_page(f"{server.address}/docs")
    for summary in told.page.locator("summary").all():
        summary.click()
    assert told.page.evaluate(AUDIT) == []
    told.fits("api")
    phone = open_page(f"{server.address}/", dark=True, width=390).page  # drawn for a telephone from the start
    phone.wait_for_selector(".drawing .pr-document")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    curved = open_page(f"{server.address}/?ranker=curved", dark=True, width=390)
    curved.page.wait_for_selector(".functions .band", state="attached")
    assert sorted(curved.page.locator(".functions .feature").all_inner_texts()) == ["age", "match", "price"]
    assert curved.page.locator(".functions .mark").count() > 20
    curved.fits("functions")


def test_the_keyboard_alone_is_enough(server: Server, open_page: Open) -> None:
    """Every control is reached by Tab, and what it does by Enter."""
    server.traffic("shop", 30)
    ready = {"/": ".drawing .pr-document", "/experiments": "#start", "/docs": "summary", "/play?q=file": ".hit"}
    for address, selector in ready.items():
        page = open_page(f"{server.address}{address}").page
        page.wait_for_selector(selector)
        presses = 0
        while page.evaluate(f"({CONTROLS})('[data-reached]')"):
            page.keyboard.press("Tab")
            page.evaluate("document.activeElement.dataset.reached = '1'")
            presses += 1
            # Rows may come and be drawn anew while keys are pressed: they are reached in the rounds that follow.
            assert presses <= 4 * page.evaluate(CONTROLS), address
    live = open_page(f"{server.address}/?ranker=shop").page
    live.wait_for_selector("[aria-label='Last impressions'] tbody tr")
    while live.evaluate("document.activeElement.textContent") != "Older":
        live.keyboard.press("Tab")
    live.keyboard.press("Enter")
    until(live, "document.querySelectorAll(\"[aria-label='Last impressions'] tbody tr\").length === 10")


def test_impressions_can_be_paged_and_chosen(server: Server, open_page: Open) -> None:
    server.traffic("shop", 30)
    page = open_page(f"{server.address}/").page
    rows = page.locator("[aria-label='Last impressions'] tbody tr")
    page.wait_for_selector("[aria-label='Last impressions'] tbody tr")
    assert rows.count() == 20
    page.get_by_role("button", name="Older").click()
    until(page, "document.querySelectorAll(\"[aria-label='Last impressions'] tbody tr\").length === 10")
    rows.nth(9).locator("a").click()
    until(page, "[...document.querySelectorAll('h2')].some((h) => h.textContent === 'Impression 0')")
    page.wait_for_selector("text=As served")
    # The first list was served by a model that knew nothing: one block of all.
    until(page, "document.querySelectorAll('.drawing .pr-band-open').length === 1")
    assert page.locator(".drawing .pr-band").count() == 0


def test_an_empty_service_leads_to_the_first_click(server: Server, open_page: Open) -> None:
    watched = open_page(f"{server.address}/", permissions=["clipboard-read", "clipboard-write"])
    page = watched.page

    def copied(number: int) -> list[str]:
        page.locator("button.copy").nth(number).click()
        page.wait_for_selector("text=Copied")
        return shlex.split(page.evaluate("navigator.clipboard.readText()"))

    # What the page says, done to the letter: its own address, and curl's words in their order.
    words = copied(0)
    assert words[:4] == ["curl", "-X", "PUT", f"{server.address}/v1/rankers/mine"]
    server.call("PUT", "/v1/rankers/mine", json.loads(words[5]))
    page.wait_for_selector("#rankers >> text=mine")
    page.wait_for_selector("text=No feedback yet")
    assert page.locator(".chart:visible").count() == 0
    until(page, "document.querySelectorAll('button.copy:not([hidden])').length === 2")
    words = copied(0)
    shown = server.call("POST", words[1].removeprefix(server.address), json.loads(words[3]))
    assert len(shown["ranking"]) == 3
    words = copied(1)
    body = json.loads(words[3]) | {"impression_id": shown["impression_id"]}
    assert server.call("POST", words[1].removeprefix(server.address), body) == {"status": "accepted"}
    page.wait_for_selector(".chart .dot, .chart .line", state="attached")
    assert page.locator("text=No feedback yet").count() == 0 or page.locator("#steps").is_hidden()


def test_clicks_of_a_list_that_still_collects_are_seen(server: Server, open_page: Open) -> None:
    server.traffic("shop", 3)
    documents = [{"id": f"item {i}", "features": [i / 9, 0.5, 0.1]} for i in range(8)]
    shown = server.call("POST", "/v1/rankers/shop/rank", {"documents": documents})
    watched = open_page(f"{server.address}/?ranker=shop")
    page = watched.page
    first = page.locator("[aria-label='Last impressions'] tbody tr").first
    page.wait_for_selector("[aria-label='Last impressions'] tbody tr")
    assert first.locator(".doc.clicked").count() == 0
    clicked = shown["ranking"][2]["id"]
    event = {"event_id": "e", "impression_id": shown["impression_id"], "document_id": clicked}
    server.call("POST", "/v1/rankers/shop/events", [event])
    until(page, "document.querySelector(\"[aria-label='Last impressions'] tbody .doc.clicked\") !== null")
    assert first.locator(".doc.clicked").inner_text() == clicked
    assert re.search(r"collecting until \d\d \w+ \d\d:\d\d:\d\d", first.inner_text())
    until(page, "document.querySelectorAll('.drawing .pr-clicked').length === 1")
    watched.shot("live-collecting")


def test_versions_can_be_pinned_gone_back_to_and_taken_along(server: Server, open_page: Open) -> None:
    server.traffic("shop", 2)  # so few that all versions are shown, however often models are published
    one = "/v1/rankers/shop"
    page = open_page(f"{server.address}/?ranker=shop").page
    rows = page.locator("[aria-label='Model versions'] tbody tr")
    page.wait_for_selector("[aria-label='Model versions'] tbody tr")

    def press(button: Locator, truth: Callable[[], bool]) -> None:
        before = server.call("GET", "/v1/audit")
        button.click()
        assert server.call("GET", "/v1/audit") == before  # it asks first
        page.get_by_role("button", name="sure?").click()
        deadline = time.monotonic() + 60
        while not truth():
            assert time.monotonic() < deadline
            page.wait_for_timeout(50)

    oldest = rows.last
    with page.expect_download() as coming:
        oldest.get_by_role("link", name="File").click()
    assert (
        pairrank.load(coming.value.path()).digest()
        == server.call("GET", f"{one}/versions")["versions"][-1]["state_digest"]
    )
    press(oldest.get_by_role("button", name="Pin"), lambda: server.call("GET", one)["pinned"] == 0)
    page.wait_for_selector("#rankers >> text=pinned")
    press(page.get_by_role("button", name="Unpin"), lambda: server.call("GET", one)["pinned"] is None)
    press(page.get_by_role("button", name="Stop learning"), lambda: server.call("GET", one)["frozen"] is True)
    page.wait_for_selector("#rankers >> text=frozen")
    press(page.get_by_role("button", name="Learn again"), lambda: server.call("GET", one)["frozen"] is False)
    press(rows.last.get_by_role("button", name="Go back"), lambda: server.call("GET", one)["learned_count"] == 0)
    server.traffic("shop", 1, seed=1)
    until(page, "[...document.querySelectorAll('.acts a')].some((link) => link.textContent === 'Compare')")
    page.get_by_role("link", name="Compare").last.click()
    until(page, "document.getElementById('b')?.value === 'shop@0'")
    assert page.input_value("#a") == "shop"


def test_a_pinned_version_stays_in_sight(server: Server, open_page: Open) -> None:
    one = "/v1/rankers/shop"
    server.traffic("shop", 1)
    server.call("POST", f"{one}/pin", {"version": 0})
    for number in range(10):
        server.traffic("shop", 1, seed=number)
        server.call("GET", f"{one}?wait=30")
    assert len(server.call("GET", f"{one}/versions")["versions"]) > 7  # more than are listed
    page = open_page(f"{server.address}/?ranker=shop").page
    page.wait_for_selector("[aria-label='Model versions'] tbody tr")
    pinned = page.locator("[aria-label='Model versions'] tbody tr", has=page.get_by_role("button", name="Unpin"))
    assert pinned.locator("td").first.inner_text() == "0"


def test_a_ranker_that_is_not_there_is_missed(server: Server, open_page: Open) -> None:
    server.traffic("shop", 2)
    watched = open_page(f"{server.address}/?ranker=gone")
    watched.tolerated = ("404",)
    page = watched.page
    page.wait_for_selector("text=There is no ranker called “gone”")
    assert page.locator("#detail h1").count() == 0
    assert page.get_by_role("link", name="shop").is_visible()
    watched = open_page(f"{server.address}/?ranker=shop")
    watched.tolerated = ("404",)
    watched.page.wait_for_selector(".drawing .pr-document")
    server.call("DELETE", "/v1/rankers/shop")
    watched.page.wait_for_selector("text=There is no ranker called “shop”")


def test_without_script_the_page_says_where_to_read(server: Server, open_page: Open) -> None:
    server.traffic("shop", 25)
    watched = open_page(f"{server.address}/", java_script_enabled=False)
    assert "/v1/rankers tells the same" in watched.page.content()
    newest = server.call("GET", "/v1/rankers/shop/impressions")["impressions"][0]
    watched.page.goto(f"{server.address}/impressions/shop/{newest['number']}")
    assert watched.page.locator("svg.pr-drawing .pr-document").count() == 14
    watched.shot("impression-no-script")


def test_pages_survive_a_killed_server(server: Server, open_page: Open) -> None:
    server.traffic("shop", 10)
    live = open_page(f"{server.address}/?ranker=shop")
    play = open_page(f"{server.address}/play?q=sort+a+list")
    play.page.wait_for_selector(".hit")
    live.page.wait_for_selector(".drawing .pr-document")
    play.page.locator(".useful").nth(0).click()
    for watched in (live, play):  # a browser writes refused connections to the console, whatever a page does
        watched.tolerated = ("net::ERR_",)
    server.kill()
    for watched in (live, play):
        watched.page.wait_for_selector("#pulse[data-state=waiting]")
    server.start()
    for watched in (live, play):
        watched.page.wait_for_selector("#pulse[data-state=live]")
    server.traffic("shop", 3, seed=5)
    until(live.page, "document.querySelector('.tiles').textContent.includes('13 lists with feedback')")
    # The list that was on screen before the crash can still be learned from.
    with play.page.expect_response(re.compile("/play/search")):
        play.page.get_by_role("button", name="Learn from this").click()
    until(play.page, "document.getElementById('learnt').textContent.startsWith('from 1 search;')")


HOSTILE = [
    "<img src=x onerror=\"window.pwned='image'\">",
    "<script>window.pwned='script'</script>",
    '"><svg onload="window.pwned=\'svg\'">',
    "javascript:window.pwned='address'",
    "</title></svg><iframe srcdoc='<script>parent.pwned=1</script>'>",
    "{{constructor.constructor('window.pwned=2')()}}",
    "' onfocus='window.pwned=3' autofocus='",
]


def test_hostile_text_stays_text(server: Server, open_page: Open) -> None:
    server.traffic("shop", 4, documents=HOSTILE, features=HOSTILE[:3], query=HOSTILE[0])
    live = open_page(f"{server.address}/?ranker=shop")
    live.page.wait_for_selector(".drawing .pr-document")
    live.page.locator(".drawing .pr-document").nth(1).click()
    live.page.locator(".drawing .pr-document").nth(2).hover()
    assert HOSTILE[0] in live.page.inner_text("#detail")
    for text in HOSTILE:
        assert live.page.get_by_title(text, exact=True).count() > 0
    alone = open_page(f"{server.address}/impressions/shop/0")
    drawn = open_page(f"{server.address}/impressions/shop/0/drawing.svg")
    play = open_page(f"{server.address}/play")
    for text in HOSTILE:
        play.page.fill("#query", text)
        with play.page.expect_response(re.compile("/play/search")):
            play.page.keyboard.press("Enter")
        until(play.page, "document.getElementById('summary').textContent !== ''")
    for watched in (live, alone, drawn, play):
        assert watched.page.evaluate("window.pwned") is None
        assert (
            watched.page.evaluate(
                "document.querySelectorAll('main img, main script, iframe, [onload], [onerror]').length"
            )
            == 0
        )
    watched.shot("play-hostile")


def test_the_policy_stops_inline_script_and_style(server: Server, open_page: Open) -> None:
    for path in ("/", "/play"):
        watched = open_page(server.address + path)
        watched.tolerated = ("Content Security Policy",)
        response = watched.page.goto(server.address + path)
        policy = response.headers["content-security-policy"] if response else ""
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        watched.page.evaluate(
            """() => {
              const script = document.createElement('script');
              script.textContent = "window.pwned = 'inline'";
              document.body.append(script);
              document.body.setAttribute('style', 'color: rgb(1, 2, 3)');
            }"""
        )
        assert watched.page.evaluate("window.pwned") is None
        assert watched.page.evaluate("getComputedStyle(document.body).color") != "rgb(1, 2, 3)"


def test_pages_do_behind_a_proxy_that_strips_a_path(server: Server, open_page: Open) -> None:
    with stripping(server.port) as address:
        watched = open_page(f"{address}/", permissions=["clipboard-read", "clipboard-write"])
        watched.tolerated = ("/favicon.ico",)  # the browser's own idea, for a document that names no icon: openapi.json
        page = watched.page
        page.locator("button.copy").first.click()
        page.wait_for_selector("text=Copied")
        words = shlex.split(page.evaluate("navigator.clipboard.readText()"))
        assert words[:4] == ["curl", "-X", "PUT", f"{address}/v1/rankers/mine"]
        told = open_page(f"{address}/docs").page
        until(told, "document.querySelectorAll('button.copy:not([hidden])').length === 3")
        assert f"curl -X PUT {address}/v1/rankers/mine" in told.inner_text("#steps")
        server.traffic("shop", 20)
        page.get_by_role("link", name="shop").click()
        page.wait_for_selector(".drawing .pr-document")
        assert page.url == f"{address}/?ranker=shop"
        until(page, "document.getElementById('pulse').dataset.state === 'live'")
        with page.expect_download() as model:
            page.get_by_role("link", name="File").first.click()
        assert model.value.url.startswith(f"{address}/v1/rankers/shop/model")
        alone = open_page(f"{address}/impressions/shop/0").page
        alone.get_by_role("link", name="All rankers").click()
        alone.wait_for_selector(".drawing .pr-document")
        page.get_by_role("link", name="Compare").first.click()
        page.wait_for_selector("text=No experiment yet")
        assert page.input_value("#a") == "shop"
        page.fill("#name", "first")
        page.get_by_role("button", name="Start").click()
        page.wait_for_selector("[data-experiment=first]")
        page.get_by_role("link", name="API").click()
        page.get_by_role("link", name="openapi.json").click()
        assert page.url == f"{address}/openapi.json"
        page.go_back()
        page.get_by_role("link", name="Playground").click()
        page.get_by_role("button", name="temporary file").click()
        page.locator(".hit").first.click()
        page.get_by_role("button", name="Learn from this").click()
        page.wait_for_selector("text=Learned. What you marked")
        page.get_by_role("tab", name="Blocks").click()
        page.wait_for_selector(".drawing .pr-document")
        assert page.url == f"{address}/play?q=temporary%20file"
        page.locator(".brand").click()
        assert page.url.startswith(f"{address}/")
        page.close()
        alone.close()
        (secret,) = keyed(server, "admin")
        for path, seen in (("/", ".drawing .pr-document"), ("/experiments", "#start"), ("/play?q=file", ".hit")):
            page = open_page(address + path).page
            page.fill("#key", secret)
            page.keyboard.press("Enter")
            page.wait_for_selector(seen)
            page.close()


def keyed(server: Server, *roles: str) -> list[str]:
    """Secrets of new keys, one with each role, when the server has begun to ask for one."""
    store = open_store(server.store)
    made = [new_key(role, [role], time.time()) for role in roles]
    for key, _ in made:
        store.put_key(key, "test")
    store.close()
    deadline = time.monotonic() + 60
    while "keyform" not in server.call("GET", "/").decode() and time.monotonic() < deadline:
        time.sleep(0.1)
    return [secret for _, secret in made]


def test_a_key_is_asked_for_once(server: Server, open_page: Open) -> None:
    server.traffic("shop", 6)
    secret, ranks = keyed(server, "admin", "rank")
    watched = open_page(f"{server.address}/")
    page = watched.page
    watched.tolerated = ("401",)
    assert "shop" not in page.inner_text("body")
    # Any key may look at figures; what people were shown and clicked needs an administrator's.
    plain = open_page(f"{server.address}/")
    plain.tolerated = ("401", "403")
    plain.page.fill("#key", ranks)
    plain.page.keyboard.press("Enter")
    plain.page.wait_for_selector(".chart .line", state="attached")
    assert plain.page.locator("text=told with an admin key").count() == 2
    assert "item 1" not in plain.page.inner_text("#detail")
    plain.page.get_by_role("button", name="Stop learning").click()
    plain.page.get_by_role("button", name="sure?").click()
    plain.page.wait_for_selector("text=does not have the role 'admin'")
    page.fill("#key", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#keysaid:visible")
    assert page.inner_text("#keysaid") == "This key does not open the page: the key is not known."
    page.wait_for_timeout(300)
    assert page.locator("#keysaid").is_visible()  # it stays
    watched.shot("live-wrong-key")
    page.fill("#key", secret)
    page.keyboard.press("Enter")
    page.wait_for_selector(".drawing .pr-document")
    page.wait_for_selector("#pulse[data-state=live]")
    page.goto(f"{server.address}/play?q=sort")
    page.wait_for_selector(".hit")


TIMING = """async ([address, entry, data]) => {
  const draw = (await import(address))[entry];
  const times = [];
  for (let i = 0; i < 15; i++) {
    await new Promise((done) => requestAnimationFrame(done));
    const start = performance.now();
    draw(structuredClone(data));
    document.body.getBoundingClientRect(); // styles and layout belong to an update
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b);
}"""


# In one step: the page asks for itself every five seconds, and would show what the service says.
HELPS = """async (data) => {
  (await import("/static/live.js")).render(data);
  return document.querySelector(".helps").innerText.replace(/\\s+/g, " ");
}"""


def measured(page: Page, module: str, entry: str, empty: object, full: object) -> str:
    """Time and processor time of an update, and how many times those of an empty one."""
    profiler = page.context.new_cdp_session(page)
    profiler.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = profiler.send("Performance.getMetrics")["metrics"]
        return 1000 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    took = []
    for data in (empty, full):
        before = busy()
        times = page.evaluate(TIMING, [f"/{module}", entry, data])
        took.append((times[0], times[7], (busy() - before) / len(times)))
    (least, middle, work), (_, empty_middle, empty_work) = took[1], took[0]
    ratio, work_ratio = middle / max(empty_middle, 0.1), work / max(empty_work, 0.1)
    return (
        f"{middle:.1f} ms ({least:.1f} at best), {ratio:.1f} times an empty update; "
        f"processor {work:.1f} ms, {work_ratio:.1f} times"
    )


def test_an_update_of_a_hundred_documents_is_measured(server: Server, open_page: Open) -> None:
    documents = [f"catalogue item number {i}" for i in range(100)]
    server.traffic("shop", 30, documents=documents, k=100)
    lines = []

    live = open_page(f"{server.address}/?ranker=shop").page
    live.wait_for_selector(".drawing .pr-document")
    assert live.locator(".drawing .pr-document").count() == 100
    one = "/v1/rankers/shop"
    full = {
        "rankers": server.call("GET", "/v1/rankers")["rankers"],
        "row": server.call("GET", one),
        "statistics": server.call("GET", f"{one}/statistics"),
        "weights": server.call("GET", f"{one}/weights"),
        "versions": server.call("GET", f"{one}/versions")["versions"],
        "impressions": server.call("GET", f"{one}/impressions?limit=20")["impressions"],
    }
    nothing = {"weights": {"total": 0, "features": None}, "versions": [], "impressions": []}
    empty = {**full, **nothing, "statistics": {**full["statistics"], "points": []}}
    told = measured(live, "static/live.js", "render", empty, full)
    lines.append(f"live page, {len(full['impressions'])} lists of 100 documents: {told}")
    assert live.locator("[aria-label='Last impressions'] tbody tr").count() == 20
    ends = {"newest": {"lists": 50, "ndcg": 0.81}, "oldest": {"lists": 50, "ndcg": 0.6}}
    found = {name: full["statistics"][name] | told for name, told in ends.items()}
    said = live.evaluate(HELPS, {**full, "statistics": full["statistics"] | found})
    assert "Clicks stand higher than at first: 81 % of the best possible, 60 % at first." in said
    drawn = server.call("GET", "/impressions/shop/29/drawing.svg?embed=1").decode()
    bare = drawn[: drawn.index("<g ")] + "</svg>"
    lines.append(f"drawing of 100 candidates: {measured(live, 'static/drawing.js', 'redraw', bare, drawn)}")

    play = open_page(f"{server.address}/play?q=file").page
    play.wait_for_selector(".hit")
    found = server.call("POST", "/play/search", {"query": "file", "k": 60})
    hundred = [{**found["results"][i % 60], "id": f"made.up.name{i}", "block": i // 7} for i in range(100)]
    told = measured(play, "play/static/play.js", "showResults", {**found, "results": []}, {**found, "results": hundred})
    lines.append(f"playground, one list of 100 documents: {told}")
    assert play.locator(".hit").count() == 100
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS.parent / "update-times.txt").write_text("\n".join(lines) + "\n")
    print("\n" + "\n".join(lines))


def test_an_experiment_is_made_watched_and_decided(server: Server, open_page: Open) -> None:
    server.call("PUT", "/v1/rankers/shop", {"n_features": 2, "window_seconds": 1})
    watched = open_page(f"{server.address}/experiments")
    page = watched.page
    page.wait_for_selector("#experiments .empty")
    page.fill("#name", "new")
    page.fill("#a", "nobody")
    watched.tolerated = ("422",)
    page.get_by_role("button", name="Start").click()
    page.wait_for_selector("#said:not([hidden])")
    assert page.inner_text("#said") == "Arm 'nobody' is unknown: no ranker is called 'nobody'."
    page.fill("#a", "shop")
    page.select_option("#signals", "purchase reformulation")
    page.get_by_role("button", name="Start").click()
    page.wait_for_selector("[data-experiment=new]")
    assert "No list has come back yet." in page.inner_text("[data-experiment=new]")
    server.call("POST", "/v1/rankers/shop/freeze", {"frozen": True})
    documents = [{"id": f"d{i}", "features": [i / 5, 1 - i / 5]} for i in range(5)]
    for _ in range(90):  # users want what stands first as sent
        shown = server.call("POST", "/v1/rankers/shop/rank", {"documents": documents, "k": 3})
        clicks = [hit["id"] for hit in shown["ranking"] if hit["id"] == "d0"]
        body = {"impression_id": shown["impression_id"], "clicks": clicks}
        server.call("POST", "/v1/rankers/shop/feedback", body)
        bought = {"event_id": "e", "impression_id": shown["impression_id"], "document_id": "d0", "type": "purchase"}
        server.call("POST", "/v1/rankers/shop/events", [bought] if clicks else [])
    until(page, "document.querySelector('[data-experiment=new]').textContent.includes('as-sent is better than shop')")
    tiles = page.inner_text("[data-experiment=new] .tiles")
    for word in ("By purchase", "Without a click", "Asked again", "of the lists; 0\u00a0% to"):
        assert word in tiles
    assert page.locator("[data-experiment=new] .chart .line").count() == 3
    server.call("PUT", "/v1/rankers/shop/launch", {"mode": "shadow"})
    until(page, "document.querySelector('[data-launch=shop]')?.textContent.includes('Users see the present order')")
    assert page.evaluate(AUDIT) == []
    watched.fits("experiments")
    page.get_by_role("button", name="Stop").click()
    until(page, "document.querySelector('[data-experiment=new]').textContent.includes('Ended ')")
    server.call("PUT", "/v1/experiments/parted", {"a": "shop", "b": "as-sent", "kind": "split"})
    page.wait_for_selector("[data-experiment=parted]")
    tiles = page.inner_text("[data-experiment=parted] .tiles")
    assert "Lists" in tiles
    assert "won" not in tiles  # each list is of one arm
