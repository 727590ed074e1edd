"""Our own JSON for linear models: 64-bit numbers, names and normalisation, nothing lost.

``{"format": "pairrank-linear", "version": 1, "name": …, "features": [{"name": …, "weight": …,
"normaliser": …}, …]}`` with ``normaliser`` either absent, ``{"min_max": {"minimum": …, "maximum": …}}``,
``{"standard": {"mean": …, "standard_deviation": …}}`` or ``{"query_min_max": {}}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import strict_json
from pairrank.export.model import LinearModel, MinMax, Normalisation, QueryMinMax, Standard

FORMAT = "pairrank-linear"
VERSION = 1
KINDS: Mapping[str, type[MinMax | Standard | QueryMinMax]] = {
    "min_max": MinMax,
    "standard": Standard,
    "query_min_max": QueryMinMax,
}


def dumps(model: LinearModel) -> bytes:
    return strict_json.write(document(model))


def document(model: LinearModel) -> dict[str, Any]:
    features = []
    for name, weight, entry in model.rows():
        normaliser = {} if entry is None else {"normaliser": write_normaliser(entry)}
        features.append({"name": name, "weight": weight, **normaliser})
    return {"format": FORMAT, "version": VERSION, "name": model.name, "features": features}


def loads(blob: bytes, *, source: str = "this model") -> LinearModel:
    content, features = strict_json.model(blob, FORMAT, VERSION, source)
    names = [strict_json.entry(feature, "name", str, source) for feature in features]
    weights = [
        strict_json.number(feature.get("weight"), f"the weight of {name!r}")
        for name, feature in zip(names, features, strict=True)
    ]
    normalisers = tuple(read_normaliser(feature.get("normaliser"), feature["name"]) for feature in features)
    return LinearModel(strict_json.entry(content, "name", str, source), np.array(weights), tuple(names), normalisers)


def write_normaliser(entry: MinMax | Standard | QueryMinMax) -> dict[str, Any]:
    """An entry as the LTR plugins spell it, and we after them; they have no ``query_min_max``."""
    return {next(name for name, kind in KINDS.items() if isinstance(entry, kind)): asdict(entry)}


def read_normaliser(
    entry: object, feature: str, number: Callable[[object, str], float] = strict_json.number
) -> Normalisation:
    """The entry that `write_normaliser` wrote; ``number`` reads a number and names it where it is none."""
    if entry is None:
        return None
    what = f"the normaliser of {feature!r}"
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((name, numbers),) = entry.items()
        if name in KINDS and isinstance(numbers, Mapping):
            return KINDS[name](*(number(numbers.get(f.name), f"{f.name} in {what}") for f in fields(KINDS[name])))
    raise ExportError(f"{what} is {entry!r}; expected min_max or standard with their two numbers, or query_min_max")
