"""Learning from a list that a ranker did not make alone: the present order, or an interleaved one.

For rankers whose ``any_list`` is true: they learn from preferences between documents that were shown, not by the
chances of their own draw.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pairrank.errors import InputError
from pairrank.types import Impression, IntArray


def as_shown(impression: Impression, features: ArrayLike, ranking: IntArray) -> Impression:
    """A ranker's impression of the same documents as they were in fact shown; ``learn`` takes it.

    Parameters
    ----------
    impression : what the ranker would have shown; its number is used up, so it is learned once at most. Ids go along
        where it has those of all that was shown.
    features : (n_docs, n_features), all candidates, as the ranker's ``check_features`` reads frames and gaps.
    ranking : (k,), row numbers as shown.
    """
    X, shown = np.asarray(features, dtype=np.float64), [int(d) for d in ranking]
    if len(X) != impression.n_docs or len(set(shown)) != len(shown) or not set(shown) <= set(range(len(X))):
        raise InputError(
            f"{len(X)} documents came and a list of {len(shown)}; expected all {impression.n_docs} candidates and "
            "each at most once in the list"
        )
    if not np.array_equal(X[impression.ranking], impression.features, equal_nan=True):
        raise InputError("features are not those that were ranked; expected what the ranker's check_features gives")
    own = np.arange(len(shown))
    known = dict(zip(impression.ranking.tolist(), impression.ids or (), strict=False))
    return replace(
        impression,
        features=X[shown],
        ranking=np.array(shown, dtype=np.int64),
        blocks=own,
        locked=0,
        memory={**impression.memory, "ends": own},
        ids=tuple(known[d] for d in shown) if known.keys() >= set(shown) else None,
    )
