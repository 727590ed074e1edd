"""Which impressions have been learned: an exact set of numbers in bounded memory."""

from __future__ import annotations

import numpy as np

from pairrank.errors import ExpiredImpressionError
from pairrank.types import AnyArray

WINDOW = 2**20


class LearnedSet:
    """A set of impression numbers, one bit each, over a window of the newest ``window`` numbers.

    Clicks may come late and twice; a number that has left the window is refused, never guessed at. The default window
    of a million impressions takes at most 128 KiB.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._start = 0  # number of the first bit; a multiple of 8
        self._bits = bytearray()

    def __contains__(self, number: int) -> bool:
        place = number - self._start
        if place < 0:
            raise ExpiredImpressionError(
                f"impression {number} is older than the {self._window} newest; whether it was learned is not known"
            )
        byte, bit = divmod(place, 8)
        return byte < len(self._bits) and bool(self._bits[byte] >> bit & 1)

    def may_have(self, number: int) -> bool:
        """Whether ``number`` is in the set, or too old to tell."""
        return number < self._start or number in self

    def add(self, number: int) -> None:
        """Remember ``number``; the oldest numbers leave when the window is full."""
        excess = number + 1 - self._window - self._start
        if excess > 0:
            drop = -(-excess // 8)
            del self._bits[:drop]
            self._start += 8 * drop
        byte, bit = divmod(number - self._start, 8)
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        self._bits[byte] |= 1 << bit

    def to_array(self) -> AnyArray:
        """The set as bytes (the start, eight bytes, then the bits)."""
        return np.frombuffer(self._start.to_bytes(8, "little") + bytes(self._bits), dtype=np.uint8)

    @classmethod
    def from_array(cls, array: AnyArray) -> LearnedSet:
        """The set that `to_array` wrote."""
        numbers = cls()
        raw = array.tobytes()
        numbers._start = int.from_bytes(raw[:8], "little")
        numbers._bits = bytearray(raw[8:])
        return numbers
