from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Sequence
from itertools import combinations, pairwise, permutations
from math import log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank import metrics
from pairrank.errors import InputError
from pairrank.rng import Purpose, generator

DATA = Path(os.environ.get("PAIRRANK_DATA", Path(__file__).parents[2] / "shared" / "data"))

lists_of_grades = st.lists(st.integers(0, 4), min_size=1, max_size=12)


def random_lists(seed: int, n_queries: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, n_queries)
    grades = rng.integers(0, 5, sizes.sum()) * (rng.random(sizes.sum()) < 0.4)
    return rng.normal(size=sizes.sum()), grades, np.concatenate([[0], sizes.cumsum()])


def mq2008() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores (a sum of features), grades and offsets of a real test split, read without the package's loader."""
    path = DATA / "MQ2008" / "Fold1" / "test.txt.gz"
    if not path.exists():
        pytest.skip("MQ2008 is not in the data folder (PAIRRANK_DATA)")
    with gzip.open(path, "rt") as file:
        lines = [line.split("#")[0].split() for line in file]
    queries = np.array([line[1] for line in lines])
    starts = np.flatnonzero(np.concatenate([[True], queries[1:] != queries[:-1]]))
    grades = np.array([int(line[0]) for line in lines])
    scores = np.array([sum(float(value.split(":")[1]) for value in line[2:]) for line in lines])
    return scores, grades, np.concatenate([starts, [len(lines)]])


def no_ties(scores: np.ndarray) -> np.ndarray:
    """The same order, with earlier rows first among equals: other libraries break ties in their own ways."""
    return (np.lexsort((np.arange(len(scores)), -scores)).argsort() * -1.0).astype(float)


def slow_ndcg(scores: np.ndarray, grades: np.ndarray, k: int) -> float:
    listed = [int(grades[i]) for i in sorted(range(len(scores)), key=lambda i: -scores[i])]
    dcg = sum((2**g - 1) / log2(r + 1) for r, g in enumerate(listed[:k], start=1))
    ideal = sum((2**g - 1) / log2(r + 1) for r, g in enumerate(sorted(listed)[::-1][:k], start=1))
    return dcg / ideal if ideal else float("nan")


def test_dcg_by_hand() -> None:
    assert metrics.dcg([3, 0, 1]) == pytest.approx(7 / log2(2) + 0 + 1 / log2(4))
    assert metrics.dcg([3, 0, 1], k=1) == 7
    assert metrics.ideal_dcg([0, 1, 3]) == pytest.approx(7 / log2(2) + 1 / log2(3))


def test_ndcg_of_a_shown_list_counts_what_was_not_shown() -> None:
    grades = np.array([0, 2, 1, 0, 2])
    ideal = 3 / log2(2) + 3 / log2(3) + 1 / log2(4)
    assert metrics.ndcg([2, 0], grades) == pytest.approx((1 / log2(2)) / ideal)
    assert metrics.ndcg([1, 4, 2, 0, 3], grades) == pytest.approx(1)
    assert metrics.ndcg([0, 1], np.zeros(3, dtype=int)) == 0


@pytest.mark.parametrize("k", [1, 3, 10, 100])
def test_evaluator_equals_one_list_at_a_time(k: int) -> None:
    scores, grades, offsets = random_lists(k)
    found = metrics.NDCG(grades, offsets, k).per_query(scores)
    expected = [slow_ndcg(scores[a:b], grades[a:b], k) for a, b in pairwise(offsets)]
    assert np.isnan(expected).any()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert metrics.NDCG(grades, offsets, k).mean(scores) == pytest.approx(np.nanmean(expected), rel=1e-12)


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("odd", [0.0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_the_top_of_every_list_is_that_of_the_whole_order(drawn: bool, odd: float, levels: int) -> None:
    """Lists of very different lengths, empty ones too, with few or many ties and scores that are no numbers."""
    rng = np.random.default_rng(levels)
    sizes = np.array([0, 1, 9, 10, 11, 300, 40, 0, 35, 21, 5, 170])
    offsets = np.append(0, sizes.cumsum())
    scores = rng.integers(levels, size=offsets[-1]).astype(np.float64)
    scores[[12, 400]] = odd
    for k in (1, 10, 50):
        rank = np.concatenate([np.arange(size) for size in sizes])
        one, two = (np.random.default_rng(1) if drawn else None for _ in range(2))
        top = metrics.NDCG(np.zeros(len(scores), dtype=int), offsets, k).top(scores, one)
        whole = metrics.order(scores, offsets, two)
        np.testing.assert_array_equal(top, whole[rank < k])


@pytest.mark.parametrize("source", ["random", "MQ2008"])
@pytest.mark.parametrize("k", [1, 5, 10])
def test_ndcg_equals_ir_measures_with_exponential_gains(source: str, k: int) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    scores, grades, offsets = mq2008() if source == "MQ2008" else random_lists(7)
    qrels, run = [], []
    for q, (a, b) in enumerate(pairwise(offsets)):
        ranks = no_ties(scores[a:b])
        qrels += [ir_measures.Qrel(str(q), f"d{i}", int(g)) for i, g in enumerate(grades[a:b])]
        run += [ir_measures.ScoredDoc(str(q), f"d{i}", float(s)) for i, s in enumerate(ranks)]
    if ir_measures.providers.registry["pytrec_eval"].is_available():
        measure, accuracy = ir_measures.nDCG(cutoff=k, gains={g: 2**g - 1 for g in range(5)}), 1e-9
    elif shutil.which("perl"):
        measure, accuracy = ir_measures.nDCG(cutoff=k, dcg="exp-log2"), 1e-5  # a Perl script that prints five digits
    else:
        pytest.skip("ir-measures has neither pytrec_eval nor Perl to compute with")
    theirs = {m.query_id: m.value for m in ir_measures.iter_calc([measure], qrels, run)}
    ours = metrics.NDCG(grades, offsets, k).per_query(scores)
    assert sum(value > 0 for value in theirs.values()) > 15
    for q, value in enumerate(ours):
        assert theirs.get(str(q), 0.0) == pytest.approx(0.0 if np.isnan(value) else value, abs=accuracy)


@pytest.mark.parametrize("source", ["random", "MQ2008"])
@pytest.mark.parametrize("k", [1, 5, 10])
def test_ndcg_equals_scikit_learn_with_labels_of_gains(source: str, k: int) -> None:
    ndcg_score = pytest.importorskip("sklearn.metrics").ndcg_score

    scores, grades, offsets = mq2008() if source == "MQ2008" else random_lists(11)
    ours = metrics.NDCG(grades, offsets, k).per_query(scores)
    compared = 0
    for q, (a, b) in enumerate(pairwise(offsets)):
        if b - a < 2 or np.isnan(ours[q]):
            continue
        theirs = ndcg_score([2.0 ** grades[a:b] - 1], [no_ties(scores[a:b])], k=k)
        assert ours[q] == pytest.approx(theirs, abs=1e-12)
        compared += 1
    assert compared > 20


@given(lists_of_grades)
def test_regret_counts_mis_ordered_pairs(grades: list[int]) -> None:
    assert metrics.regrets(grades, [0, len(grades)]).tolist() == [mis_ordered(grades)]


def mis_ordered(grades: Sequence[int]) -> int:
    return sum(upper < lower for upper, lower in combinations(grades, 2))


def test_regrets_of_many_lists_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    offsets = np.append(0, rng.integers(1, 30, 40).cumsum())
    grades = rng.integers(5, size=offsets[-1])
    expected = [mis_ordered(grades[a:b].tolist()) for a, b in pairwise(offsets)]
    assert metrics.regrets(grades, offsets).tolist() == expected
    assert metrics.regrets([], [0]).tolist() == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_regret_is_the_distance_to_the_nearest_ideal_order(grades: list[int]) -> None:
    n = len(grades)
    ideal = [p for p in permutations(range(n)) if all(grades[a] >= grades[b] for a, b in combinations(p, 2))]
    distance = min(sum(p.index(a) > p.index(b) for a, b in combinations(range(n), 2)) for p in ideal)
    assert metrics.regrets(grades, [0, n]).tolist() == [distance]


def test_cndcg_discounts_later_rounds() -> None:
    assert metrics.cndcg([1, 0, 0.5], gamma=0.9) == pytest.approx(1 + 0.5 * 0.9**2)
    assert metrics.cndcg(np.ones(3000)) == pytest.approx((1 - 0.9995**3000) / (1 - 0.9995))


def test_cosine() -> None:
    assert metrics.cosine([1, 0], [1, 1]) == pytest.approx(1 / 2**0.5)
    assert metrics.cosine([1, 2], [-2, -4]) == pytest.approx(-1)
    assert np.isnan(metrics.cosine([0, 0], [1, 1]))


def test_block_statistics() -> None:
    sizes = [1, 3, 2]
    assert metrics.block_size_by_rank(sizes).tolist() == [1, 3, 3, 3, 2, 2]


def test_mean_interval_is_students() -> None:
    from scipy import stats

    runs = np.array([0.7, 0.72, 0.69, 0.74])
    low, high = stats.t.interval(0.95, 3, loc=runs.mean(), scale=stats.sem(runs))
    mean, width = metrics.mean_interval(runs)
    assert (mean - width, mean + width) == (pytest.approx(low), pytest.approx(high))
    assert np.isnan(metrics.mean_interval([0.7])[1])


def test_ties_keep_the_order_or_are_drawn() -> None:
    grades, offsets = np.array([2, 0, 0, 0, 2, 0]), np.array([0, 4, 6])
    evaluator = metrics.NDCG(grades, offsets, 10)
    assert evaluator.mean(np.zeros(6)) == 1, "document order: the best happens to come first"
    draws = [evaluator.mean(np.zeros(6), generator(s, 0, Purpose.TIES)) for s in range(2000)]
    first = np.mean([1 / log2(r + 1) for r in range(1, 5)])
    second = np.mean([1 / log2(r + 1) for r in range(1, 3)])
    assert np.mean(draws) == pytest.approx((first + second) / 2, abs=4 * np.std(draws) / len(draws) ** 0.5)
    again = [evaluator.mean(np.zeros(6), generator(s, 0, Purpose.TIES)) for s in range(20)]
    assert again == draws[:20]


def test_no_relevant_document_anywhere() -> None:
    assert np.isnan(metrics.NDCG(np.zeros(3, dtype=int), np.array([0, 3])).mean(np.ones(3)))


@pytest.mark.parametrize(
    ("scores", "offsets"),
    [(np.zeros(3), [0, 4]), (np.zeros(4), [0, 3]), (np.zeros(4), [1, 4]), (np.zeros(4), [0, 3, 2, 4])],
)
def test_wrong_shapes(scores: np.ndarray, offsets: list[int]) -> None:
    with pytest.raises(InputError):
        metrics.NDCG(np.zeros(4, dtype=int), np.array(offsets)).mean(scores)
