"""Launches: from the present order to ours, as far as the guard lets it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response

from pairrank.checking import check_number_in
from pairrank.errors import UnknownNameError
from pairrank.service.answers import answer
from pairrank.service.http.administration import WAIT_SECONDS, Wait
from pairrank.service.http.schemas import KEY, answers, body_of, parse, reading
from pairrank.service.http.trial_schemas import LaunchAnswer, LaunchBody
from pairrank.service.learning.trials import LAUNCH, LaunchCourse
from pairrank.service.store.values import LaunchHead, RankerRow
from pairrank.service.worker.state import WorkerState
from pairrank.trials.launch import Guard, Launch


def routes(worker: WorkerState) -> APIRouter:
    """The router with the launches."""
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
    if row is None or row.launch is None:
        known = "no ranker is called" if row is None else "no launch was ever decided for"
        raise UnknownNameError(f"{known} {name[:70]!r}")
    states = await worker.models.read(worker.store.trial_states, row.id)
    course = LaunchCourse.from_json(json.loads(states[LAUNCH])) if LAUNCH in states else None
    return describe(row, row.launch, course)


def describe(row: RankerRow, head: LaunchHead, course: LaunchCourse | None) -> dict[str, Any]:
    """A launch as the API shows it; one that the learner has not come to yet has counted nothing."""
    if course is None or course.epoch != head.epoch:
        decided = json.loads(head.decided)
        guard = Guard(decided["margin"], decided["holdout"], decided["delta"])
        course = LaunchCourse(Launch(guard, head.mode, decided["auto"]), head.epoch, row.version)
    launch = course.launch
    share = {"free": 1.0, "guarded": head.share}.get(head.mode, 0.0)
    return {
        "mode": head.mode,
        **asdict(launch.guard),
        "most_lost": head.most_lost,
        "auto": launch.auto,
        "share": share,
        "lists": launch.lists,
        "guarded_lists": launch.guarded,
        "gain": list(launch.gain_interval),
        "lost": launch.loss_bound if launch.guarded else 0.0,
        "stage": launch.stage,
        "agreement": course.agreed / course.shadowed if course.shadowed else None,
        "good_version": course.good,
        "breaches": head.breaches,
        "sentence": sentence(head.mode, share, launch),
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
