"""PairRank with a memory: the joint fit against one dense Newton, certain orders, what is known again and forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pairrank
from pairrank import rankers
from pairrank.errors import OptionError
from pairrank.estimator.mixed_effects import Known, MixedEffects
from pairrank.features import position
from pairrank.kernel.pairs import Pairs, shown
from pairrank.rankers.memory import MemoryRank, name_of, names_of

D = 3


def effects_after(rounds: int, n_lists: int = 4, room: int = 1000) -> tuple[MixedEffects, dict[int, np.ndarray]]:
    """What clicks taught of some lists of eight documents, of which five are shown each time."""
    rng = np.random.default_rng(1)
    lists = {name: rng.standard_normal((8, D)) for name in range(n_lists)}
    effects = MixedEffects(np.array([2.0, 2.0, 2.0, position.PRECISION]), room=room, furthest=100.0)
    for t in range(rounds):
        name, rows = t % n_lists, rng.permutation(8)[:5]
        clicks = rng.random(5) < 0.2 + 0.6 * (rows % 2)  # as no line says
        found = shown(clicks)
        if len(found.weight):
            X, columns = lists[name][rows], position.column(np.arange(5))
            effects.learn(name, rows.astype(np.uint64), X, np.ones(D), found, columns)
    return effects, lists


def dense(effects: MixedEffects, phi: np.ndarray, b: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The gradient and the Hessian in φ and all b, pair by pair, from the weights of the lists."""
    starts, n = {}, D + 1
    for name, known in effects.lists.items():
        starts[name], n = n, n + len(known.b)
    gradient, H = np.zeros(n), np.zeros((n, n))
    P = np.array([2.0, 2.0, 2.0, position.PRECISION])
    gradient[: D + 1], H[: D + 1, : D + 1] = P * phi, np.diag(P)
    for name, known in effects.lists.items():
        own = slice(starts[name], starts[name] + len(known.b))
        gradient[own] += b[name] / effects.variance
        H[own, own] += np.eye(len(known.b)) / effects.variance
        for side, i, j in np.argwhere(known.won > 0.0):
            x = np.zeros(n)
            x[:D] = known.X[i].astype(float) - known.X[j]
            x[D] = known.column[side, i, j]
            x[starts[name] + i] += 1.0
            x[starts[name] + j] -= 1.0
            margin = x[: D + 1] @ phi + b[name][i] - b[name][j]
            p = 1.0 / (1.0 + np.exp(margin))
            gradient -= known.won[side, i, j] * p * x
            H += known.won[side, i, j] * p * (1.0 - p) * np.outer(x, x)
    return gradient, H


def b_of(known: Known, phi: np.ndarray) -> np.ndarray:
    return np.asarray(known.centre - known.effects()[1] @ phi)


def test_the_fit_is_that_of_one_newton_in_all_parameters() -> None:
    effects, _ = effects_after(200)
    gradient, H = dense(effects, effects.phi, {name: b_of(known, effects.phi) for name, known in effects.lists.items()})
    move = np.linalg.solve(H, gradient)
    assert np.sqrt(move @ gradient) < 0.05  # of a standard deviation, with all lists looked at some lists ago
    for _ in range(30):  # the models of all lists made anew, where φ̂ is
        lists = {name: known.looked_at(effects.phi, effects.variance) for name, known in effects.lists.items()}
        A = np.diag([2.0, 2.0, 2.0, position.PRECISION]) + sum(S for _, S in lists.values())
        effects.phi = np.asarray(np.linalg.solve(A, sum(known.pull for known, _ in lists.values())), dtype=np.float64)
        effects.lists = {name: known for name, (known, _) in lists.items()}
    gradient, H = dense(effects, effects.phi, {name: b_of(known, effects.phi) for name, known in effects.lists.items()})
    assert np.abs(gradient).max() < 1e-5  # inputs are float32
    covariance = np.linalg.inv(H)
    np.testing.assert_allclose(np.linalg.inv(A), covariance[: D + 1, : D + 1], rtol=1e-6, atol=1e-9)


def test_sums_over_lists_are_those_of_their_models() -> None:
    effects, _ = effects_after(150)
    A = np.diag([2.0, 2.0, 2.0, position.PRECISION]) + sum(known.information() for known in effects.lists.values())
    np.testing.assert_allclose(effects.A, A, atol=1e-9)
    np.testing.assert_allclose(effects.r, sum(known.pull for known in effects.lists.values()), atol=1e-9)


def test_weights_between_documents_are_those_of_the_pairs() -> None:
    effects = MixedEffects(np.ones(D + 1), room=100, furthest=100.0)
    X, columns = np.eye(D), position.column(np.arange(3))
    once = Pairs(np.array([1, 1]), np.array([0, 2]), np.array([1.0, 0.5]))
    effects.learn(7, np.array([5, 6, 9], dtype=np.uint64), X, np.ones(D), once, columns)
    effects.learn(7, np.array([6, 5, 9], dtype=np.uint64), X[[1, 0, 2]], np.ones(D), once, columns)
    (known,) = effects.lists.values()
    assert known.documents.tolist() == [5, 6, 9]
    # 6 over 5 from below (log 2 of column against it), 5 over 6 from below, 6 and 5 over 9 from above.
    assert known.won[1, 1, 0] == known.won[1, 0, 1] == 1.0
    assert known.won[0, 1, 2] == known.won[0, 0, 2] == 0.5
    assert known.won.sum() == 3.0
    assert known.column[1, 1, 0] == pytest.approx(-np.log(2))
    assert known.column[0, 1, 2] == pytest.approx(np.log(3) - np.log(2))


def test_a_list_tells_of_the_line_no_more_than_its_documents_can() -> None:
    effects, _ = effects_after(4000, n_lists=1)
    (known,) = effects.lists.values()
    bound = np.linalg.eigvalsh(known.X.astype(float).T @ known.X / effects.variance).max()
    assert np.linalg.eigvalsh(known.information()[:D, :D]).max() < bound


def test_what_is_forgotten_leaves_what_it_told_of_the_line() -> None:
    effects, _ = effects_after(100, n_lists=6, room=20)
    assert sum(len(known.b) for known in effects.lists.values()) <= 20
    kept = sum(known.information() for known in effects.lists.values())
    assert np.linalg.eigvalsh(effects.A - kept).min() > 1.0  # the prior's, and more
    assert effects.A.trace() - np.trace(kept) > 8.0


def test_names_follow_the_features_and_not_their_order() -> None:
    X = np.random.default_rng(0).random((5, 4))
    assert names_of(X).tolist() == names_of(X.copy()).tolist()
    assert name_of(names_of(X)) == name_of(names_of(X[::-1]))
    assert len(set(names_of(np.vstack([X, np.nextafter(X, 1.0)])).tolist())) == 10
    assert names_of(np.array([[0.0, -0.0]])) == names_of(np.array([[0.0, 0.0]]))


def play(ranker: Any, rounds: int, lists: np.ndarray, likes: np.ndarray) -> None:
    for t in range(rounds):
        q = t % len(lists)
        impression = ranker.rank(lists[q], k=5)
        ranker.learn(impression, likes[q][impression.ranking])


def test_what_no_line_can_say_is_learned_for_lists_that_come_again() -> None:
    rng = np.random.default_rng(3)
    lists, likes = rng.random((6, 12, 4)), rng.random((6, 12)) < 0.3  # by chance: features tell nothing
    memory, line = (rankers.make(name, n_features=4, seed=0) for name in ("pairrank-memory", "pairrank"))
    for ranker in (memory, line):
        play(ranker, 600, lists, likes)
    found, lost = (
        np.mean([likes[q][ranker.rank(lists[q], k=3, explore=False).ranking].mean() for q in range(6)])
        for ranker in (memory, line)
    )
    assert found > 0.9
    assert lost < 0.7
    shuffled = rng.permutation(12)
    np.testing.assert_allclose(memory.score(lists[0][shuffled]), memory.score(lists[0])[shuffled])  # in any order
    other = memory.score(lists[0] + [1e-9, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(other - other.mean(), (lists[0] - lists[0].mean(axis=0)) @ memory.weights, atol=1e-6)


def test_looking_inside_tells_of_the_whole_score() -> None:
    rng = np.random.default_rng(4)
    lists = rng.random((3, 9, 4))
    ranker = MemoryRank(4, seed=1)
    play(ranker, 90, lists, lists[:, :, 0] > 0.6)
    seen, told = ranker.inspect(lists[1]), ranker.explain(lists[1])
    np.testing.assert_array_equal(seen.scores, ranker.score(lists[1]))
    assert (np.diff(seen.scores[seen.order]) <= 1e-12).all()
    gaps = -np.diff(seen.scores[told.order])
    np.testing.assert_allclose(told.gap, gaps)
    above = np.subtract.outer(seen.scores, seen.scores)
    np.testing.assert_array_equal(seen.certain, above > seen.width)


def test_the_bias_of_position_is_that_of_the_default() -> None:
    told = []
    for name in ("pairrank", "pairrank-memory"):
        rng = np.random.default_rng(6)
        lists, ranker = rng.random((20, 12, 4)), rankers.make(name, n_features=4, seed=1)
        for t in range(1500):
            shown = ranker.rank(lists[t % 20], k=10)
            seen = rng.random(10) < 1.0 / np.arange(1, 11)
            ranker.learn(shown, seen & (rng.random(10) < 0.4 * shown.features[:, 0]))
        told.append(ranker.position_bias())  # type: ignore[attr-defined]
        assert ranker.weights[0] == ranker.weights.max()  # type: ignore[attr-defined]
    (line, _), (memory, deviation) = told
    assert 0.8 < memory < 1.6  # with odds of clicks as 1 to r it is 1, and a little more where chances are large
    assert abs(memory - line) < 0.4
    assert 0.0 < deviation < 0.2


def test_a_feature_that_begins_to_vary_is_counted_from_where_it_was() -> None:
    rng, ranker = np.random.default_rng(7), MemoryRank(3, seed=1)

    def shop(n: int, spread: float) -> np.ndarray:
        return rng.random((n, 3)) * [1.0, 1.0, spread] + [0.0, 0.0, 5000.0]

    for _ in range(80):  # the third feature has no unit yet
        ranker.learn(ranker.rank(shop(12, 0.0), k=6), [True, False] * 3)
    half = shop(30, 0.0)
    ranker.learn(ranker.rank(half, k=6), [True, False] * 3)
    ranker.learn(ranker.rank(shop(12, 10.0), k=6), [True, False] * 3)
    assert ranker._units.values[2] > 0.0
    for _ in range(40):  # documents that were never shown come to those that were
        ranker.learn(ranker.rank(half, k=6), np.arange(6) == 5)
    assert max(len(known.b) for known in ranker._effects.lists.values()) > 6
    for known in ranker._effects.lists.values():
        assert np.abs(known.X[:, 2]).max() < 10.0


def test_saved_with_its_lists(tmp_path: Any) -> None:
    lists = np.random.default_rng(5).random((3, 9, 4))
    ranker = MemoryRank(4, seed=1, remember=20)
    play(ranker, 40, lists, lists[:, :, 1] > 0.5)
    ranker.save(tmp_path / "memory.pairrank")
    other = pairrank.load(tmp_path / "memory.pairrank")
    for one in (ranker, other):
        play(one, 40, lists, lists[:, :, 1] > 0.5)
    assert ranker.digest() == other.digest()


@pytest.mark.parametrize("options", [{"z": -1.0}, {"remember": 0}, {"lam": 0.0}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        MemoryRank(2, **options)
