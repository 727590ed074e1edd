"""Decimal numbers out of text, many at a time: the fast half of the LETOR reader.

`pairs` hands the ``index:value`` tokens of many lines to pyarrow's reader of CSV; where that is not installed, Python's
``float`` takes some nine times as long. Numbers are the same to the bit. Text that is refused is read line by line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from pairrank.types import FloatArray, IntArray

NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TOKENS = re.compile(rb"(?:\s*+[0-9]{1,8}+:%b(?=\s))*+\s*+" % NUMBER.pattern)
_ONE_A_LINE = bytes.maketrans(b" \t\r\v\f", b"\n" * 5)


class Pairs(NamedTuple):
    """The tokens of many lines: per line how many, per token its index and its value, in the order of the text."""

    counts: IntArray
    indices: IntArray
    values: FloatArray


def pairs(text: bytes) -> Pairs | None:
    """The ``index:value`` tokens of the lines of ``text``, which ends with a newline; None if it has any other shape.

    Values are exactly ``float`` of their text.
    """
    if any(letter in text for letter in (b"n", b"N", b"x", b"X")):  # NaN, infinity and, for pyarrow, 0x10 are numbers
        return None
    try:
        found = _by_pyarrow(text)
    except ImportError:
        found = _by_float(text)
    counts = np.array([line.count(b":") for line in text.split(b"\n")[:-1]], dtype=np.int64)
    return None if found is None else Pairs(counts, *found)


def _by_pyarrow(text: bytes) -> tuple[IntArray, FloatArray] | None:
    import pyarrow as pa
    from pyarrow import csv

    columns = {"index": pa.uint32(), "value": pa.float64()}
    try:
        table = csv.read_csv(
            pa.py_buffer(text.translate(_ONE_A_LINE) or b"\n"),
            csv.ReadOptions(use_threads=False, column_names=list(columns)),  # of so few lines one reads as fast
            csv.ParseOptions(delimiter=":", quote_char=False),
            csv.ConvertOptions(column_types=columns, null_values=[]),
        )
    except pa.ArrowInvalid:
        return None
    return table["index"].to_numpy().astype(np.int64), table["value"].to_numpy()


def _by_float(text: bytes) -> tuple[IntArray, FloatArray] | None:
    if not _TOKENS.fullmatch(text):
        return None
    numbers = np.array([float(word) for word in text.replace(b":", b" ").split()]).reshape(-1, 2)
    return numbers[:, 0].astype(np.int64), numbers[:, 1]
