"""How much a worker takes on at once. What comes beyond that hears so at the door; the rest is answered in time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pairrank.service.answers import RefusalError

RETRY_SECONDS = 1.0
MANY_REFUSALS = 200  # in a second
BUSY = "this worker has more to do than it can; try again in a moment"


class Admission:
    """Room for ``limit`` things, in equal shares for the rankers that have any inside.

    A ranker that is asked for alone has all of it. When n are, each may hold limit / n: those that hold more get
    nothing new until they are below that, so one busy ranker never shuts out the others. No more than
    limit (1 + 1/2 + ... + 1/n) are ever inside.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside: Counter[str] = Counter()

    def check(self, ranker: str, size: int = 1) -> None:
        """Raise when there is no room for ``size`` more; the only one of its ranker always fits."""
        if not self.fits(ranker, size):
            raise RefusalError(503, "busy", BUSY)

    def fits(self, ranker: str, size: int = 1) -> bool:
        """Whether there is room for ``size`` more."""
        held = self._inside.get(ranker, 0)
        others = len(self._inside) - (held > 0)
        return not held or held + size <= max(1, self._limit // (others + 1))

    def take(self, ranker: str, size: int = 1) -> None:
        """Have less room, by ``size``; more where that is negative."""
        self._inside[ranker] += size
        if not self._inside[ranker]:
            del self._inside[ranker]

    @contextmanager
    def enter(self, ranker: str, size: int = 1) -> Iterator[None]:
        """Take the room for the time of the block."""
        self.check(ranker, size)
        self.take(ranker, size)
        try:
            yield
        finally:
            self.take(ranker, -size)


class Place(NamedTuple):
    """Room for one request of a ranker."""

    room: Admission
    ranker: str

    @property
    def free(self) -> bool:
        """Whether it can be had."""
        return self.room.fits(self.ranker)

    def take(self) -> None:
        """Have it."""
        self.room.take(self.ranker)

    def give(self) -> None:
        """Give it back."""
        self.room.take(self.ranker, -1)


class Door:
    """The same limits on requests from the network, where to refuse one costs next to nothing.

    A request holds its place until it is answered. One whose body is slow to come gives it back until all of it is
    there, so that slow clients take none.
    """

    def __init__(self, max_ranking: int, max_writing: int, refused: Callable[[], None]) -> None:
        ranking, writing = Admission(max_ranking), Admission(max_writing)
        self._rooms = {b"rank": ranking, b"feedback": writing, b"events": writing}
        self._count = refused
        self._second = self._last = self._this = 0

    def refused(self) -> float:
        """Count a refusal. For so many seconds its connection should not be read: longer the more there are, up to what
        clients are asked to wait, so that refusing never becomes most of the work."""
        self._count()
        second = int(time.monotonic())
        if second != self._second:
            self._last, self._this = self._this if second == self._second + 1 else 0, 0
            self._second = second
        self._this += 1
        return min(RETRY_SECONDS, max(self._last, self._this) / MANY_REFUSALS)

    def place(self, url: bytes) -> Place | None:
        """What a request for this address needs; None where it needs none."""
        parts = url.partition(b"?")[0].split(b"/")
        if len(parts) != 5 or parts[2] != b"rankers" or parts[4] not in self._rooms:
            return None
        return Place(self._rooms[parts[4]], parts[3].decode("latin-1"))
