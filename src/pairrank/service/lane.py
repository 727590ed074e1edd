"""The short way for rank and feedback, before the framework begins its own work: that costs more than an Arrow body.

What happens around every other request happens here too: an id, the security headers, a count by status, a line in the
log, one sentence for whatever goes wrong. Requests from pages go the framework's way, which knows about origins.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from pairrank.service.desk import Asked, Desk, refusal
from pairrank.service.lines import request_id
from pairrank.service.ranking import feedback_once, rank_once

_PREFIX = ["", "v1", "rankers"]
_WORK = {"rank": rank_once, "feedback": feedback_once}

Headers = list[tuple[bytes, bytes]]


class Lane:
    """An ASGI application for ``POST /v1/rankers/{name}/rank`` and ``…/feedback`` alone."""

    def __init__(self, desk: Desk, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._desk, self._headers = desk, tuple(headers)

    def takes(self, scope: Scope) -> bool:
        """Whether a request belongs here."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return False
        parts = scope["path"].split("/")
        if len(parts) != 5 or parts[4] not in _WORK or parts[:3] != _PREFIX or not parts[3]:
            return False
        headers = dict(scope["headers"])
        return b"origin" not in headers and self._desk.is_own(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request that `takes` has accepted."""
        started, status, own = time.perf_counter(), 500, secrets.token_hex(8)
        token = request_id.set(own)
        try:
            status, headers, body = await self._reply(scope, receive)
            headers += ((b"x-request-id", own.encode()), *self._headers)
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            self._desk.account(scope, status, time.perf_counter() - started)
            request_id.reset(token)

    async def _reply(self, scope: Scope, receive: Receive) -> tuple[int, Headers, bytes]:
        _, _, _, name, kind = scope["path"].split("/")
        try:
            body = await _WORK[kind](self._desk, name, Asked(dict(scope["headers"]), scope["query_string"], receive))
        except Exception as problem:
            response = refusal(problem)
            return response.status_code, list(response.raw_headers), bytes(response.body)
        return 200, [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")], body
