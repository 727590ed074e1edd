"""Pages that are made for who asks: for a key, of one impression, and with commands that can be copied."""

from __future__ import annotations

import json
import time
from typing import NamedTuple
from urllib.parse import quote

from pairrank import drawing
from pairrank.drawing import Panel
from pairrank.errors import UnknownNameError
from pairrank.rankers import Ranker
from pairrank.service.pages.layout import HTML, Child, Markup, Nav, filled, join, page, tag
from pairrank.service.store.values import ImpressionRow
from pairrank.service.worker.state import WorkerState
from pairrank.types import Impression


class Address(NamedTuple):
    """Where the reader reached this service, and whether it asks for a key."""

    base: str
    keyed: bool


def closed_page(nav: Nav, address: str = "./", script: str = "static/live.js") -> Markup:
    """The page of a service that asks for a key: the script asks the reader for it, then starts ``script``."""
    body = filled(HTML / "closed.html")
    return page("Key", body, nav=nav, current=address, script="static/key.js", data_next=script)


async def drawn(worker: WorkerState, name: str, number: int, *, as_served: bool) -> tuple[ImpressionRow, Panel | None]:
    """One impression, and what to draw of it under the model that served it (while that is kept), or under the newest;
    None where the algorithm knows no blocks."""
    row = await worker.ranker(name)
    found = await worker.models.read(worker.store.impressions, row.id, 1, number)
    if not found or found[0].body is None:
        raise UnknownNameError(f"impression {number} of ranker {name!r} is not kept; it may have expired")
    version = found[0].model_version if as_served else row.version
    model = await worker.reports.model(row, version)
    if model is None:
        version, model = row.version, await worker.reports.model(row, row.version)
    return found[0], None if model is None else _panel(worker, found[0], model, f"By model {version}")


def _panel(worker: WorkerState, shown: ImpressionRow, model: Ranker, heading: str) -> Panel | None:
    candidates = worker.recent.find(shown.token)
    if candidates is not None and set(shown.ids) <= set(candidates.ids):
        ids, features = list(candidates.ids), candidates.features
    else:
        ids, features = list(shown.ids), Impression.from_bytes(shown.body or b"").features
    inspection = model.inspect(features)
    if inspection is None:
        return None
    rows = {name: row for row, name in enumerate(ids)}
    clicks = shown.clicks or (False,) * len(shown.ids)
    clicked = {rows[name] for name, click in zip(shown.ids, clicks, strict=True) if click}
    return Panel(inspection, ids, [rows[name] for name in shown.ids], clicked, heading)


def impression_page(name: str, item: ImpressionRow, panel: Panel | None, nav: Nav) -> Markup:
    title = f"Impression {item.number} of {name}"
    at = time.strftime("%d %b %H:%M:%S", time.localtime(item.time))  # where the server stands
    about = f"Query: {item.query_id or 'none given'}. Served by model {item.model_version} on {at}."
    picture: Child = tag("p", "This ranker has no notion of blocks.", class_="empty")
    if panel is not None:
        picture = tag("div", Markup(drawing.blocks(panel, standalone=False)), class_="drawing")
    back = tag("p", tag("a", "All rankers", href=f"../../?ranker={quote(name)}"))
    lede = tag("div", tag("h1", title), tag("p", about), class_="lede")
    return page(title, join(lede, tag("section", picture, class_="card"), back), nav=nav, current="", root="../../")


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
    parts = [
        (f"Ask for a list.{more} The answer has an impression_id.", f"{curl} {base}/rank -d '{listed}'"),
        ("Send what was clicked, with that id.", f"{curl} {base}/feedback -d '{feedback}'"),
    ]
    if name is None:
        told = "Create a ranker: all that it must know is how many features a document has."
        parts.insert(0, (told, f"{curl} -X PUT {base} -d '{json.dumps({'n_features': n_features})}'"))
    items = [
        tag("li", tag("p", text), tag("pre", command), tag("button", "Copy", type="button", class_="copy", hidden=True))
        for text, command in parts
    ]
    return tag("section", tag("h2", title), tag("ol", *items, class_="steps"), class_="card", id="steps")
