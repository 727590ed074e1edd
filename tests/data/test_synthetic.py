"""Synthetic data: shapes, shares, seeds, and relevance that is what it is said to be."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from pairrank.data import load, synthetic
from pairrank.errors import OptionError, UnknownNameError

SMALL = [name + "(queries=300, docs=20)" for name in synthetic.names()]


def agreement(name: str) -> float:
    """Share of pairs of different grade in a test query that the known weights put right."""
    dataset = load(name, "test")
    assert dataset.theta is not None
    right = total = 0
    for features, grades in dataset.queries():
        scores = features @ dataset.theta
        better = grades[:, None] > grades
        right += int((better & (scores[:, None] > scores)).sum())
        total += int(better.sum())
    return right / total


@pytest.mark.parametrize("name", SMALL)
def test_splits_have_the_shape_of_the_recipe(name: str) -> None:
    recipe = synthetic.parse(name)
    parts = {split: load(name, split) for split in ("train", "vali", "test")}
    assert sum(part.n_queries for part in parts.values()) == 300
    for share, part in zip(recipe.splits, parts.values(), strict=True):
        assert abs(part.n_queries - 300 * share) <= 1
        assert part.n_features == (recipe.used or recipe.features)
        assert part.n_grades == len(recipe.shares)
        assert np.isfinite(part.features).all()
    ids = [name for part in parts.values() for name in part.query_ids.tolist()]
    assert len(set(ids)) == 300
    sizes = np.concatenate([np.diff(part.offsets) for part in parts.values()])
    # A mean of 300 draws whose standard deviation is half their mean.
    assert abs(sizes.mean() - 20) < 4 * 10 / np.sqrt(300)
    grades = np.concatenate([part.grades for part in parts.values()])
    shares = np.bincount(grades, minlength=len(recipe.shares)) / len(grades)
    np.testing.assert_allclose(shares, recipe.shares, atol=0.05)


def test_full_sizes_are_those_of_the_real_sets() -> None:
    mslr, yahoo = synthetic.parse("synthetic:mslr"), synthetic.parse("synthetic:yahoo")
    assert [len(mslr.numbers(split)) for split in ("train", "vali", "test")] == [6_000, 2_000, 2_000]
    assert [len(yahoo.numbers(split)) for split in ("train", "vali", "test")] == [19_944, 2_994, 6_983]
    assert (yahoo.features, yahoo.used, mslr.features) == (700, 519, 136)
    for recipe in (mslr, yahoo):
        assert sum(recipe.shares) == pytest.approx(1)


def test_the_same_name_gives_the_same_bits_and_another_seed_does_not() -> None:
    name = "synthetic:tiny(seed=5)"
    one, again = load(name, cache=False), load(name, cache=True)
    assert one.features.tobytes() == again.features.tobytes()
    assert one.grades.tobytes() == again.grades.tobytes()
    other = load("synthetic:tiny(seed=6)")
    assert other.theta is not None
    assert one.theta is not None
    assert not np.array_equal(one.theta, other.theta)
    assert one.offsets.tolist() != other.offsets.tolist()


def test_a_cache_filled_on_another_processor_is_not_read_on_this_one() -> None:
    words = [sys.executable, "-c", "from pairrank.data import load; load('synthetic:tiny')"]
    subprocess.run(words, env={**os.environ, "OPENBLAS_CORETYPE": "Prescott"}, check=True)  # other products, same rest
    one, again = load("synthetic:tiny", cache=False), load("synthetic:tiny", cache=True)
    assert one.features.tobytes() == again.features.tobytes()


def test_a_query_does_not_depend_on_how_many_there_are() -> None:
    few, many = load("synthetic:tiny(queries=40)"), load("synthetic:tiny(queries=80)")
    n = int(few.offsets[-1])
    assert many.features[:n].tobytes() == few.features.tobytes()
    assert many.grades[:n].tolist() == few.grades.tolist()


def test_known_weights_rank_well_and_without_noise_perfectly() -> None:
    exact, noisy, noisier = (
        agreement(f"synthetic:linear(queries=100, docs=20, noise={noise})") for noise in (0, 0.3, 3)
    )
    assert exact > 0.9999  # scores are rounded to float32 on the way
    assert exact > noisy > noisier > 0.5


def test_known_weights_belong_to_linear_relevance_under_min_max() -> None:
    assert load("synthetic:tiny").theta is not None
    assert load("synthetic:tiny", normalise="global").theta is None
    assert load("synthetic:tiny(relevance=nonlinear)").theta is None
    assert load("synthetic:nonlinear(queries=20)").theta is None
    theta = load("synthetic:yahoo(queries=200)").theta
    assert theta is not None
    assert theta.shape == (519,)
    assert np.linalg.norm(theta) == pytest.approx(1)


def test_features_correlate_and_have_heavy_tails() -> None:
    raw = load("synthetic:linear(queries=50)", normalise="none").features.astype(np.float64)
    ranks = raw.argsort(axis=0).argsort(axis=0)
    correlation = np.corrcoef(ranks, rowvar=False) - np.eye(raw.shape[1])
    assert np.abs(correlation).max() > 0.5
    centred = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    assert (centred**4).mean(axis=0).max() > 30  # a Gaussian has 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("synthetic:tiny(queries=4)", "queries is 4; expected int, 5 to"),
        ("synthetic:tiny(noise=-1)", "noise is -1; expected float, 0 to"),
        ("synthetic:tiny(docs=nan)", "docs is 'nan'; expected float"),
        ("synthetic:tiny(seed=-1)", "seed is -1"),
        ("synthetic:tiny(seed=x)", "seed is 'x'; expected int"),
        ("synthetic:tiny(relevance=odd)", "relevance is 'odd'; expected linear or nonlinear"),
        ("synthetic:tiny(colour=red)", "there is no 'colour'; expected name=value with queries"),
    ],
)
def test_impossible_knobs_are_refused(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("(", r"\(")):
        load(name)


def test_unknown_names_and_folds_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="no synthetic data set is called 'synthetic:huge'; there are: syn"):
        load("synthetic:huge")
    with pytest.raises(OptionError, match="synthetic data have one fold, 1"):
        load("synthetic:tiny", fold=2)
    with pytest.raises(OptionError, match="split is 'all'"):
        load("synthetic:tiny", "all")
