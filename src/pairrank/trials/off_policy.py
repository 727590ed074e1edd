"""What another ranker would have got, from lists that ours has shown: estimates with intervals, and when not to ask.

A log holds n lists of k positions and what each position earned (a click, a gain). If the other ranker shows d_1, d_2,
… then a list of the log tells what position p would have earned if it has d_p there, and above it the documents that
the other has above it, in whatever order: clicks of position-based, cascade and dependent click models are of this
kind, first clicks those of the last two alone. It counts w_p = 1 / (probability of that in our draw), 0 if it has not,
and the mean of Σ_p w_p r_p is the other ranker's value, wherever our draw could have shown what it shows.

Estimates: inverse propensity scores, the same divided by the mean weights, and doubly robust with a model of the
earnings (Kiyohara et al., WSDM 2022). Positions that our draw shows like that too seldom for a log of this size are
left out, before any click is looked at, and the answer says how much of the other ranker's lists it tells of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from pairrank.errors import InputError
from pairrank.trials import interleaving
from pairrank.trials.interleaving import exposure
from pairrank.types import BoolArray, FloatArray, IntArray

# Below this many effective lists an estimate says little, and its interval is not to be relied on.
ENOUGH = 100
# Where fewer lists than this earned anything else than most did, such as a click, it is not either: with an expected
# number of 10 the interval covers the truth in 93 of 100 logs, with 5 in 87, with 1 in 63.
SOME = 10
_NEARLY_ALL = 0.99


class Draws:
    """How likely PairRank's draw from some candidates is to show what other orders show.

    Block after block; within one ``conservative`` draws uniformly among the documents without a certain predecessor
    left, ``random`` (``shuffled``) among all that are left. ``certain`` (n, n) and ``blocks`` (n,) as in `Inspection`.

    >>> draws = Draws(certain=np.zeros((3, 3), dtype=bool), blocks=np.array([0, 1, 1]))
    >>> draws.set_chances(np.array([0, 2, 1]))
    array([[1. , 1. , 0.5],
           [1. , 0.5, 0.5]])
    """

    def __init__(self, certain: BoolArray, blocks: IntArray, *, shuffled: bool = False) -> None:
        self._certain, self._blocks, self._shuffled = certain, blocks, shuffled
        self._block = cache(self._opened)

    def _opened(self, number: int) -> tuple[dict[int, int], list[int], Callable[[int], tuple[float, int]]]:
        """A block's documents with their places; who must come before each, as bits; and a function of such a set: the
        chance of drawing these first, and how many are free then."""
        block = (self._blocks == number).nonzero()[0]
        inside = self._certain[np.ix_(block, block)] & (not self._shuffled)
        above = [sum(1 << int(i) for i in column.nonzero()[0]) for column in inside.T]

        @cache
        def chance(drawn: int) -> tuple[float, int]:
            total, rest = 0.0, drawn
            while rest:
                last = rest & -rest
                rest ^= last
                before = drawn ^ last
                if above[last.bit_length() - 1] & ~before == 0:
                    reached, n_free = chance(before)
                    total += reached / n_free
            waiting = sum(1 for i, needed in enumerate(above) if not drawn >> i & 1 and needed & ~drawn == 0)
            return (total if drawn else 1.0), waiting

        return {d: i for i, d in enumerate(block.tolist())}, above, chance

    def set_chances(self, other: IntArray) -> FloatArray:
        """(2, k): the chance of having what ``other`` has above each position, and of having the same there too.

        Above in any order; 0 from the first position on that is impossible. The chance of a set is a sum over the
        document that came last.
        """
        found = np.zeros((2, len(other)))
        numbers, drawn, place = iter(np.unique(self._blocks).tolist()), 0, dict[int, int]()
        for position, document in enumerate(other.tolist()):
            if drawn == (1 << len(place)) - 1:  # the block is through
                (place, above, chance), drawn = self._block(next(numbers)), 0
            if document not in place:
                break  # a document of a later block
            reached, n_free = chance(drawn)
            free = above[place[document]] & ~drawn == 0
            found[:, position] = reached, reached / n_free if free else 0.0
            if not free:
                break
            drawn |= 1 << place[document]
        return found


class Weights(NamedTuple):
    """What one list of the log counts for another ranker.

    Attributes
    ----------
    here : (k,), 1 / chance where the list has what the other has there and above, else 0. above : the same without
        what is there. reach : (k,), the chance itself, whatever the list shows; 0: our draw never shows it.

    >>> draws = Draws(certain=np.zeros((2, 2), dtype=bool), blocks=np.array([0, 0]))
    >>> shown, other = np.array([0, 1]), np.array([0, 1])
    >>> weigh(shown, other, draws.set_chances(other)).here
    array([2., 2.])
    """

    here: FloatArray
    above: FloatArray
    reach: FloatArray


def weigh(shown: IntArray, other: IntArray, chances: FloatArray) -> Weights:
    """The weights of a list for a ranker that shows ``other`` (k,), with its `Draws.set_chances`."""
    k, seen, wanted = len(other), shown.tolist(), other.tolist()
    alike = np.array([set(seen[:p]) == set(wanted[:p]) for p in range(k)], dtype=np.float64)
    above = np.divide(alike, chances[0], out=np.zeros(k), where=chances[0] > 0)
    here = np.divide(alike * (shown[:k] == other), chances[1], out=np.zeros(k), where=chances[1] > 0)
    return Weights(here, above, chances[1])


class Draft:
    """A team draft of two rankings as something that a log may tell of: what lists count for it, and their clicks.

    At a position p let T(S, d) be the chance that the draft has d there and the documents S above, in any order, and
    D(S, d) that of our draw. A list counts T / D; a click in it counts the mean credit of the drafts that have the same
    there. The mean of Σ_p is the draft's Σ_p credit · click: a's clicks less b's, by `interleaving.choice_credit`.

    Parameters
    ----------
    a, b : (n,), two rankings of the candidates. k : positions. draws : ours.

    Attributes
    ----------
    reach : (k,), which part of a list of the draft's own a list of ours is worth at each position; 0: untold.
    """

    def __init__(self, a: IntArray, b: IntArray, k: int, draws: Draws) -> None:
        # By position, for (S, d) and for (S, None): the draft's chance, ours, and the draft's chance times the credit.
        self._there: list[dict[tuple[frozenset[int], int | None], FloatArray]] = [{} for _ in range(k)]
        for chance, draft in interleaving.lists(a, b, k):
            ours, seen = draws.set_chances(draft.ranking), frozenset[int]()
            for p, d in enumerate(draft.ranking.tolist()):
                for key, own in (((seen, None), ours[0, p]), ((seen, d), ours[1, p])):
                    sums = self._there[p].setdefault(key, np.array([0.0, own, 0.0]))
                    sums[[0, 2]] += chance, chance * draft.credit[p]
                seen |= {d}
        self.reach = np.array([self._worth(there) for there in self._there])

    @staticmethod
    def _worth(there: dict[tuple[frozenset[int], int | None], FloatArray]) -> float:
        """1 / E (T/D) under the draft, 0 where the draft has what ours never shows."""
        here = [sums for (_, d), sums in there.items() if d is not None]
        return 1.0 / sum(t * t / own for t, own, _ in here) if all(own > 0 for _, own, _ in here) else 0.0

    def weigh(self, shown: IntArray) -> tuple[Weights, FloatArray]:
        """The weights of a list, and (k,) what a click at each position counts."""
        seen, none = frozenset[int](), np.array([0.0, 1.0, 0.0])
        rows = []
        for there, d in zip(self._there, shown.tolist(), strict=True):
            (above, of, _), (here, own, credit) = there.get((seen, None), none), there.get((seen, d), none)
            seen |= {d}
            told = (here / own if own else 0.0, above / of if of else 0.0, credit / here if here else 0.0)
            rows.append(told)
        here, above, credit = np.array(rows).T
        return Weights(here, above, self.reach), credit


@dataclass(frozen=True, eq=False)
class Log:
    """Lists as they were shown: what they earned, and what they count for another ranker.

    Attributes
    ----------
    earned : (n, k), what each position earned. here, above, reach : (n, k), `Weights` of each list.

    >>> every = np.ones((200, 1))
    >>> log = Log(earned=np.tile([[1.0], [0.0]], (100, 1)), here=every, above=every, reach=every)
    >>> estimates(log)[0].value
    0.5
    """

    earned: FloatArray
    here: FloatArray
    above: FloatArray
    reach: FloatArray

    def __post_init__(self) -> None:
        shapes = {array.shape for array in (self.earned, self.here, self.above, self.reach)}
        if len(shapes) > 1 or self.earned.ndim != 2 or not self.earned.size:
            raise InputError("the log's arrays have different shapes, or hold no list; expected (n, k) each")

    def told(self, size: int | None = None) -> BoolArray:
        """(n, k): positions that a log of ``size`` lists (by default n) tells of: down to the first shown too seldom.

        So seldom that as many lists like that would be worth fewer than `ENOUGH` of the other ranker's own.
        """
        often: BoolArray = self.reach >= min(ENOUGH / (size or len(self.reach)), 1.0)
        return np.logical_and.accumulate(often, axis=1)


@dataclass(frozen=True)
class Estimate:
    """A mean per list of the other ranker, its interval, and how far the log can tell.

    Attributes
    ----------
    method : "ips", "self-normalised" or "doubly robust".
    effective : Kish's effective sample size of the weights, averaged over positions by what they earned.
    told : the share of the other ranker's exposure that the log tells of; the value is of those positions alone.
    doubt : why the log cannot tell, or not all; empty when it can.

    >>> every = np.ones((50, 1))
    >>> found = estimates(Log(earned=every, here=every, above=every, reach=every))[0]
    >>> found.method, found.value
    ('ips', 1.0)
    >>> found.doubt
    'the log is worth 50 lists of this ranker; expected 100 at least: let it run longer'
    """

    method: str
    value: float
    interval: tuple[float, float]
    lists: int
    effective: float
    told: float
    doubt: str

    def to_json(self) -> dict[str, Any]:
        """The estimate by name; ends of the interval that are infinite are None."""
        return {**self.__dict__, "interval": finite(self.interval)}


def finite(interval: tuple[float, float]) -> list[float | None]:
    """An interval for JSON, which has no infinity: None stands for an end that one list alone cannot give."""
    return [end if math.isfinite(end) else None for end in interval]


def estimates(log: Log, *, level: float = 0.05) -> list[Estimate]:
    """The three estimates of what the other ranker earns per list, in the positions that the log tells of.

    The doubly robust one's model of what positions earn is, for each half of the lists, the means of the other half. It
    changes that estimate's noise, not its mean.
    """
    told = log.told()
    n = len(told)
    here, above = np.where(told, log.here, 0.0), np.where(told, log.above, 0.0)
    model = np.zeros_like(log.earned)
    if n > 1:
        model[::2], model[1::2] = log.earned[1::2].mean(axis=0), log.earned[::2].mean(axis=0)
    plain = (here * log.earned).sum(axis=1)
    robust = (here * (log.earned - model) + above * model).sum(axis=1)
    # Divided by the mean weight of each position, which is what it should be only in the mean: the share told of.
    should, mean = told.mean(axis=0), here.mean(axis=0)
    scaled = np.divide(here * should, mean, out=np.zeros_like(here), where=mean > 0)
    rates = np.divide((scaled * log.earned).mean(axis=0), should, out=np.zeros(len(should)), where=should > 0)
    # The linear part of a ratio: what each list moves it by, the share told of included.
    normalised = (scaled * (log.earned - rates)).sum(axis=1) + told @ rates
    effective = _effective(here, log.earned)
    curve = exposure(np.arange(1, told.shape[1] + 1))
    seen = float((told @ curve).mean() / curve.sum())
    found = []
    for method, parts in (("ips", plain), ("self-normalised", normalised), ("doubly robust", robust)):
        value = float(parts.mean())
        # Student's t with as many degrees as there are effective lists: few large weights are few observations.
        factor = float(stdtrit(max(effective - 1.0, 1.0), 1.0 - level / 2.0))
        half = factor * float(parts.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
        doubt = _doubt(effective, seen, int(np.count_nonzero(plain != np.median(plain))))
        found.append(Estimate(method, value, (value - half, value + half), n, effective, seen, doubt))
    return found


def _effective(w: FloatArray, earned: FloatArray) -> float:
    squares = np.square(w).sum(axis=0)
    kish = np.divide(np.square(w.sum(axis=0)), squares, out=np.zeros(w.shape[1]), where=squares > 0)
    share = np.abs(earned).sum(axis=0)
    return float(kish @ share / share.sum()) if share.sum() > 0 else float(kish.min())


def _doubt(effective: float, told: float, unlike: int) -> str:
    if effective < ENOUGH:
        return f"the log is worth {effective:.0f} lists of this ranker; expected {ENOUGH} at least: let it run longer"
    if unlike < SOME:
        return f"all lists but {unlike} earned the same: the interval is not to be relied on; let it run longer"
    if told < _NEARLY_ALL:
        return (
            f"the log tells of {100 * told:.0f} % of what this ranker exposes; the rest was shown like that too "
            "seldom, and the value leaves it out"
        )
    return ""
