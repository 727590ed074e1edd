"""`rank` compares candidates in float32; the blocks are those of float64 all the same."""

from __future__ import annotations

import numpy as np
import pytest

import pairrank
from pairrank.kernel import confidence, partition


@pytest.mark.parametrize("options", [{}, {"preset": "paper"}])
def test_blocks_do_not_change(options: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    d, same, n_lists, several = 40, 0, 400, 0
    theta = rng.normal(size=d) / np.sqrt(d)
    ranker = pairrank.PairRank(d, **options)  # type: ignore[arg-type]
    rule = partition.certain_by_score if ranker._information is None else partition.certain_by_probability
    for _ in range(n_lists):
        X = 5.0 + rng.random((60, d))  # far from zero, where float32 would be coarse without centring
        impression = ranker.rank(X, 10)
        ranker.learn(impression, rng.random(10) < 1 / (1 + np.exp(-4 * (impression.features - 5.5) @ theta)))
        inputs = ranker._units.inputs(X)
        scores = inputs @ ranker._weights
        order = np.argsort(-scores, kind="stable")
        s = scores[order]
        certain = rule(s, s, confidence.squared_widths(inputs[order], ranker._metric), ranker.width_factor)
        ends = partition.block_ends(partition.reaches(certain))
        found = ranker.inspect(X)
        same += np.array_equal(found.blocks[order], partition.block_numbers(ends, len(X)))
        several += found.n_blocks > 1
    assert same >= 0.999 * n_lists
    assert several > n_lists / 10  # there was something to get wrong
