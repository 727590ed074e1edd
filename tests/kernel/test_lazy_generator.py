from __future__ import annotations

import numpy as np
import pytest

from pairrank.kernel.lazy_generator import LazyGenerator
from pairrank.rng import Purpose, generator


@pytest.mark.parametrize("first", [0, 1, 7, None])
def test_numbers_go_on_where_uniform_ones_ended(first: int | None) -> None:
    lazy, plain = LazyGenerator(5, 3, Purpose.RANK), generator(5, 3, Purpose.RANK)
    assert np.array_equal(lazy.random(first), plain.random(first))
    assert np.array_equal(lazy.random(4), plain.random(4))
    assert np.array_equal(lazy.random((2, 3)), plain.random((2, 3)))
    assert np.array_equal(lazy.permutation(9), plain.permutation(9))


def test_other_numbers_may_come_first() -> None:
    lazy, plain = LazyGenerator(5, 3, Purpose.RANK), generator(5, 3, Purpose.RANK)
    assert np.array_equal(lazy.standard_normal(4), plain.standard_normal(4))
    assert np.array_equal(lazy.random(4), plain.random(4))
