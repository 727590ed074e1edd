"""How good a ranking is. Pure functions over one list or a whole data set; higher scores come first.

A data set's lists lie one behind the other: list q is ``offsets[q]:offsets[q + 1]`` of ``grades`` and ``scores``.
Per-list values are NaN where a metric means nothing (a list without a relevant document), and means leave those out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from pairrank.errors import InputError
from pairrank.types import FloatArray, IntArray

GAMMA = 0.9995  # the discount of later rounds in cNDCG, as in the paper


def gain(grades: ArrayLike) -> FloatArray:
    """2^g - 1 for every grade g."""
    return np.exp2(np.asarray(grades, dtype=np.float64)) - 1


@lru_cache(maxsize=256)
def discount(n: int) -> FloatArray:
    """(n,), 1 / log2(rank + 1) for ranks 1 to n; read-only."""
    weights: FloatArray = 1 / np.log2(np.arange(2, n + 2))
    weights.setflags(write=False)
    return weights


def dcg(grades: ArrayLike, k: int | None = None) -> float:
    """Σ over ranks r ≤ k of (2^g_r - 1) / log2(r + 1), for the grades of one list, top first."""
    top = gain(grades)[:k]
    return float(top @ discount(len(top)))


def ideal_dcg(grades: ArrayLike, k: int | None = None) -> float:
    """The largest `dcg` that any order of these documents has."""
    return dcg(np.sort(np.asarray(grades))[::-1], k)


def ndcg(ranking: ArrayLike, grades: ArrayLike, k: int | None = 10) -> float:
    """NDCG@k of one shown list: its DCG over that of the best order of all candidates.

    ``ranking`` holds row numbers of ``grades`` (all candidates), best first; it may stop after a few. 0 where no
    candidate is relevant.
    """
    all_grades = np.asarray(grades)
    ideal = ideal_dcg(all_grades, k)
    return dcg(all_grades[np.asarray(ranking)], k) / ideal if ideal > 0 else 0.0


def cndcg(values: ArrayLike, gamma: float = GAMMA) -> float:
    """Σ_t γ^(t-1) · NDCG_t, for the shown lists' NDCG in the order of the rounds, t from 1."""
    ndcgs = np.asarray(values, dtype=np.float64)
    return float(ndcgs @ gamma ** np.arange(len(ndcgs)))


def regrets(grades: ArrayLike, offsets: ArrayLike) -> IntArray:
    """(n_lists,), the mis-ordered pairs of each of many lists: pairs whose upper document has the lower grade.

    ``grades`` (n,) are those of the full lists, top first, one list behind the other and none of them empty. Documents
    of equal grade cannot be mis-ordered. This is the Kendall tau distance to the nearest ideal order.

    >>> regrets([0, 1, 2, 1, 0, 2], [0, 3, 6])
    array([3, 2])
    """
    listed, starts = np.asarray(grades), np.asarray(offsets)[:-1]
    total = np.zeros(len(starts), dtype=np.int64)
    if len(starts) == 0:
        return total
    sizes = np.diff(offsets)
    for level in range(int(listed.min()) + 1, int(listed.max()) + 1):
        lower = listed < level
        above: IntArray = np.cumsum(lower, dtype=np.int64)
        above -= np.repeat(above[starts] - lower[starts], sizes)
        total += np.add.reduceat(np.where(listed == level, above, 0), starts)
    return total


def cosine(a: ArrayLike, b: ArrayLike) -> float:
    """a·b / (‖a‖‖b‖); NaN where either has no length."""
    u, v = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    lengths = float(np.linalg.norm(u) * np.linalg.norm(v))
    return float(u @ v) / lengths if lengths > 0 else float("nan")


def block_size_by_rank(block_sizes: ArrayLike) -> IntArray:
    """(n_docs,), for every rank the size of the block that it falls into; ``block_sizes`` come best block first."""
    sizes = np.asarray(block_sizes, dtype=np.int64)
    return np.repeat(sizes, sizes)


def mean_by_rank(lists: Sequence[ArrayLike]) -> FloatArray:
    """(longest,), the mean over ``lists`` of numbers at every rank, over those that reach that far down.

    >>> mean_by_rank([[1.0, 2.0], [3.0, 4.0, 5.0]])
    array([2., 3., 5.])
    """
    longest = max((len(np.asarray(values)) for values in lists), default=0)
    total, count = np.zeros(longest), np.zeros(longest)
    for values in map(np.asarray, lists):
        total[: len(values)] += values
        count[: len(values)] += 1
    return total / count


def mean_interval(values: ArrayLike, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Mean over the first axis, the runs, and half the width of its Student t interval; NaN for fewer than two runs.

    (n,) gives two numbers, (n, m) two arrays (m,).
    """
    runs = np.asarray(values, dtype=np.float64)
    n, mean = len(runs), runs.mean(axis=0)
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    return mean, stdtrit(n - 1, (1 + level) / 2) * runs.std(axis=0, ddof=1) / np.sqrt(n)


def with_interval(mean: float, half: float | None, digits: int, sign: str = "") -> str:
    """A mean and half the width of its interval as text; without the latter where one run gives none.

    >>> with_interval(0.7, 0.012, digits=2), with_interval(0.7, float("nan"), digits=2, sign="+")
    ('0.70 ± 0.01', '+0.70')
    """
    spread = "" if half is None or np.isnan(half) else f" ± {half:.{digits}f}"
    return f"{mean:{sign}.{digits}f}{spread}"


# Whole data sets.


def order(scores: ArrayLike, offsets: ArrayLike, rng: np.random.Generator | None = None) -> IntArray:
    """(n_docs,), row numbers list by list, best score first.

    Ties are drawn from ``rng``: files that are sorted by grade would otherwise make a ranker that knows nothing look
    perfect. Without one the earlier row comes first.
    """
    keys = [-np.asarray(scores, dtype=np.float64), _list_of(np.asarray(offsets))]
    return np.lexsort(keys if rng is None else [rng.random(len(keys[0])), *keys])


class NDCG:
    """NDCG@k of a whole data set, again and again: what depends on the labels alone is computed once.

    Attributes
    ----------
    grades : (n_docs,), offsets : (n_queries + 1,), the labels and where each list starts.
    k : ranks that count.
    ideal : (n_queries,), the DCG of the best order of each list; 0 where no document is relevant.

    >>> measure = NDCG(grades=np.array([0, 1, 1, 0]), offsets=np.array([0, 2, 4]))
    >>> measure.per_query([0.1, 0.9, 0.2, 0.8]).round(2)
    array([1.  , 0.63])
    >>> round(measure.mean([0.1, 0.9, 0.2, 0.8]), 2)
    0.82
    """

    def __init__(self, grades: IntArray, offsets: IntArray, k: int = 10) -> None:
        _check_lists(grades, grades, offsets)
        self.grades, self.offsets, self.k = grades, offsets, k
        self._gains, self._lists = gain(grades), _list_of(offsets)
        rank = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))  # 0 for the first of each list
        top = np.flatnonzero(rank < k)
        self._places = rank[top], discount(k)[rank[top]], self._lists[top]
        self._long = list(_padded(np.asarray(offsets), k))
        self.ideal = self._dcg(order(grades, offsets)[top])

    def per_query(self, scores: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """(n_queries,), NDCG@k of each list under ``scores`` (n_docs,); NaN for lists without a relevant document."""
        _check_lists(scores, self.grades, self.offsets)
        reached = self._dcg(self.top(scores, rng))
        return np.divide(reached, self.ideal, out=np.full_like(reached, np.nan), where=self.ideal > 0)

    def mean(self, scores: ArrayLike, rng: np.random.Generator | None = None) -> float:
        """The mean of `per_query` over the lists with a relevant document; NaN where there is none."""
        values = self.per_query(scores, rng)
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else float("nan")

    def top(self, scores: ArrayLike, rng: np.random.Generator | None = None) -> IntArray:
        """Row numbers of the first ``k`` of each list, list by list, best score first: `order` without the rest.

        Only documents that are not below the k-th best of their list are sorted.
        """
        values = np.asarray(scores, dtype=np.float64)
        least = np.full(len(self.offsets) - 1, -np.inf)
        with_end = np.append(values, -np.inf)
        for lists, rows in self._long:
            least[lists] = np.partition(with_end[rows], -self.k, axis=1)[:, -self.k]
        # What is no number stands last in a sort by falling score, and first in a partition: nothing is left out then.
        kept = np.arange(len(values)) if np.isnan(values).any() else np.flatnonzero(values >= least[self._lists])
        lists = self._lists[kept]
        keys = [-values[kept], lists]
        if rng is not None:
            keys.insert(0, rng.random(len(values))[kept])
        starts = np.searchsorted(lists, np.arange(len(least)))
        rank, _, list_of = self._places
        top: IntArray = kept[np.lexsort(keys)[starts[list_of] + rank]]
        return top

    def _dcg(self, top: IntArray) -> FloatArray:
        _, weights, lists = self._places
        n = len(self.offsets) - 1  # lists without a document among them
        return np.bincount(lists, self._gains[top] * weights, minlength=n).astype(np.float64)


def _padded(offsets: IntArray, k: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Lists of more than ``k`` documents by similar length: their numbers (m,), and their rows (m, longest).

    Where a list is shorter than the longest of its group, the row is that behind the last of all.
    """
    sizes = np.diff(offsets)
    left = sizes > k
    while left.any():
        longest = sizes[left].max()
        lists = np.flatnonzero(left & (2 * sizes > longest))
        left[lists] = False
        places = np.arange(longest)
        yield lists, np.where(places < sizes[lists, None], offsets[lists, None] + places, offsets[-1])


def _list_of(offsets: NDArray[np.integer]) -> IntArray:
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _check_lists(scores: ArrayLike, grades: ArrayLike, offsets: ArrayLike) -> None:
    n = len(np.asarray(grades))
    bounds = np.asarray(offsets)
    if np.shape(scores) != (n,):
        raise InputError(f"scores have shape {np.shape(scores)}; expected one per document, ({n},)")
    if len(bounds) < 1 or bounds[0] != 0 or bounds[-1] != n or (np.diff(bounds) < 0).any():
        raise InputError(
            f"offsets must rise from 0 to the number of documents, {n}; got {bounds[:3]} ... {bounds[-1:]}"
        )
