"""HTTP as uvicorn speaks it, with an end to headers: in bytes and in number, refused before the request is made."""

from __future__ import annotations

import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 2**10
MAX_HEADERS = 100
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


class _TooLargeError(Exception):
    """Ends the parser's work from inside one of its calls."""


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol over httptools, which by itself keeps as many headers as a client sends, and as long ones."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._in_head = True
        self._too_large = False
        self._head = 0  # bytes of the request's line and headers that the parser has handed over
        self._unread = 0  # bytes fed while the head was not at its end

    def data_received(self, data: bytes) -> None:
        """Hand on what has arrived, if the head so far is small enough."""
        if self._in_head and b"h2c" in data:
            head, end, body = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(b"", head) + end + body
        rest = memoryview(data)
        while self._in_head and len(rest) > 0 and not self.transport.is_closing():
            piece, rest = rest[:_PIECE], rest[_PIECE:]
            self._unread += len(piece)
            super().data_received(piece)  # type: ignore[arg-type]  # any buffer will do
            if self._in_head and self._unread > MAX_HEAD_BYTES + _PIECE:
                self._refuse()
        if len(rest) > 0 and not self.transport.is_closing():
            super().data_received(rest)  # type: ignore[arg-type]

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
        """Begin with the request."""
        self._in_head, self._unread = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expect another head."""
        super().on_message_complete()
        self._in_head = True

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
