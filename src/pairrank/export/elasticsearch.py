"""The Learning to Rank plugin of Elasticsearch and of OpenSearch.

The body of ``POST _ltr/_featureset/{set}/_createmodel``. The plugin keeps weights and normalisers in 32
bits, and so they are written. Features that the definition leaves out weigh nothing; features that the
feature set does not know are errors there.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import float32_text, strict_json
from pairrank.export.json_model import read_normaliser, write_normaliser
from pairrank.export.model import LinearModel

TYPE = "model/linear"


def dumps(model: LinearModel) -> bytes:
    """The body of the request that creates the model."""
    definition = float32_text.weights(model)
    normalisers = {
        feature: write_normaliser(float32_text.normaliser(entry, feature))
        for feature, _, entry in model.rows()
        if entry is not None
    }
    inner: dict[str, Any] = {"type": TYPE}
    if normalisers:
        inner["feature_normalizers"] = normalisers
    inner["definition"] = json.dumps(definition, ensure_ascii=False)
    return strict_json.write({"model": {"name": model.name, "model": inner}})


def loads(blob: bytes, *, source: str = "this model") -> LinearModel:
    """The model of a request body that `dumps` wrote, or of what ``GET _ltr/_model/{name}`` answers."""
    document = strict_json.parse(blob, source)
    outer = strict_json.entry(document.get("_source", document), "model", dict, source)
    inner = strict_json.entry(outer, "model", dict, source)
    if inner.get("type") != TYPE:
        raise ExportError(f"{source} is of type {inner.get('type')!r}; expected {TYPE!r}")
    definition = strict_json.parse(strict_json.entry(inner, "definition", str, source), f"the definition in {source}")
    normalisers = strict_json.entry({"feature_normalizers": {}, **inner}, "feature_normalizers", dict, source)
    strangers = set(normalisers) - set(definition)
    if strangers:
        raise ExportError(f"{source} normalises features that it does not weigh: {', '.join(sorted(strangers))}")
    weights = [float32_text.read(value, f"the weight of {name!r}") for name, value in definition.items()]
    read = tuple(read_normaliser(normalisers.get(feature), feature, float32_text.read) for feature in definition)
    return LinearModel(strict_json.entry(outer, "name", str, source), np.array(weights), tuple(definition), read)
