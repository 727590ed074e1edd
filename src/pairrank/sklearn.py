"""PairRank as a scikit-learn estimator: ``fit`` from labels, ``partial_fit`` from clicks, ``predict`` scores."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pairrank.errors import ClickError, DataError, MissingExtraError
from pairrank.metrics import NDCG
from pairrank.rankers import priors
from pairrank.rankers.pairrank import PairRank
from pairrank.types import FloatArray, Impression, IntArray, check_clicks

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtraError("scikit-learn", "sklearn") from None

# All pairs of a query are compared at once; without query ids or groups, all rows are one query.
LONGEST = 10_000
# Gains are 2^grade - 1, and sums of them must be finite; counts of clicks are no grades.
MAX_GRADE = 1000


class PairRankRanker(BaseEstimator):  # type: ignore[misc]
    """A linear ranker that learns from labels, and from clicks ever after.

    Parameters
    ----------
    lam : the prior's precision of feature f is lam · E[(x_i - x_j)_f²] over documents of a query, so units do not
        matter; here and below, None is what `PairRank` has, 3 per feature.
    pairs : preferences taken from clicks: "shown", "averaged", "all", "adjacent" or "matched", as in `PairRank`.
    z : how many standard deviations make an order certain; matters to ``ranker_.rank`` alone.
    strength : how many pairs of clicks the labels of ``fit`` are worth; None counts each pair of labels as one.
    l2 : the penalty of the offline fit to labels (`OfflineRankNet`).
    random_state : seed of the ranker, a whole number.

    Attributes
    ----------
    ranker_ : the `PairRank`; its ``rank`` and ``learn`` serve lists and explore.
    coef_ : (n_features,), the weights.
    n_features_in_, feature_names_in_ : how many features it was fitted to, and their names where X was a frame.

    Rows of one query stand together; ``qid`` says which belong together, or ``group`` how many rows each query has, as
    LightGBM's ``LGBMRanker`` takes it. Without either all rows are one query.

    >>> ranker = PairRankRanker().fit([[0.0], [1.0], [0.2], [0.7]], [0, 1, 0, 1], qid=[1, 1, 2, 2])
    >>> ranker = ranker.partial_fit([[0.3], [0.8]], [False, True])  # a list as it was shown, and its clicks
    >>> ranker.predict([[0.1], [0.9], [0.5]]).argsort()[::-1]
    array([1, 2, 0])
    """

    ranker_: PairRank

    def __init__(
        self,
        *,
        lam: float | None = None,
        pairs: str | None = None,
        z: float | None = None,
        strength: float | None = None,
        l2: float = 1e-3,
        random_state: int = 0,
    ) -> None:
        self.lam = lam
        self.pairs = pairs
        self.z = z
        self.strength = strength
        self.l2 = l2
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        qid: ArrayLike | None = None,
        *,
        group: ArrayLike | None = None,
        eval_set: Sequence[tuple[ArrayLike, ArrayLike]] | None = None,
        eval_group: Sequence[ArrayLike] | None = None,
    ) -> Self:
        """Learn from labels, whatever was learned before.

        Parameters
        ----------
        X : (n_docs, n_features). y : (n_docs,), numbers, higher is better; only their order within a query counts.
        qid : (n_docs,), which query a row belongs to; or group : (n_queries,), how many rows each query has.
        eval_set, eval_group : pairs (X, y) and their groups: `score` of each goes to ``evals_``. They teach nothing:
            the fit has no rounds that could be stopped early.
        """
        fitted = copy(self)  # where anything is wrong, this one stays as it was
        features, labels = validate_data(fitted, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        offsets = _offsets(qid, group, len(features))
        sets, groups = list(eval_set or ()), list(eval_group or ())
        if len(sets) != len(groups):
            raise DataError(f"eval_set has {len(sets)} sets and eval_group {len(groups)}; expected one group per set")
        # Only the order counts, so any numbers will do for grades.
        grades = np.unique(labels.astype(np.float64), return_inverse=True)[1].astype(np.int64)
        ranker = fitted._new()
        lam, _, model = priors.settings_of(ranker)
        known = priors.from_labels(features, grades, offsets, lam=lam, strength=self.strength, l2=self.l2, model=model)
        known.apply(ranker)
        fitted.ranker_ = ranker
        fitted.evals_ = [fitted.score(*pair, group=sizes) for pair, sizes in zip(sets, groups, strict=True)]
        self.__dict__ = fitted.__dict__
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, qid: ArrayLike | None = None, *, group: ArrayLike | None = None
    ) -> Self:
        """Learn from clicks, on top of what was learned before.

        Parameters
        ----------
        X : (n_docs, n_features), the shown documents, the lists one after the other, each in shown order.
        y : (n_docs,), the clicks: which were clicked.
        qid : (n_docs,), which list a row belongs to; or group : (n_lists,), how many rows each list has.
        """
        begun = hasattr(self, "ranker_")
        features = validate_data(self, X, dtype=np.float64, reset=not begun)
        if y is None:
            raise ClickError("clicks are None; expected one yes or no for each row of X")
        marks = check_clicks(y, len(features))
        offsets = _offsets(qid, group, len(features))
        ranker = self.ranker_ if begun else self._new()
        ranker.check_features(features)  # of all lists, before any of them is learned
        for start, stop in pairwise(offsets):
            ranker.learn(_shown(ranker, features[start:stop]), marks[start:stop])
        self.ranker_ = ranker
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """(n_docs,), scores; higher is better."""
        check_is_fitted(self)
        features = validate_data(self, X, dtype=np.float64, reset=False)
        return self.ranker_.score(features)

    def score(
        self, X: ArrayLike, y: ArrayLike, qid: ArrayLike | None = None, *, group: ArrayLike | None = None
    ) -> float:
        """The mean NDCG@10 (gain 2^y - 1) over queries with a relevant document; y are grades, below 0 as good as 0."""
        scores = self.predict(X)
        try:
            grades = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):  # no numbers
            grades = np.empty(0)
        if grades.shape != scores.shape or not np.array_equal(grades, np.round(grades)) or grades.max() > MAX_GRADE:
            raise DataError(f"y must hold a grade for each row, a whole number up to {MAX_GRADE}")
        return float(NDCG(np.maximum(grades, 0).astype(np.int64), _offsets(qid, group, len(scores)), 10).mean(scores))

    @property
    def coef_(self) -> FloatArray:
        """(n_features,), the weights."""
        check_is_fitted(self)
        return self.ranker_.weights

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ranker_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _new(self) -> PairRank:
        # With names, where X was a frame: another frame may have its columns in another order.
        names = getattr(self, "feature_names_in_", None)
        given = {"lam": self.lam, "pairs": self.pairs, "z": self.z, "feature_names": names}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return PairRank(self.n_features_in_, seed=self.random_state, **options)


def _offsets(qid: ArrayLike | None, group: ArrayLike | None, n: int) -> IntArray:
    """(n_queries + 1,): where each run of equal query ids, or each group, begins and ends."""
    if qid is not None and group is not None:
        raise DataError("qid and group say the same thing twice; give one of them")
    if group is not None:
        sizes = np.asarray(group)
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 1).any() or sizes.sum() != n:
            raise DataError(f"group must hold whole numbers from 1 that add up to {n}, the rows of X")
        offsets = np.concatenate([[0], np.cumsum(sizes)])
    elif qid is not None:
        ids = np.asarray(qid)
        if ids.shape != (n,):
            raise DataError(f"qid has shape {ids.shape}; expected ({n},), one for each row of X")
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        try:
            n_queries = len(np.unique(ids))
        except TypeError:
            raise DataError("qid holds what cannot be sorted; expected all texts or all numbers") from None
        if n_queries != len(starts):
            raise DataError("rows of one query do not stand together: sort X, y and qid by qid")
        offsets = np.append(starts, n)
    else:
        offsets = np.array([0, n])
    if np.diff(offsets).max() > LONGEST:
        raise DataError(f"a query has more than {LONGEST:,} rows; say with qid or group which rows belong together")
    return offsets


def _shown(ranker: PairRank, features: FloatArray) -> Impression:
    """A list as somebody else showed it, as the ranker's next impression."""
    k = len(features)
    return Impression(
        ranker=ranker.fingerprint,
        seed=ranker.seed,
        number=ranker.n_ranked,
        n_docs=k,
        features=features.copy(),
        ranking=np.arange(k),
        blocks=np.zeros(k, dtype=np.int64),
        explored=False,
    )
