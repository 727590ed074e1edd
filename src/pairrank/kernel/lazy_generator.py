"""The random numbers of one stream, drawn by compiled code where uniform ones are all that is asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from pairrank.kernel import jit
from pairrank.rng import Purpose, generator
from pairrank.types import FloatArray


@jit.twin()
def uniform(seed: int, number: int, purpose: int, n: int) -> FloatArray:
    """The first ``n`` numbers that `rng.generator` of these three gives as ``random``."""
    return generator(seed, number, Purpose(purpose)).random(n)


class LazyGenerator:
    """`rng.generator`, to the bit, that makes numpy's generator only when more is asked than some uniform numbers.

    >>> LazyGenerator(0, 1, Purpose.RANK).random(2) == generator(0, 1, Purpose.RANK).random(2)
    array([ True,  True])
    """

    def __init__(self, seed: int, number: int, purpose: Purpose) -> None:
        self._key = seed, number, int(purpose)
        self._drawn: int | None = None  # nothing was asked for yet

    def random(self, size: Any = None) -> Any:
        """As numpy's."""
        if self._drawn is not None or type(size) is not int:
            return self._made.random(size)
        self._drawn = size
        return uniform(*self._key, size)

    @cached_property
    def _made(self) -> np.random.Generator:
        seed, number, purpose = self._key
        made, self._drawn = generator(seed, number, Purpose(purpose)), self._drawn or 0
        made.random(self._drawn)
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)
