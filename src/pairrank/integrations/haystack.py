"""Haystack: a ranker component."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pairrank.errors import MissingExtraError
from pairrank.integrations.text_reranker import Reranker, ServiceReranker, TextReranker

try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ImportError:
    raise MissingExtraError("haystack-ai", "haystack") from None


@component
class PairRankRanker:
    """Re-ranks documents; each carries its way back in its ``meta``.

    A pipeline that is written to YAML holds the path or the address, not the model.

    >>> ranker = PairRankRanker(top_k=1)
    >>> found = [Document(content="a cup of coffee"), Document(content="green tea")]
    >>> answer = ranker.run("tea", found)
    >>> ranker.feedback(answer["documents"])  # the documents that were cited
    1

    Parameters
    ----------
    path : file of a `TextReranker`; read on warm-up if it is there, and written by `save`.
    url, name : address of a service and name of the ranker there, in place of a model of one's own.
    top_k : documents to keep; None keeps all. reranker : a model that is there already.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        url: str | None = None,
        name: str = "rerank",
        top_k: int | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        self.path, self.url, self.name, self.top_k = path, url, name, top_k
        self._given = reranker

    def warm_up(self) -> None:
        """Read the model, reach the service, or begin anew."""
        _ = self.reranker

    @cached_property
    def reranker(self) -> Reranker:
        """The model."""
        made: Reranker
        if self._given is not None:
            made = self._given
        elif self.url is not None:
            made = ServiceReranker(self.name, self.url)
        elif self.path is not None and Path(self.path).exists():
            made = TextReranker.load(self.path)
        else:
            made = TextReranker()
        # From Python 3.12 on several threads may be here at once: one model is for all, or lists are lost.
        kept: Reranker = vars(self).setdefault("reranker", made)
        return kept

    @component.output_types(documents=list[Document], impression_id=str)
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, Any]:
        """The best ``top_k`` of ``documents``, which come as the retriever had them, best first."""
        if not documents:
            return {"documents": [], "impression_id": ""}
        texts = [{"text": document.content or "", "metadata": document.meta} for document in documents]
        scores = [math.nan if document.score is None else document.score for document in documents]
        shown = self.reranker.rerank(query, texts, scores=scores, top_n=self.top_k if top_k is None else top_k)
        best = [
            replace(documents[row], meta=(documents[row].meta or {}) | marks, score=score)
            for row, marks, score in zip(shown.order, shown.marks(), shown.relevance, strict=True)
        ]
        return {"documents": best, "impression_id": shown.impression_id}

    @component.output_types(documents=list[Document], impression_id=str)
    async def run_async(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, Any]:
        """`run` for an event loop."""
        return await asyncio.to_thread(self.run, query, documents, top_k)

    def feedback(self, documents: Iterable[Document]) -> int:
        """Learn from the documents that were of use; how many lists were new."""
        return self.reranker.feedback_on(document.meta for document in documents)

    async def feedback_async(self, documents: Iterable[Document]) -> int:
        """`feedback` for an event loop."""
        return await self.reranker.afeedback_on([document.meta for document in documents])

    def to_dict(self) -> dict[str, Any]:
        """What a pipeline's YAML holds."""
        described: dict[str, Any] = default_to_dict(
            self, path=self.path, url=self.url, name=self.name, top_k=self.top_k
        )
        return described

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PairRankRanker:
        """The component that `to_dict` described."""
        made: PairRankRanker = default_from_dict(cls, data)
        return made
