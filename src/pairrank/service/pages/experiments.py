"""The page of experiments and launches: a form, and the frame that its script fills from ``/v1``."""

from __future__ import annotations

from pairrank.service.pages.layout import Nav, page
from pairrank.service.pages.markup import Child, Markup, join, tag

SCRIPT = "/static/experiments.js"
_SIGNALS = (("nothing", ""), ("purchases", "purchase"), ("purchases, reformulations", "purchase reformulation"))


def experiments_page(nav: Nav) -> Markup:
    """All experiments and launches, and a form to start one."""
    lede = tag(
        "div",
        tag("h1", "Experiments"),
        tag("p", "Which of two orders users prefer. The interval holds at all times at once: look whenever you like."),
        class_="lede",
    )
    quiet = tag("noscript", tag("p", "This page needs JavaScript; /v1/experiments tells the same.", class_="notice"))
    body = join(
        lede, quiet, tag("div", id="launches", class_="stack"), tag("div", id="experiments", class_="stack"), _form()
    )
    return page("Experiments", body, nav=nav, current="/experiments", script=SCRIPT)


def _form() -> Markup:
    arm = "a ranker, a version such as shop@1200, or as-sent"
    fields = (
        _field("Name", tag("input", id="name", required=True, maxlength=64, pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*")),
        _field("a", tag("input", id="a", required=True, list="arms", placeholder=arm)),
        _field("b", tag("input", id="b", required=True, list="arms", value="as-sent", placeholder=arm)),
        _field("Kind", tag("select", tag("option", "interleave"), tag("option", "split"), id="kind")),
        _field("Also count", tag("select", *(tag("option", t, value=v) for t, v in _SIGNALS), id="signals")),
        _field("Share", tag("input", id="share", type="number", min="0.01", max="1", step="0.01", value="1")),
    )
    button = tag("button", "Start", class_="main")
    said = tag("p", id="said", class_="notice", role="alert", hidden=True)
    form = tag("form", *fields, button, id="start", class_="fields")
    head = tag("header", tag("h2", "Start an experiment"), tag("p", "its definition is frozen: a change is another"))
    return tag("section", head, form, tag("datalist", id="arms"), said, class_="card")


def _field(name: str, control: Child) -> Markup:
    return tag("label", tag("span", name), control)
