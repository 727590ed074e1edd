"""The live page as HTML: readable tables without a script, which the script turns into charts that move."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from pairrank import drawing
from pairrank.service.pages.layout import Nav, page
from pairrank.service.pages.markup import Child, Markup, join, tag, trusted
from pairrank.service.pages.view_models import Scene

Row = Mapping[str, Any]
PAGE = 20  # impressions
_SHOWN = 6  # documents of an impression in the table
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
_TROUBLE = "This ranker does not learn any further: "


class Detail(NamedTuple):
    """One ranker as ``/v1`` tells of it; ``impressions`` is None for readers who may not see them."""

    row: Row
    statistics: Row
    weights: Row
    versions: Sequence[Row]
    impressions: Sequence[Row] | None


class Address(NamedTuple):
    """Where the reader reached this service, and whether it asks for a key."""

    base: str
    keyed: bool


def live_page(rankers: Sequence[Row], detail: Detail | None, *, to: Address, missing: str | None, nav: Nav) -> Markup:
    """The whole page: all rankers, and one of them in detail; or that there is none of the name ``missing``."""
    name = detail.row["name"] if detail else missing or ""
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
    return page("Live", body, nav=nav, current="/", script="/static/live.js", data_ranker=name)


def closed_page(nav: Nav, address: str = "/", script: str = "/static/live.js") -> Markup:
    """The page of a service that asks for a key: the script asks the reader for it, then starts ``script``."""
    text = "This service asks for a key. The page keeps it only until the tab is closed."
    field = tag("input", type="password", id="key", autocomplete="off", required=True, aria_label="Key")
    form = tag("form", field, tag("button", "Open", class_="main"), class_="search", id="keyform")
    lede = tag("div", tag("h1", "A key is needed"), tag("p", text), class_="lede")
    said = tag("p", class_="notice", id="keysaid", role="alert", hidden=True)
    quiet = tag("noscript", tag("p", "Without JavaScript, read /v1/rankers with an Authorization header instead."))
    body = join(lede, form, said, quiet)
    return page("Key", body, nav=nav, current=address, script="/static/key.js", data_next=script)


def impression_page(name: str, scene: Scene, nav: Nav) -> Markup:
    """One impression by itself, with its drawing."""
    item = scene.impression
    title = f"Impression {item['number']} of {name}"
    about = (
        f"Query: {item['query_id'] or 'none given'}. Served by model {item['model_version']} on {_clock(item['time'])}."
    )
    picture: Child = tag("p", "This ranker has no notion of blocks.", class_="empty")
    if scene.panel is not None:
        picture = tag("div", trusted(drawing.blocks(scene.panel, standalone=False)), class_="drawing")
    back = tag("p", tag("a", "All rankers", href=f"/?ranker={quote(name)}"))
    lede = tag("div", tag("h1", title), tag("p", about), class_="lede")
    return page(title, join(lede, tag("section", picture, class_="card"), back), nav=nav, current="")


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
    heads = ("Name", "Algorithm", "Features", "Feedback", "Model", "Waiting", "Learned last", "State")
    rows = [
        (
            [
                tag("a", row["name"], href=f"/?ranker={quote(row['name'])}", class_="name"),
                row["ranker"],
                row["n_features"],
                _whole(row["feedback_count"]),
                row["served_version"],
                _whole(row["lag"]),
                _clock(row["updated"]) if row["learned_count"] else "–",
                _standing(row),
            ],
            row["name"] == current,
        )
        for row in rankers
    ]
    return _table("All rankers", heads, rows, right=range(2, 7))


def _standing(row: Row) -> str:
    """What is not as usual with a ranker; `live.js` says the same."""
    said = [
        "stopped" if row["stopped"] else None,
        "frozen" if row["frozen"] else None,
        "pinned" if row["pinned"] is not None else None,
        f"{_whole(row['set_aside'])} set aside" if row["set_aside"] else None,
    ]
    return ", ".join(filter(None, said)) or "learns"


def _detail(detail: Detail, to: Address) -> Markup:
    row, newest, kept = detail.row, detail.statistics["newest"], detail.statistics["kept"]
    wrong = "of shown pairs"
    if kept and kept["wrong"] is not None:
        wrong = f"of shown pairs; the model itself expects {_percent(kept['wrong'])} of them wrong"
    learned = f"{_whole(row['feedback_count'])} lists with feedback, {_whole(row['lag'])} waiting"
    first = detail.statistics["oldest"]
    tiles = (
        ("Click-through", _percent(newest["ctr"]), f"of lists with feedback; {_percent(first['ctr'])} at first"),
        ("NDCG of clicks", _percent(newest["ndcg"]), f"100 % with all on top; {_percent(first['ndcg'])} at first"),
        ("Explored", _percent(newest["explored"]), f"of shown positions; {_percent(first['explored'])} at first"),
        ("Blocks", _number(newest["blocks"], 1), f"in a shown list; {_number(first['blocks'], 1)} at first"),
        ("Orders kept", _percent(kept["share"] if kept else None), wrong),
        ("Model", _whole(row["served_version"]), learned),
    )
    cells = [
        tag("div", tag("dt", what), tag("dd", value), tag("dd", note, class_="note")) for what, value, note in tiles
    ]
    window = (
        f"Figures of the newest {_whole(newest['lists'])} lists with feedback, until {_clock(newest['time'])}; "
        f"“at first” is the oldest {_whole(first['lists'])} that were read, until {_clock(first['time'])}."
    )
    trouble = tag("p", _TROUBLE, row["stopped"], class_="notice", role="alert") if row["stopped"] else None
    return join(
        trouble,
        tag("div", tag("h1", row["name"]), tag("p", window if newest["lists"] else None), class_="lede"),
        tag("dl", *cells, class_="tiles") if newest["lists"] else steps(to, row["name"], row["n_features"]),
        _card("Over time", _points(detail.statistics["points"]), "oldest first, lists in equal groups"),
        _card("Weights", _weights(detail.weights["features"]), "heaviest first, with one standard deviation"),
        _card("Model versions", _versions(detail.versions[:12]), "kept, newest first"),
        _card("Last impressions", _impressions(row["name"], detail.impressions), "newest first"),
    )


def _card(title: str, content: Markup, note: str) -> Markup:
    return tag("section", tag("header", tag("h2", title), tag("p", note)), content, class_="card")


def _points(points: Sequence[Row]) -> Markup:
    if not points:
        return tag("p", "No feedback yet.", class_="empty")
    step = max(len(points) // 12, 1)
    rows = [
        (
            [
                _clock(point["time"]),
                _whole(point["lists"]),
                *(_percent(point[k]) if k in _SHARES else _number(point[k], 1) for k, _ in _SERIES),
            ],
            False,
        )
        for point in points[::step]
    ]
    return _table("Over time", ("Until", "Lists", *(name for _, name in _SERIES)), rows, right=range(1, 9))


def _weights(features: Sequence[Row] | None) -> Markup:
    if features is None:
        return tag("p", "This model is not linear: it has no weights to show.", class_="empty")
    rows = [
        ([f["name"], _number(f["weight"], 3), "" if f["deviation"] is None else f"± {f['deviation']:.3f}"], False)
        for f in features
    ]
    return _table("Weights", ("Feature", "Weight", "Uncertainty"), rows, right=range(1, 3))


def _versions(versions: Sequence[Row]) -> Markup:
    rows = [([v["version"], _whole(v["learned_count"]), _clock(v["created"])], False) for v in versions]
    return _table("Model versions", ("Version", "Lists learned", "Made"), rows, right=range(3))


def _impressions(name: str, impressions: Sequence[Row] | None) -> Markup:
    if impressions is None:
        return tag("p", "What was shown and clicked is told with an admin key.", class_="empty")
    if not impressions:
        return tag("p", "None yet.", class_="empty")
    rows = []
    for item in impressions:
        clicks = item["clicks"] or [False] * len(item["ids"])
        documents = [
            tag("li", text, class_="doc clicked" if click else "doc", title=text)
            for text, click in list(zip(item["ids"], clicks, strict=True))[:_SHOWN]
        ]
        rest = len(item["ids"]) - len(documents)
        more = [tag("li", f"+ {rest}", class_="muted")] if rest else []
        cells: list[Child] = [
            tag("a", _clock(item["time"]), href=f"/impressions/{quote(name)}/{item['number']}"),
            item["query_id"] or "–",
            tag("ul", *documents, *more, class_="list"),
            item["model_version"],
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
