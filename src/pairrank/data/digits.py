"""Decimal numbers out of text, many at a time: the fast half of the LETOR reader.

`pairs` reads the ``index:value`` tokens of many lines with a few dozen array operations instead of a call per token.
Runs of up to eight digits are loaded as one 64-bit word and turned into a number with three multiplications (the
"SIMD within a register" trick). A value with a mantissa below 2^53 and a power of ten up to 22 is one exact integer
divided or multiplied by another, so it is rounded once, as ``float(text)`` is (Clinger's fast path). Tokens outside
these limits are handed to ``float`` one by one; text of another shape is refused, and the caller reads it line by line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from pairrank.types import FloatArray, IntArray

NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_PAD = 16
_WHOLE_POWERS = 10 ** np.arange(19, dtype=np.uint64)
_POWERS = _WHOLE_POWERS.astype(np.float64)  # each exact
_NEWLINE, _SPACE, _MINUS, _DOT, _COLON = b"\n -.:"
_LONGEST = 16  # digits in one run: two words


class Pairs(NamedTuple):
    """The tokens of many lines: per line how many, per token its index and its value, in the order of the text."""

    counts: IntArray
    indices: IntArray
    values: FloatArray


def pairs(text: bytes) -> Pairs | None:
    """The ``index:value`` tokens of the lines of ``text``, which ends with a newline; None if it has any other shape.

    Values are exactly ``float`` of their text. Indices are whole numbers of at most eight digits.
    """
    padded = np.frombuffer(b" " * _PAD + text, dtype=np.uint8)
    breaks = np.flatnonzero(padded[_PAD - 1 :] - np.uint8(48) > 9) + (_PAD - 1)
    kind = padded[breaks]
    blank = np.flatnonzero(kind <= _SPACE)
    filled = np.flatnonzero(np.diff(breaks[blank]) > 1)
    first, last = blank[filled], blank[filled + 1]
    colon = breaks[first + 1]
    index_length = colon - breaks[first] - 1
    if not ((kind[first + 1] == _COLON) & (index_length > 0) & (index_length <= 8)).all():
        return None
    words = _words(padded)
    value = _values(padded, words, breaks, kind, first + 1, last)
    if value is None:
        return None
    lines = np.flatnonzero(kind == _NEWLINE)
    counts = np.diff(np.searchsorted(first, lines), prepend=0)
    return Pairs(counts, _whole(words, colon, index_length).astype(np.int64), value)


def _values(
    padded: NDArray[np.uint8],
    words: NDArray[np.uint64],
    breaks: IntArray,
    kind: NDArray[np.uint8],
    colon: IntArray,
    last: IntArray,
) -> FloatArray | None:
    """Values between the breaks numbered ``colon`` and ``last``; None if one is not a number."""
    negative = (kind[colon + 1] == _MINUS) & (breaks[colon + 1] - breaks[colon] == 1)
    left = colon + negative
    point = kind[left + 1] == _DOT
    stop = breaks[left + 1]
    length = stop - breaks[left] - 1
    plain = (left + point + 1 == last) & (length > 0) & (length <= _LONGEST)
    mantissa = _whole(words, stop, np.where(plain, length, 0))
    decimals = np.zeros(len(colon), dtype=np.int64)

    fraction = np.flatnonzero(plain & point)
    end = breaks[last[fraction]]
    decimals[fraction] = end - stop[fraction] - 1
    digits = decimals[fraction]
    short = digits + length[fraction] <= 18  # so that the mantissa fits a 64-bit word
    plain[fraction[~short]] = False
    fraction, end, digits = fraction[short], end[short], digits[short]
    mantissa[fraction] = mantissa[fraction] * _WHOLE_POWERS[digits] + _whole(words, end, digits)

    plain &= mantissa < np.uint64(2**53)
    value = mantissa.astype(np.float64)
    value[fraction] /= _POWERS[digits]
    np.negative(value, out=value, where=negative)
    for token in np.flatnonzero(~plain):
        spelt = padded[breaks[colon[token]] + 1 : breaks[last[token]]].tobytes()
        if NUMBER.fullmatch(spelt) is None:
            return None
        value[token] = float(spelt)
    return value


def _words(padded: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Element i is the eight bytes from byte i on, the first one lowest, as a view."""
    head = padded[: len(padded) // 8 * 8].view("<u8")
    return as_strided(head, shape=(len(padded) - 7,), strides=(1,), writeable=False)


def _whole(words: NDArray[np.uint64], stop: IntArray, length: IntArray) -> NDArray[np.uint64]:
    """The whole numbers spelt by the ``length`` (up to 16) digits before each byte ``stop``."""
    number = _eight(words[stop - 8], np.minimum(length, 8))
    long = np.flatnonzero(length > 8)
    if len(long):
        number[long] += _eight(words[stop[long] - 16], length[long] - 8) * np.uint64(10**8)
    return number


def _eight(word: NDArray[np.uint64], length: IntArray) -> NDArray[np.uint64]:
    """The number spelt by the last ``length`` of the eight digits in each ``word``, which is overwritten."""
    shift = (np.uint64(64) - (length.astype(np.uint64) << np.uint64(3))).astype(np.uint64)
    word >>= shift  # twice, because a shift by all 64 bits must leave nothing
    word <<= shift
    word &= np.uint64(0x0F0F0F0F0F0F0F0F)
    word *= np.uint64(2561)
    word >>= np.uint64(8)
    word &= np.uint64(0x00FF00FF00FF00FF)
    word *= np.uint64(6553601)
    word >>= np.uint64(16)
    word &= np.uint64(0x0000FFFF0000FFFF)
    word *= np.uint64(42949672960001)
    word >>= np.uint64(32)
    return word
