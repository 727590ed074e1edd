"""Counter-based randomness: every draw is a function of (seed, number, purpose), never of what was drawn before.

Philox4x64 turns a key of 128 bits and a counter of 256 bits into random words. The key holds the seed; the two high
words of the counter hold the number (of an impression, of a round) and the purpose, so streams never overlap.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from pairrank.errors import OptionError

MAX_SEED = 2**64 - 1


class Purpose(IntEnum):
    """What a stream of random numbers is for. The values are part of every result: never renumber them."""

    RANK = 1
    LEARN = 2
    QUERIES = 3
    CLICKS = 4
    DATA = 5
    TIES = 6
    INIT = 7
    NOISE = 9
    TEAMS = 10


def check_seed(seed: int) -> int:
    """Return ``seed`` as an int, or raise: seeds are whole numbers from 0 to 2^64 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed <= MAX_SEED:
        raise OptionError(f"seed is {seed!r}; expected a whole number from 0 to 2**64 - 1")
    return int(seed)


class _Key(ISeedSequence):
    """A seed as Philox's key. Given a plain ``key=``, numpy would first ask the system for entropy it never uses."""

    def __init__(self, seed: int) -> None:
        self._words = np.array([seed, 0], dtype=np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> NDArray[np.uint64]:
        """The key's two words."""
        return self._words


_key = lru_cache(maxsize=64)(_Key)


def generator(seed: int, number: int, purpose: Purpose) -> np.random.Generator:
    """A generator keyed by (seed, number, purpose); the same three give the same stream, anywhere."""
    counter = np.array([0, 0, number, int(purpose)], dtype=np.uint64)
    # numpy takes any seed sequence; its type hints name only its own.
    return np.random.Generator(np.random.Philox(_key(seed), counter=counter))  # type: ignore[arg-type]
