"""Two rankings in one list, and from its clicks a credit for each of them.

Rankings ``a`` and ``b`` hold the same documents (row numbers), best first. In a team draft (Radlinski, Kurup and
Joachims, CIKM 2008) the two take turns in rounds of two picks, a coin says who begins a round, and each adds its best
document that is not yet in the list. A coin belongs to a position, so a longer list begins with the shorter one, and a
page is continued from what was shown and whose it was.

A credit is a number per shown position, above zero where a click speaks for ``a``. All credits here have expectation
zero at every position over the draw of the list. So users who click by position alone, whatever their habits, favour
neither ranking.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pairrank.checking import check_choice, check_positions
from pairrank.errors import InputError
from pairrank.types import FloatArray, IntArray, check_clicks

A, B = 0, 1
CREDITS = ("team", "choice", "exposure")


class Interleaved(NamedTuple):
    """A list made of two: (k,) the documents, (k,) whose pick each was (0 is a, 1 is b), (k,) what a click counts.

    >>> made = interleave(np.array([0, 1, 2]), np.array([1, 2, 0]), 2, np.array([0.2, 0.9]))
    >>> made.ranking, made.teams
    (array([0, 1]), array([0, 1]))
    >>> outcome(made.credit, clicks=np.array([False, True]))
    -1.0
    """

    ranking: IntArray
    teams: IntArray
    credit: FloatArray


class Shown(NamedTuple):
    """What earlier pages of a list have shown: the documents from the top, and whose pick each was.

    >>> a, b, coins = np.array([0, 1, 2, 3]), np.array([3, 2, 1, 0]), np.array([0.2, 0.9, 0.5, 0.1])
    >>> first = interleave(a, b, 2, coins)
    >>> interleave(a, b, 2, coins, after=Shown(first.ranking, first.teams)).ranking
    array([2, 1])
    """

    ranking: Sequence[int] | IntArray = ()
    teams: Sequence[int] | IntArray = ()


TOP = Shown()  # nothing yet: the list begins


def interleave(
    a: IntArray, b: IntArray, k: int, coins: FloatArray, *, credit: str = "choice", after: Shown = TOP
) -> Interleaved:
    """The next ``k`` positions of a team draft, or as many as there are documents left.

    Parameters
    ----------
    a, b : (n,), the two rankings of the same documents. Documents that were shown may be among them or not.
    coins : uniforms, one per position of the whole list, earlier pages included; position p of a list takes the same
        one whichever page it is on.
    credit : what a click counts: "team" (+1 for a's pick, -1 for b's), "choice" (the same, but 0 where both would have
        picked that document), "exposure" (by how much more a exposes the document than b, see `exposure_credit`).
    after : earlier pages.

    >>> interleave(np.array([0, 1, 2]), np.array([1, 2, 0]), 2, np.array([0.2, 0.9, 0.5])).ranking
    array([0, 1])
    """
    first, second, seen = _checked(a, b, k, after)
    check_choice("credit", credit, CREDITS)
    start, n_left = len(after.ranking), sum(d not in seen for d in first)
    end = start + min(k, n_left)
    if len(coins) < end:
        raise InputError(f"{len(coins)} coins came for {end} positions; expected one each")
    ranking, teams, taken = [], [int(t) for t in after.teams], set(seen)
    for position in range(start, end):
        ahead = teams.count(A) - teams.count(B)
        team = (A if coins[position] < 0.5 else B) if ahead == 0 else (B if ahead > 0 else A)
        pick = next(d for d in (first, second)[team] if d not in taken)
        ranking.append(pick)
        teams.append(team)
        taken.add(pick)
    shown, own = np.array(ranking, dtype=np.int64), np.array(teams[start:], dtype=np.int64)
    if credit == "team":
        return Interleaved(shown, own, 1.0 - 2.0 * own.astype(np.float64))
    counted = choice_credit if credit == "choice" else exposure_credit
    return Interleaved(shown, own, counted(np.asarray(a), np.asarray(b), shown, after=after))


def outcome(credit: FloatArray, clicks: ArrayLike) -> float:
    """The mean credit of what was clicked, in [-1, 1], above zero in favour of a; 0 without a click.

    ``clicks`` (k,) are one yes or no per position.
    """
    clicked = check_clicks(clicks, len(credit))
    return float(credit[clicked].mean()) if clicked.any() else 0.0


def choice_credit(a: IntArray, b: IntArray, ranking: IntArray, *, after: Shown = TOP) -> FloatArray:
    """(k,): +1 for a's pick and -1 for b's, 0 where both would have picked that document: there a click tells nothing.

    The list tells whose pick it was wherever it matters, so this is a function of the three rankings. It is what
    "team" expects given the list down to each position. So for users who read from the top the sum over clicks is the
    same in expectation, with less noise; `outcome` divides by the clicks, and by those that tell nothing, too.
    """
    orders, taken = (a.tolist(), b.tolist()), {int(d) for d in after.ranking}
    credit, lead = np.zeros(len(ranking)), _ahead(after)
    second = lead != 0
    for position, pick in enumerate(ranking.tolist()):
        tops = [next(d for d in order if d not in taken) for order in orders]
        taken.add(pick)
        if lead:
            credit[position] = -lead
        elif tops[A] != tops[B]:
            credit[position] = 1 if pick == tops[A] else -1
        second = not second
        # If they agreed on the first pick of a round, either may have made it, and either makes the second.
        lead = int(credit[position]) if second else 0
    return credit


def exposure(rank: IntArray) -> FloatArray:
    """1 / log2(1 + r) for ranks r from 1: about how much attention a rank gets; 1 at the top."""
    curve: FloatArray = 1.0 / np.log2(1.0 + np.asarray(rank))
    return curve


def exposure_credit(a: IntArray, b: IntArray, ranking: IntArray, *, after: Shown = TOP) -> FloatArray:
    """(k,): g(d_p) - E g(d_p): by how much more a exposes the document at p than b does, beside what is usual at p.

    g is what `worth` gives; the expectation is over the draw of the list, and makes up for positions that tend to hold
    documents of one ranking. Within [-1, 1].
    """
    documents, usual = worth(a, b, len(ranking), after=after)
    return np.array([documents[d] for d in ranking.tolist()]) - usual


def worth(a: IntArray, b: IntArray, k: int, *, after: Shown = TOP) -> tuple[dict[int, float], FloatArray]:
    """For every document that may be shown g(d) = 2 (e_a(d) - e_b(d)) / ē(d) cut to [-½, ½]; and (k,) E g(d_p).

    e is the `exposure` of d's rank in each ranking, ē its expectation over the draw of the list: a click is worth the
    more the less often it could come. Cut like that, few credits are much larger than others, and a verdict comes soon:
    what is large and rare takes many lists to bound. Both expectations are exact, from `placements`.
    """
    first, second = a.tolist(), b.tolist()
    curve = exposure(np.arange(1, len(first) + 1)).tolist()
    gap: dict[int, float] = dict(zip(first, curve, strict=True))
    for d, e in zip(second, curve, strict=True):
        gap[d] -= e
    places, top = placements(a, b, k, after=after), len(after.ranking)
    mean: dict[int, float] = defaultdict(float)
    for e, at in zip(exposure(top + np.arange(1, len(places) + 1)).tolist(), places, strict=True):
        for d, chance in at.items():
            mean[d] += chance * e
    documents = {d: min(max(2.0 * gap[d] / e, -0.5), 0.5) for d, e in mean.items()}
    return documents, np.array([sum(chance * documents[d] for d, chance in at.items()) for at in places])


def placements(a: IntArray, b: IntArray, k: int, *, after: Shown = TOP) -> list[dict[int, float]]:
    """For each of ``k`` positions the probability of every document there, over the coins; exact, and quick.

    What a round leaves for the next depends on its coin only where both rankings have the same document on top: if not,
    both orders of the two picks leave the same. So few sets of shown documents have to be told apart.
    """
    orders = (a.tolist(), b.tolist())
    found: list[dict[int, float]] = [defaultdict(float) for _ in range(k)]
    states: dict[tuple[frozenset[int], int], float] = {(frozenset(int(d) for d in after.ranking), _ahead(after)): 1.0}
    for at in found:
        following: dict[tuple[frozenset[int], int], float] = defaultdict(float)
        for (taken, lead), chance in states.items():
            for team, share in ((A, 0.5), (B, 0.5)) if lead == 0 else ((B if lead > 0 else A, 1.0),):
                pick = next(d for d in orders[team] if d not in taken)
                at[pick] += chance * share
                following[taken | {pick}, lead + 1 - 2 * team] += chance * share
        states = following
    return [dict(at) for at in found]


def lists(a: IntArray, b: IntArray, k: int, *, credit: str = "choice") -> Iterator[tuple[float, Interleaved]]:
    """Every list that the draft may give, with its probability; 2^⌈k/2⌉ of them, some alike."""
    k = min(k, len(a))
    rounds = -(-k // 2)
    for number in range(2**rounds):
        sides = 0.75 * (number >> np.arange(rounds) & 1)
        yield 0.5**rounds, interleave(a, b, k, np.repeat(sides, 2)[:k], credit=credit)


def _ahead(after: Shown) -> int:
    teams = [int(t) for t in after.teams]
    return teams.count(A) - teams.count(B)


def _checked(a: IntArray, b: IntArray, k: int, after: Shown) -> tuple[list[int], list[int], frozenset[int]]:
    ours, theirs = [int(d) for d in a], [int(d) for d in b]
    if len(set(ours)) != len(ours) or len(theirs) != len(ours) or set(ours) != set(theirs):
        raise InputError(
            f"the rankings hold {len(ours)} and {len(theirs)} documents; expected the same ones, each once"
        )
    check_positions("k", k, 1, len(ours))
    if len(after.ranking) != len(after.teams) or abs(_ahead(after)) > 1:
        raise InputError("the earlier pages are not those of a team draft: one team per document, taking turns")
    return ours, theirs, frozenset(int(d) for d in after.ranking)
