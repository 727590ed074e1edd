"""Weighted sums in search engines' own words, without a plugin: Vespa, Qdrant, Elasticsearch, OpenSearch.

None of them has a place for global normalisers, which can be folded into the weights.
"""

from __future__ import annotations

import json
import re

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import float32_text, strict_json
from pairrank.export.model import LinearModel, MinMax, QueryMinMax, Standard

# Of Elasticsearch's linear retriever: how many documents of each of its retrievers are weighed.
WINDOW = 100
# Of OpenSearch's hybrid search: how many queries it takes.
CLAUSES = 5
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_FEATURE = re.compile(r"[A-Za-z_][\w.]*(\([^(){}\s]+\)(\.\w+)*)?")


def vespa(model: LinearModel) -> bytes:
    """A rank profile for the schema, whose expression is the model; feature names are rank features: ``bm25(title)``.

    Features as they come are weighed in ``first-phase``. Features that are min-maxed within the query need all
    candidates: ``global-phase`` with ``normalize_linear``, over the hits that it re-ranks (``rerank-count``, 100 unless
    set).
    """
    if not _NAME.fullmatch(model.name):
        raise ExportError(f"the model's name is {model.name!r}; Vespa takes letters, digits, _ and -, a letter first")
    for feature in model.feature_names:
        if not _FEATURE.fullmatch(feature) or feature.startswith("normalize_linear"):
            raise ExportError(
                f"{feature!r} is not a rank feature of Vespa; name features as it does: bm25(title), attribute(age)"
            )
    _refuse_global(model, "Vespa's rank profiles have")
    phase = "global-phase" if model.is_per_query else "first-phase"
    terms = " +\n".join(
        f"            {weight!r} * {feature if entry is None else f'normalize_linear({feature})'}"
        for feature, weight, entry in model.rows()
    )
    return (
        f"rank-profile {model.name} {{\n    {phase} {{\n        expression {{\n{terms}\n        }}\n    }}\n}}\n"
    ).encode()


def qdrant(model: LinearModel) -> bytes:
    """Of Qdrant 1.14 and later: the ``query`` of a request that re-scores what ``prefetch`` found, by a formula.

    Feature names are payload keys, or ``$score`` and ``$score[1]`` for the scores of prefetches. A point without a
    payload key counts 0 there. It has no place for the model's name, nor for any normalisers.
    """
    if model.is_normalised:
        raise ExportError("Qdrant's formulas have no place for normalisers: fold them (fold=True, --fold)")
    terms = [{"mult": [weight, feature]} for feature, weight, _ in model.rows()]
    defaults = {feature: 0.0 for feature in model.feature_names if not feature.startswith("$score")}
    return strict_json.write({"query": {"formula": {"sum": terms}, "defaults": defaults}})


def elasticsearch_linear(model: LinearModel) -> bytes:
    """Elasticsearch's ``linear`` retriever, the body of a search: weighs the scores of a retriever for each feature.

    Each is written as a match query on the field of the feature's name, with ``{{query}}`` for the words; put the real
    one there. Scores are taken as they come (``none``) or min-maxed over what a retriever returned (``minmax``). A
    document that a retriever did not return counts 0 there. It has no place for the model's name.
    """
    _refuse_negative(model, "Elasticsearch's linear retriever")
    _refuse_global(model, "the linear retriever has")
    weights = float32_text.weights(model)
    retrievers = [
        {
            "retriever": {"standard": {"_name": feature, "query": {"match": {feature: "{{query}}"}}}},
            "weight": weights[feature],
            "normalizer": "none" if entry is None else "minmax",
        }
        for feature, _, entry in model.rows()
    ]
    return strict_json.write({"retriever": {"linear": {"retrievers": retrievers, "rank_window_size": WINDOW}}})


def opensearch_hybrid(model: LinearModel) -> bytes:
    """The body of ``PUT /_search/pipeline/{name}``, which weighs the queries of OpenSearch's hybrid search.

    The order of the queries is that of the features, whose names stand in the description. Scores are min-maxed over
    what a query returned; a document that it did not return adds nothing there. Weights are divided by their sum, which
    changes no order; features without weight are left out.
    """
    _refuse_negative(model, "OpenSearch's hybrid search")
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


def _refuse_global(model: LinearModel, what_has: str) -> None:
    if any(isinstance(entry, MinMax | Standard) for entry in model.normalisation):
        raise ExportError(f"{what_has} no place for global normalisers: fold them (fold=True, --fold)")


def _refuse_negative(model: LinearModel, engine: str) -> None:
    """Weights below 0; to clip them would be another model than the best without them."""
    below = [feature for feature, weight, _ in model.rows() if weight < 0]
    if below:
        raise ExportError(
            f"{engine} takes no weights below 0, as those of {', '.join(below)}; fit the ranker's weights without "
            "them (nonnegative=True, --nonnegative)"
        )
