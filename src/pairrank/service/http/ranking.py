"""The three endpoints that traffic goes through: rank, feedback, events."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from pairrank.errors import InputError, PairRankError
from pairrank.rankers import Ranker
from pairrank.service import telemetry
from pairrank.service.answers import RefusalError, answer
from pairrank.service.http.endpoints import KEY, answers, body_of, check, parse
from pairrank.service.http.explanation import explained, explanation
from pairrank.service.http.rank_request import ARROW_TYPES, JSON_TYPES, Query, from_arrow, from_json, parse_json
from pairrank.service.http.schemas import EventAnswer, EventBody, FeedbackAnswer, FeedbackBody, RankAnswer, RankBody
from pairrank.service.store.values import Event, ExperimentRow, Feedback, Served, Status, Verdict, token_of
from pairrank.service.worker.lists import FIRST, Page, Setting, draw
from pairrank.service.worker.models import LoadedModel
from pairrank.service.worker.state import WorkerState
from pairrank.trials.experiment import Arm
from pairrank.trials.shown import as_shown
from pairrank.types import FloatArray, Impression

logger = logging.getLogger("pairrank.ranking")

# How much longer another ranker's impression of a list is kept: a learner that was away comes to the first one late.
TWIN_SECONDS = 86_400.0
MAX_EVENTS = 1000
_ARROW_TEXT = (
    "Arrow IPC: columns id (string) and features (list of float32 or float64); "
    "k, query_id, client_id, page_of and explain as query parameters"
)
_ARROW = {ARROW_TYPES[0]: {"schema": {"type": "string", "format": "binary", "description": _ARROW_TEXT}}}
# What feedback that was not taken hears.
_REFUSED = {
    Status.UNKNOWN: (404, "unknown", "no such impression was served"),
    Status.FOREIGN: (422, "foreign", "clicks name {foreign!r}, which the impression did not show"),
    Status.EXPIRED: (410, "expired", "the impression has expired, or is from before a restore; nothing was learned"),
}


def parse_impression(text: str) -> tuple[int, str] | None:
    """Number and token of an impression's id, or None when it is no such id."""
    number, dash, token = text.partition("-")
    if not dash or not (number.isascii() and number.isdigit()) or len(number) > 18 or not token:
        return None
    return int(number), token


def routes(worker: WorkerState) -> APIRouter:
    router = APIRouter(prefix="/v1/rankers/{name}", tags=["ranking"], dependencies=[KEY], route_class=PlainRoute)

    @router.post(
        "/rank",
        openapi_extra=body_of(RankBody, other=_ARROW),
        summary="Order documents for one query",
        responses=answers(RankAnswer, 404, 410, body=True),
    )
    async def rank(name: str, request: Request) -> Response:
        started = time.perf_counter()
        who = (name, worker.allow(request, "rank"))
        item = await worker.models.get(name)
        body = await worker.body(request)
        with worker.ranking.enter(who):
            query = _query(worker, request, item, body)
            # Requests that came together are read together, then ranked together: each stage finds its code cached.
            await asyncio.sleep(0)
            shown = answer(await show(worker, item, query))
            worker.metrics.took(item.row, time.perf_counter() - started)
            return shown

    @router.post(
        "/feedback",
        openapi_extra=body_of(FeedbackBody),
        summary="The clicks of an impression, once for all",
        responses=answers(FeedbackAnswer, 404, 410, body=True),
    )
    async def feedback(name: str, request: Request) -> Response:
        who = (name, worker.allow(request, "feedback"))
        item = await worker.models.get(name)
        body = parse(FeedbackBody, await worker.body(request))
        found = parse_impression(body.impression_id)
        verdict = Verdict(Status.UNKNOWN)
        if found is not None:
            with worker.writing.enter(who):
                verdict = await worker.writer.feedback(Feedback(item.row.id, *found, frozenset(body.clicks)))
        worker.metrics.count(item.row, "feedback", [verdict.status])
        if verdict.status in _REFUSED:
            code, kind, told = _REFUSED[verdict.status]
            raise RefusalError(code, kind, told.format(foreign=verdict.foreign))
        if found is not None and verdict.status is Status.ACCEPTED:
            telemetry.impression("answered", name, item.row.secret, found[0])
            worker.metrics.clicked(item.row, verdict)
        return answer({"status": verdict.status.value, **({"late": True} if verdict.late else {})})

    @router.post(
        "/events",
        openapi_extra=body_of(EventBody, most=MAX_EVENTS),
        summary="Single clicks and other signals, as they happen",
        responses=answers(list[EventAnswer], 404, body=True),
    )
    async def events(name: str, request: Request) -> Response:
        who = (name, "" if worker.settings.public_events else worker.allow(request, "feedback"))
        item = await worker.models.get(name)
        sent = parse_json(await worker.body(request))
        if not isinstance(sent, list) or len(sent) > MAX_EVENTS:
            raise InputError(f"the body must be a list of at most {MAX_EVENTS} events")
        bodies = [check(EventBody, event, f"event {i} (counted from 0)") for i, event in enumerate(sent)]
        for body in bodies:
            if body.document_id is None and body.type != "reformulation":
                raise InputError(f"event {body.event_id!r} has the type {body.type!r} and no document_id")
            if "\0" in body.event_id:
                raise InputError(f"the event_id {body.event_id!r} holds a null character")
        found = [parse_impression(body.impression_id) for body in bodies]
        known = [
            Event(item.row.id, *place, body.event_id, body.document_id, body.type)
            for body, place in zip(bodies, found, strict=True)
            if place is not None
        ]
        with worker.writing.enter(who, len(known)):
            verdicts = iter(await worker.writer.events(known)) if known else iter(())
        statuses = [Status.UNKNOWN if place is None else next(verdicts).status for place in found]
        worker.metrics.count(item.row, "events", statuses)
        return answer([{"event_id": b.event_id, "status": s.value} for b, s in zip(bodies, statuses, strict=True)])

    return router


class PlainRoute(APIRoute):
    """A route whose endpoint takes the ranker's name and the request, and nothing that must be found out first.

    What the framework does for every other endpoint takes as long as reading and ranking a short list.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def handle(request: Request) -> Response:
            response: Response = await self.endpoint(request.path_params["name"], request)
            return response

        return handle


def _query(worker: WorkerState, request: Request, item: LoadedModel, body: bytes) -> Query:
    config, most = item.row.config, worker.settings.max_documents
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind in ARROW_TYPES:
        return from_arrow(body, config.n_features, most, request.query_params)
    if kind not in JSON_TYPES:
        raise RefusalError(415, "type", f"the content type is {kind[:80]!r}; expected JSON or {ARROW_TYPES[0]}")
    left_out = 0.0 if item.ranker.missing is None else math.nan
    return from_json(body, config.n_features, config.feature_names, most, left_out)


async def show(worker: WorkerState, item: LoadedModel, query: Query) -> dict[str, Any]:
    """Draw one list, keep its impression, and say what is shown: the answer of the rank endpoint."""
    head = worker.models.head(item.row.id)
    if head is not None and head.open_count >= item.row.limits.max_open:
        raise RefusalError(429, "open", f"{item.row.limits.max_open} impressions wait for feedback, the limit")
    page = FIRST if query.page_of is None else await _page(worker, item, query.page_of)
    query = _rest(query, page)
    experiments, arms = await _running(worker, item)
    if item.next_number >= item.end_number:  # other requests took the last one meanwhile
        item = await worker.models.get(item.row.name)
    # A newer model may be loaded while this waits: one list is one model's.
    row, ranker, number, batch, version = item.row, item.ranker, item.next_number, item.batch, item.version
    query = _known(query, ranker)
    if experiments and np.isnan(query.features.min()):  # gaps, which an arm may not take
        refusing = {arm for arm, model in arms.items() if not _takes(model, query)}
        experiments = [one for one in experiments if refusing.isdisjoint(one.definition.arms)]
    explaining = explained(ranker, row.name, min(query.k or len(query.ids), len(query.ids))) if query.explain else None
    arms[Arm(row.name)] = ranker
    try:
        asked = (query.features, query.k, query.client_id, page)
        head = worker.models.head(row.id)
        launch = None if head is None else head.launch
        drawn = draw(Setting(ranker, row.limits, number, *asked, experiments, arms, launch, worker.clock()))
        impression = drawn.impression
        if page.before:  # the bias of position is learned at the positions that users saw, below earlier pages
            impression = impression.with_features(impression.features, above=np.array(len(page.before)))
        scores = ranker.score(impression.features)
        if not np.isfinite(scores).all():
            raise ArithmeticError("scores are not finite")
        shown = [query.ids[place] for place in impression.ranking.tolist()]
        why = None if explaining is None else explanation(explaining, shown, impression.features)
    except InputError:
        raise
    except Exception as problem:
        logger.exception("ranker %s cannot order %d documents", row.name, len(query.ids))
        raise RefusalError(500, "ranker", f"the ranker {row.name!r} failed on these documents") from problem
    item.next_number = number + 1
    token, now = token_of(row.secret, number, batch), worker.clock()
    worker.recent.keep(token, query.ids, query.features)
    await asyncio.sleep(0)  # and packed together
    blocks = impression.blocks.tolist()
    n_blocks = len(set(blocks))
    served = Served(
        ranker_id=row.id,
        number=number,
        token=token,
        created=now,
        closes=now + row.limits.window_seconds,
        expires=now + row.limits.retention_seconds,
        version=version,
        query_id=query.query_id,
        ids=orjson.dumps(shown).decode(),
        body=impression.to_bytes(),
        experiment_id=drawn.experiment_id,
        client=drawn.client,
        share=drawn.share,
        held=int(drawn.held),
        trial=orjson.dumps(drawn.noted).decode() if drawn.noted else None,
        candidates=drawn.candidates,
    )
    if drawn.pupil is not None:
        twin = await _twin(worker, drawn.pupil, served, query.features, impression)
        served = served._replace(trial=orjson.dumps({**drawn.noted, "twin": [twin.ranker_id, twin.number]}).decode())
        await worker.writer.serve(twin)
    await worker.writer.serve(served)
    telemetry.impression("ranked", row.name, row.secret, number)
    worker.metrics.listed(row, len(query.ids), n_blocks, impression.explored)
    first = len(page.before) + 1
    told = {
        "impression_id": f"{number}-{token}",
        "model_version": version,
        "explored": impression.explored,
        "ranking": [
            {"id": name, "position": position, "score": score, "block": block}
            for position, (name, score, block) in enumerate(zip(shown, scores.tolist(), blocks, strict=True), first)
        ],
    }
    return told if why is None else {**told, "explanation": why}


async def _running(worker: WorkerState, item: LoadedModel) -> tuple[list[ExperimentRow], dict[Arm, Ranker]]:
    """The experiments that a request may take part in, and the models of their arms, as-sent left out.

    One whose arm cannot be found takes nobody: its lists are served as if it were not there.
    """
    running: list[ExperimentRow] = []
    arms: dict[Arm, Ranker] = {}
    for row in worker.models.experiments(item.row.id):
        try:
            found = {arm: await worker.models.arm(arm) for arm in row.definition.arms}
        except PairRankError as problem:
            logger.warning("experiment %s takes no lists: %s", row.name, problem)
            continue
        arms |= {arm: model for arm, model in found.items() if model is not None}
        running.append(row)
    return running, arms


async def _twin(worker: WorkerState, pupil: str, served: Served, features: FloatArray, shown: Impression) -> Served:
    """The same list as another ranker's impression: the learner logs it there when the first one was logged.

    Nobody is told its id, and it waits a while longer than the first.
    """
    other = await worker.models.get(pupil)
    number, other.next_number = other.next_number, other.next_number + 1
    features = other.ranker.check_features(features)  # gaps are what they mean to this one
    own = as_shown(other.ranker.rank(features, 1, number=number), features, shown.ranking)
    if "above" in shown.memory:
        own = own.with_features(own.features, above=shown.memory["above"])
    return served._replace(
        ranker_id=other.row.id,
        number=number,
        token=token_of(other.row.secret, number, other.batch),
        expires=served.expires + TWIN_SECONDS,
        version=other.version,
        body=own.to_bytes(),
        experiment_id=None,
        client=None,
        held=0,
        trial=None,
    )


async def _page(worker: WorkerState, item: LoadedModel, impression_id: str) -> Page:
    """What a list and its earlier pages have shown."""
    place = parse_impression(impression_id)
    found = Status.UNKNOWN if place is None else await worker.models.read(worker.store.page, item.row.id, *place)
    if found is Status.EXPIRED:
        raise RefusalError(410, "expired", "the list to go on with has expired; ask for it from the top")
    if isinstance(found, Status):
        raise RefusalError(404, "unknown", "page_of names no impression that was served")
    ids, noted = found
    return Page([*noted.get("before", ()), *ids], noted)


def _known(query: Query, ranker: Ranker) -> Query:
    """The request with missing values replaced by what they mean, or a sentence that names the first."""
    if not np.isnan(query.features.min()):
        return query
    return query._replace(features=ranker.check_features(query.features, query.ids))


def _takes(ranker: Ranker, query: Query) -> bool:
    """Whether a ranker can order the documents, gaps and all."""
    try:
        ranker.check_features(query.features)
    except InputError:
        return False
    return True


def _rest(query: Query, page: Page) -> Query:
    """The request without the documents that earlier pages have shown."""
    if not page.before:
        return query
    gone = set(page.before)
    rows = [row for row, name in enumerate(query.ids) if name not in gone]
    if not rows:
        raise InputError("every document of this request stands on an earlier page; send more documents")
    return query._replace(ids=[query.ids[row] for row in rows], features=query.features[rows])
