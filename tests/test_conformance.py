"""Fed the pairs that the authors' program learned from, the kernel gives its blocks and its weights."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from pairrank import data
from pairrank.estimator.information_matrix import InformationMatrix
from pairrank.estimator.posterior import Posterior
from pairrank.kernel import confidence, partition
from pairrank.kernel.pairs import Pairs


@pytest.mark.parametrize("users", ["perfect", "navigational", "informational"])
def test_blocks_and_weights_of_the_authors_program(users: str, reference: Path, real_data: Path) -> None:
    trace = json.loads(gzip.decompress((reference / f"trace-{users}.json.gz").read_bytes()))
    train = data.load(real_data / "MQ2008", split="train", fold=1)
    posterior = Posterior(np.full(train.n_features, 0.1), mean_loss=True, tolerance=0.0, capacity=10**6)
    M = InformationMatrix(train.n_features, 0.1)
    same, furthest, compared = 0, 0.0, 0
    for turn in trace["rounds"]:
        X = train.query(turn["q"])[0].astype(np.float64)
        same += _blocks(X, posterior.theta, M.inverse) == [set(block) for block in turn["blocks"]]
        if turn["pairs"]:
            winner, loser = np.ascontiguousarray(np.array(turn["pairs"]).T)
            posterior.add(X, Pairs(winner, loser, np.ones(len(winner))))
            M.add(X[winner] - X[loser])
        if turn.get("theta") is not None:
            furthest = max(furthest, float(np.abs(posterior.theta - turn["theta"]).max()))
            compared += 1
    assert same >= 0.99 * len(trace["rounds"])
    assert compared > 0
    assert furthest < 1e-3


def _blocks(X: np.ndarray, theta: np.ndarray, inverse: np.ndarray) -> list[set[int]]:
    scores = X @ theta
    order = np.argsort(-scores, kind="stable")
    s = scores[order]
    certain = partition.certain_by_probability(s, s, confidence.squared_widths(X[order], inverse), 0.1)
    ends = partition.block_ends(partition.reaches(partition.transitive_closure(certain)))
    numbers = partition.block_numbers(ends, len(X))
    return [set(order[numbers == block].tolist()) for block in range(len(ends))]
