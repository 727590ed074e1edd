"""From the present order to ours without hurting anybody: shadow, guarded, free.

``shadow`` serves the present order, as sent. ``guarded`` serves ours to a share of the lists, by a coin per list, and
sets the share so that what was served is never worth less than the present order by more than a margin. ``free`` serves
ours always. A list's value y is in [0, 1].

**The share.** Let s_t be the share when list t comes, a_t whether it got ours, and m_t any guess of its value made
before. Then

    z_t = (1 - a_t) (y_t - m_t) s_t / (1 - s_t) - a_t (y_t - m_t)

has the mean s_t (value as sent - value of ours): what list t lost by our being there, in expectation. With U_t an upper
bound of Σ z's means that holds at all times at once with probability 1 - δ, the next share is

    s_{t+1} = min(margin · (t + 1) - U_t, most),

and 0 where that is negative. The next list can lose no more than its share, so the sum of all losses never exceeds
margin · t, for all t at once, with probability 1 - δ. This holds whatever users want and however our ranker changes.

**The bound** is the confidence sequence of `verdict`, one-sided (for the mixture it is enough that -z ≥ -c): c is the
most that a list of the present order can count, s / (1 - s). A small hold-out makes c large, and a large c costs at
the start. So the share climbs in stages, ½ at most, then four fifths, then all but the hold-out. Each has a bound of
its own, for an equal part of δ/2, and the next one begins when its start can be paid from what was saved.

**Better or worse?** g_t = a_t (1 - s_t)(y_t - m_t) - (1 - a_t) s_t (y_t - m_t) has the mean s_t (1 - s_t) (value of
ours - value as sent) and never leaves [-1, 1]. Its sum over that of s (1 - s) is the gain per list, with an interval
that holds at all times at once with probability 1 - δ/2. Above zero: an automatic launch goes free. Below -margin: a
breach; all of it stops, as sent from then on, frozen, until a person decides otherwise.

**Exposure.** `bounded` keeps every document from losing more than a stated share of the exposure that the present order
gave it, as PRPO bounds it (Gupta, Oosterhuis, de Rijke, CIKM 2024): there by clipping a policy, here by deadlines.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from pairrank.checking import check_choice, check_number_in
from pairrank.errors import InputError
from pairrank.trials.interleaving import exposure
from pairrank.trials.verdict import boundary
from pairrank.types import IntArray

MODES = ("shadow", "guarded", "free", "frozen")


@dataclass(frozen=True, slots=True)
class Guard:
    """How far a launch may go.

    Attributes
    ----------
    margin : how much less than the present order a list may be worth in the mean, in [0, 1]. holdout : the share of
        lists that always get the present order. delta : δ, the probability with which it may go wrong.

    >>> Guard(margin=0.02, holdout=0.1).stages
    (0.5, 0.8, 0.9)
    """

    margin: float = 0.02
    holdout: float = 0.05
    delta: float = 0.05

    def __post_init__(self) -> None:
        check_number_in("margin", self.margin, 0.0, 1.0, open_low=True)
        check_number_in("holdout", self.holdout, 0.0, 0.5, open_low=True)
        check_number_in("delta", self.delta, 1e-300, 1.0)  # 1 / δ must be a number

    @property
    def stages(self) -> tuple[float, ...]:
        """The largest share of each stage."""
        return (*(most for most in (0.5, 0.8) if most < 1.0 - self.holdout), 1.0 - self.holdout)


@dataclass(frozen=True, slots=True)
class Launch:
    """The state of a launch: a value, from which `after` makes the next. The same lists give the same bits.

    Attributes
    ----------
    mode : "shadow", "guarded", "free" or "frozen" (after a breach). auto : go on by itself, from shadow to guarded
        after `SHADOW_LISTS`, from guarded to free when ours is better than the present order.
    lists, value : how many lists came back in all, and the sum of their values: the mean is the guess m.
    guarded : how many of them in the guarded mode. stage : the present one, from 0. closed : bounds of those before.
    loss, loss_squares : Σ z and Σ z² of this stage. gain, gain_squares, overlap : Σ g, Σ g², Σ s (1 - s).

    >>> launch = Launch(Guard(margin=0.02), mode="guarded")
    >>> for _ in range(1000):
    ...     launch = launch.after(ours=False, value=0.5)
    >>> round(launch.share(), 2)
    0.5
    """

    guard: Guard = field(default_factory=Guard)
    mode: str = "shadow"
    auto: bool = False
    lists: int = 0
    value: float = 0.0
    guarded: int = 0
    stage: int = 0
    closed: float = 0.0
    loss: float = 0.0
    loss_squares: float = 0.0
    gain: float = 0.0
    gain_squares: float = 0.0
    overlap: float = 0.0

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)

    def share(self, in_flight: int = 0, at_stake: float = 0.0, among: int = 1) -> float:
        """The probability with which the next list gets ours.

        ``in_flight`` lists were served and have not come back; the sum of their shares is ``at_stake``, and the worst
        is assumed of them. ``among`` : lists that will be drawn with this share before it is worked out again.
        """
        if self.mode == "free":
            return 1.0
        if self.mode != "guarded":
            return 0.0
        allowed = self.guard.margin * (self.guarded + in_flight + 1) - self.loss_bound - at_stake
        return min(max(allowed, 0.0) / among, self.guard.stages[self.stage])

    @property
    def loss_bound(self) -> float:
        """U: an upper bound of all that was lost in the guarded mode so far, in lists; below zero it is a gain."""
        c = self._scale(self.stage)
        return self.closed + self.loss + c * boundary(self.loss_squares / c**2, self._evidence)

    @property
    def gain_interval(self) -> tuple[float, float]:
        """(lo, hi): by how much a list of ours is worth more than one as sent, at all times at once."""
        if self.overlap == 0.0:
            return -1.0, 1.0
        width = boundary(self.gain_squares, math.log(4.0 / self.guard.delta))
        return max((self.gain - width) / self.overlap, -1.0), min((self.gain + width) / self.overlap, 1.0)

    @property
    def _evidence(self) -> float:
        return math.log(2.0 * len(self.guard.stages) / self.guard.delta)

    def _scale(self, stage: int) -> float:
        """The most that one list counts in a stage: 1 if it got ours, s / (1 - s) if not."""
        most = self.guard.stages[stage]
        return max(1.0, most / (1.0 - most))

    def after(self, ours: bool, value: float, share: float | None = None, expected: float | None = None) -> Launch:
        """The launch after a list came back: whether it got ours, and its value in [0, 1].

        Parameters
        ----------
        share : the one with which it was drawn, by default the present one. An impression carries it, for lists come
            back late and the share has changed since.
        expected : what its value was guessed to be before it was known, by default the mean so far. A better guess,
            such as the mean of the same query's lists, takes noise out and brings the decision nearer.
        """
        value = float(value)
        for name, number in (("value", value), ("expected value", 0.5 if expected is None else expected)):
            if not 0.0 <= number <= 1.0:
                raise InputError(f"the list's {name} is {number}; expected a number from 0 to 1")
        beyond = value - (expected if expected is not None else self.value / self.lists if self.lists else 0.5)
        counted = replace(self, value=self.value + value, lists=self.lists + 1)
        if self.mode != "guarded":
            ready = self.mode == "shadow" and self.auto and counted.lists >= SHADOW_LISTS
            return counted.turned("guarded") if ready else counted
        s = self.share() if share is None else float(share)
        if not 0.0 <= s <= self.guard.stages[self.stage] or (ours and s == 0.0):
            raise InputError(f"the list was drawn with a share of {s}; expected one that the guard allows")
        z = -beyond if ours else beyond * s / (1.0 - s)
        g = beyond * (1.0 - s) if ours else -beyond * s
        return replace(
            counted,
            guarded=self.guarded + 1,
            loss=self.loss + z,
            loss_squares=self.loss_squares + z * z,
            gain=self.gain + g,
            gain_squares=self.gain_squares + g * g,
            overlap=self.overlap + s * (1.0 - s),
        )._moved()

    def _moved(self) -> Launch:
        """The launch where the evidence has brought it: to the next stage, to free, or to a stop."""
        # A sum within √(2V log(4/δ)) is within the boundary, and this is quicker to see.
        if self.gain**2 > 2.0 * self.gain_squares * math.log(4.0 / self.guard.delta):
            low, high = self.gain_interval
            if high < -self.guard.margin:
                return replace(self, mode="frozen")
            if low > 0.0 and self.auto:
                return replace(self, mode="free")
        following = self.stage + 1
        if following < len(self.guard.stages):
            spare = self.guard.margin * self.guarded - self.loss_bound
            if spare >= self._scale(following) * boundary(0.0, self._evidence) + 1.0:
                return replace(self, stage=following, closed=self.loss_bound, loss=0.0, loss_squares=0.0)
        return self

    def turned(self, mode: str) -> Launch:
        """The launch in another mode, by a person's decision. Guarded begins anew: what was before is not counted."""
        if mode == "guarded" and self.mode != "guarded":
            return Launch(self.guard, mode, self.auto, self.lists, self.value)
        return replace(self, mode=mode)

    def to_json(self) -> dict[str, Any]:
        """The state by name; `from_json` makes it again."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Launch:
        """The launch that `to_json` wrote."""
        return cls(**{**values, "guard": Guard(**values["guard"])})


# Lists as sent before an automatic launch begins to serve ours: enough to know the value of a list roughly.
SHADOW_LISTS = 100


def bounded(ours: IntArray, as_sent: IntArray, k: int, most_lost: float) -> IntArray:
    """(k,): our order as far as no document of the first k as sent loses more than ``most_lost`` of its exposure.

    A document at rank r as sent must stand where `exposure` is (1 - most_lost) e(r) at least: down to a rank that is
    its deadline. At every position our best document is taken that leaves all others in time; as sent itself keeps
    every deadline, so there is always one. 0 is as sent, 1 is ours. Below k there is no exposure to lose.

    >>> bounded(np.array([2, 1, 0]), np.array([0, 1, 2]), 3, 0.4)
    array([2, 0, 1])
    """
    check_number_in("most_lost", most_lost, 0.0, 1.0)
    if len(ours) != len(as_sent) or set(ours.tolist()) != set(as_sent.tolist()):
        raise InputError(f"the rankings hold {len(ours)} and {len(as_sent)} documents; expected the same ones")
    k = min(k, len(ours))
    curve = exposure(np.arange(1, k + 1))
    due = {}  # document: the last position, from 0, where it is in time; without one it is never late
    for rank, document in enumerate(as_sent[:k].tolist()):
        if most_lost < 1.0:
            due[document] = int((curve >= (1.0 - most_lost) * curve[rank] - 1e-12).nonzero()[0][-1])
    left, found = ours.tolist(), []
    for position in range(k):
        deadlines = np.sort([due[d] for d in left if d in due])
        # The first deadline up to which every position is spoken for: only documents of before it may stand here.
        tight = [int(t) for n, t in enumerate(deadlines, start=1) if position + n > t]
        pick = next(d for d in left if not tight or due.get(d, k) <= tight[0])
        found.append(pick)
        left.remove(pick)
    return np.array(found, dtype=np.int64)
