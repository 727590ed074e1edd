"""HTTP as uvicorn speaks it, with an end to headers, in bytes and in number, and a door where a worker is full or a key
asks too much.

Either is refused before a request is made of it. Who comes back too soon, and is to be refused again, hears so after a
moment: refusing must not become what a worker does all the time, and each turn of the event loop must stay short for
those inside.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import lru_cache
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pairrank.service.answers import RefusalError, refusal
from pairrank.service.worker.admission import Door, Place, Refusal

MAX_HEAD_BYTES = 64 * 2**10
MAX_HEADERS = 100
PATIENCE_SECONDS = 0.25
TURN_SECONDS = 0.02  # those that wait for a refusal hear it together, so often: a timer each would cost more
# While headers arrive they are parsed in pieces of this size, so that no more than one is read past the limit.
_PIECE = 16 * 2**10
# Java's own client offers HTTP/2 with every first request, Apache's TLS; the parser would take the body for that.
_OFFER = re.compile(rb"\r\nupgrade:[^\r\n]*(?=\r\n)", re.IGNORECASE)
# What a head must have, and must not, to be refused unparsed: its length alone says where the next request begins.
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*(?=\r\n|$)", re.IGNORECASE)
_OTHERWISE = re.compile(rb"\r\n(?:expect|transfer-encoding|upgrade|connection:[ \t]*close)", re.IGNORECASE)
_KEY = re.compile(rb"\r\nauthorization:[ \t]*([^\r]*)", re.IGNORECASE)
_TOO_LARGE = Refusal(
    "431 Request Header Fields Too Large",
    "headers",
    f"expected at most {MAX_HEADERS} headers of {MAX_HEAD_BYTES} bytes in all",
)
_NO_REQUEST = Refusal("400 Bad Request", "http", "the request is not HTTP/1.1: its line, a header or a length is wrong")


@lru_cache(maxsize=64)
def _answer(refusal: Refusal, last: bool, head_only: bool = False) -> bytes:
    body = json.dumps({"error": refusal.code, "message": refusal.message})
    head = [f"HTTP/1.1 {refusal.status}", "content-type: application/json", f"content-length: {len(body)}"]
    head += [f"retry-after: {refusal.seconds}"] if refusal.seconds else []
    head += ["connection: close"] if last else []
    return "\r\n".join([*head, "", "" if head_only else body]).encode()


@lru_cache(maxsize=256)  # clients send the same head again and again
def _parsed(head: bytes) -> tuple[bytes, bytes, int] | None:
    """Address, key and length of the body where a head as it came says all of it; None where it must be parsed."""
    line, lengths = head.partition(b"\r\n")[0].split(b" "), _LENGTH.findall(head)
    if len(line) != 3 or line[2] != b"HTTP/1.1" or len(lengths) != 1 or _OTHERWISE.search(head) or line[0] == b"HEAD":
        return None
    key = _KEY.search(head)
    return line[1], key[1] if key else b"", int(lengths[0])


class _TooLargeError(Exception):
    """Ends the parser's work from inside one of its calls."""


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol over httptools, which by itself keeps as many headers as a client sends, and as long ones."""

    # With thousands of connections most of what a refusal costs is memory that is not at hand; beside these names,
    # uvicorn's own are few enough that Python keeps them as a plain row of values.
    __slots__ = (
        "_asked",
        "_head",
        "_in_head",
        "_known",
        "_missing",
        "_owed",
        "_patience",
        "_place",
        "_quiet",
        "_refused",
        "_too_large",
        "_unread",
    )
    door: ClassVar[Door | None] = None

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._refused = False  # what is left of this request is read and dropped
        self._missing = 0  # bytes of it that are dropped unparsed
        self._quiet = 0.0  # until then one that was refused should not come again
        self._owed = b""  # what it hears then, having come
        self._known: tuple[Place | None] | None = None  # what the door has said before the head was parsed
        self._asked: Place | None = None  # behind the door
        self._place: Place | None = None  # and the one that it holds
        self._patience: asyncio.TimerHandle | None = None  # then it holds it no longer
        self._in_head = True
        self._too_large = False
        self._head = 0  # bytes of the request's line and headers that the parser has handed over
        self._unread = 0  # bytes fed while the head was not at its end

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request; uvicorn would wait for the first one for ever."""
        super().connection_made(transport)
        self._expect_head(self.timeout_keep_alive)

    def _expect_head(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """Expect it until its head is there, however little of it comes; uvicorn would stop at the first byte."""
        if not self._in_head:
            super()._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Hand on what has arrived, if the head so far is small enough."""
        if self._missing:
            dropped = min(self._missing, len(data))
            self._missing -= dropped
            if self._owed and not self._missing:
                self._pause()
            data = data[dropped:]
            if not data:
                return
            if self._owed:  # more has come already: answers keep the order
                self._tell(self._owed)
                self._owed = b""
        if self._in_head and self._is_refused_unparsed(data):
            return
        if self._in_head:
            end = data.find(b"\r\n\r\n")
            if data.find(b"pgrade:", 0, end if end >= 0 else len(data)) >= 0:  # in a long body a search takes its time
                head, blank, body = data.partition(b"\r\n\r\n")
                data = _OFFER.sub(b"", head + blank) + body
        rest = memoryview(data)
        while self._in_head and len(rest) > 0 and not self.transport.is_closing():
            piece, rest = rest[:_PIECE], rest[_PIECE:]
            self._unread += len(piece)
            super().data_received(piece)  # type: ignore[arg-type]  # any buffer will do
            if self._in_head and self._unread > MAX_HEAD_BYTES + _PIECE:
                self._too_large = True
                self._refuse()
        if len(rest) > 0 and not self.transport.is_closing():
            super().data_received(rest)  # type: ignore[arg-type]
        if self._place is not None and not self._in_head and self._patience is None:
            self._patience = self.loop.call_later(PATIENCE_SECONDS, self._leave)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head = True, 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._count(MAX_HEAD_BYTES)

    def on_headers_complete(self) -> None:
        """Begin with the request, if there is room for it."""
        self._in_head, self._unread = False, 0
        self._unset_keepalive_if_required()
        asked: Place | Refusal | None = None
        if self._known is not None:
            asked, self._known = self._known[0], None
        elif self.door is not None:
            key = next((value for name, value in self.headers if name == b"authorization"), b"")
            asked = self.door.ask(self.url, key, alone=self._is_alone())
        if isinstance(asked, Refusal) and not self._is_alone():
            self._refuse_in_turn(asked)
            return
        self._refused = isinstance(asked, Refusal)
        self._asked = asked if isinstance(asked, Place) else None
        if not isinstance(asked, Refusal):
            super().on_headers_complete()
            self._hold()
            return
        # A client that waits for leave to send a body may or may not send it now: only a new connection is clear.
        last = self.expect_100_continue or not self.parser.should_keep_alive()
        self._tell(_answer(asked, last, self.parser.get_method() == b"HEAD"))
        if last:
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        if self._refused:
            self._refused = False
            self.on_response_complete()
            self._pause()
            return
        super().on_message_complete()
        self._be_patient()
        if self.cycle.response_complete:  # before the body was there
            self._expect_head(self.timeout_keep_alive)
        elif self._place is None:
            self._hold()

    def on_response_complete(self) -> None:
        self._leave()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_head = False
        self._unset_keepalive_if_required()
        self._leave()
        super().connection_lost(exc)

    def _is_alone(self) -> bool:
        """Whether no answers to earlier requests are due."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _is_refused_unparsed(self, data: bytes) -> bool:
        """Refuse a request by its head as it came: parsing would be most of what refusing costs."""
        end = data.find(b"\r\n\r\n", 0, _PIECE)
        if self.door is None or end < 0 or self._unread or not self._is_alone():
            return False
        found = _parsed(data[:end])
        missing = -1 if found is None else end + 4 + found[2] - len(data)
        if found is None or missing < 0:
            return False
        asked = self.door.ask(found[0], found[1])
        if not isinstance(asked, Refusal):
            self._known = (asked,)
            return False
        answer = _answer(asked, False)
        self._missing = missing
        if self.loop.time() >= self._quiet:
            self._tell(answer)
        else:
            self._owed = answer
            if not missing:
                self._pause()
        return True

    def _refuse_in_turn(self, refused: Refusal) -> None:
        """Answer after the requests of this connection that came before."""
        assert self.door is not None
        self._asked = None
        status, app = int(refused.status[:3]), self.app
        self.door.refused(status, self.loop.time())
        self.app = response = refusal(RefusalError(status, refused.code, refused.message))
        response.headers["Retry-After"] = str(refused.seconds)
        if self.expect_100_continue:  # as where it is alone
            response.headers["Connection"] = "close"
        super().on_headers_complete()
        self.app = app

    def _tell(self, refusal: bytes) -> None:
        assert self.door is not None
        now = self.loop.time()
        self._quiet = now + self.door.refused(int(refusal[9:12]), now)
        self.transport.write(refusal)

    def _pause(self) -> None:
        """Read nothing more until it is quiet no longer."""
        assert self.door is not None
        self.flow.pause_reading()
        turn = int(self._quiet / TURN_SECONDS) + 1
        if turn not in self.door.paused:
            self.door.paused[turn] = []
            self.loop.call_at(turn * TURN_SECONDS, self._read_on, self.door.paused, turn)
        self.door.paused[turn].append(self)

    @staticmethod
    def _read_on(paused: dict[int, list[HttpProtocol]], turn: int) -> None:
        for one in paused.pop(turn):
            if not one.transport.is_closing():
                if one._owed:
                    one._tell(one._owed)
                    one._owed = b""
                one.flow.resume_reading()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing has come for long, not even what was refused."""
        left = self._quiet + self.timeout_keep_alive - self.loop.time()  # a refusal leaves the timers as they are
        if left > 0:
            self._expect_head(left)
        else:
            super().timeout_keep_alive_handler()

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
        self._refuse()

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD_BYTES:
            self._too_large = True
            raise _TooLargeError

    def _refuse(self) -> None:
        self.transport.write(_answer(_TOO_LARGE if self._too_large else _NO_REQUEST, last=True))
        self.transport.close()
