"""Normalisations by name: what they compute, what they learn from the training split, and how to take them along.

- ``none``: the values of the file
- ``query``: per query and feature (x - min) / (max - min); the default
- ``global``: the same with the minimum and maximum of the training split
- ``standard``: (x - mean) / standard deviation, both of the training split
- ``log1p``: sign(x) log(1 + |x|), then per query as ``query``; also spelt ``log1p+query``
- ``log1p+global``: sign(x) log(1 + |x|), then as ``global``
- ``log1p+standard``: sign(x) log(1 + |x|), then as ``standard``

A feature without any spread (within the query, or over the training split) becomes 0. Results are float32, sums and
differences are float64, so the largest values that a file can hold do not overflow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairrank.errors import FileFormatError, UnknownNameError
from pairrank.types import Float32Array, FloatArray, IntArray

NAMES = ("none", "query", "global", "standard", "log1p", "log1p+global", "log1p+standard")
_SPELT = {"log1p+query": "log1p"}
# The largest finite float32: values beyond it are set to it, so that none becomes infinite.
LARGEST = float(np.finfo(np.float32).max)
# Rows normalised at a time, so that float64 intermediates stay small beside the array itself.
_ROWS = 4096


def check_name(name: str) -> str:
    """The plain spelling of a normalisation's name; raises `UnknownNameError` for any other text."""
    plain = _SPELT.get(name, name)
    if plain not in NAMES:
        raise UnknownNameError(f"no normalisation is called {name!r}; there are: {', '.join(NAMES)}")
    return plain


@dataclass(frozen=True, eq=False)
class Statistics:
    """What the training split says about each feature, as float64 arrays of shape (n_features,).

    ``minimum`` and ``maximum`` are of the raw values; ``mean`` and ``deviation``, 0 unless the normalisation asks for
    them, of the values after log1p where it has that. ``highest`` is the highest grade.
    """

    minimum: FloatArray
    maximum: FloatArray
    mean: FloatArray
    deviation: FloatArray
    highest: int

    def varying(self) -> IntArray:
        """Column numbers of the features that are not constant over the training split."""
        return np.flatnonzero(self.maximum > self.minimum)


def statistics(features: Float32Array, grades: IntArray, normalise: str) -> Statistics:
    """`Statistics` of raw ``features`` (n_docs, n_features), as far as the normalisation ``normalise`` needs them."""
    low, high = features.min(axis=0).astype(np.float64), features.max(axis=0).astype(np.float64)
    mean, deviation = np.zeros_like(low), np.zeros_like(low)
    if normalise.endswith("standard"):
        for rows in _blocks(len(features)):
            mean += _logged(features[rows], normalise).sum(axis=0) / len(features)
        for rows in _blocks(len(features)):
            deviation += ((_logged(features[rows], normalise) - mean) ** 2).sum(axis=0) / len(features)
        # The mean of equal values may be off by a rounding error, which must not pass for spread.
        deviation = np.where(high > low, np.sqrt(deviation), 0.0)
    return Statistics(low, high, mean, deviation, highest=int(grades.max(initial=0)))


@dataclass(frozen=True, eq=False)
class Normaliser:
    """A normalisation with what it learned: (x - shift) * factor per feature, after log1p where the name says so.

    Attributes
    ----------
    name : one of `NAMES`.
    shift, spread : (n_features,) float64: minimum and maximum - minimum (``global``) or mean and standard deviation
        (``standard``) of the training split, after log1p where the name says so. None for the others.

    >>> Normaliser("query").apply([[10.0], [30.0], [20.0]]).tolist()
    [[0.0], [1.0], [0.5]]
    >>> Normaliser("global", shift=np.array([0.0]), spread=np.array([40.0])).apply([[10.0], [30.0]]).tolist()
    [[0.25], [0.75]]
    """

    name: str
    shift: FloatArray | None = None
    spread: FloatArray | None = None

    @classmethod
    def fit(cls, name: str, training: Statistics) -> Normaliser:
        """The normalisation ``name`` as the training split's statistics have it."""
        name = check_name(name)
        if name.endswith("global"):
            low, high = (_logged(bound, name) for bound in (training.minimum, training.maximum))
            return cls(name, low, high - low)
        if name.endswith("standard"):
            return cls(name, training.mean, training.deviation)
        return cls(name)

    def select(self, columns: IntArray) -> Normaliser:
        """The same for some of the features."""
        if self.shift is None or self.spread is None:
            return self
        return Normaliser(self.name, self.shift[columns], self.spread[columns])

    def apply(self, features: NDArray[Any]) -> Float32Array:
        """The normalised raw ``features`` (n, n_features) of one query's candidates."""
        result = np.array(features, dtype=np.float64)  # in which times keep their digits
        self.apply_in_place(result, np.array([0, len(result)]))
        return result.astype(np.float32)

    def apply_in_place(self, features: NDArray[Any], offsets: IntArray) -> None:
        """Normalise ``features`` (n_docs, n_features) where they lie; ``offsets`` as in `Dataset`."""
        if self.shift is not None and self.spread is not None:
            for rows in _blocks(len(features)):
                features[rows] = _scaled(_logged(features[rows], self.name), self.shift, self.spread)
        for start, stop in pairwise(offsets.tolist()) if self.name in ("query", "log1p") else ():
            if start < stop:
                values = _logged(features[start:stop], self.name)
                low = values.min(axis=0)
                features[start:stop] = _scaled(values, low, values.max(axis=0) - low)

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        arrays = {k: None if v is None else v.tolist() for k, v in (("shift", self.shift), ("spread", self.spread))}
        return json.dumps({"name": self.name, **arrays})

    @classmethod
    def from_json(cls, text: str) -> Normaliser:
        """The normaliser that `to_json` wrote."""
        try:
            values = json.loads(text)
            shift, spread = (
                None if values[key] is None else np.array(values[key], dtype=np.float64) for key in ("shift", "spread")
            )
            return cls(check_name(values["name"]), shift, spread)
        except (KeyError, TypeError, ValueError) as problem:
            raise FileFormatError(f"this is not a normaliser's JSON: {problem}") from None


def _logged(values: NDArray[Any], name: str) -> FloatArray:
    exact = values.astype(np.float64)
    return np.copysign(np.log1p(np.abs(exact)), exact) if name.startswith("log1p") else exact


def _scaled(values: FloatArray, shift: FloatArray, spread: FloatArray) -> FloatArray:
    values -= shift
    values /= np.where(spread > 0, spread, np.inf)
    return np.clip(values, -LARGEST, LARGEST, out=values)


def _blocks(n: int) -> list[slice]:
    return [slice(start, start + _ROWS) for start in range(0, n, _ROWS)]
