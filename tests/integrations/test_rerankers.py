"""The ``rerankers`` package: our ranker by its own interface."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("rerankers", reason="pip install 'pairrank[rerankers]'")

from rerankers import Document

from integrations.texts import ANSWER, QUESTION, TEXTS
from pairrank.integrations.rerankers import PairRankRanker


def test_it_learns_what_is_cited() -> None:
    ranker = PairRankRanker()
    for _ in range(40):
        results = ranker.rank(QUESTION, TEXTS, doc_ids=list("abcdef"))
        ranker.feedback([results.get_result_by_docid("d")])
    results = ranker.rank(QUESTION, [Document(text, doc_id=n) for n, text in enumerate(TEXTS)])
    assert results.top_k(1)[0].text == ANSWER
    assert results[0].document.doc_id == 3
    # The package sorts by score: the order of the list must survive that.
    assert [result.rank for result in results.top_k(6)] == [1, 2, 3, 4, 5, 6]


def test_images_stay_images_and_nothing_is_nothing() -> None:
    ranker = PairRankRanker()
    found = [Document(doc_id="a", document_type="image", base64="aa=="), Document("tea", doc_id="b")]
    results = ranker.rank(QUESTION, found)
    assert results.get_result_by_docid("a").document.base64 == "aa=="
    assert ranker.feedback(results.top_k(1)) == 1
    assert [document.metadata for document in found] == [{}, {}]
    assert ranker.rank(QUESTION, []).results_count() == 0


def test_async_and_texts_of_one() -> None:
    ranker = PairRankRanker()
    results = asyncio.run(ranker.rank_async(QUESTION, TEXTS, None))
    assert results.results_count() == len(TEXTS)
    assert ranker.feedback(results[:2]) == 1
    assert ranker.rank(QUESTION, "one text").results_count() == 1
    with pytest.raises(NotImplementedError, match="PairRank ranks lists"):
        ranker.score(QUESTION, "one text")
