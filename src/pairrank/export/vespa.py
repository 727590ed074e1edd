"""Vespa: a rank profile whose expression is the model; feature names are rank features, such as ``bm25(title)``.

Features as they come are weighed in ``first-phase``. Features that are min-maxed within the query need all candidates:
``global-phase`` with ``normalize_linear``, over the hits that it re-ranks (``rerank-count``, 100 unless set). What the
profile cannot carry: global normalisers, which can be folded into the weights.
"""

from __future__ import annotations

import re

from pairrank.errors import ExportError
from pairrank.export.model import LinearModel, QueryMinMax

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_FEATURE = re.compile(r"[A-Za-z_][\w.]*(\([^(){}\s]+\)(\.\w+)*)?")


def dumps(model: LinearModel) -> bytes:
    """The text of the rank profile, for the schema."""
    if not _NAME.fullmatch(model.name):
        raise ExportError(f"the model's name is {model.name!r}; Vespa takes letters, digits, _ and -, a letter first")
    terms = []
    for feature, weight, entry in zip(model.feature_names, model.weights, model.normalisation, strict=True):
        if not _FEATURE.fullmatch(feature) or feature.startswith("normalize_linear"):
            raise ExportError(
                f"{feature!r} is not a rank feature of Vespa; name features as it does: bm25(title), attribute(age)"
            )
        if not (entry is None or isinstance(entry, QueryMinMax)):
            raise ExportError(
                "Vespa's rank profiles have no place for global normalisers: fold them (fold=True, --fold)"
            )
        terms.append(f"{float(weight)!r} * {feature if entry is None else f'normalize_linear({feature})'}")
    phase = "global-phase" if model.is_per_query else "first-phase"
    inside = " +\n".join(f"            {term}" for term in terms)
    lines = [
        f"rank-profile {model.name} {{",
        f"    {phase} {{",
        "        expression {",
        inside,
        "        }",
        "    }",
        "}",
    ]
    return ("\n".join(lines) + "\n").encode()
