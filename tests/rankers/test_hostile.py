"""Ten thousand lists that nobody means well with, and eight threads on one ranker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pairrank import rankers
from pairrank.errors import PairRankError
from pairrank.types import FloatArray

WIDTH = 4
N_LISTS = 10_000
# The largest magnitude that is accepted, and a little beyond: what lies beyond must be refused by name.
LARGEST = 1e13


def column(rng: np.random.Generator, n: int) -> FloatArray:
    """One feature of a list's documents, of one of many unkind shapes."""
    drawn = rng.random(n)
    match int(rng.integers(12)):
        case 0:
            return drawn
        case 1:  # the same for all candidates
            return np.full(n, rng.choice([0.0, 1.0, -1.0, 1e-300, 1e7, LARGEST, -LARGEST]))
        case 2:  # tiny
            return drawn * 10.0 ** rng.integers(-320, -8)
        case 3:  # huge
            return (drawn - 0.5) * 2 * 10.0 ** rng.integers(3, 14)
        case 4:  # a small difference on a large offset
            return rng.choice([1e6, -1e8, 1.7e9, 1.7e12]) + drawn
        case 5:  # one that stands out
            return np.where(np.arange(n) == rng.integers(n), LARGEST, 0.0)
        case 6:  # few values
            return rng.integers(2, size=n).astype(float)
        case 7:  # the two ends
            return rng.choice([-LARGEST, LARGEST], size=n)
        case 8:  # all magnitudes at once
            return rng.choice([-1.0, 1.0], size=n) * 10.0 ** rng.uniform(-300, 13, size=n)
        case 9:  # equal but for the last bit
            return np.nextafter(np.full(n, 0.1), rng.choice([0.0, 1.0], size=n))
        case 10:  # zeros of both signs
            return np.where(drawn < 0.5, 0.0, -0.0)
        case _:  # refused: not a number, infinite, or too large
            if rng.random() < 0.8:
                return drawn
            return np.where(np.arange(n) == 0, rng.choice([np.nan, np.inf, -np.inf, 2 * LARGEST, 1e300]), drawn)


def hostile_lists(seed: int, count: int) -> Iterator[tuple[FloatArray, np.random.Generator]]:
    """Lists of 1 to 9 documents, some of them equal, with a generator for what else is to be drawn."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.integers(1, 10))
        X = np.stack([column(rng, n) for _ in range(WIDTH)], axis=1)
        if rng.random() < 0.2:
            X[rng.integers(n)] = X[rng.integers(n)]
        if rng.random() < 0.05:
            X[:] = X[0]
        yield X, rng


@pytest.mark.parametrize("name", rankers.names())
def test_hostile_lists_raise_named_errors_only_and_change_nothing_then(name: str) -> None:
    names = rankers.names()
    ranker = rankers.make(name, n_features=WIDTH, seed=1)
    refused = learned = 0
    for X, rng in hostile_lists(names.index(name), -(-N_LISTS // len(names))):
        before = ranker.digest()
        k = None if rng.random() < 0.3 else int(rng.integers(1, 12))
        try:
            impression = ranker.rank(X, k)
        except PairRankError:
            assert ranker.digest() == before, X
            refused += 1
            continue
        assert len(set(impression.ranking.tolist())) == min(len(X), k or len(X))
        before = ranker.digest()
        try:
            learned += ranker.learn(impression, rng.random(len(impression)) < 0.4)
        except PairRankError:
            assert ranker.digest() == before, X
            refused += 1
        assert np.isfinite(ranker.score(X)).all(), X
    assert refused > 5
    assert learned > refused or name.startswith("offline")


@pytest.mark.parametrize("name", rankers.names())
def test_eight_threads_on_one_ranker_lose_nothing(name: str) -> None:
    ranker = rankers.make(name, n_features=WIDTH, seed=2)
    lists = np.random.default_rng(3).random((400, 8, WIDTH))
    ideal = np.array([3.0, 1.0, 0.0, -2.0])

    def exchange(X: FloatArray) -> tuple[int, bool]:
        impression = ranker.rank(X, 5)
        ranker.score(X)
        taught = ranker.learn(impression, impression.features @ ideal > 0.5)
        ranker.to_bytes()
        return impression.number, taught

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(exchange, lists))
    assert sorted(number for number, _ in answers) == list(range(len(lists)))
    assert all(taught for _, taught in answers) or name.startswith("offline")
    twin = rankers.from_bytes(ranker.to_bytes())
    assert twin.digest() == ranker.digest()
    assert np.isfinite(ranker.weights).all()
    if name.startswith("pairrank"):  # θ̂ is that of all lists, whatever their order: none was lost
        assert np.corrcoef(ranker.weights, ideal)[0, 1] > 0.9


def test_what_eight_threads_learn_is_what_one_would_have() -> None:
    """θ̂ belongs to the set of lists: learned by eight threads, in any order, it is that of one thread."""
    lists = np.random.default_rng(4).random((300, 8, WIDTH))
    many, one = (rankers.make("pairrank-r", n_features=WIDTH, seed=2) for _ in range(2))
    shown = [many.rank(X, 5) for X in lists]
    clicks = [np.arange(5) == impression.number % 4 for impression in shown]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(many.learn, shown, clicks))
    for impression, clicked in zip(shown, clicks, strict=True):
        one.learn(impression, clicked)
    assert np.linalg.norm(many.weights - one.weights) < 0.02 * np.linalg.norm(one.weights)
