from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from pairrank.errors import OptionError
from pairrank.rng import Purpose, borrow, check_seed, generator, give_back


def test_streams_depend_on_all_three_and_nothing_else() -> None:
    drawn = {
        tuple(generator(seed, number, purpose).integers(0, 2**60, 3).tolist())
        for seed in (0, 1, 2**64 - 1)
        for number in (0, 1, 2**40)
        for purpose in Purpose
    }
    assert len(drawn) == 3 * 3 * len(Purpose)
    assert np.array_equal(generator(3, 4, Purpose.RANK).random(5), generator(3, 4, Purpose.RANK).random(5))


def test_the_stream_is_plain_philox() -> None:
    for seed in (0, 7, 2**64 - 1):
        plain = np.random.Philox(
            key=np.array([seed, 0], dtype=np.uint64), counter=np.array([0, 0, 3, Purpose.LEARN], dtype=np.uint64)
        )
        assert np.array_equal(np.random.Generator(plain).random(9), generator(seed, 3, Purpose.LEARN).random(9))


def test_a_borrowed_generator_draws_the_same_and_is_nobody_elses() -> None:
    for seed, number in ((0, 0), (2**64 - 1, 2**63 - 1), (5, 3)):
        first = borrow(seed, number, Purpose.RANK)
        first.integers(0, 10, 3, dtype=np.uint32)  # leaves half a word behind, which the next stream must not see
        second = borrow(seed, number, Purpose.RANK)  # while the first is out
        assert second is not first
        give_back(second)
        assert borrow(seed, number, Purpose.RANK) is not first
        give_back(first)
        again = borrow(seed, number, Purpose.RANK)
        assert again is first
        expected = generator(seed, number, Purpose.RANK)
        assert np.array_equal(again.integers(0, 10, 5, dtype=np.uint32), expected.integers(0, 10, 5, dtype=np.uint32))
        assert np.array_equal(again.random(9), expected.random(9))
        give_back(again)


def test_another_process_draws_the_same() -> None:
    code = "from pairrank.rng import *; print(generator(9, 8, Purpose.LEARN).random().hex())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other == float(generator(9, 8, Purpose.LEARN).random()).hex()


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, "1", True, None])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(OptionError):
        check_seed(seed)  # type: ignore[arg-type]
