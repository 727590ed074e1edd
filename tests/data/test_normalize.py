"""Normalisations against their formulas, query by query, and at the ends of the range of float32."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pairrank.data import normalize
from pairrank.data.normalize import LARGEST, NAMES, Normaliser, statistics
from pairrank.errors import FileFormatError, UnknownNameError

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)


@st.composite
def queries(draw: st.DrawFn, values: st.SearchStrategy[float]) -> tuple[np.ndarray, np.ndarray]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    shape = (sum(sizes), draw(st.integers(1, 4)))
    return draw(hnp.arrays(np.float32, shape, elements=values)), np.concatenate([[0], np.cumsum(sizes)])


def normalised(name: str, features: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    result = features.copy()
    training = statistics(features, np.zeros(len(features), dtype=np.int64), name)
    Normaliser.fit(name, training).apply_in_place(result, offsets)
    return result


def by_formula(name: str, features: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The table in the module's docstring, one feature of one query at a time."""
    x = features.astype(np.float64)
    if name.startswith("log1p"):
        x = np.sign(x) * np.log(1 + np.abs(x))
        name = name.removeprefix("log1p").removeprefix("+") or "query"
    result = np.zeros_like(x)
    for feature in range(x.shape[1]):
        for start, stop in pairwise(offsets):
            own, every = x[start:stop, feature], x[:, feature]
            shift, spread = {
                "none": (0.0, 1.0),
                "query": (own.min(), own.max() - own.min()),
                "global": (every.min(), every.max() - every.min()),
                # The mean of equal values may be off by a rounding error.
                "standard": (every.mean(), every.std() if np.ptp(every) > 0 else 0.0),
            }[name]
            result[start:stop, feature] = (own - shift) / spread if spread > 0 else 0.0
    return result


@pytest.mark.parametrize("name", ["query", "global", "standard"])
def test_values_in_64_bits_keep_their_digits(name: str) -> None:
    """As times in seconds since 1970, of which float32 tells two minutes apart."""
    x = np.array([[0.0, 3.0], [30.0, 1.0], [60.0, 2.0]])
    fitted = [Normaliser.fit(name, statistics(X, np.zeros(3, dtype=np.int64), name)) for X in (x, x + 1.7e9)]
    np.testing.assert_array_equal(fitted[1].apply(x + 1.7e9), fitted[0].apply(x))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(case=queries(st.integers(-500, 500).map(lambda x: x / 8)), rows=st.sampled_from([1, 3, 4096]))
def test_each_is_its_formula(name: str, case: tuple[np.ndarray, np.ndarray], rows: int) -> None:
    features, offsets = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalize, "_ROWS", rows)
        found = normalised(name, features, offsets)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_formula(name, features, offsets), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(case=queries(FINITE))
def test_nothing_overflows(name: str, case: tuple[np.ndarray, np.ndarray]) -> None:
    with np.errstate(all="raise", under="ignore"):
        found = normalised(name, *case)
    assert np.isfinite(found).all()
    if name in ("query", "log1p", "global", "log1p+global"):
        assert found.min() >= 0
        assert found.max() <= 1


def test_the_largest_numbers_are_told_apart() -> None:
    features = np.array([[-LARGEST], [0], [LARGEST]], dtype=np.float32)
    assert normalised("query", features, np.array([0, 3]))[:, 0].tolist() == [0, 0.5, 1]


def test_values_far_outside_the_training_range_stay_finite() -> None:
    training = statistics(np.array([[0], [1e-30]], dtype=np.float32), np.array([0, 1]), "global")
    found = Normaliser.fit("global", training).apply(np.array([[LARGEST], [-LARGEST]]))
    assert found[:, 0].tolist() == [LARGEST, -LARGEST]


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_feature_becomes_zero_though_its_mean_is_rounded(name: str) -> None:
    features = np.full((7, 1), 0.1, dtype=np.float32)
    expected = features if name == "none" else np.zeros_like(features)
    assert (normalised(name, features, np.array([0, 3, 7])) == expected).all()


def test_constant_features_are_known() -> None:
    features = np.array([[1, 2, 0], [1, 3, 0], [1, 2, 1e-38]], dtype=np.float32)
    found = statistics(features, np.array([0, 3, 1]), "query")
    assert found.varying().tolist() == [1, 2]
    assert found.highest == 3


@pytest.mark.parametrize("name", NAMES)
def test_apply_is_for_one_query_and_changes_no_input(name: str) -> None:
    rng = np.random.default_rng(1)
    features = rng.lognormal(0, 2, (20, 3)).astype(np.float32)
    training = statistics(features, np.zeros(20, dtype=np.int64), name)
    before = features.copy()
    found = Normaliser.fit(name, training).apply(features[5:12])
    assert (features == before).all()
    context = features[5:12] if name in ("query", "log1p") else features
    expected = by_formula(name, context, np.array([0, len(context)]))
    np.testing.assert_allclose(found, expected if len(context) == 7 else expected[5:12], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_json_keeps_every_bit(name: str) -> None:
    features = np.random.default_rng(2).normal(0, 100, (30, 4)).astype(np.float32)
    fitted = Normaliser.fit(name, statistics(features, np.zeros(30, dtype=np.int64), name)).select(np.array([3, 1]))
    again = Normaliser.from_json(fitted.to_json())
    assert again.name == fitted.name
    assert again.apply(features[:, [3, 1]]).tobytes() == fitted.apply(features[:, [3, 1]]).tobytes()


def test_what_is_fitted() -> None:
    features = np.array([[0, 1], [4, 1], [8, 7]], dtype=np.float32)
    training = statistics(features, np.zeros(3, dtype=np.int64), "standard")
    between = Normaliser.fit("global", training)
    np.testing.assert_array_equal(between.shift, [0, 1])
    np.testing.assert_array_equal(between.spread, [8, 6])
    standard = Normaliser.fit("standard", training)
    np.testing.assert_array_equal(standard.shift, [4, 3])
    np.testing.assert_allclose(standard.spread, [np.sqrt(32 / 3), np.sqrt(24 / 3)])
    assert Normaliser.fit("query", training).shift is None


def test_names() -> None:
    assert normalize.check_name("log1p+query") == "log1p"
    with pytest.raises(UnknownNameError, match="no normalisation is called 'zscore'; there are: none, query"):
        normalize.check_name("zscore")


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", json.dumps({"name": "x", "shift": None, "spread": None})])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises((FileFormatError, UnknownNameError)):
        Normaliser.from_json(text)
