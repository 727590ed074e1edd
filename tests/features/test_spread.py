"""How far documents differ in usual lists, and documents that are too far out to be values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.features import spread
from pairrank.features.linear import FURTHEST, UNUSUAL


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Lists (some without a document), a few values of which are wrong, and a few missing."""
    sizes = rng.integers(0, 6, rng.integers(1, 9))
    offsets = np.append(0, np.cumsum(sizes))
    X = rng.normal(size=(offsets[-1], 3))
    X[rng.random(X.shape) < 0.1] = rng.choice([1e3, -1e4, 1e9])
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, offsets


@given(st.integers(0, 10_000))
def test_clipped_is_the_formula(seed: int) -> None:
    X, offsets = drawn(np.random.default_rng(seed))
    if not len(X):
        return
    usual = np.array([1.0, 0.01, np.inf])
    expected = X.copy()
    for start, stop in itertools.pairwise(offsets):
        for f in range(3):
            known = sorted(x for x in X[start:stop, f] if not np.isnan(x))
            if known and max(abs(x - np.mean(known)) for x in known) > FURTHEST * usual[f]:
                middle = known[(len(known) - 1) // 2]
                low, high = middle - FURTHEST * usual[f], middle + FURTHEST * usual[f]
                expected[start:stop, f] = [x if np.isnan(x) else min(max(x, low), high) for x in X[start:stop, f]]
    before = X.copy()
    assert np.array_equal(spread.clipped(X, offsets, usual), expected, equal_nan=True)
    assert np.array_equal(X, before, equal_nan=True)


@pytest.mark.parametrize("value", [0.0, 1.7e12])
def test_a_wrong_value_leaves_the_spread_as_it_was(value: float) -> None:
    rng = np.random.default_rng(0)
    X, offsets = 1.7e9 + 1e5 * rng.random((600, 1)), np.arange(0, 601, 6)
    wrong = X.copy()
    wrong[3] = value
    assert spread.of(wrong, offsets) == pytest.approx(spread.of(X, offsets), rel=0.05)
    assert (
        np.abs(np.diff(spread.clipped(wrong, offsets, spread.usual(wrong, offsets))[:6, 0])).max()
        < 1.01 * FURTHEST * 1e5
    )
    assert np.array_equal(spread.clipped(X, offsets, spread.usual(X, offsets)), X)


def test_lists_in_which_a_feature_is_unusual_are_left_out() -> None:
    values = [1.0] * 15 + [1e4]
    D, offsets = np.outer(values, [-1.0, 1.0]).reshape(-1, 1), np.arange(0, 33, 2)
    total, n_lists = spread.spread_sums(D, offsets, spread.usual(D, offsets))
    assert (total.tolist(), n_lists.tolist()) == ([4.0 * 15], [15.0])
    assert spread.spread_sums(D, offsets)[1] == 16.0
    assert spread.spread_sums(D, offsets, np.array([2e4 / UNUSUAL]))[1] == 16.0
    assert np.isinf(spread.usual(np.zeros((4, 1)), np.array([0, 2, 4])))
    assert spread.of(np.empty((0, 2)), np.array([0, 0])).tolist() == [1.0, 1.0]


def test_without_far_has_the_median_in_the_place_of_what_is_too_far() -> None:
    lists = [np.column_stack([np.arange(5.0), [1.0, np.nan, 2.0, 4.0, 3.0]]) for _ in range(32)]
    wrong = [X.copy() for X in lists]
    wrong[3][4], wrong[8][0, 1] = [1e9, -1e9], 1e9
    found = spread.without_far(wrong)
    lists[3][4], lists[8][0, 1] = [2.0, 1.0], 3.0
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, lists, strict=True))
