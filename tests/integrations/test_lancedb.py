"""LanceDB: full-text, vector and hybrid search in a real embedded database."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lancedb", reason="pip install 'pairrank[lancedb]'")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lancedb
    from lancedb.index import FTS

from integrations.texts import QUESTION, TEXTS
from pairrank.errors import InputError
from pairrank.integrations.lancedb import PairRankReranker

WANTED = TEXTS[4]
VECTORS = np.eye(len(TEXTS), 8, dtype=np.float32) + 0.01


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lance")
    rows = [{"text": text, "vector": vector} for text, vector in zip(TEXTS, VECTORS, strict=True)]
    table = lancedb.connect(folder).create_table("texts", rows)
    table.create_index("text", config=FTS())
    return folder


@pytest.fixture
def table(folder: Path) -> Any:
    return lancedb.connect(folder).open_table("texts")


def searches(table: Any, reranker: PairRankReranker) -> dict[str, Any]:
    return {
        "fts": table.search(QUESTION, query_type="fts").limit(6).rerank(reranker),
        "vector": table.search(VECTORS[0]).limit(6).rerank(reranker, QUESTION),
        "hybrid": table.search(query_type="hybrid").vector(VECTORS[0]).text(QUESTION).limit(6).rerank(reranker),
    }


@pytest.mark.parametrize("kind", ["fts", "vector", "hybrid"])
def test_a_search_learns_what_is_cited(table: Any, kind: str) -> None:
    reranker = PairRankReranker()
    for _ in range(60):
        rows = searches(table, reranker)[kind].to_list()
        reranker.feedback([row for row in rows if row["text"] == WANTED])
    rows = searches(table, reranker)[kind].to_list()
    assert rows[0]["text"] == WANTED
    scores = [row["_relevance_score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert "_score" not in rows[0]
    assert "_distance" not in rows[0]


def test_an_async_search(folder: Path) -> None:
    reranker = PairRankReranker(top_n=3)

    async def main() -> list[dict[str, Any]]:
        table = await (await lancedb.connect_async(folder)).open_table("texts")
        query = table.query().nearest_to_text(QUESTION).nearest_to(VECTORS[0]).limit(6).rerank(reranker)
        return await query.to_list()

    rows = asyncio.run(main())
    assert len(rows) == 3
    assert reranker.feedback(rows[:1]) == 1
    assert reranker.feedback(rows[:1]) == 0


def test_edges(table: Any) -> None:
    reranker = PairRankReranker(return_score="all")
    rows = table.search(QUESTION, query_type="fts").limit(6).rerank(reranker).to_list()
    assert "_score" in rows[0]
    assert table.search("zebra", query_type="fts").rerank(reranker).to_list() == []
    with pytest.raises(InputError, match="no column 'body'"):
        table.search(QUESTION, query_type="fts").rerank(PairRankReranker(column="body")).to_list()
    with pytest.raises(InputError, match="carries no impression_id"):
        reranker.feedback([{"text": "x"}])
