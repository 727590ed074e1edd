"""The stray that the benchmark reports, against its definition and against the pairs it promises to cover."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from pairrank.bench.exactness import stray
from pairrank.bench.lists import K, Stream, candidates
from pairrank.rankers.pairrank import PairRank


@pytest.mark.parametrize("preset", ["best", "paper"])
def test_no_pair_is_off_by_more_than_the_stray_says(preset: str) -> None:
    stream = Stream(candidates(15, 8, 4))
    exact = PairRank(8, seed=1, preset=preset, tolerance=0.0)
    rough = PairRank(8, seed=1, preset=preset, tolerance=1.0)
    for _ in range(40):
        query = stream.next()
        impression = exact.rank(query.features, K)
        clicked = stream.clicks(query, impression)
        exact.learn(impression, clicked)
        rough.learn(replace(impression, ranker=rough.fingerprint), clicked)
    found = stray(rough, exact)
    assert 0 < found < math.inf
    # Cauchy-Schwarz: |x·Δθ| ≤ ‖x‖_{M⁻¹} ‖Δθ‖_M, so over the width α‖x‖_{M⁻¹} it is at most ‖Δθ‖_M / α; of a
    # probability it is a quarter of that at most.
    X = query.features
    theirs, ours = ((X[:, None] - X) @ ranker.weights for ranker in (rough, exact))
    off = theirs - ours if preset == "best" else expit(theirs) - expit(ours)
    width = exact.inspect(X).width
    apart = ~np.eye(len(X), dtype=bool)
    assert (np.abs(off[apart]) <= found * width[apart] * (1 + 1e-9)).all()


def test_the_exact_estimator_does_not_stray_from_itself() -> None:
    exact = PairRank(4, tolerance=0.0)
    assert stray(exact, exact) == 0.0
