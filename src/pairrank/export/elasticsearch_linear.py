"""Elasticsearch's ``linear`` retriever: a weighted sum of the scores of other retrievers, one for each feature.

Each is written as a match query on the field of the feature's name, with ``{{query}}`` for the words; put the real one
there. Scores are taken as they come (``none``) or min-maxed over what a retriever returned for the query (``minmax``).
A document that a retriever did not return counts 0 there. What it cannot carry: weights below 0 (fit non-negative
ones), global normalisers (fold them), and the model's name.
"""

from __future__ import annotations

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import float32_text, strict_json
from pairrank.export.model import LinearModel, MinMax, QueryMinMax, Standard

WINDOW = 100
_NORMALIZERS = {"none": None, "minmax": QueryMinMax()}


def dumps(model: LinearModel) -> bytes:
    """The body of a search."""
    check_not_negative(model, "Elasticsearch's linear retriever")
    retrievers = []
    for feature, weight, entry in zip(model.feature_names, model.weights, model.normalisation, strict=True):
        if isinstance(entry, MinMax | Standard):
            raise ExportError("the linear retriever has no place for global normalisers: fold them (fold=True, --fold)")
        search = {"standard": {"_name": feature, "query": {"match": {feature: "{{query}}"}}}}
        number = float32_text.shortest(weight, f"the weight of {feature!r}")
        retrievers.append({"retriever": search, "weight": number, "normalizer": "none" if entry is None else "minmax"})
    return strict_json.write({"retriever": {"linear": {"retrievers": retrievers, "rank_window_size": WINDOW}}})


def loads(blob: bytes, *, source: str = "this model") -> LinearModel:
    """The model of a body that `dumps` wrote, whatever retrievers were put in; they keep their ``_name``."""
    outer = strict_json.entry(strict_json.parse(blob, source), "retriever", dict, source)
    names, weights, entries = [], [], []
    for part in strict_json.entry(strict_json.entry(outer, "linear", dict, source), "retrievers", list, source):
        search = strict_json.entry(part, "retriever", dict, source) if isinstance(part, dict) else {}
        inner = next((value for value in search.values() if isinstance(value, dict)), {})
        names.append(strict_json.entry(inner, "_name", str, source))
        weights.append(float32_text.read(part.get("weight", 1.0), f"the weight of {names[-1]!r}"))
        normalizer = part.get("normalizer", "none")
        if normalizer not in _NORMALIZERS:
            raise ExportError(f"{source} has the normalizer {normalizer!r}; expected none or minmax")
        entries.append(_NORMALIZERS[normalizer])
    return LinearModel("elasticsearch", np.array(weights), tuple(names), tuple(entries))


def check_not_negative(model: LinearModel, engine: str) -> None:
    """Refuse weights below 0; to clip them would be another model than the best without them."""
    below = [name for name, weight in zip(model.feature_names, model.weights, strict=True) if weight < 0]
    if below:
        raise ExportError(
            f"{engine} takes no weights below 0, as those of {', '.join(below)}; fit the ranker's weights without "
            "them (nonnegative=True, --nonnegative)"
        )
