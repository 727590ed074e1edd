"""Interleaving by exact enumeration: what every draw gives, its probability, and what clicks would be worth."""

from __future__ import annotations

from itertools import chain, combinations, permutations

import numpy as np
import pytest

from pairrank.errors import ClickError, CutoffError, InputError, OptionError
from pairrank.rng import Purpose, generator
from pairrank.trials.interleaving import CREDITS, Shown, interleave, lists, outcome, placements

FAIR = pytest.mark.parametrize("credit", CREDITS)
SOME = [(0, 1, 2, 3), (1, 0, 2, 3), (3, 2, 1, 0), (1, 2, 3, 0), (0, 2, 3, 1), (2, 3, 0, 1)]


def pairs() -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.arange(4), np.array(b)) for b in permutations(range(4))]


def mean(a: np.ndarray, b: np.ndarray, k: int, credit: str, attraction: np.ndarray, looks: np.ndarray) -> float:
    """The expected outcome: documents are clicked independently, where they attract and the position is looked at."""
    total = 0.0
    for chance, shown in lists(a, b, k, credit=credit):
        p = attraction[shown.ranking] * looks[: len(shown.ranking)]
        for clicked in chain.from_iterable(combinations(range(k), n) for n in range(k + 1)):
            c = np.isin(np.arange(k), clicked)
            total += chance * float(np.prod(np.where(c, p, 1 - p))) * outcome(shown.credit, c)
    return total


@FAIR
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_position_alone_favours_nobody(credit: str, k: int) -> None:
    """Every pattern of clicked positions, so every habit of users who do not look at documents, is worth zero."""
    for a, b in pairs():
        drawn = list(lists(a, b, k, credit=credit))
        assert sum(chance for chance, _ in drawn) == 1.0
        for n in range(1, k + 1):
            for clicked in combinations(range(k), n):
                c = np.isin(np.arange(k), clicked)
                assert sum(p * outcome(shown.credit, c) for p, shown in drawn) == pytest.approx(0, abs=1e-12)


@FAIR
def test_equal_rankers_tie(credit: str) -> None:
    a = np.array([2, 0, 3, 1])
    attraction, looks = np.array([0.9, 0.1, 0.4, 0.7]), np.array([1.0, 0.5, 0.3, 0.2])
    assert mean(a, a, 4, credit, attraction, looks) == pytest.approx(0, abs=1e-12)
    if credit != "team":  # not only in the mean: there is nothing to be noisy about
        assert all((shown.credit == 0).all() for _, shown in lists(a, a, 4, credit=credit))


@FAIR
def test_what_differs_below_the_fold_tells_nothing(credit: str) -> None:
    a, b = np.arange(6), np.array([0, 1, 2, 3, 5, 4])
    attraction, looks = np.array([0.1, 0.9, 0.3, 0.5, 0.0, 1.0]), np.ones(4)
    for _, shown in lists(a, b, 4, credit=credit):
        assert shown.ranking.tolist() == [0, 1, 2, 3]
    assert mean(a, b, 4, credit, attraction, looks) == pytest.approx(0, abs=1e-12)


@FAIR
def test_the_better_ranking_wins(credit: str) -> None:
    """One exchange of neighbours: whoever has the more attractive document above, whatever the positions get."""
    for place in range(3):
        a, b = np.arange(4), np.arange(4)
        b[[place, place + 1]] = b[[place + 1, place]]
        attraction = np.array([0.8, 0.6, 0.4, 0.2])
        for looks in (np.ones(4), np.array([1.0, 0.5, 0.3, 0.2])):
            assert mean(a, b, 4, credit, attraction, looks) > 0
            assert mean(b, a, 4, credit, attraction, looks) == pytest.approx(-mean(a, b, 4, credit, attraction, looks))


def test_choice_has_the_mean_of_teams_given_the_list_above() -> None:
    """At every position what "team" expects over all draws that agree down to there."""
    for b in SOME:
        for k in (2, 3, 4):
            drawn = {c: [s for _, s in lists(np.arange(4), np.array(b), k, credit=c)] for c in ("team", "choice")}
            for i, shown in enumerate(drawn["choice"]):
                for p in range(k):
                    alike = [s for s in drawn["team"] if (s.ranking[: p + 1] == shown.ranking[: p + 1]).all()]
                    assert drawn["choice"][i].credit[p] == np.mean([s.credit[p] for s in alike])


@FAIR
def test_credits_are_bounded(credit: str) -> None:
    for a, b in pairs():
        assert all(np.abs(shown.credit).max() <= 1.0 for _, shown in lists(a, b, 4, credit=credit))


def test_placements_equal_enumeration() -> None:
    for a, b in pairs():
        for k in (1, 2, 3, 4):
            counted = np.zeros((k, 4))
            for chance, shown in lists(a, b, k):
                counted[np.arange(k), shown.ranking] += chance
            exact = np.array([[at.get(d, 0.0) for d in range(4)] for at in placements(a, b, k)])
            np.testing.assert_allclose(exact, counted, atol=1e-15)


@FAIR
def test_pages_neither_repeat_nor_lose(credit: str) -> None:
    for seed in range(30):
        rng = generator(seed, 0, Purpose.RANK)
        a, b, coins = rng.permutation(9), rng.permutation(9), rng.random(9)
        whole = interleave(a, b, 9, coins, credit=credit)
        shown, teams = np.empty(0, dtype=int), np.empty(0, dtype=int)
        for k in (2, 3, 1, 100):
            page = interleave(a, b, k, coins, credit=credit, after=Shown(shown, teams))
            shown, teams = np.append(shown, page.ranking), np.append(teams, page.teams)
        assert shown.tolist() == whole.ranking.tolist()
        assert teams.tolist() == whole.teams.tolist()
        assert sorted(shown.tolist()) == list(range(9))


def test_a_page_goes_on_when_the_rankings_have_changed() -> None:
    """The model learned between two pages, and new documents came: nothing is shown twice, turns go on."""
    first = interleave(np.arange(5), np.arange(5)[::-1], 3, np.zeros(3))
    assert first.teams.tolist() == [0, 1, 0]
    later = interleave(
        np.array([7, 4, 1, 0, 3, 2]), np.array([0, 4, 7, 3, 1, 2]), 9, np.zeros(9), after=Shown(*first[:2])
    )
    assert later.teams[0] == 1  # b is behind by one
    together = [*first.ranking.tolist(), *later.ranking.tolist()]
    assert sorted(together) == [0, 1, 2, 3, 4, 7]


@FAIR
def test_later_pages_are_fair_too(credit: str) -> None:
    """The second page of a list that began with an odd number: its first pick was not drawn, the next round is."""
    a, b = np.arange(6), np.array([2, 0, 1, 5, 4, 3])
    first = Shown(*interleave(a, b, 3, np.zeros(3))[:2])
    drawn = [interleave(a, b, 3, np.full(6, coin), credit=credit, after=first).credit for coin in (0.25, 0.75)]
    assert np.mean(drawn, axis=0)[1:] == pytest.approx(0, abs=1e-12)


def test_clicks_of_0_and_1_count_as_bools_do() -> None:
    """They were row numbers to numpy."""
    credit = np.array([1.0, -1.0, -1.0])
    for clicks in (np.array([False, False, True]), np.array([0, 0, 1]), [0, 0, 1]):
        assert outcome(credit, clicks) == -1.0
    with pytest.raises(ClickError, match="shape"):
        outcome(credit, [2, 0])


def test_wrong_input_says_so() -> None:
    a, coins = np.arange(3), np.zeros(3)
    with pytest.raises(InputError, match="same ones"):
        interleave(a, np.array([0, 1, 5]), 2, coins)
    with pytest.raises(InputError, match="same ones"):
        interleave(np.array([0, 0, 1]), np.array([0, 0, 1]), 2, coins)
    with pytest.raises(CutoffError, match="k is 0"):
        interleave(a, a, 0, coins)
    with pytest.raises(OptionError, match="credit"):
        interleave(a, a, 2, coins, credit="none")
    with pytest.raises(InputError, match="coins"):
        interleave(a, a, 3, coins[:2])
    with pytest.raises(InputError, match="earlier pages"):
        interleave(a, a, 1, coins, after=Shown([0, 1], [0, 0]))
