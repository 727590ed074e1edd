"""Compiled loops against the array code that they replace: equal to the bit, one by one and in a whole run."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pairrank
from pairrank.kernel import confidence, jit, list_newton, pairs, partition
from pairrank.rankers.base import Draw
from pairrank.rankers.candidates import Candidates, compared, show
from pairrank.rng import Purpose, generator

numba = pytest.importorskip("numba")
seeds = st.integers(0, 100_000)


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> Iterator[None]:
    with mock.patch.dict(os.environ):
        os.environ.pop("PAIRRANK_COMPILED", None)
        assert jit.load()
        yield


@contextmanager
def plain() -> Iterator[None]:
    with ExitStack() as patches:
        for pair in jit.TWINS.values():
            patches.enter_context(mock.patch.object(pair, "compiled", None))
        yield


def same(*values: Any) -> bool:
    """Whether values (numbers, arrays, tuples of them) are equal to the bit and of one type."""
    first, *others = values
    if isinstance(first, tuple):
        return all(len(first) == len(o) and all(map(same, first, o)) for o in others)
    first, *others = map(np.asarray, values)
    return all(first.dtype == a.dtype and first.shape == a.shape and first.tobytes() == a.tobytes() for a in others)


# Random arguments of every twin. Scores and rows are equal here and there, so that ties are met.


def _real(rng: np.random.Generator) -> type[np.floating[Any]]:
    return (np.float32, np.float64)[rng.integers(2)]


def _apart(rng: np.random.Generator) -> tuple[Any, ...]:
    dtype, (m, n) = _real(rng), rng.integers(1, 40, 2)
    scores, below = rng.integers(-5, 6, m).astype(dtype), rng.integers(-5, 6, n).astype(dtype)
    return scores, below, (rng.integers(0, 3, (m, n)) ** 2 * rng.choice([1.0, 0.9])).astype(dtype)


def _certain(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.triu(rng.random((size, size)) < rng.choice([0.0, 0.1, 0.6, 1.0]), 1)


def _blocks(rng: np.random.Generator) -> tuple[Any, ...]:
    n = int(rng.integers(1, 60))
    return _certain(rng, n), int(rng.integers(1, n + 1))


def _raw(rng: np.random.Generator) -> tuple[Any, ...]:
    n, d = rng.integers(1, 30), rng.integers(1, 8)
    X = rng.random((n, d)) * 10.0 ** rng.uniform(-9, 9, d) + rng.uniform(-1e8, 1e8, d)
    X[rng.integers(n)] *= rng.choice([1.0, 1e9])  # far out
    X.setflags(write=bool(rng.integers(2)))
    return X, 10.0 ** rng.uniform(-9, 9, d), 1e6


def _within(rng: np.random.Generator) -> tuple[Any, ...]:
    X, _, bound = _raw(rng)
    if rng.integers(2):
        bound = float(rng.choice([np.abs(X).max(), np.nextafter(np.abs(X).max(), 0.0), 1e300]))
        X = X.copy()
        X.flat[rng.integers(X.size)] = rng.choice([0.0, bound, -bound, np.nan, np.inf, -np.inf])
    return X, bound


def _stream(rng: np.random.Generator) -> tuple[Any, ...]:
    seed, number = [0, 7, 2**63, 2**64 - 1][rng.integers(4)], [0, 3, 2**63 - 1][rng.integers(3)]
    return seed, number, int(rng.choice(list(Purpose))), int(rng.integers(0, 300))


def _model(rng: np.random.Generator, n_docs: int) -> tuple[Any, ...]:
    """Documents, weights, and the inverse of a matrix."""
    d = int(rng.integers(2, 60))
    root = rng.normal(size=(d, d))
    documents = rng.integers(-2, 3, (n_docs, d)).astype(np.float64) if rng.integers(2) else rng.normal(size=(n_docs, d))
    documents.setflags(write=bool(rng.integers(2)))
    return documents, rng.normal(size=d), rng.choice([0.01, 1.0]) * (root @ root.T)


def _shown(rng: np.random.Generator) -> tuple[Any, ...]:
    n = int(rng.integers(2, 60))
    X, weights, inverse = _model(rng, n)
    k, z = int(rng.integers(1, n + 1)), float(rng.choice([partition.TINY, 0.01, 0.2, 1.0, 100.0]))
    return X, weights, inverse.astype(np.float32), z, k, rng.random(k * n)


def _keys(rng: np.random.Generator) -> tuple[Any, ...]:
    n = int(rng.integers(1, 30))
    k = int(rng.integers(1, n + 1))
    some = np.flatnonzero(rng.random(n) < rng.choice([0.0, 0.3, 1.0]))
    ends = np.unique(np.append(some, n - 1))
    ends = ends[: np.searchsorted(ends, k - 1) + 1]
    return _certain(rng, n), ends, k, rng.random(k * n)


def _clicks(rng: np.random.Generator) -> tuple[Any, ...]:
    return (rng.random(rng.integers(1, 13)) < rng.choice([0.0, 0.3, 0.8]),)


def _pairs(rng: np.random.Generator, k: int) -> tuple[Any, ...]:
    n = int(rng.integers(1, 3 * k))
    winner = rng.integers(0, k, n)
    return winner, (winner + rng.integers(1, k, n)) % k, rng.random(n)


def _list(rng: np.random.Generator) -> tuple[Any, ...]:
    k = int(rng.integers(2, list_newton.FEW + 1))
    D, theta, inverse = _model(rng, k)
    return D, *_pairs(rng, k), theta, inverse


def _clicked_list(rng: np.random.Generator) -> tuple[Any, ...]:
    k, first = int(rng.integers(2, list_newton.FEW + 1)), int(rng.integers(1000))
    D, theta, inverse = _model(rng, k)
    clicks = rng.permutation(np.arange(k) < rng.integers(1, k))
    n = clicks.sum() * (~clicks).sum()
    room = np.zeros(D.shape, dtype=_real(rng)), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n)
    return D, clicks, theta, inverse, first, *room


def _history(rng: np.random.Generator) -> tuple[int, int, tuple[Any, ...]]:
    n, first = int(rng.integers(2, 50)), int(rng.integers(1000))
    winner, loser, weight = _pairs(rng, n)
    return n, first, (winner + first, loser + first, weight)


def _gaps(rng: np.random.Generator) -> tuple[Any, ...]:
    n, first, (winner, loser, _) = _history(rng)
    return rng.normal(size=n).astype(_real(rng)), winner, loser, first


def _scatter(rng: np.random.Generator) -> tuple[Any, ...]:
    n, first, found = _history(rng)
    return *found, first, n


def _differences(rng: np.random.Generator) -> tuple[Any, ...]:
    n, first, (winner, loser, weight) = _history(rng)
    documents = rng.random((n, 7)).astype(_real(rng))
    return documents, winner, loser, first, weight, np.zeros((len(weight), 7), dtype=_real(rng))


ARGUMENTS: dict[str, Callable[[np.random.Generator], tuple[Any, ...]]] = {
    "within": _within,
    "standardised": _raw,
    "wider_apart": _apart,
    "first_blocks": _blocks,
    "draw_blocks_by_key": _keys,
    "uniform": _stream,
    "shown": _clicks,
    "show_by_score": _shown,
    "in_order": lambda rng: _shown(rng)[:3],
    "take_in_short": _list,
    "take_in_shown": _clicked_list,
    "gaps": _gaps,
    "scatter": _scatter,
    "differences": _differences,
}


def test_every_loop_is_tried() -> None:
    assert pairrank.PairRank(1)  # now all modules that have one are loaded
    assert set(ARGUMENTS) == set(jit.TWINS)


@pytest.mark.parametrize("name", ARGUMENTS)
@given(seeds)
def test_a_loop_has_the_bits_of_its_array_code(name: str, seed: int) -> None:
    pair = jit.TWINS[name]
    assert pair.compiled
    arguments = ARGUMENTS[name](np.random.default_rng(seed))
    others = copy.deepcopy(arguments)
    found, expected = pair.compiled(*arguments), pair.array(*others)
    assert type(found) is type(expected)
    assert found is None or same(found, expected)
    assert same(arguments, others)  # what they write in place


def test_every_loop_is_the_twin_of_array_code() -> None:
    loops = vars(sys.modules["pairrank.kernel.jit_loops"]).items()
    public = {name for name, value in loops if hasattr(value, "py_func") and not name.startswith("_")}
    assert public == set(jit.TWINS) == set(ARGUMENTS)


def test_a_twin_that_is_missing_or_wanted_twice_is_an_error() -> None:
    def no_such_loop() -> None:
        pass

    with mock.patch.dict(jit.TWINS), pytest.raises(LookupError, match="no loop 'no_such_loop'"):
        jit.twin()(no_such_loop)
    with mock.patch.dict(jit.TWINS), mock.patch.object(jit, "_loops", None):
        jit.twin()(no_such_loop)  # nothing is loaded yet
        with pytest.raises(LookupError, match="no loop 'no_such_loop'"):
            jit.load()
        with pytest.raises(LookupError, match="two functions"):
            jit.twin()(no_such_loop)


@given(seeds, st.integers(1, 60), st.booleans())
def test_drawing(seed: int, n: int, closed: bool) -> None:
    rng = np.random.default_rng(seed)
    X, theta = rng.normal(size=(n, 3)), rng.normal(size=3)
    z, k = float(rng.choice([0.0, 0.01, 0.2, 1.0, 100.0])), int(rng.integers(1, n + 1))

    def drawn() -> tuple[Candidates, tuple[np.ndarray, ...]]:
        inverse = np.eye(3, dtype=np.float32)
        made = compared(X, theta, inverse, partition.certain_by_score, z, closed=closed)
        draw = show(made, k, generator(seed, n, Purpose.RANK), shuffled=False)
        return made, (draw.memory["ends"], draw.ranking, draw.blocks)

    candidates, found = drawn()
    with plain():
        slow, expected = drawn()
    assert same(found, expected)
    assert same(candidates.certain(), slow.certain())


def test_candidates_come_in_the_order_of_their_scores() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    order, scores, G = confidence.in_order(X, np.array([1.0, 0.0, 0.0]), np.eye(3, dtype=np.float32))
    assert order.tolist() == np.argsort(-X[:, 0]).tolist()
    assert same(scores, (X[order, 0] - X[0, 0]).astype(np.float32))
    np.testing.assert_allclose(G, X[order] @ X[order].T, atol=1e-5)


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


STREAM = """
import numpy as np, pairrank
from pairrank.kernel import jit
assert jit._loops is None
ranker = pairrank.PairRank(3)
made = jit._loops is not None
for _ in range(2100):
    ranker.rank(np.eye(3))
assert (jit._loops is not None) == made
print(made)
"""


def test_loops_are_loaded_when_a_ranker_is_made_if_they_were_compiled_before(tmp_path: Path) -> None:
    def process(*command: str, **variables: str) -> str:
        free = {name: value for name, value in os.environ.items() if name != "PAIRRANK_COMPILED"}
        env = free | {"NUMBA_CACHE_DIR": str(tmp_path)} | variables
        return subprocess.run([sys.executable, *command], env=env, check=True, capture_output=True, text=True).stdout

    assert process("-c", STREAM) == "False\n"
    assert not list(tmp_path.rglob("*.nbi"))
    process("-m", "pairrank", "warm")
    assert process("-c", STREAM) == "True\n"
    assert (
        process("-c", STREAM.replace("pairrank.PairRank(3)", "pairrank.rankers.make('pdgd', n_features=3)")) == "True\n"
    )
    assert process("-c", STREAM, PAIRRANK_COMPILED="0") == "False\n"
    assert process("-c", STREAM, NUMBA_DISABLE_JIT="1") == "False\n"
    assert process("-c", STREAM, NUMBA_DISABLE_JIT="1", PAIRRANK_COMPILED="1") == "False\n"
    # Code that is younger than what was compiled of it was not compiled.
    for path in tmp_path.rglob("*.nbi"):
        os.utime(path, (0, 0))
    assert process("-c", STREAM) == "False\n"
    assert process("-c", STREAM, PAIRRANK_COMPILED="1") == "True\n"


@pytest.mark.parametrize("problem", [ImportError("numba"), RuntimeError("cannot cache function: no locator available")])
def test_without_numba_or_a_place_for_it_nothing_is_loaded_and_nothing_breaks(problem: Exception) -> None:
    def nothing(name: str) -> ModuleType:
        raise problem

    with plain(), mock.patch.object(jit, "_loops", None), mock.patch.object(jit, "import_module", nothing):
        assert not jit.is_warm()
        assert not jit.load()
        assert pairrank.PairRank(3).rank(np.eye(3)).n_docs == 3


@given(seeds, st.integers(33, 60))
@settings(max_examples=20)
def test_many_documents_are_solved_as_few_are(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    D = rng.normal(size=(k, 5))
    weights = pairs.preferences(*pairs.averaged(rng.random(k) < 0.3), k)
    start, K = D @ rng.normal(size=5), D @ D.T
    whole = list_newton.solve_list(start, K, weights)
    with mock.patch.object(list_newton, "FEW", k):
        for found, expected in zip(list_newton.solve_list(start, K, weights), whole, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
