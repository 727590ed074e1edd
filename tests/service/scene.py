"""A ranker in a store, served and clicked without HTTP: what many tests start from."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from pairrank.service.learning.learner import Learner
from pairrank.service.store import SqlStore
from pairrank.service.store.values import (
    Config,
    Event,
    Feedback,
    Limits,
    RankerRow,
    Served,
    Verdict,
    new_batch,
    token_of,
)
from pairrank.types import FloatArray, Impression

WINDOW, RETENTION = 10.0, 100.0
SHOWN = 3
FEATURES = np.array([[0.0, 1.0], [0.2, 0.7], [0.5, 0.5], [0.8, 0.1], [1.0, 0.3]])


class Scene:
    """One ranker of a store, with a clock that moves only when told."""

    def __init__(self, store: SqlStore, name: str = "a", ranker: str = "pairrank", **limits: float) -> None:
        self.store, self.name, self.now = store, name, 1000.0
        config = Config(n_features=2, ranker=ranker, options={})
        chosen = Limits(window_seconds=WINDOW, retention_seconds=RETENTION).changed(limits)
        store.create(name, config, chosen, self.now, "test")
        self.ranker = config.make()
        self.batch = new_batch()

    @property
    def row(self) -> RankerRow:
        return self.store.ranker(self.name)

    def serve(self, count: int = 1, features: FloatArray = FEATURES) -> list[Served]:
        """Show lists, of the documents d0 to d4, and keep them."""
        row = self.row
        first = self.store.allocate(row.id, count)
        items = [self._served(row, self.ranker.rank(features, SHOWN, number=first + i)) for i in range(count)]
        self.store.serve(items)
        return items

    def _served(self, row: RankerRow, shown: Impression) -> Served:
        return Served(
            row.id,
            shown.number,
            token_of(row.secret, shown.number, self.batch),
            self.now,
            self.now + row.limits.window_seconds,
            self.now + row.limits.retention_seconds,
            row.version,
            f"q{shown.number}",
            json.dumps([f"d{place}" for place in shown.ranking.tolist()]),
            shown.to_bytes(),
        )

    def feedback(self, items: Iterable[Served], position: int | None = 0) -> list[Verdict]:
        """Whole feedback with a click on one position, or on none."""
        sent = []
        for item in items:
            clicks = frozenset() if position is None else frozenset([json.loads(item.ids)[position]])
            sent.append(Feedback(item.ranker_id, item.number, item.token, clicks))
        return self.store.feedback(sent, self.now)

    def event(self, item: Served, event_id: str, position: int = 0) -> Verdict:
        document = json.loads(item.ids)[position]
        return self.store.events([Event(item.ranker_id, item.number, item.token, event_id, document)], self.now)[0]

    def learn(self) -> None:
        """Let a new learner apply and publish everything."""
        learner = Learner(self.store, clock=lambda: self.now)
        while learner.step(publish=True):
            pass
