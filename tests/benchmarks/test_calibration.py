"""Calibration: feedback that is what the model assumes, what is counted, and that certain orders are right."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path

import calibration
import numpy as np
import pytest
from calibration import LOGISTIC, Case, Look, Study, Z

from pairrank import rankers
from pairrank.errors import OptionError
from pairrank.kernel import pairs
from pairrank.rankers.pairrank import PairRank

SMALL = Study(features=5, docs=12, k=6, rounds=(30, 200), seeds=12, users=())


@pytest.fixture(scope="module")
def rows() -> list[calibration.Row]:
    return calibration.run(SMALL)


def test_certain_orders_are_right_and_widths_are_as_wide_as_needed(rows: list[calibration.Row]) -> None:
    """The issue's demand: at nominal 95 % at most 5 % wrong, and widths not more than twice what is needed."""
    assert [row.round for row in rows] == [30, 200]
    for row in rows:
        assert row.certain > 0.2
        assert row.wrong is not None
        assert row.wrong_error is not None
        assert row.wrong <= 0.05 + 2 * row.wrong_error
        assert row.used_over_needed is not None
        # 12 seeds of 5 weights tell a spread to about 1 / sqrt(120): not wider than twice, nor far too narrow.
        assert 1 - 4 / np.sqrt(120) < row.used_over_needed < 2
    assert rows[1].certain > rows[0].certain


@pytest.mark.parametrize("k", [2, 5, 10])
def test_logistic_feedback_gives_one_preference_a_pair_with_the_stated_probability(k: int) -> None:
    utility = np.random.default_rng(k).normal(size=k)
    rng = np.random.default_rng(0)
    won = np.zeros(k)
    for _ in range(4000):
        clicks = calibration._logistic(utility, rng.random((k, 2)))
        found = pairs.adjacent(clicks)
        assert len(found.winner) == k // 2, "every pair counts, whoever won"
        won += np.bincount(found.winner, minlength=k)
    for i in range(0, k - 1, 2):
        p = 1 / (1 + np.exp(utility[i + 1] - utility[i]))
        assert abs(won[i] / 4000 - p) < 4 * np.sqrt(p * (1 - p) / 4000)
        assert won[i] + won[i + 1] == 4000


def test_users_see_grades_cut_from_the_utility() -> None:
    feedback = calibration._by_grade("perfect", np.array([0.0, 1.0]))
    clicked = feedback(np.array([-1.0, 0.5, 2.0]), np.full((3, 2), 0.49))
    assert clicked.tolist() == [False, True, True]  # grades 0, 1, 2: clicked with probability 0, ½, 1
    assert feedback(np.array([-1.0, 0.5, 2.0]), np.full((3, 2), 0.51)).tolist() == [False, False, True]


def test_a_look_counts_what_brute_force_counts() -> None:
    case = Case(LOGISTIC, "", rankers.spell("pairrank", {"preset": "paper", "width": "score", "z": 0.7, "lam": 1.0}))
    study = replace(SMALL, rounds=(25,))
    look = next(calibration.play(study, case, seed=4))
    ideal = calibration.generator(4, calibration._IDEAL, calibration.Purpose.DATA).standard_normal(5)
    judged = calibration.generator(4, calibration._JUDGED, calibration.Purpose.DATA).random((10, 12, 5))
    ranker = PairRank(5, seed=4, preset="paper", width="score", z=0.7, lam=1.0)
    for t in range(25):
        X = calibration.generator(4, t, calibration.Purpose.DATA).random((12, 5))
        impression = ranker.rank(X, 6)
        coins = calibration.generator(4, t, calibration.Purpose.CLICKS).random((12, 2))[impression.ranking]
        ranker.learn(impression, calibration._logistic(impression.features @ ideal, coins))
    inverse, certain, wrong, deviations = ranker.covariance, 0, 0, []
    for X in judged:
        for i, j in combinations(range(12), 2):
            x = X[i] - X[j]
            spread = np.sqrt(x @ inverse @ x)
            certain += abs(x @ ranker.weights) > Z * spread
            wrong += abs(x @ ranker.weights) > Z * spread and (x @ ranker.weights) * (x @ ideal) < 0
            deviations.append(abs(x @ (ranker.weights - ideal)) / spread)
    assert (look.pairs, look.certain, look.wrong) == (10 * 66, certain, wrong)
    np.testing.assert_allclose(look.deviations, deviations, rtol=1e-6)
    assert 0 < certain < look.pairs


def test_the_default_is_also_judged_at_the_z_that_it_acts_with() -> None:
    """At its own z an order is certain exactly when `inspect` calls it so: nothing is left to a nominal level."""
    study = replace(SMALL, rounds=(40,), users=("informational",))
    own, nominal = (
        next(case for case in study.cases() if case.ranker == "pairrank" and not case.queries and case.own_z is at)
        for at in (True, False)
    )
    look = next(calibration.play(study, own, seed=2))
    ranker = PairRank(5, seed=2)
    judged = calibration.generator(2, calibration._JUDGED, calibration.Purpose.DATA).random((10, 12, 5))
    ideal = calibration.generator(2, calibration._IDEAL, calibration.Purpose.DATA).standard_normal(5)
    feedback = calibration._by_grade("informational", np.quantile(judged @ ideal, calibration._GRADE_CUTS))
    for t in range(40):
        X = calibration.generator(2, t, calibration.Purpose.DATA).random((12, 5))
        impression = ranker.rank(X, 6)
        coins = calibration.generator(2, t, calibration.Purpose.CLICKS).random((12, 2))[impression.ranking]
        ranker.learn(impression, feedback(impression.features @ ideal, coins))
    certain = sum(int(ranker.inspect(X).certain.sum()) for X in judged)
    assert (look.z, look.certain) == (ranker.z, certain)
    assert look.certain > next(calibration.play(study, nominal, seed=2)).certain


def test_shares_are_pooled_and_their_error_is_over_seeds() -> None:
    case = Case(LOGISTIC, "", "pairrank")
    looks = [Look(case, 9, Z, 100, c, w, np.full(100, d)) for c, w, d in ((40, 2, 1.0), (60, 1, 2.0), (50, 6, 4.0))]
    row = calibration._row(looks)
    assert row.certain == pytest.approx(150 / 300)
    assert row.wrong == pytest.approx(9 / 150)
    residuals = [2 - 0.06 * 40, 1 - 0.06 * 60, 6 - 0.06 * 50]
    assert row.wrong_error == pytest.approx(np.sqrt(3 / 2 * sum(r * r for r in residuals)) / 150)
    assert row.used_over_needed == pytest.approx(Z / 4.0)  # 90 % of 300 deviations lie at 4 or below, two thirds below
    nothing = calibration._row([Look(case, 9, Z, 100, 0, 0, np.ones(100))])
    assert nothing.wrong is None
    assert nothing.wrong_error is None


def test_what_teaches_confidence_that_is_not_deserved() -> None:
    """The study's point: all pairs of a list count as if independent, and a list that follows the model confirms it."""
    study = Study(rounds=(300,), seeds=4, users=("navigational",))
    found = {}
    for case in study.cases():
        if case.told.startswith(("shuffled lists", "explores, ")) and not case.queries:
            found[case.told] = calibration._row([next(calibration.play(study, case, seed)) for seed in range(4)]).wrong
    assert found["shuffled lists, all pairs"] > found["shuffled lists, averaged pairs"]
    assert found["explores, learns from all pairs"] > found["explores, all that was shown"]


def test_the_script_writes_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rounds", "40", "--seeds", "2", "--features", "4", "--clicks", "perfect"]
    calibration.main(["--out", str(tmp_path / "out"), *words, "--jobs", "2"])
    content = json.loads((tmp_path / "out" / "calibration.json").read_text())
    study = Study(features=4, rounds=(30, 40), seeds=2, users=("perfect",))
    assert content["rows"] == [asdict(row) for row in calibration.run(study)], "processes change nothing"
    assert len(content["rows"]) == 2 * len(study.cases())
    lines = (tmp_path / "out" / "calibration.md").read_text().splitlines()
    assert len(lines) == 2 + len(content["rows"])
    assert "width used / needed" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [{"rounds": ()}, {"rounds": (5, 3)}, {"rounds": (0,)}, {"seeds": 0}, {"docs": 1}])
def test_impossible_sizes(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Study(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("ranker", ["pdgd", "pairrank-c", "pairrank(width=score, z=0)"])
def test_rankers_without_widths_are_refused(ranker: str) -> None:
    with pytest.raises(OptionError, match="no widths"):
        next(calibration.play(SMALL, Case(LOGISTIC, "", ranker), 0))
