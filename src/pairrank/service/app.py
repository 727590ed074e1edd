"""The application, assembled from values: ``make_app(store, settings)``."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairrank.service import telemetry
from pairrank.service.answers import RefusalError, answer, refusal
from pairrank.service.http import administration, experiments, observation, ranking, rerank
from pairrank.service.http.endpoints import sentence
from pairrank.service.http.hosts import is_own, may_write
from pairrank.service.json_logging import request_id
from pairrank.service.pages import routes as pages
from pairrank.service.settings import Settings
from pairrank.service.worker.state import WorkerState
from pairrank.version import __version__

# Pages load nothing from elsewhere, are framed by nobody and tell nobody where their readers came from.
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    ),
)


def make_app(
    store: str | Path,
    settings: Settings | None = None,
    *,
    clock: Callable[[], float] = time.time,
    learner: bool = False,
    routes: Sequence[Callable[[WorkerState], Iterable[BaseRoute]]] = (),
) -> FastAPI:
    """The service over a store. ``learner`` True also makes the store, and learns, in this process; else others must,
    and a store that is not there is waited for.

    ``routes`` are more rooms, mounted by the command that needs them; ``app.state.nav`` names the pages in the bar.
    """
    settings = settings or Settings()
    worker = WorkerState(store, settings, clock=clock, learner=learner)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with worker.open():
            yield
        telemetry.stop()  # a server that was told to stop by a signal ends by it, right after this

    app = FastAPI(
        title="PairRank",
        version=__version__,
        description="Ranking that learns from clicks while it serves.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would lead away from https and from the path that a proxy puts before ours
        # All other errors are told by the envelope.
        exception_handlers={RequestValidationError: _on_invalid, HTTPException: _on_http},
    )
    app.state.worker = worker
    parts = (ranking.routes, rerank.routes, administration.routes, experiments.routes, experiments.launch_routes)
    for part in (*parts, observation.routes):
        app.include_router(part(worker))
    app.state.nav = [("./", "Live"), ("experiments", "Experiments"), ("docs", "API")]
    for part_routes in (pages.routes, *routes):
        app.router.routes.extend(part_routes(worker))
    app.add_middleware(Envelope, worker=worker)
    if settings.origins:  # around all: a page cannot read a refusal without its headers either
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["POST"], allow_headers=["*"]
        )
    return app


class Envelope:
    """Around every request: an id, the security headers, one sentence for whatever went wrong, a count by status."""

    def __init__(self, app: ASGIApp, worker: WorkerState) -> None:
        self._app, self._worker = app, worker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = secrets.token_hex(8)
        token = request_id.set(own)
        started, status, begun, over = time.perf_counter(), 500, False, False

        async def dressed(message: Message) -> None:
            nonlocal status, begun, over
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", own.encode()),
                    *(header for header in _HEADERS if header[0] not in given),
                ]
            elif scope["method"] == "HEAD":  # the server leaves the body out; that of a stream would never end
                if over:
                    return
                over, message["more_body"] = True, False
            await send(message)

        with telemetry.request(scope):
            try:
                problem = self._refused(scope)
                if problem is not None:
                    await refusal(problem)(scope, receive, dressed)
                else:
                    asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
                    await self._app(asked, receive, dressed)
            except Exception as fault:
                if begun:
                    raise
                await refusal(fault)(scope, receive, dressed)
            finally:
                self._worker.account(scope, status, time.perf_counter() - started)
                request_id.reset(token)

    def _refused(self, scope: Scope) -> RefusalError | None:
        """Why a request goes no further: without keys, any page that a user visits could otherwise read or write."""
        if self._worker.away is not None:  # nor are there keys to go by
            return None if scope["path"] == "/healthz" else self._worker.away
        headers = dict(scope["headers"])
        if not is_own(headers, self._worker.settings, bool(self._worker.models.keys)):
            host = headers[b"host"].decode("latin-1")[:80]
            return RefusalError(421, "host", f"this service does not answer to the host {host!r}; see allowed_hosts")
        if not may_write(scope["method"], scope["scheme"], headers, self._worker.settings):
            return RefusalError(403, "origin", "pages of this origin may not write; see allow_origins")
        # No name has it, and PostgreSQL cannot look for it.
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return RefusalError(422, "input", "the address holds a null character")
        encoding = headers.get(b"content-encoding", b"identity").decode("latin-1").lower()
        if encoding != "identity":
            return RefusalError(415, "encoding", f"the body is encoded by {encoding[:40]!r}; expected it as it is")
        return None


async def _on_invalid(_: Request, problem: Any) -> Response:
    return refusal(RefusalError(422, "input", sentence(problem.errors()[0])))


async def _on_http(request: Request, problem: Any) -> Response:
    message, headers = str(problem.detail).lower() or "the request was refused", dict(problem.headers or {})
    if problem.status_code == 404:
        message = f"nothing is at {request.url.path[:80]!r}; /docs tells what there is"
    if problem.status_code == 405:  # a path has a route per method, and the first one answered for itself alone
        asked = {m: {**request.scope, "method": m} for m in ("DELETE", "GET", "POST", "PUT")}
        taken = [m for m, scope in asked.items() if any(r.matches(scope)[0] == Match.FULL for r in request.app.routes)]
        headers["Allow"] = ", ".join(taken).replace("GET", "GET, HEAD")
        message = f"this address takes no {request.method}; expected {headers['Allow']}"
    response = answer({"error": "http", "message": message}, problem.status_code)
    response.headers.update(headers)
    return response
