"""RankLib's linear model (coordinate ascent), as text.

RankLib knows features by number and has no normalisers. Names that are whole numbers are kept; other names
travel in comment lines, ``## Feature 1 = title_bm25``, which RankLib passes over.
"""

from __future__ import annotations

import re

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import strict_json
from pairrank.export.model import LinearModel

TITLE = "## Coordinate Ascent"
# RankLib wants these lines; they say how it would have trained, and mean nothing here.
SETTINGS = {
    "Restart": "5",
    "MaxIteration": "25",
    "StepBase": "0.05",
    "StepScale": "2.0",
    "Tolerance": "0.001",
    "Regularized": "false",
    "Slack": "0.001",
}
_COMMENT = re.compile(r"##\s*(Model|Feature (\d+))\s*=\s*(.*)")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def dumps(model: LinearModel) -> bytes:
    """The model's file; refused for a model with normalisers, for which RankLib has no place."""
    if model.is_normalised:
        raise ExportError(
            "RankLib has no place for normalisers: fold them into the weights (fold=True, --fold), which "
            "keeps every order, or normalise the features before RankLib sees them"
        )
    ids, names = model.feature_names, []
    if not all(_NUMBER.fullmatch(name) for name in ids):
        ids = tuple(str(i + 1) for i in range(model.n_features))
        names = [f"## Feature {i} = {name}" for i, name in zip(ids, model.feature_names, strict=True)]
    settings = (f"## {key} = {value}" for key, value in SETTINGS.items())
    lines = [TITLE, *settings, f"## Model = {model.name}", *names]
    if any(line.splitlines() != [line] for line in lines):
        raise ExportError("a name holds a line break, which RankLib's text cannot hold: rename it")
    lines.append(" ".join(f"{i}:{float(weight)!r}" for i, weight in zip(ids, model.weights, strict=True)))
    return ("\n".join(lines) + "\n").encode()


def loads(blob: bytes, *, source: str = "this model") -> LinearModel:
    """The model of a file that `dumps` or RankLib's coordinate ascent wrote."""
    lines = blob.decode("utf-8", errors="replace").splitlines()
    if not lines or lines[0].strip() != TITLE:
        raise ExportError(f"{source} begins with {lines[0] if lines else ''!r}; expected {TITLE!r}")
    comments = [match for line in lines if (match := _COMMENT.fullmatch(line.strip()))]
    names = {match[2]: match[3] for match in comments if match[2]}
    title = next((match[3] for match in comments if not match[2] and match[3]), "ranklib")
    terms = [term for line in lines if not line.startswith("##") for term in line.split()]
    split = [term.partition(":") for term in terms]
    if not split or any(not _NUMBER.fullmatch(i) or colon != ":" for i, colon, _ in split):
        raise ExportError(f"{source} has no line of id:weight pairs that could be read")
    weights = [strict_json.number(weight, f"the weight of feature {i}") for i, _, weight in split]
    return LinearModel(title, np.array(weights), tuple(names.get(i, i) for i, _, _ in split), (None,) * len(split))
