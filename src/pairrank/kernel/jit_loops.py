"""The compiled loops themselves: imported by `jit` only, for this needs numba.

A public loop has the name, the arguments and the bits of the array code that is marked with `jit.twin`; what it is for
stands there. Signatures are given so that nothing is compiled later, for another layout, in the middle of a round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from pairrank.kernel.logistic import CLOSE, MAX_STEPS
from pairrank.types import AnyArray, BoolArray, Float32Array, FloatArray, IntArray

_BY_ROWS = types.float64[:, ::1]
_READ_ONLY = types.Array(types.float64, 2, "C", readonly=True)
_CLICKS = types.Array(types.boolean, 1, "A", readonly=True)
_PAIRS = (types.int64[::1], types.int64[::1], types.float64[::1])
# Of documents in the history, and of what is made of them.
_TYPES = [("f4", "f4"), ("f4", "f8"), ("f8", "f4"), ("f8", "f8")]
# Philox's multipliers, and what its key grows by.
_PHILOX = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)

F = TypeVar("F", bound=Callable[..., Any])


def _compiled(signature: Any, **options: Any) -> Callable[[F], F]:
    decorate: Callable[[F], F] = njit(signature, cache=True, nogil=True, **options)
    return decorate


# Ranking.


@_compiled(types.boolean(_READ_ONLY, types.float64))
def within(X: FloatArray, bound: float) -> bool:
    flat, beyond = X.reshape(X.size), 0
    for i in range(len(flat)):  # counted, not left early: so registers take several at a time
        beyond += not abs(flat[i]) <= bound
    return beyond == 0


@_compiled((_READ_ONLY, types.float64[::1], types.float64))
def standardised(X: FloatArray, unit: FloatArray, furthest: float) -> FloatArray:
    n, d = X.shape
    inputs, mean, first, scale, far = np.empty((n, d)), np.zeros(d), X[0], 1.0 / unit, 0
    for i in range(n):
        for j in range(d):
            mean[j] += X[i, j] - first[j]
    for j in range(d):
        mean[j] /= n
    for i in range(n):
        row, out, beyond = X[i], inputs[i], 0
        for j in range(d):
            out[j] = ((row[j] - first[j]) - mean[j]) * scale[j]
            beyond += abs(out[j]) > furthest
        far += beyond
    if far:
        for j in range(d):
            if np.abs(inputs[:, j]).max() > furthest:
                middle = np.sort(X[:, j])[(n - 1) // 2] + 0.0
                for i in range(n):
                    inputs[i, j] = min(max((X[i, j] - middle) * scale[j], -furthest), furthest)
    return inputs


@_compiled(["b1[:,::1](f4[::1], f4[::1], f4[:,::1])", "b1[:,::1](f8[::1], f8[::1], f8[:,::1])"])
def wider_apart(scores: AnyArray, below: AnyArray, squared: AnyArray) -> BoolArray:
    m, n = squared.shape
    certain = np.empty((m, n), dtype=np.bool_)
    for i in range(m):
        own, widths, row = scores[i], squared[i], certain[i]
        for j in range(n):
            margin = own - below[j]
            row[j] = (margin > 0) & (margin * margin > widths[j])
    return certain


@_compiled("i8[::1](b1[:,::1], i8)")
def first_blocks(certain: BoolArray, k: int) -> IntArray:
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


@_compiled("b1[:,::1](f4[:,::1], f4[::1])")
def _certain_in_order(G: Float32Array, scores: Float32Array) -> BoolArray:
    """`partition.certain_by_score` of all pairs, by whole rows: registers take eight pairs at a time."""
    n = len(scores)
    certain = np.empty((n, n), dtype=np.bool_)
    own = np.empty(n, dtype=np.float32)
    for i in range(n):
        own[i] = G[i, i]
    for i in range(n):
        score, squared_length, products, row = scores[i], own[i], G[i], certain[i]
        for j in range(n):
            margin = score - scores[j]
            squared = np.float32(-2.0) * products[j] + (squared_length + own[j])
            row[j] = (margin > 0) & (margin * margin > squared)
    return certain


@_compiled("Tuple((i8[::1], i8[::1]))(b1[:,::1], i8[::1], i8, f8[::1])")
def draw_blocks_by_key(certain: BoolArray, ends: IntArray, k: int, keys: FloatArray) -> tuple[IntArray, IntArray]:
    places, blocks = np.arange(k), np.empty(k, dtype=np.int64)
    waiting = np.empty(len(certain), dtype=np.int32)
    start = used = 0
    for block in range(len(ends)):
        stop = ends[block] + 1
        size, shown = stop - start, min(stop, k)
        blocks[start:shown] = block
        if size > 1:
            waiting[:size] = 0
            for i in range(start, stop):
                row = certain[i, start:stop]
                for j in range(size):  # no row is certain of those above; the whole row is faster than its half
                    waiting[j] += row[j]
            for position in range(start, shown):
                taken, smallest = 0, np.inf
                for j in range(size):
                    if waiting[j] == 0 and keys[used + j] < smallest:
                        taken, smallest = j, keys[used + j]
                used += size
                places[position] = start + taken
                for j in range(size):  # scores that are equal but for rounding may stand in any order
                    waiting[j] -= certain[start + taken, start + j]
                waiting[taken] = size
        start = stop
    return places, blocks


@_compiled((_READ_ONLY, types.float64[::1], types.float32[:, ::1]))
def in_order(X: FloatArray, weights: FloatArray, inverse: Float32Array) -> tuple[IntArray, Float32Array, Float32Array]:
    n, d = X.shape
    scores, order = np.dot(X, weights), np.arange(n)
    for i in range(1, n):  # few enough to put each into its place; equal ones stay in order
        place = i
        while place > 0 and scores[order[place - 1]] < scores[i]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
    inputs, falling = np.empty((n, d), dtype=np.float32), np.empty(n, dtype=np.float32)
    for i in range(n):
        row = order[i]
        falling[i] = np.float32(scores[row] - scores[0])
        for j in range(d):
            inputs[i, j] = np.float32(X[row, j])
    return order, falling, np.dot(np.dot(inputs, inverse), inputs.T)


def _of_two_words(typing: Any, a: Any, b: Any) -> Any:
    """The high and the low half of the 128 bits of a times b, as numba's intrinsics are written."""

    def code(context: Any, builder: Any, signature: Any, words: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(word, wide) for word in words))
        halves = [builder.lshr(product, ir.Constant(wide, 64)), product]
        return context.make_tuple(builder, signature.return_type, [builder.trunc(h, words[0].type) for h in halves])

    numba: Any = types
    return numba.UniTuple(types.uint64, 2)(types.uint64, types.uint64), code


_times_wide: Any = intrinsic(_of_two_words)


@_compiled("f8[::1](u8, u8, u8, i8)")
def uniform(seed: Any, number: Any, purpose: Any, n: int) -> FloatArray:
    words = np.empty(4 * (-(-n // 4)), dtype=np.uint64)
    for block in range(len(words) // 4):  # Philox4x64 of ten rounds
        a, b, c, d = np.uint64(block + 1), np.uint64(0), number, purpose
        key, other = seed, np.uint64(0)
        for _ in range(10):
            high_a, low_a = _times_wide(_PHILOX[0], a)
            high_c, low_c = _times_wide(_PHILOX[1], c)
            a, b, c, d = high_c ^ b ^ key, low_c, high_a ^ d ^ other, low_a
            key, other = key + _WEYL[0], other + _WEYL[1]
        words[4 * block], words[4 * block + 1], words[4 * block + 2], words[4 * block + 3] = a, b, c, d
    drawn = np.empty(n)
    for i in range(n):
        drawn[i] = (words[i] >> np.uint64(11)) * 2.0**-53
    return drawn


@_compiled((_READ_ONLY, types.float64[::1], types.float32[:, ::1], types.float64, types.int64, types.float64[::1]))
def show_by_score(
    X: FloatArray, weights: FloatArray, inverse: Float32Array, z: float, k: int, keys: FloatArray
) -> tuple[IntArray, IntArray, IntArray]:
    order, falling, G = in_order(X, weights, inverse)
    certain = _certain_in_order(G, falling / np.float32(z))
    ends = first_blocks(certain, k)
    places, blocks = draw_blocks_by_key(certain, ends, k, keys)
    return ends, order[places], blocks


# Learning.


@_compiled((_CLICKS,))
def shown(clicks: BoolArray) -> tuple[IntArray, IntArray, FloatArray]:
    k, n_clicked, last, before = len(clicks), 0, -1, -1
    for i in range(k):
        if clicks[i]:
            n_clicked += 1
            last, before = i, last
    n = n_clicked * (k - n_clicked)
    winner, loser, weight = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n)
    pair = 0
    for i in range(k):
        if clicks[i]:
            for j in range(k):
                if not clicks[j]:
                    seen = max(before if i == last else last, i, j) + 1
                    winner[pair], loser[pair], weight[pair] = i, j, 1.0 / max(n_clicked, seen - n_clicked)
                    pair += 1
    return winner, loser, weight


@_compiled("Tuple((f8[::1], f8[:,::1]))(f8[:,::1], f8[::1])")
def _forces(weights: FloatArray, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`list_newton._forces`."""
    k = len(weights)
    doubt = np.zeros((k, k))
    for i in range(k):
        for j in range(k):
            if weights[i, j] != 0.0 or weights[j, i] != 0.0:  # an exponential costs more than all the rest of a pair
                doubt[i, j] = 1.0 / (1.0 + math.exp(scores[i] - scores[j]))
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


@_compiled("f8[:,::1](f8[:,::1], f8[:,::1])")
def _product(A: FloatArray, B: FloatArray) -> FloatArray:
    """`list_newton._product` of two matrices."""
    k = len(A)
    result = np.zeros((k, k))
    for i in range(k):
        row = result[i]
        for m in range(k):
            factor, other = A[i, m], B[m]
            for j in range(k):
                row[j] += factor * other[j]
    return result


@_compiled("f8[::1](f8[:,::1], f8[::1])")
def _times(A: FloatArray, v: FloatArray) -> FloatArray:
    """A v."""
    result = np.empty(len(A))
    for i in range(len(A)):
        total = 0.0
        for m in range(len(v)):
            total += A[i, m] * v[m]
        result[i] = total
    return result


@_compiled("void(f8[:,::1])")
def _eliminate(A: FloatArray) -> None:
    """`list_newton._eliminate` of k equations (k, k + m), in place."""
    k, n = A.shape
    for i in range(k):
        pivot = i
        for row in range(i + 1, k):
            if abs(A[row, i]) > abs(A[pivot, i]):
                pivot = row
        if pivot != i:
            for j in range(i, n):
                A[i, j], A[pivot, j] = A[pivot, j], A[i, j]
        divisor, pivots = A[i, i], A[i, i:]  # further left all is done
        for j in range(n - i):
            pivots[j] /= divisor
        for row in range(k):
            if row != i:
                factor, others = A[row, i], A[row, i:]
                for j in range(n - i):
                    others[j] -= factor * pivots[j]


@_compiled("Tuple((f8[::1], f8[:,::1], f8[:,::1], f8))(f8[::1], f8[:,::1], f8[:,::1])")
def _solve_list(
    start: FloatArray, K: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """`list_newton.solve_list` of a short list."""
    k = len(start)
    scores = start.copy()
    system, step = np.empty((k, 2 * k + 1)), np.empty(k)
    for _ in range(MAX_STEPS):
        b, L = _forces(weights, scores)
        KL, Kb = _product(K, L), _times(K, b)
        for i in range(k):
            for j in range(k):
                system[i, j] = KL[i, j]
                system[i, k + 1 + j] = 0.0
            system[i, i] += 1.0
            system[i, k + 1 + i] = 1.0
            system[i, k] = start[i] + Kb[i] - scores[i]
        _eliminate(system)
        size = 0.0
        for i in range(k):
            step[i] = system[i, k]
            size = max(size, abs(step[i]))
        share = 1.0 if size <= 1.0 else math.log1p(size) / size
        for i in range(k):
            scores[i] += step[i] * share
        if size < CLOSE:
            away = _times(L, step)
            for i in range(k):
                b[i] -= away[i]
            break
    moved = 0.0
    Kb = _times(K, b)
    for i in range(k):
        moved += b[i] * Kb[i]
    return b, L, _product(L, system[:, k + 1 :].copy()), moved


@_compiled((_READ_ONLY, *_PAIRS, types.float64[::1], _BY_ROWS))
def take_in_short(
    D: FloatArray, winner: IntArray, loser: IntArray, weight: FloatArray, theta: FloatArray, inverse: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    weights = np.zeros((len(D), len(D)))
    for pair in range(len(winner)):
        weights[winner[pair], loser[pair]] += weight[pair]
    A = np.dot(D, inverse)
    b, L, S, moved = _solve_list(np.dot(D, theta), np.dot(A, D.T), weights)
    update = np.dot(A.T, np.dot(S, A))
    return theta + np.dot(b, A), np.subtract(inverse, update, update), L, moved


@_compiled(
    [
        (_READ_ONLY, _CLICKS, types.float64[::1], _BY_ROWS, types.int64, rows, *_PAIRS)
        for rows in (types.float32[:, ::1], _BY_ROWS)
    ]
)
def take_in_shown(
    D: FloatArray,
    clicks: BoolArray,
    theta: FloatArray,
    inverse: FloatArray,
    first: int,
    rows: AnyArray,
    winner: IntArray,
    loser: IntArray,
    weight: FloatArray,
) -> tuple[FloatArray, FloatArray, float]:
    winners, losers, weights = shown(clicks)
    for pair in range(len(winners)):
        winner[pair], loser[pair], weight[pair] = winners[pair] + first, losers[pair] + first, weights[pair]
    for i in range(D.shape[0]):
        for j in range(D.shape[1]):
            rows[i, j] = D[i, j]
    after, updated, _, moved = take_in_short(D, winners, losers, weights, theta, inverse)
    return after, updated, moved


# The history.


@_compiled("u8(i8, i8)")
def _row(place: int, first: int) -> Any:
    """The row of a document; without a sign, so that no time goes into rows counted from the end."""
    return np.uint64(place) - np.uint64(first)


@_compiled(["f8[::1](f4[::1], i8[::1], i8[::1], i8)", "f8[::1](f8[::1], i8[::1], i8[::1], i8)"])
def gaps(scores: AnyArray, winner: IntArray, loser: IntArray, first: int) -> FloatArray:
    result = np.empty(len(winner))
    for pair in range(len(winner)):
        upper, lower = _row(winner[pair], first), _row(loser[pair], first)
        result[pair] = np.float64(scores[upper]) - np.float64(scores[lower])
    return result


@_compiled("f8[::1](i8[::1], i8[::1], f8[::1], i8, i8)")
def scatter(winner: IntArray, loser: IntArray, force: FloatArray, first: int, n: int) -> FloatArray:
    won, lost = np.zeros(n), np.zeros(n)
    for pair in range(len(winner)):
        won[_row(winner[pair], first)] += force[pair]
        lost[_row(loser[pair], first)] += force[pair]
    for row in range(n):
        won[row] -= lost[row]
    return won


@_compiled([f"void({kept}[:,::1], i8[::1], i8[::1], i8, f8[::1], {used}[:,::1])" for kept, used in _TYPES])
def differences(
    documents: AnyArray, winner: IntArray, loser: IntArray, first: int, scale: FloatArray, out: AnyArray
) -> None:
    for pair in range(len(winner)):
        upper, lower = winner[pair] - first, loser[pair] - first
        for j in range(documents.shape[1]):
            out[pair, j] = (np.float64(documents[upper, j]) - np.float64(documents[lower, j])) * scale[pair]
