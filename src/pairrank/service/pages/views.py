"""What the live page shows, as plain values read from the store: the same for the HTML and for the script."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pairrank.drawing import Panel
from pairrank.errors import UnknownNameError
from pairrank.rankers import LinearRanker, Ranker
from pairrank.service.model import Model
from pairrank.service.pages.watch import Watch
from pairrank.service.recent import Recent
from pairrank.service.store.base import Entry, ImpressionRow, RankerRow
from pairrank.service.store.log import SqlStore
from pairrank.types import Impression

MAX_WEIGHTS = 60
MAX_IMPRESSIONS = 200
MAX_SHOWN = 6  # documents of an impression in a table
PAGE = 20
JUDGED = 20  # newest lists whose kept orders are counted


class Scene(NamedTuple):
    """One impression, ready to be drawn: ``panel`` is None where the algorithm knows no blocks."""

    panel: Panel | None
    facts: dict[str, Any]


class Views:
    """Reads for the pages; what is told of the past goes as far as `catch_up` has read."""

    def __init__(self, store: SqlStore, recent: Recent, clock: Callable[[], float] = time.time) -> None:
        self.store = self._store = store
        self._recent = recent
        self._clock = clock
        self._watch = Watch(store)
        self._model = lru_cache(maxsize=16)(self._open)

    def catch_up(self) -> bool:
        """Read some more of the logs, little enough that nobody waits long; whether there may be more."""
        more = [self._watch.catch_up(row) for row in self._store.rankers()]  # all of them, not the first alone
        return any(more)

    def rankers(self) -> list[dict[str, Any]]:
        """All rankers by name, with their newest figures."""
        return [self._row(row) for row in sorted(self._store.rankers(), key=lambda row: row.name)]

    def _row(self, row: RankerRow) -> dict[str, Any]:
        oldest = self._store.oldest_pending(row.id, row.applied)
        return {
            "name": row.name,
            "algorithm": row.config.ranker,
            "features": row.config.n_features,
            "version": row.version if row.pinned is None else row.pinned,
            "pinned": row.pinned is not None,
            "frozen": row.frozen,
            "feedback": row.feedback_count,
            "waiting": row.open_count,
            "lag": row.log_seq - row.applied,
            "lag_seconds": max(self._clock() - oldest, 0.0) if oldest is not None else 0.0,
            "created": row.created,
            "recent": self._watch.history(row).total(),
        }

    def detail(self, name: str) -> dict[str, Any]:
        """Everything about one ranker but its impressions' features."""
        row = self._find(name)
        now = self._clock()
        model = self._model(row.id, row.created, row.version)
        return {
            **self._row(row),
            "series": self._watch.history(row).points(),
            "lags": self._watch.lag(row, now),
            "weights": _weights(model, row.config.feature_names),
            "versions": [_version(s.version, s.learned, s.created) for s in self._store.versions(row.id)[:12]],
            "impressions": self.impressions(name),
            "kept": self._kept(row, model),
            "now": now,
        }

    def impressions(self, name: str, offset: int = 0, limit: int = PAGE) -> list[dict[str, Any]]:
        """A page of the newest impressions; at most `MAX_IMPRESSIONS` can be paged through."""
        row = self._find(name)
        end = min(offset + limit, MAX_IMPRESSIONS)
        return [_impression(found) for found in self._store.impressions(row.id, end)[offset:end]]

    def scene(self, name: str, number: int, *, as_served: bool) -> Scene:
        """One impression under the model that served it (while that is kept), or under today's."""
        row = self._find(name)
        found = self._store.impressions(row.id, 1, number)
        if not found or found[0].body is None:
            raise UnknownNameError(f"impression {number} of ranker {name!r} is not kept; it may have expired")
        shown = found[0]
        wanted = shown.version if as_served else row.version
        model = self._model(row.id, row.created, wanted)
        if model is None:
            wanted, model = row.version, self._model(row.id, row.created, row.version)
        facts = {**_impression(shown), "drawn": wanted, "newest": row.version}
        return Scene(None if model is None else self._panel(name, shown, model, facts), facts)

    def _panel(self, name: str, shown: ImpressionRow, model: Ranker, facts: dict[str, Any]) -> Panel | None:
        candidates = self._recent.find(name, shown.number)
        if candidates is not None and set(shown.ids) <= set(candidates.ids):
            ids, features = list(candidates.ids), candidates.features
        else:
            ids, features = list(shown.ids), Impression.from_bytes(shown.body or b"").features
        inspection = model.inspect(features)
        facts["candidates"], facts["documents"] = len(ids), ids
        if inspection is None:
            return None
        rows = {name: row for row, name in enumerate(ids)}
        clicks = shown.clicks or (False,) * len(shown.ids)
        clicked = {rows[name] for name, click in zip(shown.ids, clicks, strict=True) if click}
        return Panel(inspection, ids, [rows[name] for name in shown.ids], clicked)

    def model(self, name: str) -> bytes:
        """The newest model of a ranker, as `pairrank.load` reads it."""
        row = self._find(name)
        snapshot = self._store.snapshot(row.id, row.version)
        if snapshot is None:
            raise UnknownNameError(f"version {row.version} of ranker {name!r} is gone; ask again")
        return snapshot.body

    def _kept(self, row: RankerRow, model: Ranker | None) -> dict[str, Any] | None:
        """Of the pairs of documents in the newest lists, the share whose order today's model keeps, and how many of
        those it expects to be wrong itself: the mean of 1 − Φ(·). Clicks cannot tell: a kept order is never shown the
        other way round.
        """
        if model is None or row.log_seq == row.base:
            return None
        seen = [model.inspect(Impression.from_bytes(e.body).features) for e in self._newest(row) if e.body is not None]
        views = [view for view in seen if view is not None]
        pairs = sum(math.comb(len(view.order), 2) for view in views)
        if not pairs:
            return None
        kept = sum(int(view.certain.sum()) for view in views)
        doubts = [1.0 - view.chance[view.certain] for view in views if view.chance is not None]
        doubt = np.concatenate(doubts) if doubts else np.empty(0)
        return {"share": kept / pairs, "wrong": float(doubt.mean()) if len(doubt) else None, "lists": len(views)}

    def _newest(self, row: RankerRow) -> list[Entry]:
        return self._store.log(row.id, max(row.base, row.log_seq - JUDGED), JUDGED)

    def _find(self, name: str) -> RankerRow:
        row = self._store.ranker(name)
        if row is None:
            raise UnknownNameError(f"no ranker is called {name!r}")
        return row

    def _open(self, ranker_id: int, _created: float, version: int) -> Ranker | None:
        # A ranker that was deleted and made anew may have its old id, so the time of making is part of the key.
        snapshot = self._store.snapshot(ranker_id, version)
        return None if snapshot is None else Model.restore(snapshot).ranker


def _weights(model: Ranker | None, names: tuple[str, ...] | None) -> dict[str, Any] | None:
    """The heaviest weights with one standard deviation, or None where the model is not linear."""
    if not isinstance(model, LinearRanker):
        return None
    weights = model.weights
    spread = getattr(model, "uncertainty", None)
    deviations = spread() if callable(spread) else np.full(len(weights), np.nan)
    heaviest = np.argsort(-np.abs(weights), kind="stable")[:MAX_WEIGHTS]
    return {
        "total": len(weights),
        "features": [
            {
                "name": names[i] if names else f"feature {i + 1}",
                "weight": float(weights[i]),
                "deviation": float(deviations[i]) if np.isfinite(deviations[i]) else None,
            }
            for i in heaviest
        ],
    }


def _version(version: int, learned: int, created: float) -> dict[str, Any]:
    return {"version": version, "learned": learned, "created": created}


def _impression(row: ImpressionRow) -> dict[str, Any]:
    clicks = row.clicks
    return {
        "number": row.number,
        "state": row.state,
        "at": row.created,
        "closes": row.closes,
        "version": row.version,
        "query": row.query_id,
        "shown": list(row.ids[:MAX_SHOWN]),
        "more": max(len(row.ids) - MAX_SHOWN, 0),
        "clicked": None if clicks is None else [i for i, click in enumerate(clicks[:MAX_SHOWN]) if click],
        "clicks": None if clicks is None else sum(clicks),
    }
