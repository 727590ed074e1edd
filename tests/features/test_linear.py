"""Documents centred on their list, in units: neither a feature's unit nor a list's offset matters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.features.linear import FURTHEST, LISTS, Units, centred, squared_spread

KINDS = ["range", "spread"]
constants = st.floats(-1e9, 1e9, allow_nan=False)


def watched(kind: str, scale: float = 1.0, n: int = 10, d: int = 3) -> Units:
    units, rng = Units(d, kind), np.random.default_rng(1)
    for _ in range(n):
        X = scale * rng.normal(size=(9, d))
        units.watch(X[:5], np.ptp(X, axis=0))
    return units


@given(constants, st.integers(1, 40), st.sampled_from(KINDS))
def test_constants_are_exactly_zero(value: float, n: int, kind: str) -> None:
    X = np.column_stack([np.full(n, value), np.arange(n)])
    assert not centred(X)[:, 0].any()
    units = Units(2, kind)
    assert not units.inputs(X)[:, 0].any()
    units.watch(X, np.ptp(X, axis=0))
    assert units.values[0] == 0.0
    assert not units.inputs(X)[:, 0].any()
    assert np.isfinite(units.inputs(X)).all()


@given(st.integers(0, 10_000), st.integers(2, 9))
def test_the_spread_is_the_mean_over_pairs(seed: int, n: int) -> None:
    X = np.random.default_rng(seed).normal(size=(n, 2))
    squares = [np.square(X[i] - X[j]) for i in range(n) for j in range(n) if i != j]
    np.testing.assert_allclose(squared_spread(X), np.mean(squares, axis=0), rtol=1e-10)


@given(st.integers(-20, 20), st.sampled_from(KINDS), st.integers(1, 2 * LISTS))
def test_units_follow_the_features(power: int, kind: str, n: int) -> None:
    scale = 2.0**power  # exact in binary, so everything is equal to the bit
    plain, scaled = watched(kind, n=n), watched(kind, scale, n)
    assert np.array_equal(scaled.values, scale * plain.values)
    X = np.random.default_rng(2).normal(size=(7, 3))
    assert np.array_equal(scaled.inputs(scale * X), plain.inputs(X))
    theta = np.array([1.0, -2.0, 0.5])
    assert np.array_equal(scale * scaled.weights(theta), plain.weights(theta))


@given(st.lists(st.integers(-(10**8), 10**8), min_size=3, max_size=3), st.sampled_from(KINDS))
def test_what_all_documents_share_does_not_matter(offset: list[int], kind: str) -> None:
    X = np.random.default_rng(3).integers(0, 64, size=(8, 3)) / 64  # exact beside any of the offsets
    units = watched(kind)
    assert np.array_equal(units.inputs(X + np.array(offset)), units.inputs(X))


def test_features_normalised_per_query_have_a_range_of_one() -> None:
    units, rng = Units(4, "range"), np.random.default_rng(0)
    for _ in range(LISTS + 1):
        X = rng.random((12, 4))
        X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
        assert not units.watch(X[:5], np.ptp(X, axis=0))
        assert np.array_equal(units.values, np.ones(4))
    np.testing.assert_allclose(units.inputs(X), X - X.mean(axis=0), atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_units_settle_and_say_when_they_change(kind: str) -> None:
    units, rng = Units(2, kind), np.random.default_rng(0)
    for number in range(1, LISTS + 20):
        before = units.values
        X = (1.0 + number) * rng.normal(size=(6, 2))
        X[:, 1] *= number > LISTS  # varies for the first time when the others are settled
        changed = units.watch(X, None)
        assert changed == bool((before[0] > 0.0) and before[0] != units.values[0])
        assert changed <= (number <= LISTS and number & (number - 1) == 0)
        assert (units.values[1] > 0.0) == (number > LISTS)
    assert units.settled


@given(st.integers(0, 10_000), st.integers(0, LISTS), st.sampled_from(KINDS))
def test_features_without_a_unit_are_measured_by_the_candidates(seed: int, n: int, kind: str) -> None:
    """The obvious way, measuring all features of every list; most that have no unit never vary."""
    rng = np.random.default_rng(seed)
    units = Units(4, kind)
    for varies in rng.random((n, 4)) < [1.0, 1.0, 0.1, 0.0]:
        X = rng.normal(size=(3, 4)) * varies
        units.watch(X, np.ptp(X, axis=0))
    X = rng.normal(size=(5, 4)) * rng.integers(0, 2, 4) + 7.0
    alone = np.ptp(X, axis=0) if kind == "range" else np.sqrt(squared_spread(X))
    unit = [value or own or 1.0 for value, own in zip(units.values, alone, strict=True)]
    np.testing.assert_allclose(units.inputs(X), (X - X.mean(axis=0)) / unit, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_stay_finite(kind: str) -> None:
    units = watched(kind, 1e-9)
    inputs = units.inputs(np.array([[1e9, 0.0, 0.0], [-1e9, 0.0, 1e-9]]))
    assert np.abs(inputs).max() == FURTHEST
    assert units.inputs(np.array([[5.0, 1e9, -1e9]])).tolist() == [[0.0, 0.0, 0.0]]
    assert not units.watch(np.ones((1, 3)), None)
