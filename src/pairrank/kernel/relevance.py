"""Scores for those who sort by them: numbers that fall along a list as it is shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pairrank.types import FloatArray

# Equal scores stay in order; far above float32's rounding, far below any difference that matters.
STEP = 1e-6


def falling(scores: ArrayLike) -> FloatArray:
    """A number in (0, 1) per shown position: σ(s - mean of s) for the shown scores s sorted, less a little per place.

    Many programs sort by score what they are given in order. Where chance had a say in a list, its scores do not fall,
    and sorting would undo the exploration; so a position bears the score of its rank, whichever document stands there.

    Parameters
    ----------
    scores : (k,), the shown documents' scores, top first.

    >>> falling([0.0, 2.0]).round(3).tolist()
    [0.731, 0.269]
    """
    sorted_scores = np.sort(np.asarray(scores, dtype=np.float64))[::-1]
    steps = 1.0 - STEP * np.arange(len(sorted_scores))
    result: FloatArray = steps / (1.0 + np.exp(np.clip(sorted_scores.mean() - sorted_scores, -30.0, 30.0)))
    return result
