"""The ``rerankers`` package: one more of its models."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

from pairrank.errors import MissingExtraError
from pairrank.integrations.text_reranker import Reranker, TextReranker

try:
    from rerankers.documents import Document
    from rerankers.models.ranker import BaseRanker
    from rerankers.results import RankedResults, Result
    from rerankers.utils import prep_docs
except ImportError:
    raise MissingExtraError("rerankers", "rerankers") from None


class PairRankRanker(BaseRanker):
    """Ranks documents; each carries its way back in its metadata.

    >>> ranker = PairRankRanker()
    >>> results = ranker.rank("tea", ["a cup of coffee", "green tea"])
    >>> ranker.feedback(results.top_k(1))  # the results that were cited
    1

    Parameters
    ----------
    reranker : the model; a new `TextReranker` by default.
    """

    def __init__(self, reranker: Reranker | None = None, verbose: int = 1) -> None:
        self.reranker, self.verbose = reranker or TextReranker(), verbose

    def score(self, query: str, doc: str) -> float:
        """There is no score of one document: every feature is relative to the list."""
        raise NotImplementedError("PairRank ranks lists; call rank with all documents")

    def rank(
        self,
        query: str,
        docs: str | list[str] | Document | list[Document],
        doc_ids: list[str] | list[int] | None = None,
        metadata: list[dict[str, Any]] | None = None,
    ) -> RankedResults:
        """All documents, best first; they come as the first stage had them."""
        results: list[Result] = []
        if docs:  # prep_docs takes no empty list
            documents = prep_docs(docs, doc_ids, metadata)
            texts = [{"text": document.text or "", "metadata": document.metadata} for document in documents]
            shown = self.reranker.rerank(query, texts)
            for row, marks, score in zip(shown.order, shown.marks(), shown.relevance, strict=True):
                document = copy(documents[row])
                document.metadata = document.metadata | marks
                results.append(Result(document, score, len(results) + 1))
        return RankedResults(results, query, has_scores=True)

    def feedback(self, results: Iterable[Result]) -> int:
        """Learn from the results that were of use; how many lists were new."""
        return self.reranker.feedback_on(result.document.metadata for result in results)
