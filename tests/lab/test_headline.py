"""What came out, in a sentence, a picture and marks in a table, from results that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from pairrank.lab.analysis.aggregate import Cell, Results
from pairrank.lab.report import figures, headline, tables

ROUNDS = np.array([1, 10, 100])
USERS = ("perfect", "navigational")


def results(seeds: int = 6, **finals: float) -> Results:
    """Every ranker rises to its final NDCG, a little apart by seed."""
    names = {"pairrank": "pairrank", "pdgd": "pdgd", "mgd": "mgd", "ceiling": "offline-ranknet"}
    rng = np.random.default_rng(1)
    cells = {}
    for short, final in finals.items():
        for users in USERS:
            curve = np.clip(final * np.array([0.5, 0.8, 1.0]) + 0.003 * rng.standard_normal((seeds, 3)), 0.0, 1.0)
            curves = {"ndcg": curve, "cndcg": 100 * curve, "regret": 10 * curve, "cosine": curve}
            curves["n_blocks"] = np.full((seeds, 3), np.nan)
            ranker = names[short]
            cells[ranker, users] = Cell(ranker, users, np.arange(seeds), ROUNDS, curves)
    n = seeds * len(finals) * len(USERS)
    return Results(cells, tuple(names[short] for short in finals), USERS, n, n)


def test_the_sentence_says_how_far_it_came_and_who_is_next() -> None:
    found = results(pairrank=0.76, pdgd=0.6, mgd=0.5, ceiling=0.8)
    ours, theirs = (100 * headline.shares(found)[name][:, -1].mean() for name in ("pairrank", "pdgd"))
    assert (ours, theirs) == (pytest.approx(95, abs=1), pytest.approx(75, abs=1))
    assert headline.sentence(found) == (
        f"After 100 rounds of clicks PairRank has {ours:.1f} % of what a ranker taught by labels reaches on held-out "
        f"queries; the best of the others, PDGD, has {theirs:.1f} %. It is the best, or level with the best, in 4 of 4 "
        "columns of the table."
    )
    behind = headline.sentence(results(pairrank=0.5, pdgd=0.6, ceiling=0.8))
    assert behind.endswith("in 0 of 4 columns of the table.")


def test_without_a_ceiling_and_alone() -> None:
    alone = results(pdgd=0.6)
    told = headline.sentence(alone)
    share = headline.shares(alone)["pdgd"][:, -1].mean()
    assert told == f"After 100 rounds of clicks PDGD has {share:.3f} NDCG@10 on held-out queries."


def test_runs_that_are_missing_are_told() -> None:
    whole = results(pairrank=0.7, ceiling=0.8)
    cells = {key: cell for key, cell in whole.cells.items() if key != ("pairrank", "navigational")}
    partly = Results(cells, whole.rankers, whole.users, 18, 24)
    assert headline.sentence(partly) == "18 of 24 runs are done: too few to say anything yet."
    some = Results(whole.cells, whole.rankers, whole.users, 20, 24)
    assert headline.sentence(some).endswith("So far 20 of 24 runs are done.")


def test_level_is_what_a_paired_test_does_not_tell_from_the_best() -> None:
    found = results(pairrank=0.7, pdgd=0.7, mgd=0.5, ceiling=0.8)
    assert tables.level(found, "perfect", "ndcg") == {"pairrank", "pdgd"}
    _, rows = tables.overview(found, ["perfect"])
    marks = {row[0]: row[1][-1] for row in rows}
    assert sorted(marks[name] for name in ("PairRank", "PDGD")) == [tables.MARK, tables.LEVEL]
    assert marks["MGD"].isdigit()
    assert marks["offline RankNet (ceiling)"].isdigit()
    one_seed = results(1, pairrank=0.7, pdgd=0.69)
    assert len(tables.level(one_seed, "perfect", "ndcg")) == 1


def test_what_is_unknown_is_not_the_best() -> None:
    found = results(pairrank=np.nan, pdgd=np.nan)
    assert tables.winner(found, "perfect", "ndcg") is None
    assert {cell for row in tables.overview(found, ["perfect"])[1] for cell in row[1:]} == {"–"}
    assert tables.winner(results(pairrank=np.nan, pdgd=0.6), "perfect", "ndcg") == "pdgd"


@pytest.mark.parametrize(("seeds", "thin"), [(2, 2), (5, 0)])
def test_few_seeds_are_drawn_and_axes_stay_within_what_can_be(seeds: int, thin: int) -> None:
    found = results(seeds, pairrank=0.99, pdgd=0.05)
    figure = figures.plates(found)[0].draw()
    for axis in figure.axes:
        low, high = axis.get_ylim()
        assert 0.0 <= low < high <= 1.0
        assert len([line for line in axis.lines if line.get_linewidth() < 1]) == 2 * thin
    shares = headline.shares(found)
    (axis,) = figures.share_of_ceiling(found, shares, of_ceiling=False).draw().axes
    assert axis.get_ylim()[0] >= 0.0
    assert axis.get_ylim()[1] == 1.0


def test_functions_are_drawn_with_band_and_marks() -> None:
    told = [
        {
            "name": f"f{i}",
            "x": [0.0, 1.0],
            "value": [0.0, 1.0 - i / 10],
            "deviation": [0.1, 0.1] if i else None,
            "reference": 0.0,
            "missing": {"value": 0.5, "deviation": None} if i == 1 else None,
            "documents": [0.2, 0.4],
        }
        for i in range(4)
    ]
    plate = figures.functions("PairRank, model = additive", told)
    assert plate.name == "functions-pairrank--model---additive"
    axes = plate.draw().axes
    assert [axis.get_title() for axis in axes if axis.get_visible()] == ["f0", "f1; missing: +0.50", "f2", "f3"]
    assert [len(axis.collections) for axis in axes[:4]] == [0, 1, 1, 1]
    assert axes[0].lines[1].get_xdata().tolist() == [0.2, 0.4]
