"""The same as the array code beside it, as plain loops that numba compiles where it is installed (`pairrank[fast]`).

At a hundred documents a round is short enough for the number of calls to count: each of these takes the place of a
dozen. They compare, count, copy and add up in the order that the array code does, so the bits are the same.

Loading numba takes about as long as a few thousand of the rounds that it shortens, so a process does without it until
it has ranked that often. The first process of all compiles for some ten seconds, then. ``PAIRRANK_COMPILED=1`` loads it
at once, ``PAIRRANK_COMPILED=0`` never.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from pairrank.types import AnyArray, BoolArray, Float32Array, FloatArray, IntArray

# Lists ranked before numba is loaded: by then it would have paid for itself.
PATIENCE = 2000


class Loops(NamedTuple):
    """The compiled loops; `compiled` has them, by these names."""

    ordered: Callable[[FloatArray, FloatArray], tuple[IntArray, Float32Array, Float32Array]]
    squared_widths: Callable[[Float32Array], None]
    certain_by_score: Callable[[Float32Array, Float32Array, Float32Array], BoolArray]
    leading_ends: Callable[[BoolArray, int], IntArray]
    by_smallest_key: Callable[[BoolArray, FloatArray], IntArray]
    averaged: Callable[[BoolArray], tuple[IntArray, IntArray, FloatArray]]
    mirrored: Callable[[BoolArray], tuple[IntArray, IntArray, FloatArray]]
    preferences: Callable[[IntArray, IntArray, FloatArray, int], FloatArray]
    top_used: Callable[[IntArray, IntArray, int], int]
    settle: Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray, float]]
    gaps: Callable[[Float32Array, IntArray, IntArray, int], FloatArray]
    scatter: Callable[[IntArray, IntArray, FloatArray, int, int], FloatArray]
    differences: Callable[[Float32Array, IntArray, IntArray, int, FloatArray, AnyArray], None]
    store: Callable[[AnyArray, FloatArray, IntArray, IntArray, IntArray, IntArray, int, FloatArray, FloatArray], None]


_loops: Loops | None = None
_wait = {"0": -1, "1": 0}.get(os.environ.get("PAIRRANK_COMPILED", ""), PATIENCE)


def compiled() -> Loops | None:
    """The loops if they are loaded."""
    return _loops


def count_a_list() -> None:
    """Say that a list was ranked; the one that makes compiled loops worth while loads them."""
    global _wait
    if _wait >= 0:
        _wait -= 1
        if _wait < 0:
            load()


def load() -> bool:
    """Compile the loops now, or read what an earlier process compiled.

    False where numba is not installed, or finds no folder to keep what it compiles: ten seconds in every process are
    not worth it.
    """
    global _loops, _wait
    _wait = -1
    if _loops is None:
        try:
            module = import_module("pairrank.kernel.compiled")
        except (ImportError, RuntimeError):
            return False
        _loops = Loops(**{name: getattr(module, name) for name in Loops._fields})
    return True
