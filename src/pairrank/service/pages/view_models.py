"""One impression, ready to be drawn, under the model that served it or under today's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pairrank.drawing import Panel
from pairrank.errors import UnknownNameError
from pairrank.rankers import Ranker
from pairrank.service.reports import brief
from pairrank.service.store.values import ImpressionRow
from pairrank.service.worker.state import WorkerState
from pairrank.types import Impression


class Scene(NamedTuple):
    """An impression as `reports.brief` tells it, the version that it is drawn by, and the drawing before it is text.

    ``panel`` is None where the algorithm knows no blocks.
    """

    impression: Mapping[str, Any]
    version: int
    panel: Panel | None


async def scene(worker: WorkerState, name: str, number: int, *, as_served: bool) -> Scene:
    """One impression under the model that served it (while that is kept), or under the newest."""
    row = await worker.ranker(name)
    found = await worker.models.read(worker.store.impressions, row.id, 1, number)
    if not found or found[0].body is None:
        raise UnknownNameError(f"impression {number} of ranker {name!r} is not kept; it may have expired")
    version = found[0].version if as_served else row.version
    model = await worker.reports.model(row, version)
    if model is None:
        version, model = row.version, await worker.reports.model(row, row.version)
    panel = None if model is None else _panel(worker, name, found[0], model, f"By model {version}")
    return Scene(brief(found[0]), version, panel)


def _panel(worker: WorkerState, name: str, shown: ImpressionRow, model: Ranker, heading: str) -> Panel | None:
    candidates = worker.recent.find(name, shown.number)
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
