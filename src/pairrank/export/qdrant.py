"""Qdrant 1.14 and later: the ``query`` of a request that re-scores what ``prefetch`` found, by a formula.

Feature names are payload keys, or ``$score`` and ``$score[1]`` for the scores of prefetches. A point without a payload
key counts 0 there. What the formula cannot carry: the model's name, and normalisers; global ones can be folded.
"""

from __future__ import annotations

from pairrank.errors import ExportError
from pairrank.export import strict_json
from pairrank.export.model import LinearModel


def dumps(model: LinearModel) -> bytes:
    """The part of the request's body that stands beside ``prefetch``."""
    if model.is_normalised:
        raise ExportError("Qdrant's formulas have no place for normalisers: fold them (fold=True, --fold)")
    terms = [
        {"mult": [float(weight), feature]} for feature, weight in zip(model.feature_names, model.weights, strict=True)
    ]
    defaults = {feature: 0.0 for feature in model.feature_names if not feature.startswith("$score")}
    return strict_json.write({"query": {"formula": {"sum": terms}, "defaults": defaults}})
