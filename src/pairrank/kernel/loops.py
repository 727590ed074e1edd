"""The same as the array code beside it, as plain loops that numba compiles where it is installed (`pairrank[fast]`).

At a hundred documents a round is short enough for the number of calls to count: each of these takes the place of a
dozen. They compare, count and copy, and never add up in another order, so the bits are those of the array code.

Loading numba takes about as long as a few thousand of the rounds that it shortens, so a process does without it until
it has ranked that often. ``PAIRRANK_COMPILED=1`` loads it at once, ``PAIRRANK_COMPILED=0`` never.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pairrank.types import BoolArray, Float32Array, FloatArray, IntArray

# Lists ranked before numba is loaded: by then it would have paid for itself.
PATIENCE = 2000


class Loops(NamedTuple):
    """The compiled loops."""

    centred: Callable[[FloatArray, FloatArray, IntArray], Float32Array]
    squared_widths: Callable[[Float32Array], None]
    certain_by_score: Callable[[Float32Array, Float32Array, Float32Array], BoolArray]
    leading_ends: Callable[[BoolArray, int], IntArray]
    arrange: Callable[[BoolArray, IntArray, int, FloatArray], tuple[IntArray, IntArray, BoolArray]]
    averaged: Callable[[BoolArray, int], tuple[IntArray, IntArray, FloatArray]]
    forces: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
    gaps: Callable[[Float32Array, IntArray, IntArray, int], FloatArray]
    scatter: Callable[[IntArray, IntArray, FloatArray, int, int], FloatArray]
    differences: Callable[[Float32Array, IntArray, IntArray, int, FloatArray], FloatArray]


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
    """Compile the loops now (or read what an earlier process compiled); False where numba is not installed."""
    global _loops, _wait
    _wait = -1
    if _loops is None:
        try:
            from numba import njit, types
        except ImportError:
            return False
        _loops = _compile(njit, types)
    return True


def _compile(njit: Any, types: Any) -> Loops:
    # Signatures are given so that nothing is compiled later, for another layout, in the middle of a round.
    features = types.Array(types.float64, 2, "C", readonly=True)
    signatures: dict[Any, Any] = {
        centred: (features, types.float64[::1], types.int64[::1]),
        squared_widths: "void(f4[:,::1])",
        certain_by_score: "b1[:,::1](f4[::1], f4[::1], f4[:,::1])",
        leading_ends: "i8[::1](b1[:,::1], i8)",
        arrange: "Tuple((i8[::1], i8[::1], b1[:,::1]))(b1[:,::1], i8[::1], i8, f8[::1])",
        averaged: "Tuple((i8[::1], i8[::1], f8[::1]))(b1[::1], i8)",
        forces: "Tuple((f8[::1], f8[:,::1]))(f8[:,::1], f8[:,::1])",
        gaps: "f8[::1](f4[::1], i8[::1], i8[::1], i8)",
        scatter: "f8[::1](i8[::1], i8[::1], f8[::1], i8, i8)",
        differences: "f8[:,::1](f4[:,::1], i8[::1], i8[::1], i8, f8[::1])",
    }
    return Loops(*(njit(signature, cache=True, nogil=True)(loop) for loop, signature in signatures.items()))


def centred(X: FloatArray, mean: FloatArray, order: IntArray) -> Float32Array:
    """`confidence.centred` with the rows put in ``order``."""
    n, d = X.shape
    result = np.empty((n, d), dtype=np.float32)
    for i in range(n):
        row = order[i]
        for j in range(d):
            result[i, j] = X[row, j] - mean[j]
    return result


def squared_widths(G: Float32Array) -> None:
    """`confidence.squared_widths_of`, in place."""
    n = len(G)
    own = np.empty(n, dtype=np.float32)
    for i in range(n):
        own[i] = G[i, i]
    for i in range(n):
        for j in range(n):
            G[i, j] = (own[i] + own[j]) - np.float32(2) * G[i, j]


def certain_by_score(scores: Float32Array, below: Float32Array, squared: Float32Array) -> BoolArray:
    """`partition.certain_by_score` for scores in units of z."""
    m, n = squared.shape
    certain = np.empty((m, n), dtype=np.bool_)
    for i in range(m):
        for j in range(n):
            margin = scores[i] - below[j]
            certain[i, j] = (margin > 0) & (margin * margin > squared[i, j])
    return certain


def leading_ends(certain: BoolArray, k: int) -> IntArray:
    """The ends of the blocks that hold the first ``k`` of n sorted documents: `partition.leading_blocks`."""
    n = len(certain)
    ends = np.empty(k, dtype=np.int64)
    n_ends, furthest = 0, 0
    for i in range(n):
        j = n - 1
        while j > furthest and certain[i, j]:
            j -= 1
        furthest = max(furthest, j, i)
        if furthest == i:
            ends[n_ends] = i
            n_ends += 1
            if i >= k - 1:
                break
    return ends[:n_ends].copy()


def arrange(certain: BoolArray, ends: IntArray, k: int, keys: FloatArray) -> tuple[IntArray, IntArray, BoolArray]:
    """`exploration.arrange` and, for what it drew, `exploration.fair_pairs`."""
    n = len(certain)
    places, blocks = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int64)
    waiting = np.zeros(n, dtype=np.int64)
    start = used = 0
    for block in range(len(ends)):
        stop = ends[block] + 1
        for i in range(start, stop):
            for j in range(i + 1, stop):
                waiting[j] += certain[i, j]
        for position in range(start, min(stop, k)):
            taken = start
            if stop - start > 1:
                smallest = np.inf
                for j in range(start, stop):
                    if waiting[j] == 0 and keys[used + j - start] < smallest:
                        taken, smallest = j, keys[used + j - start]
                used += stop - start
                for j in range(taken + 1, stop):
                    waiting[j] -= certain[taken, j]
                waiting[taken] = n
            places[position], blocks[position] = taken, block
        start = stop
    fair = np.zeros((k, k), dtype=np.bool_)
    for j in range(k):
        free_from = 0
        for i in range(j):
            if certain[places[i], places[j]]:
                free_from = i + 1
        for i in range(free_from, j):
            fair[i, j] = fair[j, i] = True
    return places, blocks, fair


def averaged(clicks: BoolArray, beyond: int) -> tuple[IntArray, IntArray, FloatArray]:
    """`pairs.averaged`."""
    k = len(clicks)
    seen = n_clicked = 0
    for i in range(k):
        if clicks[i]:
            seen = min(i + 1 + beyond, k)
            n_clicked += 1
    n = n_clicked * (seen - n_clicked)
    winner, loser = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    place = 0
    for i in range(seen):
        if clicks[i]:
            for j in range(seen):
                if not clicks[j]:
                    winner[place], loser[place] = i, j
                    place += 1
    return winner, loser, np.full(n, 1.0 / max(n_clicked, seen - n_clicked, 1))


def forces(weights: FloatArray, doubt: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`posterior._forces`."""
    k = len(weights)
    b, L = np.empty(k), np.empty((k, k))
    for i in range(k):
        net = degree = 0.0
        for j in range(k):
            there, back = weights[i, j] * doubt[i, j], weights[j, i] * doubt[j, i]
            stiffness = there * doubt[j, i] + back * doubt[i, j]
            net += there - back
            degree += stiffness
            L[i, j] = -stiffness
        b[i], L[i, i] = net, degree
    return b, L


def gaps(scores: Float32Array, winner: IntArray, loser: IntArray, first: int) -> FloatArray:
    """The winner's score less the loser's for every pair, (n,), where ``first`` is the row of the first score."""
    result = np.empty(len(winner))
    for pair in range(len(winner)):
        result[pair] = np.float64(scores[winner[pair] - first]) - np.float64(scores[loser[pair] - first])
    return result


def scatter(winner: IntArray, loser: IntArray, force: FloatArray, first: int, n: int) -> FloatArray:
    """`history.scatter` for rows that count from ``first``."""
    won, lost = np.zeros(n), np.zeros(n)
    for pair in range(len(winner)):
        won[winner[pair] - first] += force[pair]
        lost[loser[pair] - first] += force[pair]
    for row in range(n):
        won[row] -= lost[row]
    return won


def differences(
    documents: Float32Array, winner: IntArray, loser: IntArray, first: int, scale: FloatArray
) -> FloatArray:
    """The winner's features less the loser's, times the pair's ``scale``, (n, d)."""
    d = documents.shape[1]
    result = np.empty((len(winner), d))
    for pair in range(len(winner)):
        upper, lower = winner[pair] - first, loser[pair] - first
        for j in range(d):
            result[pair, j] = (np.float64(documents[upper, j]) - np.float64(documents[lower, j])) * scale[pair]
    return result
