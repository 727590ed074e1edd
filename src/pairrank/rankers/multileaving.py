"""Multileaving: one list from several rankers, and from its clicks a credit for each of them.

With two rankers it is interleaving. All functions are pure; r rankers order n documents, and k are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from pairrank.types import BoolArray, FloatArray, IntArray


def ranks(scores: FloatArray, rng: np.random.Generator) -> IntArray:
    """(r, n): every document's rank with every ranker, 1 is best, from ``scores`` (r, n); ties by lot."""
    # Columns in random order make a stable sort break ties by lot, in the same way for every ranker.
    lot = rng.permutation(scores.shape[1])
    order = lot[np.argsort(-scores.take(lot, axis=1), axis=1, kind="stable")]
    result = np.empty(order.shape, dtype=np.int64)
    result[np.arange(len(order))[:, None], order] = np.arange(1, scores.shape[1] + 1)
    return result


def team_draft(scores: FloatArray, k: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """In rounds, every ranker in random order adds its best document that is not yet shown.

    Reference: Schuth et al., "Multileaved Comparisons for Fast Online Evaluation", CIKM 2014.

    Parameters
    ----------
    scores : (r, n), higher is better; ties by lot.

    Returns
    -------
    ranking : (k,), the documents shown. teams : (k,), which ranker added each.
    """
    r = len(scores)
    rounds = -(-k // r)
    teams = rng.permuted(np.tile(np.arange(r), (rounds, 1)), axis=1).ravel()[:k]
    lot = rng.permutation(scores.shape[1])
    shuffled, closed = scores[:, lot], np.zeros(scores.shape[1])
    ranking = np.empty(k, dtype=np.int64)
    for position, team in enumerate(teams):
        row = (shuffled[team] + closed).argmax()
        ranking[position] = lot[row]
        closed[row] = -np.inf
    return ranking, teams


def team_credits(teams: IntArray, clicks: BoolArray, r: int) -> FloatArray:
    """(r,): the number of clicks on each team's documents."""
    return np.bincount(teams[clicks], minlength=r).astype(np.float64)


def probabilistic(ranks: IntArray, k: int, rng: np.random.Generator, *, tau: float) -> IntArray:
    """(k,): at every position a random ranker draws a document d that is not yet shown, P(d) ∝ rank(d)^(−τ).

    Reference: Schuth et al., "Probabilistic Multileave for Online Retrieval Evaluation", SIGIR 2015; with two
    rankers, Hofmann et al., "A Probabilistic Method for Inferring Preferences from Clicks", CIKM 2011.

    Parameters
    ----------
    ranks : (r, n), from `ranks`. tau : how steeply the probability falls with the rank.
    """
    n = ranks.shape[1]
    falling = _by_rank(n, tau)[1]
    chosen = rng.integers(len(ranks), size=k).tolist()
    rankers = list(dict.fromkeys(chosen))
    # Falling order of log-weights with Gumbel noise is a draw of all documents without replacement. Those that others
    # showed meanwhile are passed over: what is left is a draw from what is left.
    noisy = falling[ranks[rankers] - 1] + rng.gumbel(size=(len(rankers), n))
    orders = dict(zip(rankers, np.argsort(-noisy, axis=1, kind="stable").tolist(), strict=True))
    return in_turn(orders, chosen)


def in_turn(orders: Mapping[int, Iterable[int]], chosen: Iterable[int]) -> IntArray:
    """(k,): each of the ``chosen``, k numbers of ``orders``, adds the first row of its order that is not yet shown."""
    left, shown = {one: iter(rows) for one, rows in orders.items()}, dict[int, None]()
    for one in chosen:
        for row in left[one]:
            if row not in shown:
                shown[row] = None
                break
    return np.fromiter(shown, dtype=np.int64, count=len(shown))


def assignments(ranks: IntArray, ranking: IntArray, *, tau: float) -> FloatArray:
    """(r, k): the probability that each ranker drew the document at each position, given the list.

    At position p ranker x draws d with P_x(d) = rank_x(d)^(−τ) / Σ_{e not yet shown} rank_x(e)^(−τ). Rankers are
    chosen uniformly and independently, so P(x | d) = P_x(d) / Σ_y P_y(d), independently for every position.

    Parameters
    ----------
    ranks : (r, n), from `ranks`. ranking : (k,), the list shown.
    """
    hidden = _by_rank(ranks.shape[1], tau)[0][ranks - 1]
    shown = hidden.T.take(ranking, axis=0)
    hidden[:, ranking] = 0.0
    # Summed from the end of the list upwards: a difference of two sums would lose all digits in long lists.
    left = np.empty((len(shown) + 1, len(ranks)))
    left[0], left[1:] = hidden.sum(axis=1), shown[::-1]
    drawn = shown / left.cumsum(axis=0)[:0:-1]
    result: FloatArray = (drawn / drawn.sum(axis=1, keepdims=True)).T
    return result


@lru_cache(maxsize=256)
def _by_rank(n: int, tau: float) -> tuple[FloatArray, FloatArray]:
    """(n,) and (n,): rank^(−τ) for ranks 1 to n, and its logarithm."""
    ranks = np.arange(1.0, n + 1)
    return ranks ** -float(tau), -tau * np.log(ranks)


def expected_credits(assignments: FloatArray, clicks: BoolArray) -> FloatArray:
    """(r,): the expected number of clicks on each ranker's documents, over all ``assignments`` (r, k)."""
    credit: FloatArray = assignments[:, clicks].sum(axis=1)
    return credit
