"""Documents whose every feature ranges over exactly [0, 1] in its list: units of range change nothing about them."""

from __future__ import annotations

import numpy as np

from pairrank.types import FloatArray


def ranging(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """(n, d), random, from 0 to 1 in every column; n ≥ 2."""
    X = rng.random((n, d))
    X -= X.min(axis=0)
    scaled: FloatArray = X / X.max(axis=0)
    return scaled
