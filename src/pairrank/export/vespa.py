"""Vespa: a rank profile whose expression is the model; feature names are rank features, such as ``bm25(title)``.

Features as they come are weighed in ``first-phase``. Features that are min-maxed within the query need all candidates:
``global-phase`` with ``normalize_linear``, over the hits that it re-ranks (``rerank-count``, 100 unless set). What the
profile cannot carry: global normalisers, which can be folded into the weights.
"""

from __future__ import annotations

import re

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import strict_json
from pairrank.export.model import LinearModel, QueryMinMax

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_FEATURE = re.compile(r"[A-Za-z_][\w.]*(\([^(){}\s]+\)(\.\w+)*)?")
_PROFILE = re.compile(
    r"rank-profile (\S+) \{\s*(?:first|global)-phase \{\s*expression \{\s*(.*?)\s*\}\s*\}\s*\}\s*", re.S
)
_TERM = re.compile(r"(\S+) \* (.+)")


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


def loads(blob: bytes, *, source: str = "this model") -> LinearModel:
    """The model of a rank profile that `dumps` wrote."""
    found = _PROFILE.fullmatch(blob.decode("utf-8", errors="replace"))
    if found is None:
        raise ExportError(f"{source} is not a rank profile with one expression, as it is written here")
    names, weights, entries = [], [], []
    for text in found[2].split(" +\n"):
        term = _TERM.fullmatch(text.strip())
        if term is None:
            raise ExportError(f"{source} has the term {text.strip()!r}; expected a number times a feature")
        inner = term[2].removeprefix("normalize_linear(").removesuffix(")")
        scaled = term[2] == f"normalize_linear({inner})"
        names.append(inner if scaled else term[2])
        weights.append(strict_json.number(term[1], f"the weight of {names[-1]!r}"))
        entries.append(QueryMinMax() if scaled else None)
    return LinearModel(found[1], np.array(weights), tuple(names), tuple(entries))
