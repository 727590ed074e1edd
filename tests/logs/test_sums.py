from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.features.linear import Units
from pairrank.kernel import pairs
from pairrank.logs.reader import Batch
from pairrank.logs.sums import Compensated, Sums, inputs, preferences, sums
from slow_twins import pair_gradient, pair_hessian, pair_loss

UNITS = Units(3, "spread")


@st.composite
def batch(draw: st.DrawFn) -> Batch:
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    n = sum(sizes)
    rng = np.random.default_rng(draw(st.integers(0, 100)))
    return Batch(
        rng.normal(size=(n, 3)),
        np.cumsum([0, *sizes]),
        np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=np.float64),
        np.array([draw(st.integers(0, size)) for size in sizes]),
        np.array([draw(st.integers(0, 30)) for _ in sizes]),
    )


def one_by_one(batch: Batch, kind: str) -> set[tuple[int, int, float]]:
    take = {
        "averaged": pairs.averaged,
        "all": pairs.all_pairs,
        "adjacent": pairs.adjacent,
        "shown": pairs.shown,
    }[kind]
    found = set()
    for start, stop, locked in zip(batch.offsets, batch.offsets[1:], batch.locked, strict=False):
        first = start + locked
        for winner, loser, weight in zip(*take(batch.gains[first:stop] > 0), strict=True):
            found.add((int(first + winner), int(first + loser), float(weight)))
    return found


@pytest.mark.parametrize("kind", ["averaged", "all", "adjacent", "shown"])
@given(batch=batch())
def test_pairs_are_those_of_the_kernel(kind: str, batch: Batch) -> None:
    found = preferences(batch, kind)
    assert {(int(w), int(x), float(v)) for w, x, v in zip(*found, strict=True)} == one_by_one(batch, kind)
    assert len(found.weight) == len(one_by_one(batch, kind))


@pytest.mark.parametrize("kind", ["averaged", "all", "adjacent"])
@given(batch=batch(), seed=st.integers(0, 1000))
def test_gains_prefer_the_higher_by_their_difference(kind: str, batch: Batch, seed: int) -> None:
    gains = np.random.default_rng(seed).choice([-1.0, 0.0, 0.0, 1.0, 3.0], size=len(batch.gains))
    expected = {}
    for start, stop, locked in zip(batch.offsets, batch.offsets[1:], batch.locked, strict=False):
        first = int(start + locked)
        acted = [row for row in range(first, stop) if gains[row]]
        examined = range(first, min(stop, acted[-1] + 2)) if acted else range(0)
        found = {
            (i, j): gains[i] - gains[j]
            for i in examined
            for j in examined
            if gains[i] > gains[j] and (kind != "adjacent" or (i - first) // 2 == (j - first) // 2)
        }
        most = max((sum(row in pair for pair in found) for row in examined), default=1)
        expected |= {pair: weight / (most if kind == "averaged" else 1) for pair, weight in found.items()}
    pairs = preferences(batch._replace(gains=gains), kind)
    got = {(int(w), int(x)): float(v) for w, x, v in zip(*pairs, strict=True)}
    assert got == pytest.approx(expected)


@given(batch=batch())
def test_positions_are_those_that_users_saw(batch: Batch) -> None:
    """Locked ones above count, though nothing is learned from them, and those on earlier pages."""
    column = inputs(batch, "shown", UNITS)[:, 3]
    for start, stop, above in zip(batch.offsets, batch.offsets[1:], batch.above, strict=False):
        np.testing.assert_allclose(column[start:stop], -np.log(above + np.arange(1, stop - start + 1)))
    assert inputs(batch, "all", UNITS).shape == batch.features.shape


@given(batch=batch())
def test_sums_are_those_of_the_kernel(batch: Batch) -> None:
    theta = np.array([0.5, -1.0, 2.0])
    winner, loser, weight = preferences(batch, "averaged")
    x, nothing = batch.features[winner] - batch.features[loser], np.zeros((3, 3))
    found = sums(batch, theta, "averaged", UNITS, first=True)
    np.testing.assert_allclose(found.loss, pair_loss(theta, x, weight, nothing, theta), atol=1e-12)
    np.testing.assert_allclose(found.gradient, pair_gradient(theta, x, weight, nothing, theta), atol=1e-12)
    np.testing.assert_allclose(found.hessian, pair_hessian(theta, x, weight, nothing), atol=1e-12)
    np.testing.assert_allclose(found.M, x.T @ (weight[:, None] * x), atol=1e-12)
    assert not sums(batch, theta, "averaged", UNITS, first=False).M.any()


@given(batch=batch(), offset=st.sampled_from([1e6, -1e8]))
def test_a_constant_in_every_list_changes_nothing_but_rounding(batch: Batch, offset: float) -> None:
    theta = np.array([0.5, -1.0, 2.0])
    by_list = offset * np.repeat(np.arange(len(batch.locked)), np.diff(batch.offsets))[:, None]
    plain = sums(batch, theta, "all", UNITS, first=True)
    moved = sums(batch._replace(features=batch.features + by_list), theta, "all", UNITS, first=True)
    for name in ("loss", "gradient", "hessian", "M", "spread"):
        np.testing.assert_allclose(getattr(moved, name), getattr(plain, name), rtol=1e-5, atol=1e-5)
    assert (moved.varied == plain.varied).all()


def test_compensated_sums_keep_what_plain_ones_lose() -> None:
    values = [1e16, 1.0, -1e16, 1.0] * 100 + [1e-3] * 1000
    total, plain = Compensated(1), 0.0
    for value in values:
        part = Sums.zero(1)
        part.loss, part.gradient, part.n_pairs = value, np.array([value]), 1
        total.add(part)
        plain += value
    exact = math.fsum(values)
    assert total.total().loss == pytest.approx(exact, rel=1e-14)
    assert total.total().gradient[0] == pytest.approx(exact, rel=1e-14)
    assert total.total().n_pairs == len(values)
    assert abs(plain - exact) > 1
