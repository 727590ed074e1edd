"""The playground's searches: candidates from the index, lists from the service's own ranker, clicks to its log."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pairrank import click_models, metrics
from pairrank.rankers import Ranker
from pairrank.rng import Purpose, generator
from pairrank.service.http.rank_request import Query
from pairrank.service.http.ranking import show
from pairrank.service.playground.features import FEATURES, NAMES, Features
from pairrank.service.playground.index import Index
from pairrank.service.playground.users import GRADES, Need, need
from pairrank.service.reports import weights_of
from pairrank.service.store.values import Config, Feedback, Limits
from pairrank.service.worker.state import WorkerState
from pairrank.types import FloatArray, IntArray

RANKER = "playground"
CANDIDATES = 60
SHOWN = 10
MOST_SHOWN = 100
# λ and z are small, so that a single person's clicks can be seen to count: a few make the first blocks.
CONFIG = Config(n_features=len(NAMES), options={"lam": 1.0, "z": 0.25}, feature_names=NAMES)
LIMITS = Limits(window_seconds=600.0, retention_seconds=3600.0)
_WINDOW = 50  # searches in the moving figures of a simulation
_TELL_SECONDS = 0.2
_PATIENCE = 2.0


class Asked(NamedTuple):
    """A query with its candidates (numbers of documents) and their features."""

    query: str
    candidates: IntArray
    features: FloatArray


class Playground:
    """The search of one worker over an index."""

    def __init__(self, worker: WorkerState, index: Index) -> None:
        self._worker, self._index = worker, index
        self._features = Features(index)

    async def ensure(self) -> None:
        """Make the ranker if it is not there, and serve from its newest model."""
        if await self._worker.models.read(self._worker.store.find, RANKER) is None:
            await self._create()
        await self._worker.models.refresh()

    async def reset(self) -> None:
        await self._worker.administer(self._worker.store.delete, RANKER, self._worker.clock(), "playground")
        await self._create()

    async def _create(self) -> None:
        store, now = self._worker.store, self._worker.clock()
        await self._worker.administer(store.create, RANKER, CONFIG, LIMITS, now, "playground")

    async def state(self) -> dict[str, Any]:
        await self.ensure()
        row = await self._worker.ranker(RANKER)
        item = await self._worker.models.get(RANKER)
        return {"feedback": row.feedback_count, "version": item.version, "weights": weights(item.ranker)}

    def ask(self, query: str, candidates: IntArray | None = None) -> Asked:
        """The candidates of a query and their features; slow enough to be kept off the event loop."""
        found = self._index.gather(query, CANDIDATES) if candidates is None else candidates
        return Asked(query, found, self._features(query, found))

    async def search(self, query: str, k: int = SHOWN) -> dict[str, Any]:
        """One search of a person: a real impression of the real ranker."""
        await self.ensure()
        asked = await asyncio.to_thread(self.ask, query)
        empty: dict[str, Any] = {"query": query, "candidates": len(asked.candidates), "results": []}
        if not len(asked.candidates):
            return empty
        item = await self._worker.models.get(RANKER)
        ranker, version = item.ranker, item.version
        answered = await self._show(asked, k)
        view = ranker.inspect(asked.features)
        sizes = view.block_sizes.tolist() if view is not None else []
        number = {self._id(doc): int(doc) for doc in asked.candidates}
        results = [
            {**self._card(number[hit["id"]]), "score": hit["score"], "block": hit["block"], "size": _at(sizes, hit)}
            for hit in answered["ranking"]
        ]
        shown = answered["impression_id"]
        told = {"impression_id": shown, "number": int(shown.partition("-")[0])}
        return {**empty, **told, "version": version, "blocks": sizes, "results": results}

    async def _show(self, asked: Asked, k: int) -> dict[str, Any]:
        item = await self._worker.models.get(RANKER)
        ids = [self._id(doc) for doc in asked.candidates]
        return await show(self._worker, item, Query(asked.query[:256], ids, asked.features, k))

    async def compare(self, query: str, k: int = SHOWN) -> dict[str, Any]:
        """The same query under four policies; nothing is stored and nothing is learned."""
        await self.ensure()
        asked = await asyncio.to_thread(self.ask, query)
        if not len(asked.candidates):
            return {"query": query, "lists": []}
        item = await self._worker.models.get(RANKER)
        view = item.ranker.inspect(asked.features)
        sizes = [1] * len(asked.candidates) if view is None else view.block_sizes[view.blocks].tolist()
        number = item.next_number
        shown = {
            "PairRank": item.ranker.rank(asked.features, k, number=number).ranking,
            "Greedy": item.ranker.rank(asked.features, k, number=number, explore=False).ranking,
            "BM25": np.arange(len(sizes))[:k],  # the candidates come in its order
            "Random": generator(CONFIG.seed, number, Purpose.TIES).permutation(len(sizes))[:k],
        }
        lists = [
            {
                "name": name,
                "results": [{**self._card(int(asked.candidates[r])), "size": sizes[r]} for r in rows.tolist()],
            }
            for name, rows in shown.items()
        ]
        return {"query": query, "lists": lists}

    async def simulate(self, users: str, searches: int) -> AsyncIterator[dict[str, Any]]:
        """Let simulated users search; tells how it goes a few times a second, and stops when nobody listens."""
        model = click_models.make(users, n_grades=GRADES)
        await self.ensure()
        row = await self._worker.ranker(RANKER)
        window: deque[tuple[float, bool, float]] = deque(maxlen=_WINDOW)
        told = 0.0
        for done in range(1, searches + 1):
            # Counted on from what was learned before, so that a second run brings new needs.
            wish, quality, first = await self._one(model, row.feedback_count + done)
            by_words = metrics.ndcg(np.arange(len(wish.candidates))[:SHOWN], wish.grades, SHOWN)
            window.append((quality, first, by_words))
            if done == searches or time.monotonic() - told >= _TELL_SECONDS:
                await self._worker.models.caught_up(RANKER, _PATIENCE)  # users wait for the learner, within reason
                told = time.monotonic()
                item = await self._worker.models.get(RANKER)
                ndcg, top, bm25 = np.mean(np.array(window, dtype=np.float64), axis=0).tolist()
                yield {
                    "done": done,
                    "total": searches,
                    "feedback": row.feedback_count + done,
                    "ndcg": ndcg,
                    "first": top,
                    "bm25": bm25,
                    "query": wish.query,
                    "wanted": self._id(wish.document),
                    "version": item.version,
                    "weights": weights(item.ranker),
                }

    async def _one(self, model: click_models.Users, number: int) -> tuple[Need, float, bool]:
        """One simulated search: rank, click, feed back; its NDCG and whether the wanted document stood first."""
        wish = await asyncio.to_thread(need, self._index, CONFIG.seed, number, CANDIDATES)
        asked = await asyncio.to_thread(self.ask, wish.query, wish.candidates)
        answered = await self._show(asked, SHOWN)
        row_of = {self._id(doc): row for row, doc in enumerate(wish.candidates)}
        shown = np.array([row_of[hit["id"]] for hit in answered["ranking"]])
        coins = generator(CONFIG.seed, number, Purpose.CLICKS).random((len(wish.candidates), 2))
        clicked = model.clicks(wish.grades[shown], coins[shown])
        names = frozenset(hit["id"] for hit, click in zip(answered["ranking"], clicked, strict=True) if click)
        shown_as, token = answered["impression_id"].split("-")
        item = await self._worker.models.get(RANKER)
        await self._worker.writer.feedback(Feedback(item.row.id, int(shown_as), token, names))
        first = bool(wish.candidates[shown[0]] == wish.document)
        return wish, metrics.ndcg(shown, wish.grades, SHOWN), first

    def _id(self, document: int) -> str:
        return self._index.documents[int(document)].qualified[:256]

    def _card(self, document: int) -> dict[str, Any]:
        found = self._index.documents[document]
        return {
            "id": self._id(document),
            "name": found.name,
            "kind": found.kind,
            "signature": found.signature[:300],
            "summary": found.summary,
        }


def weights(ranker: Ranker) -> list[dict[str, Any]]:
    """Every weight with one standard deviation and what the feature means, heaviest first."""
    return [{**row, "explanation": FEATURES[row["name"]]} for row in weights_of(ranker, NAMES) or ()]


def _at(sizes: Sequence[int], hit: dict[str, Any]) -> int:
    return sizes[hit["block"]] if hit["block"] < len(sizes) else 1
