"""LlamaIndex: the postprocessor in a real query engine."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

pytest.importorskip("llama_index.core", reason="pip install 'pairrank[llamaindex]'")

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms.mock import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from integrations.texts import ANSWER, QUESTION, TEXTS
from pairrank.errors import InputError
from pairrank.integrations.llamaindex import PairRankPostprocessor

NODES = [TextNode(text=text, metadata={"source": f"page {place}"}) for place, text in enumerate(TEXTS)]


class Found(BaseRetriever):
    """Always the same nodes."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=node, score=1 / (1 + place)) for place, node in enumerate(NODES)]


def test_a_query_engine_learns_what_is_cited() -> None:
    postprocessor = PairRankPostprocessor(top_n=4)
    engine = RetrieverQueryEngine.from_args(Found(), llm=MockLLM(), node_postprocessors=[postprocessor])
    for _ in range(40):
        answer = engine.query(QUESTION)
        postprocessor.feedback([node for node in answer.source_nodes if node.node.get_content() == ANSWER])
    answer = engine.query(QUESTION)
    assert answer.source_nodes[0].node.text == ANSWER
    assert len(answer.source_nodes) == 4
    scores = [node.score for node in answer.source_nodes]
    assert scores == sorted(scores, reverse=True)

    async def later() -> int:
        again = await engine.aquery(QUESTION)
        assert again.source_nodes[0].node.text == ANSWER
        return await postprocessor.afeedback(again.source_nodes[:1])

    assert asyncio.run(later()) == 1


def test_marks_are_for_us_and_not_for_prompts_embeddings_or_the_store() -> None:
    postprocessor = PairRankPostprocessor()
    shown = postprocessor.postprocess_nodes(Found().retrieve(QUESTION), query_str=QUESTION)
    assert len(shown) == len(TEXTS)
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert "impression" not in shown[0].node.get_content(mode)
        assert "source" in shown[0].node.get_content(mode)
    assert all(node.metadata.keys() == {"source"} for node in NODES)
    assert all(node.excluded_llm_metadata_keys == [] for node in NODES)


def test_pickling_leaves_the_model_where_it_is() -> None:
    """LlamaIndex takes away what it cannot pickle, from the object itself."""
    postprocessor = PairRankPostprocessor()
    shown = postprocessor.postprocess_nodes([NodeWithScore(node=node) for node in NODES], query_str=QUESTION)
    copies = [pickle.loads(pickle.dumps(postprocessor)), copy.deepcopy(postprocessor)]
    assert [one.feedback(shown[:1]) for one in (postprocessor, *copies)] == [1, 1, 1]


def test_edges() -> None:
    postprocessor = PairRankPostprocessor()
    assert postprocessor.postprocess_nodes([], query_str=QUESTION) == []
    assert asyncio.run(postprocessor.apostprocess_nodes([], query_str=QUESTION)) == []
    with pytest.raises(InputError, match="there is no query"):
        postprocessor.postprocess_nodes([NodeWithScore(node=NODES[0])])
    assert postprocessor.class_name() == "PairRankPostprocessor"
    assert len(postprocessor.postprocess_nodes([NodeWithScore(node=NODES[0])], query_str=QUESTION)) == 1
