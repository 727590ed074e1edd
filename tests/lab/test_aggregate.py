from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pairrank.lab.analysis.aggregate import collect, holm, paired, paired_test
from pairrank.lab.experiment import Experiment
from pairrank.metrics import cndcg, mean_interval
from pairrank.sim import load_records


def slow_holm(p_values: list[float]) -> list[float]:
    """By definition: the k-th smallest p counts (m - k + 1)-fold, and never less than the ones before."""
    m = len(p_values)
    adjusted = [0.0] * m
    largest = 0.0
    for k, i in enumerate(sorted(range(m), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (m - k) * p_values[i]))
        adjusted[i] = largest
    return adjusted


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_its_definition(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(slow_holm(p_values))


def test_holm_leaves_the_unknown_out() -> None:
    corrected = holm([0.01, float("nan"), 0.04])
    assert corrected[0] == 2 * 0.01
    assert np.isnan(corrected[1])
    assert corrected[2] == 0.04


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=3, max_size=20))
def test_paired_test_is_scipys(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    differences = a - b
    if differences.std(ddof=1) < 1e-6:
        return
    mean, half, p = paired_test(differences)
    expected = stats.ttest_rel(a, b)
    assert p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    low, high = expected.confidence_interval(0.95)
    assert (mean - half, mean + half) == pytest.approx((low, high), rel=1e-6, abs=1e-9)


def test_paired_test_at_its_edges() -> None:
    assert paired_test([0.0, 0.0, 0.0])[2] == 1.0
    assert paired_test([0.5, 0.5])[2] == 0.0
    assert np.isnan(paired_test([0.5])[1:]).all()


def test_intervals_of_curves_are_those_of_their_columns() -> None:
    runs = np.random.default_rng(0).random((6, 3))
    mean, half = mean_interval(runs)
    for column in range(3):
        assert (mean[column], half[column]) == pytest.approx(mean_interval(runs[:, column]))


def test_curves_are_the_records(swept: tuple[Path, Experiment]) -> None:
    out, experiment = swept
    results = collect(out, experiment.specs())
    assert (results.done, results.expected) == (len(experiment.specs()),) * 2
    assert results.rankers == experiment.rankers
    spec = next(s for s in experiment.specs() if (s.ranker, s.clicks, s.seed) == ("pairrank-c", "informational", 1))
    records = load_records(out / "runs" / spec.run_id)
    assert records is not None
    cell = results.cells["pairrank-c", "informational"]
    assert cell.seeds.tolist() == [0, 1]
    for place, t in enumerate(cell.rounds.tolist()):
        assert cell.curves["ndcg"][1, place] == records["ndcg"][t - 1]
        assert cell.curves["cndcg"][1, place] == pytest.approx(cndcg(records["online_ndcg"][:t]))
        assert cell.curves["regret"][1, place] == records["regret"][:t].sum()
    assert cell.final("cndcg")[1] == pytest.approx(records.cndcg)
    assert cell.has("n_blocks")
    assert not results.cells["pdgd", "perfect"].has("n_blocks")
    np.testing.assert_array_equal(cell.profiles[40][1], records.profiles[40])


def test_pairs_are_by_seed_and_partial_sweeps_are_smaller_ones(swept: tuple[Path, Experiment]) -> None:
    out, experiment = swept
    whole = collect(out, experiment.specs())
    ours, theirs = whole.cells["pairrank", "perfect"], whole.cells["pdgd", "perfect"]
    differences = ours.final("ndcg") - theirs.final("ndcg")
    assert paired(ours, theirs, "ndcg").mean == pytest.approx(differences.mean())
    few = collect(out, [spec for spec in experiment.specs() if spec.ranker != "pdgd" or spec.seed == 1])
    alone = paired(few.cells["pairrank", "perfect"], few.cells["pdgd", "perfect"], "ndcg")
    assert (alone.n, alone.mean) == (1, pytest.approx(differences[1]))
    assert np.isnan(alone.p)
