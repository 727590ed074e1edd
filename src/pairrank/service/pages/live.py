"""The live page as HTML: readable tables without a script, which the script turns into charts that move."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from pairrank import drawing
from pairrank.service.pages.frame import page
from pairrank.service.pages.markup import Child, Markup, join, tag, trusted
from pairrank.service.pages.views import Scene

Row = Mapping[str, Any]
_SERIES = (
    ("ctr", "Click-through"),
    ("ndcg", "NDCG of clicks"),
    ("explored", "Explored"),
    ("blocks", "Blocks"),
    ("size_1", "Size at 1"),
    ("size_5", "at 5"),
    ("size_10", "at 10"),
)
_SHARES = ("ctr", "ndcg", "explored")


class Address(NamedTuple):
    """Where the reader reached this service, and whether it asks for a key."""

    base: str
    keyed: bool


def live_page(rankers: Sequence[Row], detail: Row | None, *, to: Address, missing: str | None = None) -> Markup:
    """The whole page: all rankers, and one of them in detail; or that there is none of the name ``missing``."""
    name = detail["name"] if detail else missing or ""
    lede = tag(
        "div",
        tag("h1", "Rankers"),
        tag("p", "What each ranker shows, what people click, and which orders it keeps by now."),
        class_="lede",
    )
    known = tag("section", _rankers(rankers, name), class_="card", id="rankers", aria_label="All rankers")
    if detail is not None:
        shown = _detail(detail, to)
    elif missing is not None:
        shown = tag(
            "p", f"There is no ranker called “{missing}”; it may have been deleted.", class_="notice", role="alert"
        )
    else:
        shown = steps(to)
    body = join(lede, known if rankers else None, tag("div", shown, id="detail", class_="stack"))
    return page("Live", body, current="/", script="live.js", data_ranker=name)


def closed_page(address: str = "/", script: str = "live.js") -> Markup:
    """The page of a service that asks for a key: the script asks the reader for it, then starts ``script``."""
    text = "This service asks for a key. The page keeps it only until the tab is closed."
    field = tag("input", type="password", id="key", autocomplete="off", required=True, aria_label="Key")
    form = tag("form", field, tag("button", "Open", class_="main"), class_="search", id="keyform")
    lede = tag("div", tag("h1", "A key is needed"), tag("p", text), class_="lede")
    said = tag("p", class_="notice", id="keysaid", role="alert", hidden=True)
    quiet = tag("noscript", tag("p", "Without JavaScript, read /v1/rankers with an Authorization header instead."))
    return page("Key", join(lede, form, said, quiet), current=address, script="key.js", data_next=script)


def impression_page(name: str, scene: Scene) -> Markup:
    """One impression by itself, with its drawing."""
    facts = scene.facts
    title = f"Impression {facts['number']} of {name}"
    about = f"Query: {facts['query'] or 'none given'}. Served by model {facts['version']}, drawn by {facts['drawn']}."
    picture: Child = tag("p", "This ranker has no notion of blocks.", class_="empty")
    if scene.panel is not None:
        picture = tag("div", trusted(drawing.blocks(scene.panel, standalone=False)), class_="drawing")
    back = tag("p", tag("a", "All rankers", href=f"/?ranker={quote(name)}"))
    lede = tag("div", tag("h1", title), tag("p", about), class_="lede")
    return page(title, join(lede, tag("section", picture, class_="card"), back), current="")


def steps(to: Address, name: str | None = None, n_features: int = 3) -> Markup:
    """How to come to the first click: commands that can be copied, with the address that this page came from."""
    given = name or "mine"
    base = f"{to.base}/v1/rankers/{quote(given)}"
    curl = "curl -H 'Authorization: Bearer KEY'" if to.keyed else "curl"
    documents = [
        {"id": item, "features": [round(0.9 - 0.8 * ((i + j) % 3) / 2, 1) for j in range(min(n_features, 8))]}
        for i, item in enumerate(("boots", "sandals", "slippers"))
    ]
    more = "" if n_features <= 8 else f" Send {n_features} numbers per document; here are only the first eight."
    listed = json.dumps({"query_id": "footwear", "documents": documents})
    feedback = json.dumps({"impression_id": "PUT THE ID HERE", "clicks": ["boots"]})
    parts = (
        (
            "Create a ranker: all that it must know is how many features a document has.",
            f"{curl} -X PUT {base} -d '{json.dumps({'n_features': n_features})}'",
        )
        if name is None
        else None,
        (f"Ask for a list.{more} The answer has an impression_id.", f"{curl} {base}/rank -d '{listed}'"),
        ("Send what was clicked, with that id.", f"{curl} {base}/feedback -d '{feedback}'"),
    )
    items = [
        tag("li", tag("p", text), tag("pre", command), tag("button", "Copy", type="button", class_="copy", hidden=True))
        for text, command in filter(None, parts)
    ]
    title = "No rankers yet" if name is None else "No feedback yet"
    return tag("section", tag("h2", title), tag("ol", *items, class_="steps"), class_="card", id="steps")


def _rankers(rankers: Sequence[Row], current: str) -> Markup:
    heads = ("Name", "Algorithm", "Features", "Feedback", "Model", "Click-through", "Explored", "Lag", "")
    rows = [
        (
            [
                tag("a", row["name"], href=f"/?ranker={quote(row['name'])}", class_="name"),
                row["algorithm"],
                row["features"],
                _whole(row["feedback"]),
                row["version"],
                _percent(row["recent"]["ctr"]),
                _percent(row["recent"]["explored"]),
                _whole(row["lag"]),
                tag("span", "frozen", class_="tag") if row["frozen"] else "",
            ],
            row["name"] == current,
        )
        for row in rankers
    ]
    return _table("All rankers", heads, rows, right=range(2, 8))


def _detail(detail: Row, to: Address) -> Markup:
    newest, kept = detail["recent"], detail["kept"]
    wrong = "no order is kept yet" if not kept or not kept["share"] else "of shown pairs"
    if kept and kept["wrong"] is not None:
        wrong = f"of shown pairs; the model itself expects {_percent(kept['wrong'])} of them wrong"
    tiles = (
        ("Click-through", _percent(newest["ctr"]), "of lists with feedback"),
        ("NDCG of clicks", _percent(newest["ndcg"]), "100 % when clicks are on top"),
        ("Explored", _percent(newest["explored"]), "of shown positions"),
        ("Blocks", _number(newest["blocks"], 1), "in a shown list"),
        ("Orders kept", _percent(kept["share"] if kept else None), wrong),
        (
            "Model",
            _whole(detail["version"]),
            f"{_whole(detail['feedback'])} lists with feedback, {_whole(detail['lag'])} waiting",
        ),
    )
    cells = [
        tag("div", tag("dt", what), tag("dd", value), tag("dd", note, class_="note")) for what, value, note in tiles
    ]
    window = f"Figures of the newest {_whole(newest['lists'])} lists with feedback, until {_clock(newest['at'])}."
    return join(
        tag("div", tag("h1", detail["name"]), tag("p", window if newest["lists"] else None), class_="lede"),
        tag("dl", *cells, class_="tiles") if newest["lists"] else steps(to, detail["name"], detail["features"]),
        _card("Over time", _series(detail["series"]), "oldest first, lists in equal groups"),
        _card("Weights", _weights(detail["weights"]), "heaviest first, with one standard deviation"),
        _card("Model versions", _versions(detail["versions"]), "kept, newest first"),
        _card("Last impressions", _impressions(detail["name"], detail["impressions"]), "newest first"),
    )


def _card(title: str, content: Markup, note: str) -> Markup:
    return tag("section", tag("header", tag("h2", title), tag("p", note)), content, class_="card")


def _series(series: Sequence[Row]) -> Markup:
    if not series:
        return tag("p", "No feedback yet.", class_="empty")
    step = max(len(series) // 12, 1)
    rows = [
        (
            [
                _clock(point["at"]),
                _whole(point["lists"]),
                *(_percent(point[k]) if k in _SHARES else _number(point[k], 1) for k, _ in _SERIES),
            ],
            False,
        )
        for point in series[::step]
    ]
    return _table("Over time", ("Until", "Lists", *(name for _, name in _SERIES)), rows, right=range(1, 9))


def _weights(weights: Row | None) -> Markup:
    if weights is None:
        return tag("p", "This model is not linear: it has no weights to show.", class_="empty")
    rows = [
        ([f["name"], _number(f["weight"], 3), "" if f["deviation"] is None else f"± {f['deviation']:.3f}"], False)
        for f in weights["features"][:20]
    ]
    return _table("Weights", ("Feature", "Weight", "Uncertainty"), rows, right=range(1, 3))


def _versions(versions: Sequence[Row]) -> Markup:
    rows = [([v["version"], _whole(v["learned"]), _clock(v["created"])], False) for v in versions]
    return _table("Model versions", ("Version", "Lists learned", "Made"), rows, right=range(3))


def _impressions(name: str, impressions: Sequence[Row]) -> Markup:
    if not impressions:
        return tag("p", "None yet.", class_="empty")
    rows = []
    for item in impressions:
        address = f"/impressions/{quote(name)}/{item['number']}"
        clicked = set(item["clicked"] or ())
        documents = [
            tag("li", text, class_="doc clicked" if place in clicked else "doc", title=text)
            for place, text in enumerate(item["shown"])
        ]
        more = [tag("li", f"+ {item['more']}", class_="muted")] if item["more"] else []
        cells: list[Child] = [
            tag("a", _clock(item["at"]), href=address),
            item["query"] or "–",
            tag("ul", *documents, *more, class_="list"),
            item["version"],
            _state(item),
        ]
        rows.append((cells, False))
    return _table("Last impressions", ("Shown at", "Query", "Documents", "Model", "State"), rows, right=range(3, 4))


def _table(caption: str, heads: Sequence[str], rows: Sequence[tuple[Sequence[Child], bool]], right: range) -> Markup:
    sides = ["right" if column in right else None for column in range(len(heads))]
    head = tag("tr", *(tag("th", h, scope="col", class_=side) for h, side in zip(heads, sides, strict=True)))
    lines = [
        tag(
            "tr",
            *(tag("td", cell, class_=side or "wrap") for cell, side in zip(cells, sides, strict=True)),
            aria_current="true" if current else None,
        )
        for cells, current in rows
    ]
    table = tag("table", tag("caption", caption, class_="away"), tag("thead", head), tag("tbody", *lines))
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def _whole(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def _state(item: Row) -> str:
    """Where an impression stands; one that collects single clicks says until when."""
    closes = item["closes"]
    return f"{item['state']} until {_clock(closes)}" if item["state"] == "collecting" and closes else item["state"]


def _clock(at: float) -> str:
    """Day and time, where the server stands; without JavaScript nobody knows the reader's own clock."""
    return time.strftime("%d %b %H:%M:%S", time.localtime(at))
