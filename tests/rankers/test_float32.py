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


@pytest.mark.parametrize("n", [3, 20])
def test_a_document_far_out_changes_no_order_of_the_others(n: int) -> None:
    rng, theta = np.random.default_rng(1), np.array([1.0, -1.0, 0.5, 0.0])
    ranker, wrong, some = pairrank.PairRank(4), 0, 0
    for _ in range(150):
        impression = ranker.rank(rng.normal(size=(12, 4)), 8)
        ranker.learn(impression, rng.random(8) < 1 / (1 + np.exp(1 - 2 * impression.features @ theta)))
    for _ in range(60):
        X = rng.normal(size=(n, 4))
        X[0, 0] = 1e9
        inputs = ranker._units.inputs(X)[1:]
        scores = inputs @ ranker._weights
        gap, width = scores[:, None] - scores, np.sqrt(confidence.squared_widths(inputs - inputs[0], ranker._metric))
        certain = ranker.inspect(X).certain[1:, 1:]
        near = np.abs(gap - ranker.z * width) < 0.02 * width.max()  # close calls
        wrong += np.sum((certain != (gap > ranker.z * width)) & ~near)
        some += certain.sum()
    assert wrong < 0.001 * some
    assert some > 20
