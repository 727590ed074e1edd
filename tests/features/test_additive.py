"""The additive map: a line and a smooth deviation per feature, between quantiles of the first lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.features.additive import MODES, PIECES, STIFFNESS, Additive, knots
from pairrank.features.linear import LISTS, Seen, Units, centred, squared_spread
from pairrank.kernel.gaps import filled
from pairrank.types import FloatArray


def lists(seed: int = 0) -> list[FloatArray]:
    """64 lists: heavy tails, few values, two values, a constant, missing values, and a pile of zeros."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(LISTS):
        X = np.exp(rng.normal(size=(8, 6)))
        X[:, 1] = rng.integers(0, 4, size=8)
        X[:, 2] = rng.random(8) < 0.5
        X[:, 3] = 7.0
        X[rng.random(8) < 0.3, 4] = np.nan
        X[rng.random(8) < 0.7, 5] = 0.0
        found.append(X)
    return found


def fixed(kind: str = "spread", seed: int = 0) -> Additive:
    made = Additive(6, kind)
    seen = [(X, np.ptp(filled(X), axis=0)) for X in lists(seed)]
    for number, (X, ranges) in enumerate(seen):
        made.watch(X, ranges, seen[:number])
    made.fix_pieces(lists(seed))
    return made


@given(st.lists(st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.5, -3.0, 7.0, 1e9, 0.1, 8.0, 9.0, 11.0]), max_size=80))
def test_knots_rise_within_the_values(values: list[float]) -> None:
    found = knots(np.array(values))
    own = found[~np.isnan(found)]
    assert (np.diff(own) > 0).all()
    assert set(own.tolist()) <= set(values)
    if len(set(values)) < 2:
        assert len(own) == 0
    elif len(set(values)) <= PIECES + 1:
        assert own.tolist() == sorted(set(values))
    else:
        assert own[0] == min(values)
        assert own[-1] == max(values)


def test_a_pile_of_zeros_takes_one_knot() -> None:
    found = knots(np.append(np.zeros(900), np.linspace(1.0, 2.0, 100)))
    assert np.sum(~np.isnan(found)) > PIECES / 2


def test_columns_are_the_formula() -> None:
    made = fixed()
    X = np.concatenate([*lists(seed=1)[:5], 100.0 * lists(seed=2)[0], -lists(seed=3)[0]])
    columns = made.columns(X)
    expected = [np.where(np.isnan(X[:, f]), made.middle[f], X[:, f]) for f in range(6)]
    for j in range(1, MODES + 1):
        for f in range(6):
            own = made.knots[f][~np.isnan(made.knots[f])]
            if len(own) > j + 1:
                values = np.sin(np.pi * j * np.arange(len(own)) / (len(own) - 1)) / j
                wave = np.interp(expected[f], own, values)
                expected.append(wave - made.tilts[j - 1, f] * (expected[f] - made.middle[f]))
    expected.append(np.isnan(X[:, 4]).astype(float))
    np.testing.assert_allclose(columns, np.column_stack(expected), atol=1e-12)
    assert made.n_inputs == columns.shape[1] == len(made.owner) == len(made.units)
    # Four values have three pieces, hence two terms; two values and one have none.
    assert np.bincount(made.owner).tolist() == [1 + MODES, 3, 1, 1, 2 + MODES, 1 + MODES]
    assert sorted(made.blocks()[made.blocks() >= 0].tolist()) == list(range(6, 6 + 2 + 3 * MODES))
    for f, block in enumerate(made.blocks()):
        assert (made.owner[block[block >= 0]] == f).all()


def test_deviations_hold_no_line() -> None:
    made = fixed()
    D = np.concatenate([centred(made.columns(X)) for X in lists()])
    for column in made.blocks()[made.blocks() >= 0]:
        assert abs(np.corrcoef(D[:, column], D[:, made.owner[column]])[0, 1]) < 1e-10


@pytest.mark.parametrize("kind", ["spread", "range"])
def test_units_are_those_of_the_columns(kind: str) -> None:
    made = fixed(kind)
    seen = np.array([np.sqrt(squared_spread(made.columns(X))) for X in lists()])
    if kind == "range":
        seen = np.array([np.ptp(made.columns(X), axis=0) for X in lists()])
    own = seen.max(axis=0) if kind == "range" else [np.sqrt(np.mean(c[c > 0] ** 2)) if c.any() else 1 for c in seen.T]
    bent = np.unique(made.blocks()[made.blocks() >= 0])
    np.testing.assert_allclose(made.units[bent], np.sqrt(STIFFNESS) * np.asarray(own)[bent], rtol=1e-12)
    np.testing.assert_allclose(made.units[-1], own[-1], rtol=1e-12)


def test_inputs_are_centred_columns_in_units() -> None:
    made, X = fixed(), lists(seed=4)[0]
    columns = made.columns(X)
    expected = (columns - columns.mean(axis=0)) / made.units
    np.testing.assert_allclose(made.inputs(X), expected, atol=1e-12)
    weights = np.random.default_rng(0).normal(size=made.n_inputs)
    scores = made.scores(X, weights)
    np.testing.assert_allclose(scores - scores.mean(), expected @ weights, atol=1e-10)


def test_before_the_pieces_it_is_linear() -> None:
    made, plain = Additive(6, "spread"), Units(6, "spread")
    seen: list[Seen] = []
    for X in lists()[:10]:
        assert made.watch(X, None, seen) == plain.watch(filled(X), None, [(filled(one), None) for one, _ in seen])
        seen.append((X, None))
        assert np.array_equal(made.inputs(X), plain.inputs(filled(X)))
    assert made.n_inputs == 6
    assert made.may_lack().all()


def test_units_and_offsets_do_not_matter() -> None:
    scale, shift = np.array([8.0, 2.0, 0.5, 4.0, 16.0, 0.25]), np.array([0.0, 64.0, 1.0, 0.0, 0.0, 0.0])
    plain, moved = fixed(), Additive(6, "spread")
    seen: list[Seen] = [(scale * X + shift, None) for X in lists()]
    for number, (X, _) in enumerate(seen):
        moved.watch(X, None, seen[:number])
    moved.fix_pieces([scale * X + shift for X in lists()])
    X = lists(seed=5)[0]
    np.testing.assert_allclose(moved.inputs(scale * X + shift), plain.inputs(X), atol=1e-9)
