"""The shape of ``POST /v1/rerank`` that Cohere and Jina began and many tools speak: bytes in, values out, and back.

Nothing here knows a ranker or a store. A body is read leniently in what it may also hold (``rank_fields``,
``max_chunks_per_doc``, ``truncation``, ... mean nothing here) and strictly in what is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from pairrank.errors import InputError
from pairrank.service.http.rank_request import MAX_ID, check_count, flag, parse_json

DEFAULT_MODEL = "rerank"
# Every word of the query is looked for in every document: eight megabytes of either could take all memory there is.
MAX_QUERY_CHARACTERS = 5_000_000  # times documents


class RerankRequest(NamedTuple):
    """A checked request: the ranker's name, the query, documents in the order that came in, how many to answer."""

    model: str
    query: str
    documents: list[str | dict[str, Any]]
    top_n: int | None
    return_documents: bool

    @property
    def ids(self) -> list[str]:
        """What feedback calls the documents: their own ids, numbers as texts, where all differ, else indices."""
        own = [document.get("id") if isinstance(document, dict) else None for document in self.documents]
        own = [str(name) if type(name) is int else name for name in own]
        given = [name for name in own if isinstance(name, str) and 0 < len(name) <= MAX_ID]
        return given if len(set(given)) == len(own) else [str(index) for index in range(len(own))]

    @property
    def scores(self) -> list[float] | None:
        """The first stage's scores, NaN where a document has none; None where none has."""
        own: list[Any] = [document.get("score") if isinstance(document, dict) else None for document in self.documents]
        found = [float(value) if type(value) in (int, float) else math.nan for value in own]
        return None if all(map(math.isnan, found)) else found


def parse_rerank(body: bytes, max_documents: int) -> RerankRequest:
    """A request from its body, or an `InputError` with one sentence that says what is wrong."""
    request = parse_json(body)
    if not isinstance(request, dict):
        raise InputError("the body is not a JSON object with model, query and documents")
    model = request.get("model")
    if model is None or model == "":
        model = DEFAULT_MODEL
    if not isinstance(model, str) or "\0" in model:  # which PostgreSQL cannot look for
        raise InputError("model must be a text, the name of a ranker")
    query = request.get("query")
    if not isinstance(query, str) or not query.strip():
        raise InputError("query must be a text that is not empty")
    documents = request.get("documents")
    if not isinstance(documents, list) or not documents:
        raise InputError("documents must be a list with one document at least")
    check_count(len(documents), max_documents)
    if len(query) > (most := MAX_QUERY_CHARACTERS // len(documents)):
        raise InputError(f"the query has {len(query)} characters; at most {most} are allowed with so many documents")
    fields = request.get("rank_fields")
    fields = [] if fields is None else fields
    if not isinstance(fields, list) or not all(isinstance(name, str) for name in fields):
        raise InputError("rank_fields must be a list of texts")
    texts = [_document(index, document, fields) for index, document in enumerate(documents)]
    top_n = request.get("top_n")
    if top_n is not None and (type(top_n) is not int or top_n < 1):
        raise InputError("top_n must be a whole number of documents, 1 or more")
    returned = flag("return_documents", request.get("return_documents"))
    if returned:
        try:
            orjson.dumps([[texts]])  # as deep as they stand in the answer
        except orjson.JSONEncodeError:  # which reads more brackets in each other than it writes
            raise InputError("documents hold something nested too deeply to be returned") from None
    return RerankRequest(model, query, texts, top_n, returned)


def rerank_answer(
    request: RerankRequest,
    order: Sequence[int],
    relevance: Sequence[float],
    meta: Mapping[str, Any],
    plain: bool = False,
) -> dict[str, Any]:
    """The answer: ``order`` are indices into the request's documents, best first; ``meta`` has the impression_id.

    ``plain``: documents that come back are texts and no objects, as Infinity answers.

    The impression's id is also the answer's, which no client drops. Nothing is billed: no tokens were used.
    """
    results = []
    for index, score in zip(order, relevance, strict=True):
        result: dict[str, Any] = {"index": index, "relevance_score": score}
        if request.return_documents:
            document = request.documents[index]
            whole = {"text": document} if isinstance(document, str) else document
            result["document"] = whole["text"] if plain else whole
        results.append(result)
    return {
        "id": meta["impression_id"],
        "object": "list",
        "model": request.model,
        "results": results,
        "meta": {"api_version": {"version": "1"}, **meta},
        "usage": {"total_tokens": 0},
    }


def _document(index: int, document: Any, fields: list[str]) -> str | dict[str, Any]:
    if isinstance(document, str):
        return document
    if not isinstance(document, dict):
        raise InputError(f"documents[{index}] is neither a text nor an object with text")
    if isinstance(document.get("text"), str):
        return document
    named = [document[name] for name in fields if isinstance(document.get(name), str)]
    if not named:
        raise InputError(f"documents[{index}] has no text; expected a string under 'text'")
    return {**document, "text": "\n".join(named)}
