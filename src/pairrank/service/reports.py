"""What is told of a ranker beside its row: statistics of its log, weights, versions, impressions, models."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from pairrank.errors import UnknownNameError
from pairrank.rankers import LinearRanker, Ranker
from pairrank.service.learning.model import Model
from pairrank.service.log_statistics import LogStatistics, kept_orders, point, points
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import RankerRow
from pairrank.service.worker.models import Models
from pairrank.types import Impression

PATIENCE = 0.25  # seconds that an answer may spend on reading a log
JUDGED = 20  # newest lists whose kept orders are counted
MODELS = 16  # opened models that are kept
LOOKED_AT = 30  # newest lists whose documents say where documents are


class Reports:
    """The reports of one worker. Stores are read off the event loop."""

    def __init__(self, store: SqlStore, models: Models, clock: Callable[[], float]) -> None:
        self._store, self._models, self._clock = store, models, clock
        self._statistics = LogStatistics()
        self._model = lru_cache(maxsize=MODELS)(self._open)
        self._kept = lru_cache(maxsize=MODELS)(self._count_kept)

    async def statistics(self, row: RankerRow) -> dict[str, Any]:
        """How the ranker has been doing, by its log; ``behind`` when there is more of it to read: ask again."""
        read = self._models.read
        deadline = time.monotonic() + PATIENCE
        while behind := await read(self._statistics.catch_up, self._store, row):
            if time.monotonic() > deadline:
                break
        lists = self._statistics.lists(row)
        tenth = max(len(lists) // 10, 1)
        return {
            "name": row.name,
            "model_version": row.version,
            "lag": row.lag,
            "lag_seconds": await self.lag_seconds(row),
            "points": points(lists),
            "oldest": point(lists[:tenth]),
            "newest": point(lists[-tenth:]),
            "kept": await read(self._kept, row.id, row.created, row.version, row.base, row.log_seq),
            "behind": behind,
        }

    async def lag_seconds(self, row: RankerRow) -> float:
        """Seconds since the oldest entry that is not applied was logged."""
        since = await self._models.read(self._store.oldest_pending, row.id, row.applied)
        return 0.0 if since is None else max(0.0, self._clock() - since)

    async def weights(self, row: RankerRow, limit: int) -> dict[str, Any]:
        """The heaviest weights of the newest model, or its functions where it is additive."""
        model = await self.model(row, row.version)
        features, functions = weights_of(model, row.config.feature_names), None
        if isinstance(model, LinearRanker) and features is None:
            functions = await self._models.read(self._functions, row, model)
        return {
            "model_version": row.version,
            "total": len(features or functions or ()),
            "features": None if features is None else features[:limit],
            "functions": None if functions is None else functions[:limit],
        }

    async def model(self, row: RankerRow, version: int) -> Ranker | None:
        """A version of the ranker's model, or None when it is not kept."""
        return await self._models.read(self._model, row.id, row.created, version)

    async def model_bytes(self, row: RankerRow, version: int) -> bytes:
        """A version of the ranker's model, as `pairrank.load` reads it."""
        snapshot = await self._models.read(self._store.snapshot, row.id, version)
        if snapshot is None:
            raise UnknownNameError(f"version {version} of ranker {row.name!r} is not kept")
        return snapshot.body

    def _open(self, ranker_id: int, _created: float, version: int) -> Ranker | None:
        # A ranker that was deleted and made anew may have its old id, so the time of making is part of the key.
        snapshot = self._store.snapshot(ranker_id, version)
        return None if snapshot is None else Model.restore(snapshot).ranker

    def _functions(self, row: RankerRow, model: LinearRanker) -> list[dict[str, Any]]:
        entries = self._store.log(row.id, max(row.base, row.log_seq - LOOKED_AT), LOOKED_AT)
        shown = [Impression.from_bytes(entry.body).features for entry in entries if entry.body]
        return model.functions(np.concatenate([np.empty((0, model.n_features)), *shown]))

    def _count_kept(self, ranker_id: int, created: float, version: int, base: int, end: int) -> dict[str, Any] | None:
        model = self._model(ranker_id, created, version)
        start = max(base, end - JUDGED)
        return None if model is None else kept_orders(model, self._store.log(ranker_id, start, JUDGED))


def weights_of(model: Ranker | None, names: tuple[str, ...] | None) -> list[dict[str, Any]] | None:
    """Every weight with one standard deviation, heaviest first; None where the model is not linear."""
    weights = getattr(model, "weights", None)
    if weights is None:
        return None
    spread = getattr(model, "uncertainty", None)
    deviations = spread() if callable(spread) else np.full(len(weights), np.nan)
    return [
        {
            "name": names[i] if names else f"feature {i + 1}",
            "weight": float(weights[i]),
            "deviation": float(deviations[i]) if np.isfinite(deviations[i]) else None,
        }
        for i in np.argsort(-np.abs(weights), kind="stable").tolist()
    ]
