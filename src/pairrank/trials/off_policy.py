"""What another ranker would have got, from lists that ours has shown: estimates with intervals, and when not to ask.

A log holds n lists of k positions: what each position earned (a click, a gain), the probability with which its document
was drawn given those above it, and the probability with which the other ranker would have shown it there. Users read
from the top, so what a position earns depends on the documents down to it ("cascade"), and the weight of position p is

    w_p = Π_{j ≤ p} (other's probability at j) / (ours at j);

under "list" it may depend on the whole list, and every position has the weight of the last. The sum of w_p r_p has the
other ranker's value as its mean wherever our draw could have shown what it shows. Estimates: inverse propensity scores
(McInerney et al., KDD 2020, for the cascade), the same divided by the mean weights, and doubly robust with a model of
the earnings (Kiyohara et al., WSDM 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from pairrank.errors import InputError, OptionError
from pairrank.types import BoolArray, FloatArray, IntArray

ASSUMPTIONS = ("cascade", "list")
# Below this many effective lists an estimate says little, and its interval is not to be relied on.
ENOUGH = 100
_LEAST_SUPPORT = 0.99


def draw_chances(certain: BoolArray, blocks: IntArray, ranking: IntArray, *, shuffled: bool = False) -> FloatArray:
    """(k,): the probability of each document of ``ranking`` given those above it in PairRank's draw; 0: impossible.

    Block after block; within one ``conservative`` draws uniformly among the documents without a certain predecessor
    left, ``random`` (``shuffled``) among all that are left.

    Parameters
    ----------
    certain : (n, n) bool and blocks : (n,), as in `Inspection`, by row number. ranking : (k,), row numbers; the list
        that was shown, or any other.
    """
    left = np.ones(len(blocks), dtype=np.bool_)
    found = np.zeros(len(ranking))
    for position, document in enumerate(ranking.tolist()):
        inside = left & (blocks == blocks[left].min())
        free = inside if shuffled else inside & ~certain[inside].any(axis=0)
        if not free[document]:
            break
        found[position] = 1.0 / int(free.sum())
        left[document] = False
    return found


def follows(shown: IntArray, other: IntArray) -> FloatArray:
    """(k,): the other ranker's chances where it draws nothing: 1 where both lists agree, 0 elsewhere."""
    k = min(len(shown), len(other))
    agree = np.zeros(len(shown))
    agree[:k] = shown[:k] == other[:k]
    return agree


@dataclass(frozen=True, eq=False)
class Log:
    """Lists as they were shown and what they earned, beside what another ranker would have shown.

    Attributes
    ----------
    earned : (n, k), what each position earned; 0 where a list is shorter.
    chances : (n, k), probability of each shown document given those above it; 1 where a list is shorter.
    others : (n, k), the same for the other ranker; 1 where a list is shorter.
    reached : (n,) in [0, 1], how much of the other ranker's list our draw could have shown.
    """

    earned: FloatArray
    chances: FloatArray
    others: FloatArray
    reached: FloatArray

    def __post_init__(self) -> None:
        n, k = self.earned.shape if self.earned.ndim == 2 else (0, 0)
        if not n or self.chances.shape != (n, k) or self.others.shape != (n, k) or self.reached.shape != (n,):
            raise InputError("the log's arrays have different shapes, or hold no list; expected (n, k) each")
        if not (self.chances > 0).all():
            raise InputError("a list of the log has probability zero in its own draw; expected what was shown")

    def weights(self, assumption: str) -> FloatArray:
        """(n, k): how much more likely the other ranker was to show what was shown, down to each position."""
        if assumption not in ASSUMPTIONS:
            raise OptionError(f"assumption is {assumption!r}; expected one of {', '.join(ASSUMPTIONS)}")
        ratio = np.cumprod(self.others / self.chances, axis=1, dtype=np.float64)
        return np.broadcast_to(ratio[:, -1:], ratio.shape) if assumption == "list" else ratio


@dataclass(frozen=True)
class Estimate:
    """A mean per list of the other ranker, its interval, and how many lists of its own would have told as much.

    Attributes
    ----------
    method : "ips", "self-normalised" or "doubly robust".
    effective : Kish's effective sample size of the weights, averaged over positions by what they earned.
    reached : the share of the other ranker's positions that the log's draws could have shown.
    doubt : why the log cannot tell; empty when it can.
    """

    method: str
    value: float
    interval: tuple[float, float]
    lists: int
    effective: float
    reached: float
    doubt: str

    def to_json(self) -> dict[str, Any]:
        """The estimate by name."""
        return {**self.__dict__, "interval": list(self.interval)}


def estimates(
    log: Log, *, assumption: str = "cascade", expected: FloatArray | None = None, level: float = 0.05
) -> list[Estimate]:
    """The three estimates of what the other ranker earns per list.

    ``expected`` (k,) or (n, k) is a model of what positions earn, fixed before these lists were seen; by default each
    half of the lists takes the means of the other half. It changes the doubly robust estimate's noise, not its mean.
    """
    w = log.weights(assumption)
    n, _ = w.shape
    model = _by_halves(log.earned) if expected is None else np.broadcast_to(expected, w.shape)
    above: NDArray[np.float64] = (
        np.column_stack([np.ones(n), w[:, :-1]]) if assumption == "cascade" else np.ones_like(w)
    )
    plain = (w * log.earned).sum(axis=1)
    robust = (w * (log.earned - model) + above * model).sum(axis=1)
    mean_weight = w.mean(axis=0)
    known = mean_weight > 0
    rates = np.divide((w * log.earned).mean(axis=0), mean_weight, out=np.zeros(w.shape[1]), where=known)
    # The linear part of a ratio: what each list moves it by.
    scaled = np.divide(w, mean_weight, out=np.zeros_like(w), where=known)
    normalised = rates.sum() + (scaled * (log.earned - rates)).sum(axis=1)
    effective = _effective(w, log.earned)
    reached = float(log.reached.mean())
    doubt = _doubt(effective, reached)
    found = []
    for method, parts in (("ips", plain), ("self-normalised", normalised), ("doubly robust", robust)):
        value = float(rates.sum()) if method == "self-normalised" else float(parts.mean())
        # Student's t with as many degrees as there are effective lists: few large weights are few observations.
        factor = float(stdtrit(max(effective - 1.0, 1.0), 1.0 - level / 2.0))
        half = factor * float(parts.std(ddof=1)) / np.sqrt(n) if n > 1 else np.inf
        found.append(Estimate(method, value, (value - half, value + half), n, effective, reached, doubt))
    return found


def _by_halves(earned: FloatArray) -> FloatArray:
    """(n, k): for lists of even number the means of those of odd number, and the other way round."""
    model = np.zeros_like(earned)
    if len(earned) > 1:
        model[::2], model[1::2] = earned[1::2].mean(axis=0), earned[::2].mean(axis=0)
    return model


def _effective(w: FloatArray, earned: FloatArray) -> float:
    squares = np.square(w).sum(axis=0)
    kish = np.divide(np.square(w.sum(axis=0)), squares, out=np.zeros(w.shape[1]), where=squares > 0)
    share = earned.sum(axis=0)
    return float(kish @ share / share.sum()) if share.sum() > 0 else float(kish.min())


def _doubt(effective: float, reached: float) -> str:
    if reached < _LEAST_SUPPORT:
        return (
            f"{100 * (1 - reached):.0f} % of what it would show could never be shown here; values are too low by that"
        )
    if effective < ENOUGH:
        return f"the log is worth {effective:.0f} lists for this ranker; expected {ENOUGH} at least"
    return ""
