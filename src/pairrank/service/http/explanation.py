"""Why a list stands as it stands: the answer to ``"explain": true`` in a rank request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from pairrank.errors import InputError
from pairrank.rankers import Ranker
from pairrank.rankers.linear import LinearRanker
from pairrank.types import FloatArray

# Every shown document is compared with every other one: time and memory grow as the square of this.
MAX_EXPLAINED = 500
# Of contributions, which are told under the name of each feature again for every document.
MAX_BYTES = 32 * 2**20
_NUMBER = 25  # bytes that a number and its colon take at most
_PAIR = ("above", "below", "gap", "width", "certain")


def explained(ranker: Ranker, name: str, n_shown: int) -> LinearRanker:
    """The ranker, if it can explain a list of ``n_shown`` documents, or `InputError`."""
    if not isinstance(ranker, LinearRanker):
        raise InputError(f"the ranker {name!r} has no weights to explain a list by; leave explain out")
    if n_shown > MAX_EXPLAINED:
        raise InputError(f"explain is for lists of up to {MAX_EXPLAINED} documents; ask for fewer with k")
    size = n_shown * (len(orjson.dumps(_names(ranker))) + _NUMBER * ranker.n_features)
    if size > MAX_BYTES:
        told = f"to explain {n_shown} documents may take {size:,} bytes"
        raise InputError(f"{told}; at most {MAX_BYTES:,} are allowed: ask for fewer with k")
    return ranker


def _names(ranker: Ranker) -> Sequence[str]:
    return ranker.feature_names or [str(number) for number in range(ranker.n_features)]


def explanation(ranker: LinearRanker, ids: Sequence[str], features: FloatArray) -> dict[str, Any]:
    """What each feature adds to each score, and how sure the order of neighbours is.

    Parameters
    ----------
    ids : of the shown documents. features : (k, n_features), theirs.
    """
    told = ranker.explain(features)
    names = _names(ranker)
    order = [ids[row] for row in told.order.tolist()]
    widths = [width if np.isfinite(width) else None for width in told.width.tolist()]
    pairs = zip(order[:-1], order[1:], told.gap.tolist(), widths, told.certain.tolist(), strict=True)
    return {
        "contributions": {
            name: dict(zip(names, row, strict=True)) for name, row in zip(ids, told.contribution.tolist(), strict=True)
        },
        "neighbours": [dict(zip(_PAIR, pair, strict=True)) for pair in pairs],
    }
