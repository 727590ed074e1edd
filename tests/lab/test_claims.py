from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pairrank.lab.analysis import claims
from pairrank.lab.analysis.aggregate import Cell, Results
from pairrank.lab.analysis.claims import FAILS, HOLDS, OPEN
from pairrank.lab.experiment import USERS

SEEDS = 8
ROUNDS = np.array([1, 10, 100, 1000, 5000])


def cell(ranker: str, users: str, ndcg: float, *, blocks: float = np.nan, noise: float = 0.001) -> Cell:
    """Runs whose last NDCG lies about ``ndcg``; the noise differs from ranker to ranker but not from call to call."""
    rng = np.random.default_rng(len(ranker) * 31 + len(users))
    wobble = noise * rng.standard_normal((SEEDS, 1))
    wobble -= wobble.mean()  # levels are exact, so that a borderline case is one
    level = np.full((SEEDS, len(ROUNDS)), ndcg) + wobble
    sizes = np.linspace(20, blocks, len(ROUNDS)) + wobble
    curves = {"ndcg": level, "cndcg": 100 * level, "regret": level, "cosine": level, "n_blocks": sizes}
    curves |= {f"block_at_{rank}": np.minimum(20 * np.ones_like(sizes), sizes) for rank in (1, 5, 10)}
    return Cell(ranker, users, np.arange(SEEDS), ROUNDS, curves)


def results(*cells: Cell) -> Results:
    rankers = tuple(dict.fromkeys(cell.ranker for cell in cells))
    return Results({(c.ranker, c.clicks): c for c in cells}, rankers, USERS, len(cells), len(cells))


def verdict(found: Results, words: str) -> str:
    made = claims.check(found, claims.comparisons(found))
    (claim,) = [claim for claim in made if words in claim.text]
    return claim.verdict


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((0.7, 0.7, 0.7), HOLDS),  # ahead for all users
        ((0.7, 0.7, 0.5), FAILS),  # behind for some
        ((0.7, 0.7, 0.6), OPEN),  # equal but for noise
    ],
)
def test_ahead_of_a_baseline(levels: tuple[float, ...], expected: str) -> None:
    ours = [cell("pairrank-c", users, level) for users, level in zip(USERS, levels, strict=True)]
    found = results(*ours, *(cell("pdgd", users, 0.6, noise=0.002) for users in USERS))
    assert verdict(found, "PairRank_C is ahead of PDGD offline") == expected
    assert verdict(found, "PairRank_C is ahead of PDGD online") == expected


@pytest.mark.parametrize("variant", ["pairrank(z=1)", "pairrank(z=0.1)"])
def test_a_variant_beside_it_does_not_take_the_rankers_place(variant: str) -> None:
    ours = [cell("pairrank", users, 0.7) for users in USERS]
    worse = [cell(variant, users, 0.5) for users in USERS]
    rival = [cell("pdgd", users, 0.6, noise=0.002) for users in USERS]
    for found in (results(*ours, *worse, *rival), results(*worse, *ours, *rival)):
        assert {test.a for test in claims.comparisons(found)} == {"pairrank"}
        assert verdict(found, "PairRank is ahead of PDGD offline") == HOLDS
    tuned = results(*worse, *(cell("pairrank(lam=9)", users, 0.7) for users in USERS), *rival)
    assert {test.a for test in claims.comparisons(tuned)} == {variant}  # none is plain: the first


def test_every_ranker_beside_it_is_tested() -> None:
    others = ("mine.py:Mine@000000000001", "pairrank(z=1)", "pairrank-c", "p2linrank", "pdgd")
    names = ("offline-ranknet", "pairrank", *others)
    found = results(*(cell(name, users, 0.7) for name in names for users in USERS))
    made = claims.comparisons(found)
    assert {test.b for test in made if test.a == "pairrank"} == set(others)
    assert {test.b for test in made if test.a == "pairrank-c"} == set(others) - {"pairrank-c"}


def test_users_that_are_missing_leave_it_open() -> None:
    found = results(cell("pairrank-c", "perfect", 0.7), cell("pdgd", "perfect", 0.5))
    assert verdict(found, "ahead of PDGD offline") == OPEN


def test_one_seed_decides_nothing() -> None:
    def one(ranker: str, users: str, level: float) -> Cell:
        whole = cell(ranker, users, level)
        return Cell(ranker, users, whole.seeds[:1], ROUNDS, {name: c[:1] for name, c in whole.curves.items()})

    found = results(*(one("pairrank", u, 0.9) for u in USERS), *(one("dbgd", u, 0.1) for u in USERS))
    assert verdict(found, "PairRank is ahead of DBGD offline") == OPEN
    found = results(one("pairrank", "perfect", 0.9), one("offline-ranknet", "perfect", 0.95))
    (claim,) = [claim for claim in claims.check(found, []) if "converges" in claim.text]
    assert claim.evidence.startswith("gap 0.04")
    assert "±" not in claim.evidence  # of one run there is no interval


def test_the_family_is_corrected_together() -> None:
    ours = [cell("pairrank-c", users, 0.7) for users in USERS]
    others = [cell(name, users, 0.6) for name in ("pdgd", "dbgd") for users in USERS]
    made = [c for c in claims.comparisons(results(*ours, *others)) if c.metric == "ndcg"]
    assert len(made) == 6
    smallest = min(made, key=lambda c: c.p)
    assert smallest.p_holm == pytest.approx(min(1.0, 6 * smallest.p))


@pytest.mark.parametrize(
    ("gap", "expected"), [(0.0, HOLDS), (-0.05, HOLDS), (claims.MARGIN, OPEN), (2 * claims.MARGIN, FAILS)]
)
def test_convergence_to_the_offline_ranker(gap: float, expected: str) -> None:
    noise = 0.004
    ours = cell("pairrank-c", "perfect", 0.7 - gap, noise=noise)
    found = results(ours, cell("offline-ranknet", "perfect", 0.7, noise=0.0))
    assert verdict(found, "converges to the offline ranker") == expected


def shrinking(users: str, at_1000: float) -> Cell:
    made = cell("pairrank-c", users, 0.7, blocks=1.0)
    for rank in (1, 5, 10):
        made.curves[f"block_at_{rank}"][:, 3:] = at_1000 + 0.01 * np.arange(SEEDS)[:, None]
    profiles = {1: [np.full(9, 20.0)] * SEEDS, 100: [np.r_[[2.0] * 3, [9.0] * 3, [3.0] * 3] + s for s in range(SEEDS)]}
    return Cell(made.ranker, made.clicks, made.seeds, ROUNDS, made.curves, profiles)


def test_blocks() -> None:
    found = results(*(shrinking(users, 1.1) for users in USERS))
    assert verdict(found, "within hundreds of rounds, at rank 5") == HOLDS
    assert verdict(found, "Middle ranks have the largest blocks") == HOLDS
    assert verdict(found, "more slowly for navigational users") == OPEN  # all alike
    found = results(*(shrinking(users, 5.0 if users == "navigational" else 1.1) for users in USERS))
    assert verdict(found, "within hundreds of rounds, at rank 10") == FAILS
    assert verdict(found, "more slowly for navigational users") == HOLDS
    found = results(*(shrinking(users, 1.1 if users == "navigational" else 5.0) for users in USERS))
    assert verdict(found, "more slowly for navigational users") == FAILS


def test_lists_of_two_documents_have_no_middle() -> None:
    cells = [shrinking(users, 1.1) for users in USERS]
    found = results(*(replace(c, profiles={1: [np.full(2, 2.0)] * SEEDS, 100: [np.ones(2)] * SEEDS}) for c in cells))
    assert not [claim for claim in claims.check(found, claims.comparisons(found)) if "Middle" in claim.text]


def test_short_runs_do_not_refute_what_needs_time() -> None:
    def short(users: str) -> Cell:
        whole = shrinking(users, 5.0)
        return Cell(
            whole.ranker, users, whole.seeds, ROUNDS[:3], {n: c[:, :3] for n, c in whole.curves.items()}, whole.profiles
        )

    found = results(*map(short, USERS))
    assert verdict(found, "within hundreds of rounds, at rank 10") == OPEN
