"""Decimal numbers out of text, many at a time: the fast half of the LETOR reader.

`pairs` reads the ``index:value`` tokens of many lines with a few dozen array operations instead of a call per token.
Runs of up to eight digits are loaded as one 64-bit word and turned into a number with three multiplications (the
"SIMD within a register" trick). A value with a mantissa below 2^53 and a power of ten up to 22 is one exact number
divided or multiplied by another, so it is rounded once, as ``float(text)`` is (Clinger's fast path). Tokens outside
these limits are handed to ``float`` one by one; text of another shape is refused, and the caller reads it line by line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairrank.types import FloatArray, IntArray

NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_PAD = 16  # blanks before the text, so that two words can be loaded before its first byte
_NEWLINE, _SPACE, _PLUS, _MINUS, _DOT, _COLON, _E = b"\n +-.:e"
_WHOLE_POWERS = 10 ** np.arange(19, dtype=np.uint64)
_POWERS = 10.0 ** np.arange(23)  # each exact
_MANTISSA = np.uint64(2**53)


class Pairs(NamedTuple):
    """The tokens of many lines: per line how many, per token its index and its value, in the order of the text."""

    counts: IntArray
    indices: IntArray
    values: FloatArray


class _Scan(NamedTuple):
    """A text (padded), the places of its bytes that are not digits (``breaks``), and what stands there (``kinds``)."""

    text: NDArray[np.uint8]
    breaks: IntArray
    kinds: NDArray[np.uint8]

    def number(self, left: IntArray) -> tuple[NDArray[np.uint64], IntArray]:
        """The digits between break ``left`` and the next one: as a number (of the last 16 at most), and how many."""
        stop = self.breaks[left + 1]
        length = stop - self.breaks[left]
        length -= 1
        number = _eight(self._words(stop - 8), np.minimum(length, 8))
        long = np.flatnonzero(length > 8)
        if len(long):
            high = _eight(self._words(stop[long] - 16), np.minimum(length[long] - 8, 8))
            number[long] += high * np.uint64(10**8)
        return number, length

    def _words(self, start: IntArray) -> NDArray[np.uint64]:
        """The eight bytes from each ``start`` on as one number, the first byte lowest."""
        everywhere: NDArray[np.uint64] = np.ndarray(len(self.text) - 7, "<u8", buffer=self.text, strides=(1,))
        return everywhere[start]


def pairs(text: bytes) -> Pairs | None:
    """The ``index:value`` tokens of the lines of ``text``, which ends with a newline; None if it has any other shape.

    Values are exactly ``float`` of their text. Indices are whole numbers of at most eight digits.
    """
    padded = np.frombuffer(b" " * _PAD + text, dtype=np.uint8)
    breaks = np.flatnonzero(padded[_PAD - 1 :] - np.uint8(48) > 9) + (_PAD - 1)
    scan = _Scan(padded, breaks, padded[breaks])
    blank = np.flatnonzero(scan.kinds <= _SPACE)
    found = scan.kinds[blank]
    if not ((found == _SPACE) | (found - np.uint8(9) <= 4)).all():  # control characters that are not blanks
        return None
    filled = np.flatnonzero(np.diff(breaks[blank]) > 1)
    first, last = blank[filled], blank[filled + 1]
    indices, length = scan.number(first)
    if not ((scan.kinds[first + 1] == _COLON) & (length > 0) & (length <= 8)).all():
        return None
    values = _values(scan, first + 1, last)
    if values is None:
        return None
    lines = np.flatnonzero(scan.kinds == _NEWLINE)
    counts = np.diff(np.searchsorted(first, lines), prepend=0)
    return Pairs(counts, indices.astype(np.int64), values)


def _values(scan: _Scan, colon: IntArray, last: IntArray) -> FloatArray | None:
    """The values between the breaks ``colon`` and ``last``: [-]digits[.digits][e[+-]digits]; None if one is none."""
    negative = _signed(scan, colon, _MINUS)
    left = colon.copy()
    left[negative] += 1
    mantissa, length = scan.number(left)
    point = scan.kinds[left + 1] == _DOT
    stop = left + 1  # the break after the mantissa
    stop += point
    good = (length > 0) & (length <= 16)
    decimals = np.zeros(len(colon), dtype=np.int64)

    decimal = np.flatnonzero(point & good)
    if len(decimal):
        fraction, more = scan.number(left[decimal] + 1)
        # `number` reads the last 16 digits alone, and the mantissa must fit a 64-bit word.
        fits = (more <= 16) & (more + length[decimal] <= 18)
        good[decimal] = fits
        more *= fits
        mantissa[decimal] = mantissa[decimal] * _WHOLE_POWERS[more] + fraction
        decimals[decimal] = more

    scientific = np.flatnonzero(scan.kinds[stop] | 32 == _E)
    if len(scientific):
        exponent, stop[scientific] = _exponents(scan, stop[scientific])
        power = exponent - decimals[scientific]
        good[scientific] &= np.abs(power) <= 22
        decimals[scientific] = 0
    good &= (stop == last) & (mantissa < _MANTISSA)
    values = mantissa.astype(np.float64)
    values /= _POWERS[decimals]
    if len(scientific):
        power = np.clip(power, -22, 22)
        values[scientific] *= _POWERS[np.maximum(power, 0)]
        values[scientific] /= _POWERS[np.maximum(-power, 0)]
    values[negative] *= -1
    return _mended(scan, values, np.flatnonzero(~good), colon, last)


def _exponents(scan: _Scan, left: IntArray) -> tuple[IntArray, IntArray]:
    """The exponents after the breaks ``left`` (beyond all limits if unsound), and the breaks that end them."""
    negative, positive = (_signed(scan, left, sign) for sign in (_MINUS, _PLUS))
    left = left.copy()
    left[negative] += 1
    left[positive] += 1
    number, length = scan.number(left)
    value = np.where((length > 0) & (length <= 3), number, 9999).astype(np.int64)
    value[negative] *= -1
    return value, left + 1


def _signed(scan: _Scan, left: IntArray, sign: int) -> IntArray:
    """The places in ``left`` of the breaks that ``sign`` stands right after."""
    found = np.flatnonzero(scan.kinds[left + 1] == sign)
    place = left[found]
    close: IntArray = found[scan.breaks[place + 1] - scan.breaks[place] == 1]
    return close


def _mended(scan: _Scan, values: FloatArray, tokens: IntArray, colon: IntArray, last: IntArray) -> FloatArray | None:
    """``values`` with those of ``tokens`` read by ``float``; None if one of them is not a number."""
    for token in tokens:
        spelt = scan.text[scan.breaks[colon[token]] + 1 : scan.breaks[last[token]]].tobytes()
        if NUMBER.fullmatch(spelt) is None:
            return None
        values[token] = float(spelt)
    return values


def _eight(word: NDArray[np.uint64], length: IntArray) -> NDArray[np.uint64]:
    """The number spelt by the last ``length`` of the eight digits in each ``word``, which is overwritten."""
    shift = ((8 - length) << 3).view(np.uint64)
    word >>= shift
    word <<= shift  # bytes before the digits are 0 now; a shift by 64 leaves nothing
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
