"""The playground as HTML: the frame that the script fills."""

from __future__ import annotations

from pairrank.service.pages.layout import Nav, page
from pairrank.service.pages.markup import Markup, join, tag
from pairrank.service.playground.users import USERS

_EXAMPLES = ("parse json string", "current directory", "temporary file", "sort a list", "wait for thread")
_VIEWS = (("results", "Results"), ("blocks", "Blocks"), ("compare", "Side by side"))


def play_page(nav: Nav, script: str) -> Markup:
    """The whole page."""
    lede = tag(
        "div",
        tag("h1", "A search that learns from you"),
        tag(
            "p",
            "Search the documentation of this machine's Python standard library. Click what is useful, let it learn, "
            "and watch the order settle. It starts out knowing nothing.",
        ),
        class_="lede",
    )
    field = tag(
        "input",
        id="query",
        type="search",
        placeholder="What should it do?",
        autocomplete="off",
        spellcheck="false",
        maxlength=256,
        aria_label="Query",
        required=True,
    )
    form = tag("form", field, tag("button", "Search", class_="main"), class_="search", id="search", role="search")
    examples = tag(
        "div", "Try ", *(tag("button", text, type="button") for text in _EXAMPLES), class_="chips", id="examples"
    )
    quiet = tag("noscript", tag("p", "The playground needs JavaScript.", class_="notice"))
    body = join(lede, quiet, form, examples, tag("div", _results(), _learned(), class_="columns"))
    return page("Playground", body, nav=nav, current="/play", script=script)


def _results() -> Markup:
    tabs = [
        tag("button", text, type="button", role="tab", id=f"tab-{name}", aria_controls=name, aria_selected=selected)
        for name, text, selected in ((n, t, "true" if n == "results" else "false") for n, t in _VIEWS)
    ]
    head = tag(
        "div",
        tag("div", *tabs, class_="tabs", role="tablist", aria_label="View"),
        tag("p", id="summary", class_="muted", aria_live="polite"),
        class_="row",
    )
    hint = "Results appear here in bands: amber where the order is open and drawn by chance, grey where it is kept."
    lesson = tag("p", id="lesson", class_="notice", aria_live="polite", hidden=True)
    results = tag("div", tag("p", hint, class_="empty"), id="results", role="tabpanel", aria_labelledby="tab-results")
    drawn = tag(
        "div",
        tag(
            "section",
            tag("div", class_="drawing", id="drawing"),
            tag("p", id="said", class_="said", aria_live="polite"),
            class_="card",
        ),
        id="blocks",
        role="tabpanel",
        aria_labelledby="tab-blocks",
        hidden=True,
    )
    compare = tag("div", id="compare", class_="card", role="tabpanel", aria_labelledby="tab-compare", hidden=True)
    teach = tag(
        "div",
        tag("p", id="marked"),
        tag("button", "Clear", type="button", id="clear"),
        tag("button", "Learn from this", type="button", id="learn", class_="main"),
        class_="teach",
        id="teach",
        hidden=True,
    )
    return tag("div", head, lesson, results, drawn, compare, teach, class_="stack")


def _learned() -> Markup:
    users = [tag("option", name, value=name, selected=name == USERS[1]) for name in USERS]
    simulate = tag(
        "section",
        tag("header", tag("h2", "Simulated users"), tag("p", "each looks for one document, by its own words")),
        tag(
            "div",
            tag("select", *users, id="users", aria_label="Kind of users"),
            tag("button", "Run 1 000 searches", type="button", id="simulate", role="switch", aria_checked="false"),
            class_="row",
        ),
        tag("div", tag("progress", id="simbar", max=1, value=0, aria_label="Searches"), id="running", hidden=True),
        tag("p", id="simtext", class_="muted", aria_live="polite"),
        tag("div", id="curve"),
        class_="card",
    )
    weights = tag(
        "section",
        tag("header", tag("h2", "What it has learned"), tag("p", id="learnt")),
        tag("ul", class_="weights", id="weights"),
        tag(
            "div",
            tag(
                "a",
                "Download the model",
                class_="button",
                id="export",
                href="/v1/rankers/playground/model",
                download=True,
            ),
            tag("button", "Start over", type="button", id="reset"),
            class_="row",
        ),
        class_="card",
    )
    return tag("div", simulate, weights, class_="stack")
