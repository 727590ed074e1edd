"""The generator of a list that is made late: numpy's numbers to the bit, whatever is asked for first."""

from __future__ import annotations

import numpy as np
import pytest

import pairrank
from pairrank.kernel.lazy_generator import LazyGenerator
from pairrank.rankers.base import Draw
from pairrank.rng import Purpose, generator
from pairrank.types import FloatArray


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


class Shuffled(pairrank.PairRank):
    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        ranking = np.random.default_rng(rng).permutation(len(inputs))[:k]
        return Draw(ranking=ranking, blocks=np.zeros(k, dtype=np.int64), explored=True, memory={})


def test_a_subclass_is_given_numpys_own() -> None:
    shown = Shuffled(n_features=2, seed=4).rank(np.arange(12.0).reshape(6, 2), k=6)
    assert np.array_equal(shown.ranking, generator(4, 0, Purpose.RANK).permutation(6))
