"""Experiments: which of two orders users prefer, in one list or by a split of the clients."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from pairrank.errors import InputError
from pairrank.service.answers import answer
from pairrank.service.auth import check_name
from pairrank.service.http.administration import WAIT_SECONDS, Wait
from pairrank.service.http.schemas import KEY, answers, body_of, listed, parse, reading
from pairrank.service.http.trial_schemas import ExperimentAnswer, ExperimentBody
from pairrank.service.learning.trials import course_of
from pairrank.service.store.experiments import learns_from_any_list
from pairrank.service.store.values import ExperimentRow
from pairrank.service.worker.state import WorkerState
from pairrank.trials.experiment import Arm, Definition

_DEFINED = ("name", "a", "b", "kind", "share", "credit", "level", "learn", "ranker")


def describe(row: ExperimentRow) -> dict[str, Any]:
    """An experiment as the API shows it: its definition and what the log has shown."""
    course = course_of(row)
    told = course.tally.answer()
    if not told["impressions"]:
        waits = "; only requests with a client_id take part in a split" if row.definition.kind == "split" else ""
        told["sentence"] = f"No list has come back yet{waits}."
    return {
        **{name: getattr(row.definition, name) for name in _DEFINED},
        "created": row.created,
        "ended": row.ended,
        **told,
        "decided_at": _decided_at(told, course.first, course.last),
        "points": [
            {"time": at, "lists": lists, "effect": effect, "interval": [low, high]}
            for at, lists, effect, low, high in course.points
        ],
    }


def _decided_at(told: dict[str, Any], first: float, last: float) -> float | None:
    """When so many more lists will have come, at the rate of those that came."""
    more, came = told["more_lists"], told["impressions"]
    return last + more * (last - first) / (came - 1) if more is not None and came > 1 else None


def routes(worker: WorkerState) -> APIRouter:
    """The router with the experiments."""
    router = APIRouter(prefix="/v1/experiments", tags=["experiments"], dependencies=[KEY])
    get, told = reading(router, worker.allow), "What an experiment has shown so far, valid whenever it is looked at"

    @get("", "All experiments", listed("experiments", ExperimentAnswer))
    async def index() -> Response:
        return answer({"experiments": [describe(row) for row in await worker.models.read(worker.store.experiments)]})

    @router.put(
        "/{name}",
        openapi_extra=body_of(ExperimentBody),
        summary="Start an experiment",
        description="201 when it is new, 200 when it was there with the same definition.",
        status_code=201,
        responses=answers(ExperimentAnswer, 409, status=201, also=200, body=True),
    )
    async def start(name: str, request: Request) -> Response:
        actor = worker.allow(request, "admin")
        check_name(name, "experiment")
        body = parse(ExperimentBody, await worker.body(request))
        definition = Definition(name=name, **body.model_dump() | {"learn": await _learns(worker, body)})
        row, new = await worker.administer(worker.store.define, definition, worker.clock(), actor)
        return answer(describe(row), 201 if new else 200)

    @get("/{name}", told, ExperimentAnswer)
    async def read(name: str, wait: Wait = WAIT_SECONDS) -> Response:
        row = await worker.models.read(worker.store.experiment, name)
        await worker.models.caught_up(str(row.definition.ranker), wait)
        return answer(describe(await worker.models.read(worker.store.experiment, name)))

    @router.post(
        "/{name}/stop",
        summary="Stop an experiment; lists that were served still count when they come back",
        responses=answers(ExperimentAnswer, 404, 422),
    )
    async def stop(name: str, request: Request) -> Response:
        actor = worker.allow(request, "admin")
        return answer(describe(await worker.administer(worker.store.end, name, worker.clock(), actor)))

    return router


async def _learns(worker: WorkerState, body: ExperimentBody) -> bool:
    """Whether the ranker learns from the lists: as the body says, else where it rightly can."""
    if body.learn is not None:
        return body.learn
    name = body.ranker or Arm.parse(body.a).ranker or Arm.parse(body.b).ranker
    if name is None:
        raise InputError('both arms are as-sent; say with "ranker" whose requests take part')
    found = await worker.models.read(worker.store.ranker, name)
    return found is not None and await worker.models.read(learns_from_any_list, found)
