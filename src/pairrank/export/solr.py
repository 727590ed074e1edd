"""Apache Solr's LTR module: the body of ``PUT …/schema/model-store``. Solr too counts in 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import float32_text, strict_json
from pairrank.export.model import LinearModel, MinMax, Normalisation, QueryMinMax, Standard

CLASS = "org.apache.solr.ltr.model.LinearModel"
NORM = "org.apache.solr.ltr.norm."
DEFAULT_STORE = "_DEFAULT_"


def dumps(model: LinearModel, *, store: str = DEFAULT_STORE) -> bytes:
    """The body of the request; ``store`` is the feature store that the names belong to."""
    named = list(zip(model.feature_names, model.normalisation, strict=True))
    weights = {
        feature: float32_text.shortest(weight, f"the weight of {feature!r}")
        for feature, weight in zip(model.feature_names, model.weights, strict=True)
    }
    return strict_json.write(
        {
            "class": CLASS,
            "store": store,
            "name": model.name,
            "features": [
                {"name": feature} if entry is None else {"name": feature, "norm": _write(entry, feature)}
                for feature, entry in named
            ],
            "params": {"weights": weights},
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
    return LinearModel(
        strict_json.entry(document, "name", str, source),
        np.array(values),
        tuple(names),
        tuple(_read(feature.get("norm"), feature["name"]) for feature in features),
    )


def _write(entry: MinMax | Standard | QueryMinMax, feature: str) -> dict[str, Any]:
    short = float32_text.normaliser(entry, feature)
    if isinstance(short, MinMax):
        params = {"min": str(short.minimum), "max": str(short.maximum)}
        return {"class": f"{NORM}MinMaxNormalizer", "params": params}
    params = {"avg": str(short.mean), "std": str(short.standard_deviation)}
    return {"class": f"{NORM}StandardNormalizer", "params": params}


def _read(norm: object, feature: str) -> Normalisation:
    if norm is None:
        return None
    kind = norm.get("class") if isinstance(norm, Mapping) else None
    if kind == f"{NORM}IdentityNormalizer":
        return None
    params = norm.get("params", {}) if isinstance(norm, Mapping) else {}
    what = f"in the norm of {feature!r}"
    if kind == f"{NORM}MinMaxNormalizer":
        return MinMax(*(float32_text.read(params.get(key), f"{key} {what}") for key in ("min", "max")))
    if kind == f"{NORM}StandardNormalizer":
        return Standard(*(float32_text.read(params.get(key), f"{key} {what}") for key in ("avg", "std")))
    raise ExportError(f"the norm of {feature!r} is {norm!r}; expected MinMaxNormalizer or StandardNormalizer")
