"""Compiled loops against the array code that they replace: equal to the bit, one by one and in a whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pairrank
from pairrank.estimator.history import Piece
from pairrank.kernel import confidence, exploration, loops, pairs, partition, settling
from pairrank.rankers.base import Draw
from pairrank.rankers.pairrank.candidates import AllPairs, show
from pairrank.rng import Purpose, generator

pytest.importorskip("numba")
seeds = st.integers(0, 100_000)


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> Iterator[None]:
    before, waited = loops._loops, loops._wait
    assert loops.load()
    yield
    loops._loops, loops._wait = before, waited


@contextmanager
def plain() -> Iterator[None]:
    with mock.patch.object(loops, "_loops", None):
        yield


def same(*arrays: np.ndarray) -> bool:
    first, *others = arrays
    return all(first.dtype == a.dtype and first.shape == a.shape and first.tobytes() == a.tobytes() for a in others)


@given(seeds, st.integers(1, 60), st.integers(1, 20))
def test_comparisons(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.choice([1.0, 1e5])
    X[rng.integers(n)] = X[rng.integers(n)]
    X.setflags(write=False)
    own = X @ rng.integers(-1, 2, d).astype(np.float64)
    found = confidence.ordered(X, own)
    with plain():
        expected = confidence.ordered(X, own)
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))
    order, _, inputs = found
    assert same(inputs, X[order].astype(np.float32))
    G = inputs @ inputs.T
    squared = confidence.squared_widths_of(G.copy())
    scores = np.sort(rng.normal(size=n).astype(np.float32))[::-1].copy()
    z = float(rng.choice([0.0, 0.1, 2.0]))
    certain = partition.certain_by_score(scores, scores, squared, z)
    k = int(rng.integers(1, n + 1))
    ends = partition.first_blocks(certain, k)
    with plain():
        assert same(squared, confidence.squared_widths_of(G.copy()))
        assert same(certain, partition.certain_by_score(scores, scores, squared, z))
        assert same(ends, partition.first_blocks(certain, k))


@given(seeds, st.integers(1, 60), st.booleans())
def test_drawing(seed: int, n: int, closed: bool) -> None:
    rng = np.random.default_rng(seed)
    X, theta = rng.normal(size=(n, 3)), rng.normal(size=3)
    z, k = float(rng.choice([0.01, 0.2, 1.0, 100.0])), int(rng.integers(1, n + 1))

    def drawn() -> tuple[AllPairs, tuple[np.ndarray, ...]]:
        inverse = np.eye(3, dtype=np.float32)
        made = AllPairs(X, X @ theta, inverse, partition.certain_by_score, z, closed=closed)
        return made, show(made, k, generator(seed, n, Purpose.RANK), shuffled=False)

    candidates, found = drawn()
    with plain():
        slow, expected = drawn()
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))
    assert same(candidates.certain(), slow.certain())


@given(seeds, st.integers(1, 30))
def test_smallest_keys(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    certain = np.triu(rng.random((size, size)) < rng.choice([0.0, 0.1, 0.6]), 1)
    keys = rng.random((int(rng.integers(1, size + 1)), size))
    found = exploration.by_smallest_key(certain, keys)
    with plain():
        assert same(found, exploration.by_smallest_key(certain, keys))


@pytest.mark.parametrize("kind", [pairs.averaged, pairs.mirrored])
@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_pairs(kind: Callable[[np.ndarray], pairs.Pairs], clicks: list[bool]) -> None:
    found = kind(np.array(clicks))
    with plain():
        expected = kind(np.array(clicks))
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


@given(seeds, st.integers(2, 12))
def test_settling(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 3 * k))
    winner = rng.integers(0, k, n)
    found = pairs.Pairs(winner, (winner + rng.integers(1, k, n)) % k, rng.random(n))
    D = rng.normal(size=(k, 5))
    start, K = 3 * rng.normal(size=k), D @ D.T * rng.choice([0.01, 1.0, 30.0])
    weights = pairs.preferences(found, k)
    settled = settling.settle(start, K, weights)
    with plain():
        assert same(weights, pairs.preferences(found, k))
        expected = settling.settle(start, K, weights)
        n_used = pairs.top_used(found, k)
    assert n_used == pairs.top_used(found, k)
    assert all(same(np.asarray(a), np.asarray(b)) for a, b in zip(settled, expected, strict=True))


@given(seeds, st.integers(2, 50), st.integers(1, 80))
def test_history(seed: int, n: int, n_pairs: int) -> None:
    rng = np.random.default_rng(seed)
    first = int(rng.integers(1000))
    winner, loser = first + rng.integers(0, n, n_pairs), first + rng.integers(0, n, n_pairs)
    piece = Piece(rng.random((n, 7)).astype(np.float32), winner, loser, rng.random(n_pairs), first)
    direction = rng.normal(size=7)
    gaps, total = piece.gaps(direction), piece.scatter(piece.weight)
    rows = [piece.differences(piece.weight, dtype) for dtype in (np.float32, np.float64)]
    with plain():
        assert same(gaps, piece.gaps(direction))
        assert same(total, piece.scatter(piece.weight))
        for expected in rows:
            assert same(expected, piece.differences(piece.weight, expected.dtype.type))


@settings(deadline=None, max_examples=6)
@given(
    seeds,
    st.sampled_from(["pairrank", "pairrank-c(refine=true)", "pairrank(preset=paper)", "pairrank(Q=1, offsets=false)"]),
)
def test_a_run_has_the_same_bits_with_and_without(seed: int, name: str) -> None:
    def run() -> str:
        rng = np.random.default_rng(seed)
        ranker = pairrank.rankers.make(name, n_features=8, seed=seed)
        for _ in range(60):
            impression = ranker.rank(rng.random((int(rng.integers(1, 40)), 8)), 10)
            ranker.learn(impression, rng.random(len(impression)) < 0.3)
        return ranker.digest()

    compiled = run()
    with plain():
        assert run() == compiled


class Reversed(pairrank.PairRank):
    """A ranker with a step of its own."""

    def _rank(self, features: np.ndarray, k: int, rng: np.random.Generator) -> Draw:
        draw = super()._rank(features, k, rng)
        return draw._replace(ranking=draw.ranking[::-1].copy())


def test_a_subclass_that_ranks_otherwise_is_heard() -> None:
    X = np.random.default_rng(0).random((20, 4))
    usual, other = pairrank.PairRank(4, seed=3).rank(X, 20), Reversed(4, seed=3).rank(X, 20)
    assert usual.ranking.tolist() == other.ranking.tolist()[::-1]


def test_loading_waits_until_it_pays() -> None:
    with mock.patch.object(loops, "_loops", None), mock.patch.object(loops, "_wait", 2):
        ranker = pairrank.PairRank(3)
        for _ in range(2):
            ranker.rank(np.eye(3))
            assert loops.compiled() is None
        ranker.rank(np.eye(3))
        assert loops.compiled() is not None


@pytest.mark.parametrize("problem", [ImportError("numba"), RuntimeError("cannot cache function: no locator available")])
def test_without_numba_or_a_place_for_it_nothing_is_loaded_and_nothing_breaks(problem: Exception) -> None:
    with mock.patch.object(loops, "_loops", None), mock.patch.object(loops, "import_module", side_effect=problem):
        assert not loops.load()
        assert pairrank.PairRank(3).rank(np.eye(3)).n_docs == 3


@given(seeds, st.integers(33, 60))
@settings(max_examples=20)
def test_many_documents_settle_as_few_do(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    D = rng.normal(size=(k, 5))
    weights = pairs.preferences(pairs.averaged(rng.random(k) < 0.3), k)
    start, K = D @ rng.normal(size=5), D @ D.T
    whole = settling.settle(start, K, weights)
    with mock.patch.object(settling, "FEW", k):
        for found, expected in zip(settling.settle(start, K, weights), whole, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
