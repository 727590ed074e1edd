"""LangChain: a document compressor for retrievers, and a function for chains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pairrank.errors import MissingExtraError
from pairrank.integrations.text_reranker import Reranker, TextReranker

try:
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.runnables import RunnableLambda
    from pydantic import ConfigDict, Field
except ImportError:
    raise MissingExtraError("langchain-core", "langchain") from None


class PairRankCompressor(BaseDocumentCompressor):
    """Re-ranks documents; each carries ``relevance_score`` and its way back in its metadata.

    >>> compressor = PairRankCompressor(top_n=1)
    >>> found = [Document(page_content="a cup of coffee"), Document(page_content="green tea")]
    >>> documents = compressor.compress_documents(found, "tea")
    >>> compressor.feedback(documents)  # the documents that were cited
    1

    Parameters
    ----------
    reranker : the model; a new `TextReranker` by default. top_n : documents to keep; None keeps all.
    score_key : where in the metadata the first stage's score stands, if it does.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    reranker: Reranker = Field(default_factory=TextReranker)
    top_n: int | None = None
    score_key: str | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The best ``top_n`` of ``documents``, which come as the retriever had them, best first."""
        if not documents:
            return []
        key = self.score_key
        scores = None if key is None else [document.metadata.get(key, math.nan) for document in documents]
        texts = [{"text": document.page_content, "metadata": document.metadata} for document in documents]
        shown = self.reranker.rerank(query, texts, scores=scores, top_n=self.top_n)
        return [
            documents[row].model_copy(update={"metadata": documents[row].metadata | marks | {"relevance_score": score}})
            for row, marks, score in zip(shown.order, shown.marks(), shown.relevance, strict=True)
        ]

    def feedback(self, documents: Iterable[Document]) -> int:
        """Learn from the documents that were of use; how many lists were new."""
        return self.reranker.feedback_on(document.metadata for document in documents)

    async def afeedback(self, documents: Iterable[Document]) -> int:
        """`feedback` for an event loop."""
        return await self.reranker.afeedback_on([document.metadata for document in documents])

    def as_runnable(self) -> RunnableLambda[Any, Any]:
        """A step for chains: {"query": text, "documents": list} in, the best documents out."""
        return RunnableLambda(
            lambda given: self.compress_documents(given["documents"], given["query"]), name="PairRank"
        )
