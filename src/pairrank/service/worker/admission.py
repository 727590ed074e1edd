"""How much a worker takes on at once. What comes beyond that hears so at the door; the rest is answered in time."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from pairrank.service.answers import RefusalError
from pairrank.service.auth import NoKeyError, authorise
from pairrank.service.store.values import Key

RETRY_SECONDS = 1.0
MANY_REFUSALS = 200  # in a second
BUSY = "this worker has more to do than it can; try again in a moment"


class Admission:
    """Room for ``limit`` things, in equal shares for those that have any inside: a ranker and the key that asks for it.

    One that comes alone has all of it. When n do, each may hold limit / n: those that hold more get nothing new until
    they are below that, so one busy ranker or key never shuts out the others. No more than limit (1 + 1/2 + ... + 1/n)
    are ever inside.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside: Counter[Hashable] = Counter()

    def fits(self, who: Hashable, size: int = 1) -> bool:
        """Whether there is room for ``size`` more; the only one of its kind always fits."""
        held = self._inside.get(who, 0)
        others = len(self._inside) - (held > 0)
        return not held or held + size <= max(1, self._limit // (others + 1))

    def take(self, who: Hashable, size: int = 1) -> None:
        """Have less room, by ``size``; more where that is negative."""
        self._inside[who] += size
        if not self._inside[who]:
            del self._inside[who]

    @contextmanager
    def enter(self, who: Hashable, size: int = 1) -> Iterator[None]:
        """Take the room for the time of the block, if there is any."""
        if not self.fits(who, size):
            raise RefusalError(503, "busy", BUSY)
        self.take(who, size)
        try:
            yield
        finally:
            self.take(who, -size)


class Rates:
    """``rate`` requests per second of each key, on average: a key that was silent may send a second's worth at once."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._spent: dict[str, float] = {}  # until when what each key has sent would have lasted at that rate

    def wait(self, key: str) -> float:
        """Take one request of a key; or, where it has sent too many, the seconds until it may send another."""
        now, one = self._clock(), 1.0 / self._rate
        ahead = max(self._spent.get(key, now) - now, 0.0)
        if ahead > max(1.0 - one / 2, 0.0):  # by half of one: sums are rounded
            return ahead - max(1.0 - one, 0.0)
        self._spent[key] = now + ahead + one
        return 0.0


class Place(NamedTuple):
    """Room for one request of a ranker and a key."""

    room: Admission
    who: tuple[str, str]

    def take(self) -> None:
        self.room.take(self.who)

    def give(self) -> None:
        self.room.take(self.who, -1)


class Refusal(NamedTuple):
    """What a request hears at the door: the rest of the status line, the error's code, a sentence, and seconds to wait
    if it may come again."""

    status: str
    code: str
    message: str
    seconds: int = 0


FULL = Refusal("503 Service Unavailable", "busy", BUSY, math.ceil(RETRY_SECONDS))


@lru_cache(maxsize=1024)
def _parts(url: bytes) -> tuple[str, bytes]:
    """The ranker that an address names, and what is wanted of it; nothing where it is no such address."""
    parts = url.partition(b"?")[0].split(b"/")
    return (parts[3].decode("latin-1"), parts[4]) if len(parts) == 5 and parts[2] == b"rankers" else ("", b"")


class Door:
    """The same limits on requests from the network, where to refuse one costs next to nothing; and those of keys.

    A request holds its place until it is answered. One whose body is slow to come gives it back until all of it is
    there, so that slow clients take none.

    key_rate : requests per second that one key may send, 0 for any number.
    refused : is told the status of each refusal.
    keys : answers the keys that there are.
    """

    def __init__(
        self,
        max_ranking: int,
        max_writing: int,
        key_rate: float = 0.0,
        *,
        refused: Callable[[int], None] = lambda _: None,
        keys: Callable[[], Sequence[Key]] = lambda: (),
    ) -> None:
        ranking, writing = Admission(max_ranking), Admission(max_writing)
        self._rooms = {b"rank": ranking, b"feedback": writing, b"events": writing}
        self._count, self._keys, self._key_rate = refused, keys, key_rate
        self._rates = Rates(key_rate) if key_rate else None
        self._second = self._last = self._this = 0
        self.paused: dict[int, list[Any]] = {}  # connections that are not read for a moment, by when they are again

    def refused(self, status: int, now: float) -> float:
        """Count a refusal. For so many seconds its client should not come back: longer the more there are, up to what
        clients are asked to wait, so that refusing never becomes most of the work."""
        self._count(status)
        second = int(now)
        if second != self._second:
            self._last, self._this = self._this if second == self._second + 1 else 0, 0
            self._second = second
        self._this += 1
        many = max(self._last, self._this) / MANY_REFUSALS
        return many if many < RETRY_SECONDS else RETRY_SECONDS

    def ask(self, url: bytes, authorization: bytes, *, alone: bool = True) -> Place | Refusal | None:
        """The place that a request needs, None where it needs none, or why it may not come in.

        One that is not ``alone`` waits for answers to earlier ones of its connection, and holds no place meanwhile.
        """
        key = self._key(authorization) if authorization else ""
        if self._rates is not None and key and (wait := self._rates.wait(key)):
            message = f"the key {key!r} has sent more than {self._key_rate:g} requests per second; wait a moment"
            return Refusal("429 Too Many Requests", "rate", message, math.ceil(wait))
        name, work = _parts(url)
        room, who = self._rooms.get(work), (name, key)
        if room is None or not alone:
            return None
        return Place(room, who) if room.fits(who) else FULL

    def _key(self, authorization: bytes) -> str:
        """The name of a request's key; empty where it has none, which others will tell it."""
        keys = self._keys()
        try:
            return authorise(keys, authorization.decode("latin-1"), None) if keys else ""
        except NoKeyError:
            return ""
