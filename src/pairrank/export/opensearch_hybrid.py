"""OpenSearch's hybrid search: the body of ``PUT /_search/pipeline/{name}``, which weighs the queries of a hybrid query.

The order of the queries is that of the features, whose names stand in the description. Scores are min-maxed over what a
query returned; a document that it did not return adds nothing there. What it cannot carry: features that are not
min-maxed within the query, weights below 0 (fit non-negative ones), and more than five features. Weights are divided by
their sum, which changes no order; features without weight are left out.
"""

from __future__ import annotations

import json

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import float32_text, strict_json
from pairrank.export.elasticsearch_linear import check_not_negative
from pairrank.export.model import LinearModel, QueryMinMax

CLAUSES = 5


def dumps(model: LinearModel) -> bytes:
    """The body of the request that creates the search pipeline."""
    check_not_negative(model, "OpenSearch's hybrid search")
    if not all(isinstance(entry, QueryMinMax) for entry in model.normalisation):
        raise ExportError(
            "OpenSearch's hybrid search min-maxes every score within the query: train on such features, and say so "
            "(--normaliser query)"
        )
    used = np.flatnonzero(model.weights)
    if not 0 < len(used) <= CLAUSES:
        raise ExportError(f"{len(used)} features have weight; OpenSearch's hybrid search takes 1 to {CLAUSES}")
    total = model.weights.sum()
    # Weights that were read back add up to 1 but for rounding, and stay as they are.
    share = model.weights if abs(total - 1.0) < 1e-5 else model.weights / total
    names = [model.feature_names[i] for i in used]
    weights = [float32_text.shortest(share[i], f"the weight of {model.feature_names[i]!r}") for i in used]
    processor = {
        "normalization": {"technique": "min_max"},
        "combination": {"technique": "arithmetic_mean", "parameters": {"weights": weights}},
    }
    return strict_json.write(
        {
            "description": json.dumps({"model": model.name, "queries": names}, ensure_ascii=False),
            "phase_results_processors": [{"normalization-processor": processor}],
        }
    )
