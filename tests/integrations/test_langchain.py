"""LangChain: the compressor behind a real retriever and in a real chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

pytest.importorskip("langchain_core", reason="pip install 'pairrank[langchain]'")

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableParallel, RunnablePassthrough

from integrations.texts import ANSWER, QUESTION, TEXTS
from pairrank.errors import InputError
from pairrank.integrations.langchain import PairRankCompressor


class Found(BaseRetriever):
    """Always the same documents: they share most with the question from the middle on."""

    def _get_relevant_documents(self, query: str, **_: object) -> list[Document]:
        return [
            Document(page_content=text, metadata={"score": 1 / (1 + place), "source": f"page {place}"})
            for place, text in enumerate(TEXTS)
        ]


def learned(compressor: PairRankCompressor, ask: Callable[[], list[Document]], rounds: int = 40) -> list[Document]:
    for _ in range(rounds):
        documents = ask()
        compressor.feedback([document for document in documents if document.page_content == ANSWER])
    return ask()


def test_a_retriever_learns_what_is_cited() -> None:
    classic = pytest.importorskip("langchain_classic.retrievers", reason="pip install langchain-classic")
    compressor = PairRankCompressor(top_n=4, score_key="score")
    retriever = classic.ContextualCompressionRetriever(base_retriever=Found(), base_compressor=compressor)
    documents = learned(compressor, lambda: retriever.invoke(QUESTION))
    assert documents[0].page_content == ANSWER
    assert documents[0].metadata["source"] == "page 3"
    assert len(documents) == 4
    scores = [document.metadata["relevance_score"] for document in documents]
    assert scores == sorted(scores, reverse=True)

    async def later() -> int:
        again = await retriever.ainvoke(QUESTION)
        assert again[0].page_content == ANSWER
        return await compressor.afeedback(again[:1])

    assert asyncio.run(later()) == 1


def test_a_step_of_a_chain() -> None:
    compressor = PairRankCompressor(top_n=3)
    chain = RunnableParallel(query=RunnablePassthrough(), documents=Found()) | compressor.as_runnable()
    shown = chain.invoke(QUESTION)
    assert len(shown) == 3
    assert compressor.feedback(shown[:1]) == 1
    assert compressor.feedback(shown[:1]) == 0
    again = asyncio.run(chain.ainvoke(QUESTION))
    assert compressor.feedback(again[1:2]) == 1


def test_documents_that_came_in_stay_as_they_were_and_strange_ones_are_refused() -> None:
    compressor = PairRankCompressor()
    document = Document(page_content="tea", metadata={"a": 1})
    shown = compressor.compress_documents([document], "tea")
    assert document.metadata == {"a": 1}
    assert shown[0].metadata.keys() == {"a", "impression_id", "impression_row", "relevance_score"}
    assert compressor.compress_documents([], "tea") == []
    assert asyncio.run(compressor.acompress_documents([], "tea")) == []
    with pytest.raises(InputError, match="carries no impression_id"):
        compressor.feedback([document])
