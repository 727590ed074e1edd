"""Haystack: the component in real pipelines, sync and async, through YAML and back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("haystack", reason="pip install 'pairrank[haystack]'")

import haystack
from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from integrations.texts import ANSWER, QUESTION, TEXTS
from pairrank.integrations import TextReranker
from pairrank.integrations.haystack import PairRankRanker

AsyncPipeline = getattr(haystack, "AsyncPipeline", Pipeline)


# Haystack reads components of others only where it is told to trust them.
OURS = ["pairrank.integrations.haystack"]


def pipeline(ranker: PairRankRanker, kind: type = Pipeline) -> Pipeline:
    store = InMemoryDocumentStore()
    store.write_documents([Document(content=text, meta={"source": str(place)}) for place, text in enumerate(TEXTS)])
    made = kind()
    made.add_component("retriever", InMemoryBM25Retriever(store))
    made.add_component("ranker", ranker)
    made.connect("retriever.documents", "ranker.documents")
    return made


ASKED = {"retriever": {"query": QUESTION}, "ranker": {"query": QUESTION}}
WANTED = TEXTS[4]  # what search has last of all that mention tea


def test_a_pipeline_learns_what_is_cited() -> None:
    ranker = PairRankRanker(top_k=6)
    made = pipeline(ranker)
    found = made.run({**ASKED}, include_outputs_from={"retriever"})["retriever"]["documents"]
    assert found[0].content == ANSWER
    for _ in range(60):
        documents = made.run(ASKED)["ranker"]["documents"]
        ranker.feedback([document for document in documents if document.content == WANTED])
    answer = made.run(ASKED)["ranker"]
    assert answer["documents"][0].content == WANTED
    assert answer["documents"][0].meta["impression_id"] == answer["impression_id"]
    assert len(made.run({**ASKED, "ranker": {"query": QUESTION, "top_k": 2}})["ranker"]["documents"]) == 2


def test_an_async_pipeline() -> None:
    ranker = PairRankRanker(top_k=3)
    made = pipeline(ranker, AsyncPipeline)

    async def main() -> tuple[int, int]:
        documents = (await made.run_async(ASKED))["ranker"]["documents"]
        return len(documents), await ranker.feedback_async(documents[1:2])

    assert asyncio.run(main()) == (3, 1)


def test_through_yaml_with_the_model_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    reranker = TextReranker()
    shown = reranker.rerank(QUESTION, TEXTS)
    reranker.feedback(shown.impression_id, [shown.order[2]])
    reranker.save(path)
    text = pipeline(PairRankRanker(str(path), top_k=2)).dumps()
    again = Pipeline.loads(text, allowed_modules=OURS)
    ranker = again.get_component("ranker")
    assert ranker.top_k == 2
    assert ranker.reranker.ranker.digest() == reranker.ranker.digest()
    fresh = Pipeline.loads(pipeline(PairRankRanker(str(tmp_path / "new"))).dumps(), allowed_modules=OURS)
    assert fresh.get_component("ranker").reranker.ranker.n_ranked == 0


def test_threads_that_ask_at_once_get_one_model() -> None:
    ranker = PairRankRanker()
    make = vars(type(ranker))["reranker"].func  # from Python 3.12 on it may run in several threads
    assert make(ranker) is make(ranker) is ranker.reranker


def test_edges() -> None:
    ranker = PairRankRanker()
    assert ranker.run("tea", []) == {"documents": [], "impression_id": ""}
    assert asyncio.run(ranker.run_async("tea", [])) == {"documents": [], "impression_id": ""}
    document = Document(content=None, meta={"a": 1})
    shown = ranker.run("tea", [document])["documents"]
    assert document.meta == {"a": 1}
    assert shown[0].id == document.id
    (bare,) = ranker.run("tea", [Document(content="tea", meta=None)])["documents"]
    assert ranker.feedback([bare]) == 1
