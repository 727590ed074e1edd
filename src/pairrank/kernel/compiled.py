"""The compiled loops themselves: import this through `loops` only, for it needs numba.

Signatures are given so that nothing is compiled later, for another layout, in the middle of a round. Each loop names
the array code whose bits it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from pairrank.kernel.settling import CLOSE, MAX_STEPS
from pairrank.types import AnyArray, BoolArray, Float32Array, FloatArray, IntArray

_READ_ONLY = types.Array(types.float64, 2, "C", readonly=True)
_READ_ONLY_BOOL = types.Array(types.boolean, 2, "C", readonly=True)

# Philox's multipliers, and what its key grows by.
M0, M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
W0, W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)

F = TypeVar("F", bound=Callable[..., Any])


def _compiled(signature: Any) -> Callable[[F], F]:
    decorate: Callable[[F], F] = njit(signature, cache=True, nogil=True)
    return decorate


# Ranking.


@_compiled((_READ_ONLY, types.float64[::1]))
def ordered(X: FloatArray, scores: FloatArray) -> tuple[IntArray, Float32Array, Float32Array]:
    """`confidence.ordered`."""
    n, d = X.shape
    order, falling = np.empty(n, dtype=np.int64), np.empty(n)
    for i in range(n):
        place = i
        while place > 0 and falling[place - 1] < scores[i]:
            order[place], falling[place] = order[place - 1], falling[place - 1]
            place -= 1
        order[place], falling[place] = i, scores[i]
    mean = X[0].copy()
    for i in range(1, n):
        for j in range(d):
            mean[j] += X[i, j]
    for j in range(d):
        mean[j] /= n
    s, centred = np.empty(n, dtype=np.float32), np.empty((n, d), dtype=np.float32)
    for i in range(n):
        row = order[i]
        s[i] = scores[row] - scores[0]
        for j in range(d):
            centred[i, j] = X[row, j] - mean[j]
    return order, s, centred


@_compiled("void(f4[:,::1])")
def squared_widths(G: Float32Array) -> None:
    """`confidence.squared_widths_of`, in place."""
    n = len(G)
    own = np.empty(n, dtype=np.float32)
    for i in range(n):
        own[i] = G[i, i]
    for i in range(n):
        for j in range(n):
            G[i, j] = (own[i] + own[j]) - np.float32(2) * G[i, j]


@_compiled("b1[:,::1](f4[::1], f4[::1], f4[:,::1])")
def certain_by_score(scores: Float32Array, below: Float32Array, squared: Float32Array) -> BoolArray:
    """`partition.certain_by_score` for scores in units of z."""
    m, n = squared.shape
    certain = np.empty((m, n), dtype=np.bool_)
    for i in range(m):
        for j in range(n):
            margin = scores[i] - below[j]
            certain[i, j] = (margin > 0) & (margin * margin > squared[i, j])
    return certain


@_compiled("i8[::1](b1[:,::1], i8)")
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


@_compiled("Tuple((i8[::1], i8[::1], b1[:,::1]))(b1[:,::1], i8[::1], i8, f8[::1])")
def arrange(certain: BoolArray, ends: IntArray, k: int, keys: FloatArray) -> tuple[IntArray, IntArray, BoolArray]:
    """`exploration.arrange` and, for what it drew, `exploration.fair_pairs`."""
    n = len(certain)
    places, blocks = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int64)
    waiting = np.zeros(n, dtype=np.int32)
    start = used = 0
    for block in range(len(ends)):
        stop = ends[block] + 1
        own = waiting[start:stop]
        for i in range(start, stop):
            row = certain[i, start:stop]
            for j in range(stop - start):  # nobody is certain of those above; the whole row is faster than its half
                own[j] += row[j]
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


def _upper_bits(context: Any, a: Any, b: Any) -> Any:
    """The upper 64 bits of a product of two words, as numba is told of it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


_high_half: Any = intrinsic(_upper_bits)


@_compiled("f8[::1](u8, u8, u8, i8)")
def uniforms(seed: Any, number: Any, purpose: Any, n: int) -> FloatArray:
    """`rng.generator(seed, number, purpose).random(n)`: Philox4x64, ten rounds, 53 bits of each word."""
    drawn = np.empty(-(-n // 4) * 4)
    scale = 1.0 / 9007199254740992.0
    for block in range(len(drawn) // 4):
        c0, c1, c2, c3 = np.uint64(block + 1), np.uint64(0), number, purpose
        k0, k1 = seed, np.uint64(0)
        for _ in range(10):
            high0, low0 = _high_half(M0, c0), M0 * c0
            high1, low1 = _high_half(M1, c2), M1 * c2
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0, k1 = k0 + W0, k1 + W1
        drawn[4 * block] = np.float64(c0 >> np.uint64(11)) * scale
        drawn[4 * block + 1] = np.float64(c1 >> np.uint64(11)) * scale
        drawn[4 * block + 2] = np.float64(c2 >> np.uint64(11)) * scale
        drawn[4 * block + 3] = np.float64(c3 >> np.uint64(11)) * scale
    return drawn[:n]


@_compiled("Tuple((b1[:,::1], i8[::1], i8[::1], i8[::1], b1[:,::1]))(f4[:,::1], f4[::1], f4, i8, u8, u8, u8)")
def show(
    G: Float32Array, scores: Float32Array, unit: float, k: int, seed: int, number: int, purpose: int
) -> tuple[BoolArray, IntArray, IntArray, IntArray, BoolArray]:
    """`Whole.show`, all of it: certain orders, ends of blocks and what was drawn, from G = XH⁻¹Xᵀ, scores and z."""
    squared_widths(G)
    scaled = scores / unit
    certain = certain_by_score(scaled, scaled, G)
    ends = leading_ends(certain, k)
    n_keys = start = 0
    for end in ends:
        if end > start:
            n_keys += (end + 1 - start) * (min(end + 1, k) - start)
        start = end + 1
    places, blocks, fair = arrange(certain, ends, k, uniforms(seed, number, purpose, n_keys))
    return certain, ends, places, blocks, fair


# Learning.


@_compiled("Tuple((i8[::1], i8[::1], f8[::1]))(b1[::1], i8)")
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


@_compiled(
    (
        types.int64[::1],
        types.int64[::1],
        types.float64[::1],
        _READ_ONLY_BOOL,
        types.boolean[::1],
        types.int64,
        types.float64,
        types.float64,
        types.float64,
    )
)
def discount(
    winner: IntArray,
    loser: IntArray,
    weight: FloatArray,
    full: BoolArray,
    clicks: BoolArray,
    beyond: int,
    other: float,
    mirrored: float,
    read: float,
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """`pairs.discount`: winners, losers and weights of the pairs that count, and the weights of those not in full."""
    last = before = -1
    for position in range(len(clicks)):
        if clicks[position]:
            before, last = last, position
    n = len(weight)
    winners, losers = np.empty(n, np.int64), np.empty(n, np.int64)
    weights, settled = np.empty(n), np.zeros(n)
    kept = 0
    for pair in range(n):
        upper, lower = min(winner[pair], loser[pair]), max(winner[pair], loser[pair])
        floor = 1.0
        if not full[winner[pair], loser[pair]]:
            settled[pair] = weight[pair]
            c = before if last in (upper, lower) else last
            floor = read if lower < c else mirrored if lower <= max(c, upper) + beyond else other
        counted = weight[pair] * floor
        if counted > 0.0:
            winners[kept], losers[kept], weights[kept] = winner[pair], loser[pair], counted
            kept += 1
    return winners[:kept], losers[:kept], weights[:kept], settled


@_compiled("f8[:,::1](i8[::1], i8[::1], f8[::1], i8)")
def preferences(winner: IntArray, loser: IntArray, weight: FloatArray, k: int) -> FloatArray:
    """`pairs.preferences`."""
    weights = np.zeros((k, k))
    for pair in range(len(weight)):
        weights[winner[pair], loser[pair]] += weight[pair]
    return weights


@_compiled("i8(i8[::1], i8[::1], i8)")
def top_used(winner: IntArray, loser: IntArray, k: int) -> int:
    """`pairs.top_used`."""
    used = np.zeros(k, dtype=np.bool_)
    furthest = 0
    for pair in range(len(winner)):
        used[winner[pair]] = used[loser[pair]] = True
        furthest = max(furthest, winner[pair] + 1, loser[pair] + 1)
    for position in range(furthest):
        if not used[position]:
            return 0
    return furthest


@_compiled("Tuple((f8[::1], f8[:,::1]))(f8[:,::1], f8[::1])")
def _forces(weights: FloatArray, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`settling._forces`."""
    k = len(weights)
    doubt = np.empty((k, k))
    for i in range(k):
        for j in range(k):
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
    """`settling._product` of two matrices."""
    k = len(A)
    result = np.zeros((k, k))
    for i in range(k):
        for m in range(k):
            for j in range(k):
                result[i, j] += A[i, m] * B[m, j]
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
    """`settling._eliminate` of k equations (k, k + m), in place."""
    k, n = A.shape
    for i in range(k):
        pivot = i
        for row in range(i + 1, k):
            if abs(A[row, i]) > abs(A[pivot, i]):
                pivot = row
        if pivot != i:
            for j in range(n):
                A[i, j], A[pivot, j] = A[pivot, j], A[i, j]
        divisor = A[i, i]
        for j in range(n):
            A[i, j] /= divisor
        for row in range(k):
            factor = A[row, i] if row != i else 0.0
            for j in range(n):
                A[row, j] -= factor * A[i, j]


@_compiled("Tuple((f8[::1], f8[:,::1], f8[:,::1], f8))(f8[::1], f8[:,::1], f8[:,::1])")
def settle(start: FloatArray, K: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """`settling.settle`."""
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


# The history.


@_compiled("f8[::1](f4[::1], i8[::1], i8[::1], i8)")
def gaps(scores: Float32Array, winner: IntArray, loser: IntArray, first: int) -> FloatArray:
    """The winner's score less the loser's for every pair, (n,), where ``first`` is the row of the first score."""
    result = np.empty(len(winner))
    for pair in range(len(winner)):
        result[pair] = np.float64(scores[winner[pair] - first]) - np.float64(scores[loser[pair] - first])
    return result


@_compiled("f8[::1](i8[::1], i8[::1], f8[::1], i8, i8)")
def scatter(winner: IntArray, loser: IntArray, force: FloatArray, first: int, n: int) -> FloatArray:
    """`history.scatter` for rows that count from ``first``."""
    won, lost = np.zeros(n), np.zeros(n)
    for pair in range(len(winner)):
        won[winner[pair] - first] += force[pair]
        lost[loser[pair] - first] += force[pair]
    for row in range(n):
        won[row] -= lost[row]
    return won


@_compiled(
    [
        "void(f4[:,::1], i8[::1], i8[::1], i8, f8[::1], f4[:,::1])",
        "void(f4[:,::1], i8[::1], i8[::1], i8, f8[::1], f8[:,::1])",
    ]
)
def differences(
    documents: Float32Array, winner: IntArray, loser: IntArray, first: int, scale: FloatArray, out: AnyArray
) -> None:
    """The winner's features less the loser's, times the pair's ``scale``, into ``out`` (n, d)."""
    for pair in range(len(winner)):
        upper, lower = winner[pair] - first, loser[pair] - first
        for j in range(documents.shape[1]):
            out[pair, j] = (np.float64(documents[upper, j]) - np.float64(documents[lower, j])) * scale[pair]


@_compiled(
    (
        types.float32[:, ::1],
        _READ_ONLY,
        types.int64[::1],
        types.int64[::1],
        types.int64[::1],
        types.int64[::1],
        types.int64,
        types.float64[::1],
        types.float64[::1],
    )
)
def store(
    rows: Float32Array,
    documents: FloatArray,
    winners: IntArray,
    winner: IntArray,
    losers: IntArray,
    loser: IntArray,
    offset: int,
    weights: FloatArray,
    weight: FloatArray,
) -> None:
    """What `History.append` writes, into the room made for it."""
    for i in range(documents.shape[0]):
        for j in range(documents.shape[1]):
            rows[i, j] = documents[i, j]
    for pair in range(len(weight)):
        winners[pair] = winner[pair] + offset
        losers[pair] = loser[pair] + offset
        weights[pair] = weight[pair]
