"""Our own JSON for linear models: 64-bit numbers, names and normalisation, nothing lost.

``{"format": "pairrank-linear", "version": 1, "name": …, "features": [{"name": …, "weight": …,
"normaliser": …}, …]}`` with ``normaliser`` either absent, ``{"min_max": {"minimum": …, "maximum": …}}``,
``{"standard": {"mean": …, "standard_deviation": …}}`` or ``{"query_min_max": {}}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import strict_json
from pairrank.export.model import LinearModel, MinMax, Normalisation, QueryMinMax, Standard

FORMAT = "pairrank-linear"
VERSION = 1


def dumps(model: LinearModel) -> bytes:
    """The model as JSON text."""
    return strict_json.write(document(model))


def document(model: LinearModel) -> dict[str, Any]:
    """The model as plain values."""
    features = []
    for name, weight, entry in zip(model.feature_names, model.weights, model.normalisation, strict=True):
        normaliser = {} if entry is None else {"normaliser": write_normaliser(entry)}
        features.append({"name": name, "weight": float(weight), **normaliser})
    return {"format": FORMAT, "version": VERSION, "name": model.name, "features": features}


def loads(blob: bytes, *, source: str = "this model") -> LinearModel:
    """The model that `dumps` wrote."""
    content, features = strict_json.model(blob, FORMAT, VERSION, source)
    names = [strict_json.entry(feature, "name", str, source) for feature in features]
    weights = [
        strict_json.number(feature.get("weight"), f"the weight of {name!r}")
        for name, feature in zip(names, features, strict=True)
    ]
    return LinearModel(
        strict_json.entry(content, "name", str, source),
        np.array(weights),
        tuple(names),
        tuple(read_normaliser(feature.get("normaliser"), feature["name"]) for feature in features),
    )


def write_normaliser(entry: MinMax | Standard | QueryMinMax) -> dict[str, Any]:
    """An entry as the LTR plugins spell it, and we after them; they have no ``query_min_max``."""
    if isinstance(entry, QueryMinMax):
        return {"query_min_max": {}}
    if isinstance(entry, MinMax):
        return {"min_max": {"minimum": entry.minimum, "maximum": entry.maximum}}
    return {"standard": {"mean": entry.mean, "standard_deviation": entry.standard_deviation}}


def read_normaliser(
    entry: object, feature: str, number: Callable[[object, str], float] = strict_json.number
) -> Normalisation:
    """The entry that `write_normaliser` wrote; ``number`` reads a number and names it where it is none."""
    if entry is None:
        return None
    what = f"the normaliser of {feature!r}"
    if isinstance(entry, Mapping) and len(entry) == 1:
        kind, numbers = next(iter(entry.items()))
        if kind == "query_min_max" and numbers == {}:
            return QueryMinMax()
        if kind == "min_max" and isinstance(numbers, Mapping):
            return MinMax(*(number(numbers.get(key), f"{key} in {what}") for key in ("minimum", "maximum")))
        if kind == "standard" and isinstance(numbers, Mapping):
            return Standard(*(number(numbers.get(key), f"{key} in {what}") for key in ("mean", "standard_deviation")))
    raise ExportError(f"{what} is {entry!r}; expected min_max or standard with their two numbers, or query_min_max")
