from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from pairrank.errors import OptionError
from pairrank.rng import Purpose, check_seed, generator


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


def test_another_process_draws_the_same() -> None:
    code = "from pairrank.rng import *; print(generator(9, 8, Purpose.LEARN).random().hex())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other == float(generator(9, 8, Purpose.LEARN).random()).hex()


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, "1", True, None])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(OptionError):
        check_seed(seed)  # type: ignore[arg-type]
