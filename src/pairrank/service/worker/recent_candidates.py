"""All candidates of the newest impressions, in memory, so that a drawing shows more than what was shown."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from sys import getsizeof
from typing import NamedTuple

from pairrank.types import FloatArray

MAX_BYTES = 32 * 2**20
MAX_KEPT = 500


class KeptCandidates(NamedTuple):
    """The candidates of one impression, in the order in which they came."""

    ids: Sequence[str]
    features: FloatArray

    @property
    def nbytes(self) -> int:
        """What they take: two thousand long ids more than as many features."""
        return self.features.nbytes + sum(map(getsizeof, self.ids))


class Recent:
    """A bounded memory of candidates by the impression's token, which is no other's even where a ranker is deleted and
    made anew; the oldest leave first. For the event loop."""

    def __init__(self, max_kept: int = MAX_KEPT, max_bytes: int = MAX_BYTES) -> None:
        self._kept: OrderedDict[str, KeptCandidates] = OrderedDict()
        self._bytes = 0
        self._max_kept, self._max_bytes = max_kept, max_bytes

    def keep(self, token: str, ids: Sequence[str], features: FloatArray) -> None:
        """Remember one impression's candidates, as references: nobody may write to them afterwards."""
        self._drop(token)
        kept = self._kept[token] = KeptCandidates(ids, features)
        self._bytes += kept.nbytes
        while self._kept and (len(self._kept) > self._max_kept or self._bytes > self._max_bytes):
            self._drop(next(iter(self._kept)))

    def find(self, token: str) -> KeptCandidates | None:
        return self._kept.get(token)

    def _drop(self, token: str) -> None:
        gone = self._kept.pop(token, None)
        if gone is not None:
            self._bytes -= gone.nbytes
