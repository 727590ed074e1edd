"""HTTP as uvicorn speaks it, with an end to headers, in bytes and in number, and a door where a worker is full or a key
asks too much.

Either is refused before a request is made of it, and after the latter the connection is not read for a moment: refusing
must not become what a worker does all the time, and each turn of the event loop must stay short for those inside.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pairrank.service.worker.admission import Door, Place, Refusal

MAX_HEAD_BYTES = 64 * 2**10
MAX_HEADERS = 100
PATIENCE_SECONDS = 0.25
# While headers arrive they are parsed in pieces of this size, so that no more than one is read past the limit.
_PIECE = 16 * 2**10
# Java's own client offers HTTP/2 with every first request; the parser would take what follows, the body, for HTTP/2.
_OFFER = re.compile(rb"\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n|$)", re.IGNORECASE)
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%s"
)
_BODY = b'{"error":"headers","message":"expected at most %d headers of %d bytes in all"}' % (
    MAX_HEADERS,
    MAX_HEAD_BYTES,
)
_AT_THE_DOOR = (
    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nretry-after: {seconds}\r\n"
    "content-length: {length}\r\n{last}\r\n{body}"
)


class _TooLargeError(Exception):
    """Ends the parser's work from inside one of its calls."""


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol over httptools, which by itself keeps as many headers as a client sends, and as long ones."""

    door: ClassVar[Door | None] = None

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._refused = False  # what is left of this request is read and dropped
        self._asked: Place | None = None  # behind the door
        self._place: Place | None = None  # and the one that it holds
        self._patience: asyncio.TimerHandle | None = None  # then it holds it no longer
        self._in_head = True
        self._too_large = False
        self._head = 0  # bytes of the request's line and headers that the parser has handed over
        self._unread = 0  # bytes fed while the head was not at its end

    def data_received(self, data: bytes) -> None:
        """Hand on what has arrived, if the head so far is small enough."""
        if self._in_head:
            end = data.find(b"\r\n\r\n")
            if data.find(b"h2c", 0, end if end >= 0 else len(data)) >= 0:  # in a long body a search takes its time
                head, blank, body = data.partition(b"\r\n\r\n")
                data = _OFFER.sub(b"", head) + blank + body
        rest = memoryview(data)
        while self._in_head and len(rest) > 0 and not self.transport.is_closing():
            piece, rest = rest[:_PIECE], rest[_PIECE:]
            self._unread += len(piece)
            super().data_received(piece)  # type: ignore[arg-type]  # any buffer will do
            if self._in_head and self._unread > MAX_HEAD_BYTES + _PIECE:
                self._refuse()
        if len(rest) > 0 and not self.transport.is_closing():
            super().data_received(rest)  # type: ignore[arg-type]
        if self._place is not None and not self._in_head and self._patience is None:
            self._patience = self.loop.call_later(PATIENCE_SECONDS, self._leave)

    def on_message_begin(self) -> None:
        """Start to count."""
        super().on_message_begin()
        self._in_head, self._head = True, 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._count(MAX_HEAD_BYTES)

    def on_headers_complete(self) -> None:
        """Begin with the request, if there is room for it."""
        self._in_head, self._unread = False, 0
        alone = self.cycle is None or self.cycle.response_complete  # else answers of before it are still due
        asked = self.door.ask(self.url, self.headers) if self.door is not None and alone else None
        self._refused = isinstance(asked, Refusal)
        self._asked = asked if isinstance(asked, Place) else None
        if self.door is None or not isinstance(asked, Refusal):
            super().on_headers_complete()
            self._hold()
            return
        self._pause = self.door.refused(asked)
        # A client that waits for leave to send a body may or may not send it now: only a new connection is clear.
        last = self.expect_100_continue or not self.parser.should_keep_alive()
        body = json.dumps({"error": asked.code, "message": asked.message})
        head = {"status": asked.status, "seconds": asked.seconds, "length": len(body)}
        close = "connection: close\r\n" if last else ""
        self.transport.write(_AT_THE_DOOR.format(**head, last=close, body=body).encode())
        if last:
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect another head."""
        self._in_head = True
        if self._refused:
            self._refused = False
            self.on_response_complete()
            self.flow.pause_reading()
            self.loop.call_later(self._pause, self._read_on)
            return
        super().on_message_complete()
        self._be_patient()
        if self._place is None and not self.cycle.response_complete:
            self._hold()

    def on_response_complete(self) -> None:
        """Leave room for another."""
        self._leave()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._leave()
        super().connection_lost(exc)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def _hold(self) -> None:
        if self._asked is not None:
            self._asked.take()
            self._place = self._asked

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _leave(self) -> None:
        self._be_patient()
        if self._place is not None:
            self._place.give()
            self._place = None

    def send_400_response(self, msg: str) -> None:
        """Say why the connection ends."""
        if self._too_large:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD_BYTES:
            self._too_large = True
            raise _TooLargeError

    def _refuse(self) -> None:
        self.transport.write(_REFUSAL % (len(_BODY), _BODY))
        self.transport.close()
