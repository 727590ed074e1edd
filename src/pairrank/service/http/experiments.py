"""Experiments: which of two orders users prefer, in one list or by a split of the clients. Launches: from the present
order to ours, as far as the guard lets it."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from pairrank.checking import check_number_in
from pairrank.errors import UnknownNameError
from pairrank.service.answers import answer
from pairrank.service.auth import check_name
from pairrank.service.http.administration import WAIT_SECONDS, Wait
from pairrank.service.http.endpoints import KEY, answers, body_of, creating, parse, reading
from pairrank.service.http.schemas import listed
from pairrank.service.http.trial_schemas import ExperimentAnswer, ExperimentBody, LaunchAnswer, LaunchBody
from pairrank.service.learning.trials import LAUNCH, LaunchCourse, course_of
from pairrank.service.store.values import ExperimentRow, LaunchHead, RankerRow
from pairrank.service.worker.state import WorkerState
from pairrank.trials.experiment import Definition
from pairrank.trials.launch import Guard, Launch


def describe(row: ExperimentRow) -> dict[str, Any]:
    course = course_of(row)
    told = course.tally.answer()
    if not told["impressions"]:
        waits = "; only requests with a client_id take part in a split" if row.definition.kind == "split" else ""
        told["sentence"] = f"No list has come back yet{waits}."
    return {
        **{name: value for name, value in asdict(row.definition).items() if name != "start"},
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
    router = APIRouter(prefix="/v1/experiments", tags=["experiments"], dependencies=[KEY])
    get, told = reading(router, worker.allow), "What an experiment has shown so far, valid whenever it is looked at"

    @get("", "The newest experiments, and all that run", listed("experiments", ExperimentAnswer), 422)
    async def index(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
        found = await worker.models.read(worker.store.experiments, limit)
        return answer({"experiments": [describe(row) for row in found]})

    @creating(router, "Start an experiment", ExperimentBody, ExperimentAnswer, "definition")
    async def start(name: str, request: Request) -> Response:
        actor = worker.allow(request, "admin")
        check_name(name, "experiment")
        body = parse(ExperimentBody, await worker.body(request))
        definition = Definition(name=name, **body.model_dump() | {"learn": body.learn is not False})
        define = partial(worker.store.define, learn_if_able=body.learn is None)
        row, new = await worker.administer(define, definition, worker.clock(), actor)
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


def launch_routes(worker: WorkerState) -> APIRouter:
    router = APIRouter(prefix="/v1/rankers/{name}/launch", tags=["experiments"], dependencies=[KEY])

    @router.put(
        "",
        openapi_extra=body_of(LaunchBody),
        summary="Serve the present order, ours as far as is safe, or ours",
        responses=answers(LaunchAnswer, 404, body=True),
    )
    async def decide(name: str, request: Request) -> Response:
        actor = worker.allow(request, "admin")
        body = parse(LaunchBody, await worker.body(request))
        Guard(body.margin, body.holdout, body.delta)
        check_number_in("most_lost", body.most_lost, 0.0, 1.0)
        await worker.administer(worker.store.launch, name, body.model_dump(), worker.clock(), actor)
        return answer(await _told(worker, name, WAIT_SECONDS))

    @reading(router, worker.allow)("", "How a ranker is launched", LaunchAnswer)
    async def read(name: str, wait: Wait = WAIT_SECONDS) -> Response:
        return answer(await _told(worker, name, wait))

    return router


async def _told(worker: WorkerState, name: str, wait: float) -> dict[str, Any]:
    row = await worker.models.caught_up(name, wait)
    if row.launch is None:
        raise UnknownNameError(f"no launch was ever decided for {name[:70]!r}")
    states = await worker.models.read(worker.store.trial_states, row.id)
    course = LaunchCourse.from_json(json.loads(states[LAUNCH])) if LAUNCH in states else None
    return describe_launch(row, row.launch, course)


def describe_launch(row: RankerRow, head: LaunchHead, course: LaunchCourse | None) -> dict[str, Any]:
    """A launch as the API shows it; one that the learner has not come to yet has counted nothing."""
    if course is None or course.epoch != head.epoch:
        decided = json.loads(head.decided)
        guard = Guard(decided["margin"], decided["holdout"], decided["delta"])
        course = LaunchCourse(Launch(guard, head.mode, decided["auto"]), head.epoch, row.served_version)
    launch = course.launch
    return {
        "mode": head.mode,
        **asdict(launch.guard),
        "most_lost": head.most_lost,
        "auto": launch.auto,
        "share": row.launch_share,
        "lists": launch.lists,
        "guarded_lists": launch.guarded,
        "gain": list(launch.gain_interval),
        "lost": launch.loss_bound if launch.guarded else 0.0,
        "stage": launch.stage,
        "agreement": course.agreed / course.shadowed if course.shadowed else None,
        "good_version": course.good,
        "breaches": head.breaches,
        "sentence": sentence(head.mode, row.launch_share, launch),
    }


def sentence(mode: str, share: float, launch: Launch) -> str:
    """Where a launch stands, in one sentence."""
    low, high = launch.gain_interval
    known = f"a list of ours is worth {low:+.3f} to {high:+.3f} more than one as sent"
    match mode:
        case "shadow":
            return f"Users see the present order, and ours learns from {launch.lists:,} lists so far."
        case "guarded":
            return f"Ours goes to {100 * share:.0f} % of the lists: after {launch.guarded:,} of them {known}."
        case "frozen":
            return f"Stopped by a breach after {launch.guarded:,} lists: {known}. Users see the present order."
        case _:
            return "Users see ours."
