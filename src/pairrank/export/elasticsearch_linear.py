"""Elasticsearch's ``linear`` retriever: a weighted sum of the scores of other retrievers, one for each feature.

Each is written as a match query on the field of the feature's name, with ``{{query}}`` for the words; put the real one
there. Scores are taken as they come (``none``) or min-maxed over what a retriever returned for the query (``minmax``).
A document that a retriever did not return counts 0 there. What it cannot carry: weights below 0 (fit non-negative
ones), global normalisers (fold them), and the model's name.
"""

from __future__ import annotations

from pairrank.errors import ExportError
from pairrank.export import float32_text, strict_json
from pairrank.export.model import LinearModel, MinMax, Standard

WINDOW = 100


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


def check_not_negative(model: LinearModel, engine: str) -> None:
    """Refuse weights below 0; to clip them would be another model than the best without them."""
    below = [name for name, weight in zip(model.feature_names, model.weights, strict=True) if weight < 0]
    if below:
        raise ExportError(
            f"{engine} takes no weights below 0, as those of {', '.join(below)}; fit the ranker's weights without "
            "them (nonnegative=True, --nonnegative)"
        )
