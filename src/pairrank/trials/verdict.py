"""Effect, interval and p-value that hold whenever they are looked at, and as often as one likes.

For outcomes x_1, x_2, … in [low, high] and predictions x̂_t made before x_t is known, let S_t(m) = Σ (x_i - m) and
V_t = Σ (x_i - x̂_i)². For every λ in [0, 1/c), c = high - low,

    exp(λ S_t(m) - ψ(λ) V_t),   ψ(λ) = (-log(1 - cλ) - cλ) / c²,

is a supermartingale if m is the mean (Howard, Ramdas, McAuliffe, Sekhon: Time-uniform, nonparametric, nonasymptotic
confidence sequences. Annals of Statistics 2021, Theorem 4), and so is its mixture over λ by their gamma-exponential
density (Proposition 9). By Ville's inequality the mixture exceeds 1/α ever, at any time, with probability α at most.
What has to hold is only that each outcome has the mean m given all before it; if the means change, the interval is for
their average so far. Nothing is assumed of the shape of the outcomes, and no list of times has to be fixed beforehand.

The state is a few sums, so that a verdict is a function of the log: any way of cutting it gives the same bits.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc, gammaln

from pairrank.errors import InputError, OptionError
from pairrank.types import BoolArray, FloatArray

LEVEL = 0.05
# ρ of the mixture, in units of c². With 4 it is tightest about V = 20: of outcomes in [-1, 1] some two hundred lists.
RHO = 4.0


def log_mixture(s: ArrayLike, v: ArrayLike) -> FloatArray:
    """log of the mixture at S = ``s`` ≥ 0 and V = ``v``, both in units of the range (c = 1): the evidence in nats.

    log[ρ^ρ / (Γ(ρ) P(ρ, ρ)) · Γ(v+ρ) P(v+ρ, s+v+ρ) / (s+v+ρ)^(v+ρ) · e^(s+v)], P the regularised lower incomplete
    gamma function.
    """
    shape = np.asarray(v, dtype=np.float64) + RHO
    at = np.asarray(s, dtype=np.float64) + shape
    value: FloatArray = _START + gammaln(shape) + np.log(gammainc(shape, at)) - shape * np.log(at) + at - RHO
    return value


_START = RHO * math.log(RHO) - float(gammaln(RHO)) - math.log(gammainc(RHO, RHO))


@lru_cache(maxsize=64)  # a state is asked for its bounds more than once
def boundary(v: float, log_evidence: float) -> float:
    """The s at which `log_mixture` reaches ``log_evidence``, for c = 1: sums further off are improbable.

    By Newton's method: the mixture's logarithm is convex and rises in s, so steps from the right never overshoot.
    """
    shape = v + RHO
    log_gamma = float(gammaln(shape))
    constant = _START - RHO + log_gamma - log_evidence
    s = math.sqrt(2.0 * v * log_evidence) + log_evidence
    for _ in range(60):
        x = s + shape
        lower = float(gammainc(shape, x))
        excess = constant + math.log(lower) - shape * math.log(x) + x
        # d/dx log P(a, x) = x^(a-1) e^(-x) / (Γ(a) P(a, x))
        slope = math.exp((shape - 1.0) * math.log(x) - x - log_gamma) / lower - shape / x + 1.0
        step = excess / slope
        s = max(s - step, 0.0)
        if abs(step) <= 1e-12 * (1.0 + s):
            break
    return s


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a stream of outcomes has shown so far of its mean; a value, from which `after` makes the next.

    Attributes
    ----------
    low, high : the least and the largest outcome that there can be. level : α, of the interval and the verdict.
    n : outcomes. total : their sum. spread : V, the sum of squared surprises.
    strongest : the largest two-sided evidence against a mean of zero so far, in nats.
    decided : after how many outcomes it passed log(1/α); 0: not yet. sign : on which side; a verdict stays.
    positive, negative : outcomes above and below zero: wins of the one and of the other; the rest are ties.

    >>> from functools import reduce
    >>> evidence = reduce(Evidence.after, [1.0, 0.0, 1.0, 1.0] * 10, Evidence())
    >>> evidence.effect, evidence.decided, evidence.sign
    (0.75, 23, 1)
    >>> tuple(round(bound, 2) for bound in evidence.interval)
    (0.3, 1.0)
    """

    low: float = -1.0
    high: float = 1.0
    level: float = LEVEL
    n: int = 0
    total: float = 0.0
    spread: float = 0.0
    strongest: float = 0.0
    decided: int = 0
    sign: int = 0
    positive: int = 0
    negative: int = 0

    def __post_init__(self) -> None:
        if not (-math.inf < self.low <= 0.0 <= self.high < math.inf and self.low < self.high):
            raise OptionError(f"outcomes are said to lie from {self.low} to {self.high}; expected a range with 0 in it")
        if not 0.0 < self.level < 1.0:
            raise OptionError(f"level is {self.level}; expected a number between 0 and 1, as 0.05")

    def after(self, outcome: float) -> Evidence:
        """The evidence with one more outcome."""
        x = float(outcome)
        if not self.low <= x <= self.high:
            raise InputError(f"the outcome is {x}; expected one from {self.low:g} to {self.high:g}")
        guess = self.total / (self.n + 1)
        n, total = self.n + 1, self.total + x
        spread = self.spread + (x - guess) ** 2
        strongest, decided, sign = self.strongest, self.decided, self.sign
        # The mixture is never above exp(S²/2V), which costs nothing: the rest is worked out when it can be a record.
        if total * total > 2.0 * spread * (strongest + math.log(2.0)):
            c = self.high - self.low
            found = float(log_mixture(abs(total) / c, spread / c**2)) - math.log(2.0)
            strongest = max(strongest, found)
            if not decided and strongest >= -math.log(self.level):
                decided, sign = n, 1 if total > 0 else -1
        return replace(
            self,
            n=n,
            total=total,
            spread=spread,
            strongest=strongest,
            decided=decided,
            sign=sign,
            positive=self.positive + (x > 0),
            negative=self.negative + (x < 0),
        )

    @property
    def effect(self) -> float:
        """The mean outcome."""
        return self.total / self.n if self.n else 0.0

    @property
    def p_value(self) -> float:
        """Valid at any time: under a mean of zero it ever falls to α or below with probability α at most."""
        return math.exp(-self.strongest)

    @property
    def interval(self) -> tuple[float, float]:
        """(lo, hi): holds the mean at all times at once with probability 1 - α; half of α on either side."""
        if self.n == 0:
            return self.low, self.high
        width = self._half_width(self.n, self.spread)
        return max(self.low, self.effect - width), min(self.high, self.effect + width)

    def _half_width(self, n: int, spread: float) -> float:
        c = self.high - self.low
        return c * boundary(spread / c**2, math.log(2.0 / self.level)) / n

    def more_until_decided(self) -> int | None:
        """About how many more outcomes it takes, if they go on as so far; 0 when decided, None where nothing leads."""
        if self.decided:
            return 0
        if self.total == 0.0:
            return None
        rate, most = self.spread / self.n, 10**12
        last = bisect_left(range(most), -abs(self.effect), lo=self.n, key=lambda n: -self._half_width(n, rate * n))
        return None if last == most else max(last - self.n, 1)


def log_evidence(outcomes: FloatArray, *, low: float = -1.0, high: float = 1.0, every: int = 1) -> FloatArray:
    """(…, n // every): the two-sided evidence against a mean of zero in the course of ``outcomes`` (…, n), in nats.

    `Evidence` for many streams at once, looked at after ``every`` outcomes: decided at level α where this is log(1/α)
    or more.
    """
    n = np.arange(1, outcomes.shape[-1] + 1)
    total = np.cumsum(outcomes, axis=-1)
    guess = np.zeros_like(total)
    guess[..., 1:] = total[..., :-1] / n[1:]
    spread = np.cumsum((outcomes - guess) ** 2, axis=-1)
    c, looks = high - low, slice(every - 1, None, every)
    return log_mixture(np.abs(total[..., looks]) / c, spread[..., looks] / c**2) - math.log(2.0)


def first_click(clicks: BoolArray) -> FloatArray:
    """(…, k): 1 / p at the position p of a list's first click, else 0; its sum is the reciprocal rank of the click.

    The value of a list in a split: of those that clicks allow it tells rankings apart with the fewest lists.
    """
    first = clicks & (np.cumsum(clicks, axis=-1) == 1)
    value: FloatArray = first / np.arange(1.0, clicks.shape[-1] + 1)
    return value


def split_outcome(is_a: bool, value: float, expected: float) -> float:
    """2 (value - expected) for a list of a, the negative for one of b, when a fair coin chose between them.

    The mean is a's value minus b's, whatever ``expected`` is, as long as it was fixed before: the mean of all values
    so far takes out what both have in common. For values in [0, 1] within [-2, 2].
    """
    return 2.0 * (value - expected) if is_a else 2.0 * (expected - value)
