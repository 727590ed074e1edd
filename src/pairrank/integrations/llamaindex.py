"""LlamaIndex: a node postprocessor."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pairrank.errors import InputError, MissingExtraError
from pairrank.integrations.text_reranker import Reranker, TextReranker

try:
    from llama_index.core.bridge.pydantic import Field
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
except ImportError:
    raise MissingExtraError("llama-index-core", "llamaindex") from None


class PairRankPostprocessor(BaseNodePostprocessor):
    """Re-ranks nodes; each carries its way back in its metadata, which no prompt and no embedding sees.

    >>> from llama_index.core.schema import TextNode
    >>> postprocessor = PairRankPostprocessor(top_n=1)
    >>> found = [NodeWithScore(node=TextNode(text=text)) for text in ("a cup of coffee", "green tea")]
    >>> nodes = postprocessor.postprocess_nodes(found, query_str="tea")
    >>> postprocessor.feedback(nodes)  # the nodes that were cited
    1

    Parameters
    ----------
    reranker : the model; a new `TextReranker` by default. top_n : nodes to keep; None keeps all.
    """

    reranker: Reranker = Field(default_factory=TextReranker, exclude=True)
    top_n: int | None = None

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex knows it."""
        return "PairRankPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        if query_bundle is None:
            raise InputError("there is no query; expected query_bundle or query_str beside the nodes")
        texts = [{"text": n.node.get_content(MetadataMode.NONE), "metadata": n.node.metadata} for n in nodes]
        scores = [math.nan if node.score is None else node.score for node in nodes]
        shown = self.reranker.rerank(query_bundle.query_str, texts, scores=scores, top_n=self.top_n)
        result = []
        for row, marks, score in zip(shown.order, shown.marks(), shown.relevance, strict=True):
            # A copy, since retrievers hand out the nodes of their store.
            node = nodes[row].node.model_copy()
            node.metadata = node.metadata | marks
            node.excluded_llm_metadata_keys = [*node.excluded_llm_metadata_keys, *marks]
            node.excluded_embed_metadata_keys = [*node.excluded_embed_metadata_keys, *marks]
            result.append(NodeWithScore(node=node, score=score))
        return result

    def feedback(self, nodes: Iterable[NodeWithScore]) -> int:
        """Learn from the nodes that were of use; how many lists were new."""
        return self.reranker.feedback_on(node.node.metadata for node in nodes)

    async def afeedback(self, nodes: Iterable[NodeWithScore]) -> int:
        """`feedback` for an event loop."""
        return await self.reranker.afeedback_on([node.node.metadata for node in nodes])
