"""How much a worker takes on at once. What comes beyond that hears so at the door; the rest is answered in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pairrank.service.answers import RefusalError


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
        held = self._inside.get(ranker, 0)
        others = len(self._inside) - (held > 0)
        if held and held + size > max(1, self._limit // (others + 1)):
            raise RefusalError(503, "busy", "this worker has more to do than it can; try again in a moment")

    @contextmanager
    def enter(self, ranker: str, size: int = 1) -> Iterator[None]:
        """Take the room for the time of the block."""
        self.check(ranker, size)
        self._inside[ranker] += size
        try:
            yield
        finally:
            self._inside[ranker] -= size
            if not self._inside[ranker]:
                del self._inside[ranker]
