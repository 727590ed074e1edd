"""Pages that are made for who asks: for a key, of one impression, and with commands that can be copied."""

from __future__ import annotations

import json
import time
from typing import NamedTuple
from urllib.parse import quote

from pairrank import drawing
from pairrank.service.pages.layout import HTML, Nav, filled, page
from pairrank.service.pages.markup import Child, Markup, join, tag, trusted
from pairrank.service.pages.view_models import Scene


class Address(NamedTuple):
    """Where the reader reached this service, and whether it asks for a key."""

    base: str
    keyed: bool


def closed_page(nav: Nav, address: str = "/", script: str = "/static/live.js") -> Markup:
    """The page of a service that asks for a key: the script asks the reader for it, then starts ``script``."""
    body = filled(HTML / "closed.html")
    return page("Key", body, nav=nav, current=address, script="/static/key.js", data_next=script)


def impression_page(name: str, scene: Scene, nav: Nav) -> Markup:
    """One impression by itself, with its drawing."""
    item = scene.impression
    title = f"Impression {item['number']} of {name}"
    at = time.strftime("%d %b %H:%M:%S", time.localtime(item["time"]))  # where the server stands
    about = f"Query: {item['query_id'] or 'none given'}. Served by model {item['model_version']} on {at}."
    picture: Child = tag("p", "This ranker has no notion of blocks.", class_="empty")
    if scene.panel is not None:
        picture = tag("div", trusted(drawing.blocks(scene.panel, standalone=False)), class_="drawing")
    back = tag("p", tag("a", "All rankers", href=f"/?ranker={quote(name)}"))
    lede = tag("div", tag("h1", title), tag("p", about), class_="lede")
    return page(title, join(lede, tag("section", picture, class_="card"), back), nav=nav, current="")


def steps(title: str, to: Address, name: str | None = None, n_features: int = 3) -> Markup:
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
    return tag("section", tag("h2", title), tag("ol", *items, class_="steps"), class_="card", id="steps")
