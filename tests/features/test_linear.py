"""Documents centred on their list, in units: neither a feature's unit nor a list's offset matters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.features.linear import FURTHEST, LISTS, UNUSUAL, Seen, Units, centred, squared_spread

KINDS = ["range", "spread"]
constants = st.floats(-1e9, 1e9, allow_nan=False)


def watched(kind: str, scale: float = 1.0, n: int = 10, d: int = 3) -> Units:
    rng = np.random.default_rng(1)
    lists = [scale * rng.normal(size=(9, d)) for _ in range(n)]
    return watching(Units(d, kind), [(X[:5], np.ptp(X, axis=0)) for X in lists])


def watching(units: Units, lists: Sequence[Seen]) -> Units:
    for number, (X, ranges) in enumerate(lists):
        units.watch(X, ranges, lists[:number])
    return units


@given(constants, st.integers(1, 40), st.sampled_from(KINDS))
def test_constants_are_exactly_zero(value: float, n: int, kind: str) -> None:
    X = np.column_stack([np.full(n, value), np.arange(n)])
    assert not centred(X)[:, 0].any()
    units = Units(2, kind)
    assert not units.inputs(X)[:, 0].any()
    units.watch(X, np.ptp(X, axis=0), [])
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
    seen: list[Seen] = []
    for _ in range(LISTS + 1):
        X = rng.random((12, 4))
        X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
        assert not units.watch(X[:5], np.ptp(X, axis=0), seen)
        assert np.array_equal(units.values, np.ones(4))
        seen.append((X[:5], np.ptp(X, axis=0)))
    np.testing.assert_allclose(units.inputs(X), X - X.mean(axis=0), atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_units_settle_and_say_when_they_change(kind: str) -> None:
    units, rng = Units(2, kind), np.random.default_rng(0)
    seen: list[Seen] = []
    for number in range(1, LISTS + 20):
        before = units.values
        X = (1.0 + number) * rng.normal(size=(6, 2))
        X[:, 1] *= number > LISTS  # varies for the first time when the others are settled
        changed = units.watch(X, None, seen)
        seen.append((X, None))
        assert changed == bool((before[0] > 0.0) and before[0] != units.values[0])
        assert changed <= (number <= LISTS and number & (number - 1) == 0)
        assert (units.values[1] > 0.0) == (number > LISTS)
    assert units.settled


@given(st.integers(0, 10_000), st.integers(0, LISTS), st.sampled_from(KINDS))
def test_features_without_a_unit_are_measured_by_the_candidates(seed: int, n: int, kind: str) -> None:
    """The obvious way, measuring all features of every list; most that have no unit never vary."""
    rng = np.random.default_rng(seed)
    lists = [rng.normal(size=(3, 4)) * varies for varies in rng.random((n, 4)) < [1.0, 1.0, 0.1, 0.0]]
    units = watching(Units(4, kind), [(X, np.ptp(X, axis=0)) for X in lists])
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
    assert not units.watch(np.ones((1, 3)), None, [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0, 1, 5, LISTS - 1])
def test_a_wrong_value_sets_no_unit(kind: str, place: int) -> None:
    """A date of 0 among epoch seconds: the unit is that of the other lists."""
    rng = np.random.default_rng(0)
    lists = [1.7e9 + 1e6 * rng.random((6, 1)) for _ in range(LISTS)]
    wrong = [X.copy() for X in lists]
    wrong[place][0] = 0.0
    units = watching(Units(1, kind), [(X, None) for X in wrong])
    expected = watching(Units(1, kind), [(X, None) for X in lists[:place] + lists[place + 1 :]] + [(lists[0], None)])
    np.testing.assert_allclose(units.values, expected.values, rtol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_usual_lists_are_within_a_factor_of_all_but_a_sixteenth(kind: str) -> None:
    units, small, large = Units(1, kind), np.array([1.0]), np.array([UNUSUAL + 1.0])
    mean = (lambda of: max(of)) if kind == "range" else (lambda of: np.sqrt(np.mean(np.square(of))))
    for n_small, n_large in [(15, 1), (14, 1), (30, 2), (29, 2), (40, 24), (0, 3), (1, 1), (1, 0)]:
        found = units.usual([np.zeros(1), *[small] * n_small, *[large] * n_large])
        left_out = n_large <= (n_small + n_large) // 16
        expected = mean([1.0] * n_small + [UNUSUAL + 1.0] * (0 if left_out else n_large))
        assert found == pytest.approx(expected)
        assert left_out == ((n_small, n_large) in [(15, 1), (30, 2), (1, 0)])
    assert units.usual([*[small] * 15, np.array([UNUSUAL])]) == pytest.approx(mean([1.0] * 15 + [UNUSUAL]))
    assert units.usual([np.zeros(1)]) == 0.0
    assert units.usual([]) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_features_that_seldom_vary_have_the_unit_of_the_lists_in_which_they_do(kind: str) -> None:
    """In most lists .3 and .1 + .2, which differ by rounding: they set no unit beside 40 of 100 lists that vary."""
    rng = np.random.default_rng(0)
    lists = [np.where(rng.random((9, 1)) < 0.5, 0.3, 0.1 + 0.2) for _ in range(LISTS)]
    for X in lists[::3]:
        X[:] = rng.random((9, 1)) < 0.5
    assert watching(Units(1, kind), [(X, None) for X in lists]).values > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_is_far_out_leaves_the_others_in_order(kind: str) -> None:
    """The mean would go with it, and all the others be as far from it as they may."""
    X = np.append(np.arange(9.0), 1e9)[:, None]
    inputs = watching(Units(1, kind), [(X[:9], None)] * LISTS).inputs(X)
    assert (np.diff(inputs[:, 0]) > 0).all()
    assert np.allclose(np.diff(inputs[:9, 0]), 1.0 / np.ptp(X[:9]) if kind == "range" else np.sqrt(1 / 15))
    assert inputs[9, 0] == FURTHEST
