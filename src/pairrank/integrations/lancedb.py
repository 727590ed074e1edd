"""LanceDB: a re-ranker for full-text, vector and hybrid search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pairrank.errors import InputError, MissingExtraError
from pairrank.integrations.text_reranker import IMPRESSION, ROW, Reranker, TextReranker

try:
    import pyarrow as pa
    from lancedb.rerankers import Reranker as LanceReranker
except ImportError:
    raise MissingExtraError("lancedb", "lancedb") from None

RELEVANCE = "_relevance_score"


class PairRankReranker(LanceReranker):
    """Re-ranks what LanceDB has found; every row carries its way back in ``_impression_id`` and ``_impression_row``.

    >>> import lancedb
    >>> from lancedb.index import FTS
    >>> table = lancedb.connect("memory://").create_table("notes", [{"text": "a cup of coffee"}, {"text": "green tea"}])
    >>> table.create_index("text", config=FTS())
    >>> reranker = PairRankReranker()
    >>> rows = table.search("tea", query_type="fts").rerank(reranker).to_list()
    >>> reranker.feedback(rows[:1])  # the rows that were cited
    1

    Parameters
    ----------
    reranker : the model; a new `TextReranker` by default. column : where a row's text stands.
    top_n : rows to keep; None keeps all. A hybrid search finds up to twice its limit, and LanceDB cuts what comes back:
        give it that limit, or rows that nobody saw count as seen and not used.
    return_score : "relevance", or "all" to keep LanceDB's own scores.
    """

    def __init__(
        self,
        reranker: Reranker | None = None,
        *,
        column: str = "text",
        top_n: int | None = None,
        return_score: str = "relevance",
    ) -> None:
        super().__init__(return_score)
        self.reranker, self.column, self.top_n = reranker or TextReranker(), column, top_n

    def rerank_fts(self, query: str, fts_results: pa.Table) -> pa.Table:
        """Re-rank what full-text search has found."""
        return self._reranked(query, fts_results, _scores(fts_results, "_score", 1.0))

    def rerank_vector(self, query: str, vector_results: pa.Table) -> pa.Table:
        """Re-rank what vector search has found."""
        return self._reranked(query, vector_results, _scores(vector_results, "_distance", -1.0))

    def rerank_hybrid(self, query: str, vector_results: pa.Table, fts_results: pa.Table) -> pa.Table:
        """Merge both lists, by reciprocal ranks as LanceDB does by default, and re-rank what comes of it."""
        fused: dict[int, float] = {}
        for table in (vector_results, fts_results):
            for rank, row in enumerate(table.column("_rowid").to_pylist(), start=1):
                fused[row] = fused.get(row, 0.0) + 1.0 / (60 + rank)
        merged = self.merge_results(vector_results, fts_results)
        score = np.array([fused[row] for row in merged.column("_rowid").to_pylist()])
        best_first = np.argsort(-score, kind="stable")
        return self._reranked(query, merged.take(best_first), score[best_first])

    def _reranked(self, query: str, table: pa.Table, scores: np.ndarray[Any, Any] | None) -> pa.Table:
        if len(table) == 0:
            return self._handle_empty_results(table)
        if self.column not in table.column_names:
            raise InputError(f"the rows have no column {self.column!r}; name the one with the text, and select it")
        rows = [{"text": row[self.column] or "", "metadata": row} for row in table.to_pylist()]
        shown = self.reranker.rerank(query, rows, scores=scores, top_n=self.top_n)
        result = self._keep_relevance_score(table.take(list(shown.order)))
        for name, values in (
            (RELEVANCE, pa.array(shown.relevance, pa.float32())),
            (f"_{IMPRESSION}", pa.array([shown.impression_id] * len(shown.order))),
            (f"_{ROW}", pa.array(shown.order, pa.int64())),
        ):
            result = result.append_column(name, values)
        return result

    def feedback(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Learn from the rows that were of use, as ``to_list()`` has them; how many lists were new."""
        return self.reranker.feedback_on(
            {key: row[f"_{key}"] for key in (IMPRESSION, ROW) if f"_{key}" in row} for row in rows
        )


def _scores(table: pa.Table, name: str, sign: float) -> np.ndarray[Any, Any] | None:
    return sign * table.column(name).to_numpy() if name in table.column_names else None
