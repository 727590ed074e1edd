"""PairRank where people already are: one small adapter per framework, over one re-ranker of texts.

`TextReranker` learns in this process, `ServiceReranker` by a service. Each adapter is a module that is imported when it
is wanted, since each needs its framework.
"""

from pairrank.integrations.text_reranker import Reranked, Reranker, ServiceReranker, TextReranker

__all__ = ["Reranked", "Reranker", "ServiceReranker", "TextReranker"]
