"""Rankers as wholes: create, read, delete, versions, pin, rollback, freeze, limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from pairrank import rankers
from pairrank.checking import nearest
from pairrank.errors import InputError, MissingExtraError, UnknownNameError
from pairrank.service.answers import RefusalError, answer
from pairrank.service.auth import check_name
from pairrank.service.http.endpoints import KEY, B, answers, body_of, creating, parse, reading
from pairrank.service.http.schemas import (
    CreateBody,
    FreezeBody,
    LimitsBody,
    PinBody,
    RankerAnswer,
    RollbackBody,
    StartBody,
    StatusAnswer,
    VersionAnswer,
    listed,
    shown,
)
from pairrank.service.store.values import Config, Limits, Prior, RankerRow, Snapshot
from pairrank.service.worker.state import WorkerState

_LIMITS = set(LimitsBody.model_fields)
# How long an administrative answer waits for the learner to catch up, so that it tells of what was just sent.
WAIT_SECONDS = 1.0
Wait = Annotated[float, Query(ge=0, le=30, description="seconds to wait until what was logged is learned")]
ROLLBACK_SECONDS = 5.0


def config_of(body: CreateBody) -> Config:
    """A ranker's frozen configuration; what is served is what the library makes of it."""
    rankers.parse(body.ranker, files=False)  # a file named in a request is never run
    if misplaced := {"name", "n_features", "seed", "feature_names"} & body.options.keys():
        raise InputError(f"options have {min(misplaced)!r}, which is none; it stands beside them")
    names = body.feature_names
    if names is not None and (len(names) != body.n_features or len(set(names)) != len(names)):
        raise InputError(f"feature_names must be {body.n_features} different names; got {len(set(names))}")
    prior = None if body.start is None else _prior(body.start, body.n_features, names)
    named = None if names is None else tuple(names)
    return Config(body.n_features, body.ranker, body.seed, dict(body.options), named, prior)


def _prior(start: StartBody, n_features: int, names: Sequence[str] | None) -> Prior:
    weights, variance = start.weights, start.variance
    if isinstance(weights, dict):
        if names is None:
            raise InputError("start.weights came by name, and there are no feature_names")
        unknown = sorted(weights.keys() - set(names))
        if unknown:
            raise InputError(f"start.weights has {unknown[0]!r}, which is no feature{nearest(unknown[0], names)}")
        weights = [weights.get(name) for name in names]
    for what, given in (("weights", weights), ("variance", variance)):
        if isinstance(given, list) and len(given) != n_features:
            raise InputError(f"start.{what} has {len(given)} numbers; expected {n_features}, one per feature")
    return Prior(tuple(weights), start.strength, tuple(variance) if isinstance(variance, list) else variance)


async def create_ranker(worker: WorkerState, name: str, body: CreateBody, actor: str) -> tuple[RankerRow, bool]:
    """The ranker of this name, made if it is not there, and whether it is new."""
    if body.n_features > worker.settings.max_features:
        raise InputError(f"n_features is {body.n_features}; at most {worker.settings.max_features} are allowed")
    existing = await worker.models.read(worker.store.rankers)
    if len(existing) >= worker.settings.max_rankers and name not in {row.name for row in existing}:
        raise RefusalError(429, "rankers", f"there are {len(existing)} rankers; no more are allowed")
    try:
        config, limits = config_of(body), Limits().changed(_given(body))
        row, new = await worker.administer(worker.store.create, name, config, limits, worker.clock(), actor)
    except (UnknownNameError, MissingExtraError) as problem:  # by a value of the body, not an address: 422, not 404
        raise InputError(str(problem)[:300]) from None
    return row, new


def describe(row: RankerRow) -> dict[str, Any]:
    config = asdict(row.config)
    return shown(
        RankerAnswer,
        row,
        **config,
        start=config["prior"],
        launch=row.launch and row.launch.mode,
        model_version=row.version,
        state_digest=row.digest,
        learned_count=row.learned,
        skipped_count=row.skipped,
        log_length=row.log_seq,
        log_applied=row.applied,
        open_impressions=row.open_count,
    )


def routes(worker: WorkerState) -> APIRouter:
    router = APIRouter(prefix="/v1/rankers", tags=["rankers"], dependencies=[KEY])
    get, changed = reading(router, worker.allow), answers(RankerAnswer, 404, body=True)

    @get("", "All rankers", listed("rankers", RankerAnswer))
    async def index() -> Response:
        return answer({"rankers": [describe(row) for row in await worker.models.read(worker.store.rankers)]})

    @creating(router, "Create a ranker", CreateBody, RankerAnswer, "configuration")
    async def create(name: str, request: Request) -> Response:
        actor = worker.allow(request, "admin")
        check_name(name, "ranker")
        row, new = await create_ranker(worker, name, parse(CreateBody, await worker.body(request)), actor)
        return answer(describe(row), 201 if new else 200)

    @get("/{name}", "One ranker, its model's version and digest", RankerAnswer)
    async def read(name: str, wait: Wait = WAIT_SECONDS) -> Response:
        return answer(describe(await worker.models.caught_up(name, wait)))

    @router.delete(
        "/{name}", summary="Delete a ranker with its log and models", responses=answers(StatusAnswer, 404, 409, 422)
    )
    async def delete(name: str, request: Request) -> Response:
        actor = worker.allow(request, "admin")
        if not await worker.administer(worker.store.delete, name, worker.clock(), actor):
            raise UnknownNameError(f"no ranker is called {name[:70]!r}")
        return answer({"status": "deleted"})

    @get("/{name}/versions", "The versions that can be pinned or gone back to", listed("versions", VersionAnswer))
    async def versions(name: str) -> Response:
        row = await worker.ranker(name)
        kept = await worker.models.read(worker.store.versions, row.id)
        return answer({"versions": [_version(row, snapshot) for snapshot in kept]})

    def act(what: str, summary: str, model: type[B], change: Callable[[str, B, str], Awaitable[Any]]) -> None:
        """Add the administrative act ``what``: ``change(name, body, actor)`` does it, the answer is the ranker then."""

        async def endpoint(name: str, request: Request) -> Response:
            actor = worker.allow(request, "admin")
            await change(name, parse(model, await worker.body(request)), actor)
            return answer(describe(await worker.ranker(name)))

        endpoint.__name__ = what
        body = body_of(model, required=model is not FreezeBody)
        router.post(f"/{{name}}/{what}", openapi_extra=body, summary=summary, responses=changed)(endpoint)

    async def freeze(name: str, body: FreezeBody, actor: str) -> None:
        await worker.administer(worker.store.set_frozen, name, body.frozen, worker.clock(), actor)

    async def limit(name: str, body: LimitsBody, actor: str) -> None:
        await worker.administer(worker.store.set_limits, name, _given(body), worker.clock(), actor)

    async def pin(name: str, body: PinBody, actor: str) -> None:
        await worker.administer(worker.store.pin, name, body.version, worker.clock(), actor)

    async def roll_back(name: str, body: RollbackBody, actor: str) -> None:
        await worker.administer(worker.store.roll_back, name, body.version, worker.clock(), actor)
        await worker.models.caught_up(name, ROLLBACK_SECONDS)

    act("freeze", "Stop learning or resume", FreezeBody, freeze)
    act("limits", "Change what may be explored and kept", LimitsBody, limit)
    act("pin", "Serve one version; learning goes on", PinBody, pin)
    act("rollback", "Go on learning from a version", RollbackBody, roll_back)
    return router


def _version(row: RankerRow, kept: Snapshot) -> dict[str, Any]:
    version = kept.version
    named = {"state_digest": kept.digest, "learned_count": kept.learned}
    return shown(VersionAnswer, kept, **named, current=version == row.version, pinned=version == row.pinned)


def _given(body: LimitsBody) -> dict[str, Any]:
    return body.model_dump(include=_LIMITS, exclude_none=True)
