"""Apache Solr's LTR module: the body of ``PUT …/schema/model-store``. Solr too counts in 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import float32_text, strict_json
from pairrank.export.model import LinearModel, MinMax, Normalisation, QueryMinMax, Standard

CLASS = "org.apache.solr.ltr.model.LinearModel"
NORM = "org.apache.solr.ltr.norm."
NORMS: Mapping[str, tuple[type[MinMax | Standard], tuple[str, str]]] = {
    "MinMaxNormalizer": (MinMax, ("min", "max")),
    "StandardNormalizer": (Standard, ("avg", "std")),
}
DEFAULT_STORE = "_DEFAULT_"


def dumps(model: LinearModel, *, store: str = DEFAULT_STORE) -> bytes:
    """The body of the request; ``store`` is the feature store that the names belong to."""
    return strict_json.write(
        {
            "class": CLASS,
            "store": store,
            "name": model.name,
            "features": [
                {"name": feature} if entry is None else {"name": feature, "norm": _write(entry, feature)}
                for feature, _, entry in model.rows()
            ],
            "params": {"weights": float32_text.weights(model)},
        }
    )


def loads(blob: bytes, *, source: str = "this model") -> LinearModel:
    """The model of a request body that `dumps` wrote or that a Solr user wrote by hand."""
    document = strict_json.parse(blob, source)
    if document.get("class") != CLASS:
        raise ExportError(f"{source} is of class {document.get('class')!r}; expected {CLASS!r}")
    features = strict_json.entry(document, "features", list, source)
    weights = strict_json.entry(strict_json.entry(document, "params", dict, source), "weights", dict, source)
    if not all(isinstance(feature, dict) for feature in features):
        raise ExportError(f"{source} lists features that are not objects")
    names = [strict_json.entry(feature, "name", str, source) for feature in features]
    if set(names) != set(weights):
        odd = ", ".join(sorted(set(names) ^ set(weights)))
        raise ExportError(f"{source}: every listed feature needs a weight, and every weight a feature; see {odd}")
    values = [float32_text.read(weights[name], f"the weight of {name!r}") for name in names]
    norms = tuple(_read(feature.get("norm"), feature["name"]) for feature in features)
    return LinearModel(strict_json.entry(document, "name", str, source), np.array(values), tuple(names), norms)


def _write(entry: MinMax | Standard | QueryMinMax, feature: str) -> dict[str, Any]:
    short = float32_text.normaliser(entry, feature)
    name = next(name for name, (kind, _) in NORMS.items() if isinstance(short, kind))
    return {"class": NORM + name, "params": dict(zip(NORMS[name][1], map(str, astuple(short)), strict=True))}


def _read(norm: object, feature: str) -> Normalisation:
    given = norm if isinstance(norm, Mapping) else {}
    name = str(given.get("class")).removeprefix(NORM)
    if norm is None or name == "IdentityNormalizer":
        return None
    if name in NORMS:
        kind, keys = NORMS[name]
        params = strict_json.entry({"params": {}, **given}, "params", dict, f"the norm of {feature!r}")
        return kind(*(float32_text.read(params.get(key), f"{key} in the norm of {feature!r}") for key in keys))
    raise ExportError(f"the norm of {feature!r} is {norm!r}; expected MinMaxNormalizer or StandardNormalizer")
