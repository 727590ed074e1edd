"""Verdicts: exact against quadrature, right about as often as they say however often one looks, the same bits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from functools import reduce

import numpy as np
import pytest
from scipy.integrate import quad

from pairrank.errors import InputError, OptionError
from pairrank.rng import Purpose, generator
from pairrank.trials.verdict import RHO, Evidence, boundary, log_evidence, log_mixture, split_outcome


@pytest.mark.parametrize(("s", "v"), [(0.0, 0.0), (0.0, 2.0), (1.0, 1.0), (5.0, 3.0), (10.0, 20.0)])
def test_the_mixture_equals_its_integral(s: float, v: float) -> None:
    """Over λ in [0, 1) with density ∝ (1 - λ)^(ρ - 1) e^(-ρ(1 - λ)), of exp(λ s - ψ(λ) v)."""

    def density(x: float) -> float:
        return (1 - x) ** (RHO - 1) * math.exp(-RHO * (1 - x))

    whole = quad(density, 0, 1)[0]
    mixed = quad(lambda x: density(x) / whole * math.exp(x * s - (-math.log1p(-x) - x) * v), 0, 1)[0]
    assert float(log_mixture(s, v)) == pytest.approx(math.log(mixed), abs=1e-9)


def test_the_cheap_bound_is_one() -> None:
    """`Evidence.after` leaves the mixture out where exp(S²/2V) is below the record."""
    s, v = np.meshgrid(np.linspace(0, 300, 61), np.linspace(0.01, 1000, 61))
    assert (log_mixture(s, v) <= s**2 / (2 * v) + 1e-9).all()


def test_the_boundary_is_where_the_mixture_gets_there() -> None:
    for v in (0.0, 1.0, 50.0, 1e4, 1e7):
        assert float(log_mixture(boundary(v, math.log(40)), v)) == pytest.approx(math.log(40), abs=1e-5)


def streams(kind: str, n_streams: int, n: int) -> np.ndarray:
    """Outcomes in [-1, 1] with mean zero, of several shapes."""
    rng = generator(7, 0, Purpose.DATA)
    match kind:
        case "coins":
            return rng.choice([-1.0, 1.0], size=(n_streams, n))
        case "ties":
            return rng.choice([-1.0, 0.0, 1.0], size=(n_streams, n), p=[0.1, 0.8, 0.1])
        case "skewed":
            return rng.choice([-0.1, 0.9], size=(n_streams, n), p=[0.9, 0.1])
        case _:
            # A mean of zero given the past, but a spread that depends on it.
            coins = rng.choice([-1.0, 1.0], size=(n_streams, n))
            loud = np.cumsum(coins, axis=1) > 0
            return np.where(np.roll(loud, 1, axis=1), coins, 0.1 * coins)


@pytest.mark.parametrize("kind", ["coins", "ties", "skewed", "depends on the past"])
def test_no_effect_is_seldom_called_one_though_every_outcome_is_looked_at(kind: str) -> None:
    found = log_evidence(streams(kind, 400, 2000)).max(axis=1) >= math.log(20)
    assert found.mean() <= 0.05


def test_an_effect_is_found_and_lies_in_the_interval_at_all_times() -> None:
    rng, truth, missed = generator(3, 0, Purpose.DATA), 0.3, 0
    for _ in range(60):
        evidence = Evidence()
        outside = False
        for i, x in enumerate(rng.choice([-1.0, 0.0, 1.0], size=400, p=[0.1, 0.5, 0.4]), start=1):
            evidence = evidence.after(x)
            if i % 5 == 0:
                lo, hi = evidence.interval
                outside |= not lo <= truth <= hi
        missed += outside
        assert evidence.sign == 1
        assert 0 < evidence.decided <= 400
        assert evidence.p_value <= 0.05
        assert evidence.interval[0] >= 0
    assert missed <= 3


def test_many_streams_at_once_are_the_same_as_one_by_one() -> None:
    rows = generator(1, 0, Purpose.DATA).choice([-1.0, 0.0, 0.25, 1.0], size=(5, 300))
    together = log_evidence(rows)
    for row, at in zip(rows, together, strict=True):
        evidence, record = Evidence(), 0.0
        for i, x in enumerate(row):
            evidence, record = evidence.after(x), max(record, float(at[i]))
            assert evidence.strongest == record


def after(evidence: Evidence, outcomes: Iterable[float]) -> Evidence:
    return reduce(Evidence.after, outcomes, evidence)


def test_a_restart_anywhere_gives_the_same_bits() -> None:
    outcomes = generator(2, 0, Purpose.DATA).uniform(-0.8, 1.0, size=200)
    whole = after(Evidence(), outcomes)
    for cut in (0, 1, 57, 199):
        kept = json.dumps(asdict(after(Evidence(), outcomes[:cut])))
        assert after(Evidence(**json.loads(kept)), outcomes[cut:]) == whole


def test_a_verdict_stays() -> None:
    """Even if luck turns, and the p-value never rises."""
    evidence = after(Evidence(), [1.0] * 60)
    assert (evidence.sign, evidence.decided > 0) == (1, True)
    turned = after(evidence, [-1.0] * 60)
    assert (turned.sign, turned.decided) == (1, evidence.decided)
    assert turned.p_value == evidence.p_value
    assert (turned.positive, turned.negative, turned.effect) == (60, 60, 0.0)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_an_interval_follows_an_effect_that_changes_sides(side: float) -> None:
    """The verdict stays; the interval is of the average so far, on whichever side that is."""
    evidence = after(Evidence(), [side] * 60)
    for _ in range(400):
        evidence = evidence.after(-side)
        low, high = evidence.interval
        assert low < evidence.effect < high
    assert evidence.sign == side
    assert evidence.effect * side < 0


def test_when_it_will_be_decided() -> None:
    outcomes = np.tile([1.0, 0.0, 0.0, -1.0, 1.0], 2000)
    evidence = after(Evidence(), outcomes[:50])
    expected = evidence.more_until_decided()
    assert expected is not None
    decided = after(evidence, outcomes).decided
    assert expected == pytest.approx(decided - 50, rel=0.15)
    assert after(Evidence(), outcomes).more_until_decided() == 0
    assert after(Evidence(), [1.0, -1.0]).more_until_decided() is None
    assert Evidence().more_until_decided() is None


def test_nothing_seen_says_nothing() -> None:
    assert (Evidence().effect, Evidence().p_value, Evidence().interval) == (0.0, 1.0, (-1.0, 1.0))


def test_a_split_measures_the_difference() -> None:
    """For every expected value: with probability a half either arm, the mean is the difference of the values."""
    for expected in (0.0, 0.3, 1.0):
        both = split_outcome(True, 0.8, expected), split_outcome(False, 0.5, expected)
        assert sum(both) / 2 == pytest.approx(0.8 - 0.5)


def test_wrong_input_says_so() -> None:
    with pytest.raises(InputError, match=r"outcome is 1\.5"):
        Evidence().after(1.5)
    with pytest.raises(InputError, match="outcome is nan"):
        Evidence().after(math.nan)
    with pytest.raises(OptionError, match="range"):
        Evidence(low=1.0, high=2.0)
    with pytest.raises(OptionError, match="level"):
        Evidence(level=0.0)
