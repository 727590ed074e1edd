"""What every endpoint answers with: JSON, or a status, a code for programs and one sentence for people."""

from __future__ import annotations

import logging
from typing import Any

import orjson
from starlette.responses import Response

from pairrank.errors import InputError, PairRankError, StorageError, UnknownNameError
from pairrank.service.auth import NoKeyError, RoleError
from pairrank.service.http.rank_request import MalformedError
from pairrank.service.store.values import ConflictError, RankerExistsError, VersionError

logger = logging.getLogger("pairrank.requests")

MAX_MESSAGE = 1000


class RefusalError(PairRankError):
    """An answer other than 200: a status, a short code and one sentence."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


# The first that fits.
_STATUS: tuple[tuple[type[PairRankError], int, str], ...] = (
    (NoKeyError, 401, "key"),
    (RoleError, 403, "role"),
    (MalformedError, 400, "malformed"),
    (UnknownNameError, 404, "unknown"),
    (VersionError, 404, "version"),
    (RankerExistsError, 409, "exists"),
    (ConflictError, 409, "conflict"),
    (InputError, 422, "input"),
    (StorageError, 503, "store"),
)


def answer(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY), status, media_type="application/json")


def refusal(problem: Exception, *, detail: bool = False) -> Response:
    """The response for an error: its status, a code for programs and one sentence for people.

    ``detail``: the sentence stands there, too, where Jina's clients look for it.
    """
    if isinstance(problem, RefusalError):
        status, code = problem.status, problem.code
    else:
        status, code = next(((s, c) for kind, s, c in _STATUS if isinstance(problem, kind)), (500, "internal"))
    message = str(problem)[:MAX_MESSAGE]  # some repeat what came, which may be megabytes
    if code == "internal":
        logger.error("a fault in the program", exc_info=problem)
        message = "something went wrong; the log tells more"
    told = {"error": code, "message": message} | ({"detail": message} if detail else {})
    response = answer(told, status)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        response.headers["Retry-After"] = "1"
    return response
