"""``POST /v1/rerank``: texts in, order out, in the shape that tools with a "custom reranker" field speak.

``model`` names a ranker of texts. One that is not there yet is made on its first request, if the key may: it starts
with the order that came in. Feedback goes to ``/v1/rankers/{model}/feedback``, by the answer's id.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request, Response

from pairrank.errors import InputError, OptionError, UnknownNameError
from pairrank.features.text import OPTIONS, STRENGTH, TextFeatures
from pairrank.kernel.relevance import falling
from pairrank.service.answers import answer, refusal
from pairrank.service.auth import RoleError, check_name
from pairrank.service.http.administration import create_ranker
from pairrank.service.http.endpoints import KEY, answers, body_of
from pairrank.service.http.rank_request import Query
from pairrank.service.http.ranking import show
from pairrank.service.http.rerank_request import RerankRequest, parse_rerank, rerank_answer
from pairrank.service.http.schemas import CreateBody, RerankAnswer, RerankBody, StartBody
from pairrank.service.worker.models import LoadedModel
from pairrank.service.worker.state import WorkerState
from pairrank.types import FloatArray
from pairrank.upstream import RerankEndpoint, scores_of

# Clients of the family differ in the version that they put into the address, and in nothing else.
ADDRESSES = ("/v1/rerank", "/v2/rerank", "/rerank")
# Infinity's clients ask as the others do and read a document that comes back as a plain text: an address of their own.
INFINITY = "/infinity/rerank"


def routes(worker: WorkerState) -> APIRouter:
    router = APIRouter(tags=["ranking"], dependencies=[KEY])
    upstream = worker.settings.rerank_endpoint

    async def rerank(request: Request) -> Response:
        try:
            plain = request.url.path.endswith(INFINITY)
            return answer(await _rerank(worker, request, upstream, plain))
        except Exception as problem:
            return refusal(problem, detail=True)

    for address in (*ADDRESSES, INFINITY):
        router.add_api_route(
            address,
            rerank,
            methods=["POST"],
            openapi_extra=body_of(RerankBody),
            summary="Order texts for one query, as Cohere's and Jina's clients ask for it",
            responses=answers(RerankAnswer, 404, body=True),
            include_in_schema=address == ADDRESSES[0],
        )
    return router


async def _rerank(
    worker: WorkerState, request: Request, upstream: RerankEndpoint | None, plain: bool
) -> dict[str, Any]:
    started = time.perf_counter()
    key = worker.allow(request, "rank")
    asked = parse_rerank(await worker.body(request), worker.settings.max_documents)
    with worker.ranking.enter((asked.model, key)):
        item = await _ranker(worker, request, asked.model)
        extract = TextFeatures.of(item.row.config.feature_names or ())
        if extract is None:
            raise InputError(f"the ranker {asked.model!r} was not made for texts; name another model, or a new one")
        features = await asyncio.to_thread(_features, extract, asked, upstream)
        ids = asked.ids
        shown = await show(worker, item, Query(None, ids, features, asked.top_n))
        place = {name: index for index, name in enumerate(ids)}
        ranking = shown.pop("ranking")
        relevance = falling([document["score"] for document in ranking]).tolist()
        worker.metrics.took(item.row, time.perf_counter() - started)
        return rerank_answer(asked, [place[document["id"]] for document in ranking], relevance, shown, plain)


async def _ranker(worker: WorkerState, request: Request, name: str) -> LoadedModel:
    """The ranker of this name; made for texts if it is not there and whoever asks may make one."""
    try:
        return await worker.models.get(name)
    except UnknownNameError as problem:
        try:
            actor = worker.allow(request, "admin")
            check_name(name, "ranker")
        except (RoleError, OptionError) as reason:
            raise UnknownNameError(f"{problem}, and it cannot be made: {reason}") from None
    extract = TextFeatures()
    names = list(extract.names)
    start = StartBody(weights=extract.start().tolist(), strength=STRENGTH, variance=None)
    body = CreateBody(n_features=len(names), options=dict(OPTIONS), feature_names=names, start=start)
    await create_ranker(worker, name, body, actor)
    return await worker.models.get(name)


def _features(extract: TextFeatures, asked: RerankRequest, upstream: RerankEndpoint | None) -> FloatArray:
    scores = scores_of(upstream, asked.query, asked.documents)
    return extract(asked.query, asked.documents, scores=asked.scores, upstream=scores)
