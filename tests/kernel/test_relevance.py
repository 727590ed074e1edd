"""Numbers that fall along a list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.kernel.relevance import falling


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200))
def test_it_falls_within_the_unit_interval_even_as_float32(scores: list[float]) -> None:
    relevance = falling(scores)
    assert ((relevance > 0) & (relevance < 1)).all()
    assert (np.diff(relevance) < 0).all()
    assert (np.diff(relevance.astype(np.float32)) < 0).all()


def test_it_is_the_logistic_of_the_sorted_scores_about_their_mean() -> None:
    expected = [1 / (1 + np.exp(-1)), (1 - 1e-6) / 2, (1 - 2e-6) / (1 + np.exp(1))]
    np.testing.assert_allclose(falling([1.0, 3.0, 2.0]), expected, rtol=1e-12)
    assert falling([7.0]).tolist() == pytest.approx([0.5])
