"""Our simulation against figures measured with the authors' published program: MQ2008 Fold 1, 2,000 rounds, k = 10.

The program was run with seeds 0 to 2 and its own users, who may stop at documents that they did not click. Its draws
are not ours, so means are compared, with the spread over seeds as the yardstick: with s the pooled standard deviation
over our n seeds and the program's 3,

    |ours - theirs| <= 3 s sqrt(1/n + 1/3) + slack.

The slack (0.005 and 5) covers rounding in the figures and the one term more that the program's cNDCG sums.

One row is farther off than the others. DBGD with informational users has .653 / 491 there; ours has .588 ± .071 /
449 ± 31 over 30 seeds, so their mean of three lies 1.6 and 2.4 standard errors above. Two things that the program does
differently are not the cause: it samples assignments, so that a tie is a coin toss (ours with that: .603 ± .048 /
457 ± 32), and breaks ties of scores by chance (with both: .602 ± .056 / 449 ± 35). With perfect users ours is the
one above (.701 against .686, 12 seeds). We take it for luck of three seeds, where the spread is the widest of all.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pairrank import simulate

# Of 2,000 rounds each. The duelling bandits' spread needs more seeds to be known: theirs is the widest.
SEEDS = {"PairRank_C": 5, "PairRank_R": 5, "PDGD": 5, "DBGD": 8, "MGD": 8}


class Figure(NamedTuple):
    """Held-out NDCG@10 and cNDCG after 2,000 rounds, each a mean and a sample standard deviation over 3 seeds."""

    ndcg: float
    ndcg_sd: float
    cndcg: float
    cndcg_sd: float


RANKERS = {
    "PairRank_C": "pairrank(preset=authors, exploration=conservative)",
    "PairRank_R": "pairrank(preset=authors, exploration=random)",
    "PDGD": "pdgd(learning_rate=0.1, decay=0.9999977)",
    "DBGD": "dbgd(learning_rate=0.01, delta=1, tau=3)",
    "MGD": "mgd(multileaving=team-draft, n_candidates=9)",
}
PROGRAM = {
    ("PairRank_C", "perfect"): Figure(0.719, 0.004, 615, 17),
    ("PairRank_C", "navigational"): Figure(0.706, 0.004, 578, 4),
    ("PairRank_C", "informational"): Figure(0.679, 0.007, 555, 26),
    ("PairRank_R", "perfect"): Figure(0.717, 0.004, 575, 5),
    ("PairRank_R", "navigational"): Figure(0.684, 0.007, 543, 16),
    ("PairRank_R", "informational"): Figure(0.681, 0.004, 511, 13),
    ("PDGD", "perfect"): Figure(0.710, 0.006, 609, 11),
    ("PDGD", "navigational"): Figure(0.709, 0.005, 535, 24),
    ("PDGD", "informational"): Figure(0.694, 0.019, 534, 25),
    ("DBGD", "perfect"): Figure(0.686, 0.010, 513, 22),
    ("DBGD", "navigational"): Figure(0.684, 0.019, 494, 4),
    ("DBGD", "informational"): Figure(0.653, 0.025, 491, 23),
    ("MGD", "perfect"): Figure(0.700, 0.008, 508, 21),
    ("MGD", "navigational"): Figure(0.702, 0.012, 496, 12),
    ("MGD", "informational"): Figure(0.657, 0.026, 478, 12),
}


def tolerance(ours: np.ndarray, their_sd: float, slack: float) -> float:
    n = len(ours)
    pooled = np.sqrt(((n - 1) * ours.var(ddof=1) + 2 * their_sd**2) / (n + 1))
    return float(3 * pooled * np.sqrt(1 / n + 1 / 3) + slack)


@pytest.mark.slow
@pytest.mark.parametrize(("ranker", "users"), PROGRAM)
def test_simulation_agrees_with_the_authors_program(real_data: Path, ranker: str, users: str) -> None:
    runs = [
        simulate(
            real_data / "MQ2008",
            ranker=RANKERS[ranker],
            clicks=f"{users}(stop=anywhere)",
            rounds=2000,
            seed=seed,
            schedule="every:2000",
            panel=0,
            ideal="",
        )
        for seed in range(SEEDS[ranker])
    ]
    theirs = PROGRAM[ranker, users]
    ndcg, cndcg = np.array([run.ndcg for run in runs]), np.array([run.cndcg for run in runs])
    assert ndcg.mean() == pytest.approx(theirs.ndcg, abs=tolerance(ndcg, theirs.ndcg_sd, 0.005))
    assert cndcg.mean() == pytest.approx(theirs.cndcg, abs=tolerance(cndcg, theirs.cndcg_sd, 5))


def test_the_tolerance_tells_rankers_apart() -> None:
    """With the program's own spread for both sides, what PairRank_C shows is not mistaken for what DBGD shows."""
    for users in ("perfect", "navigational"):
        good, bad = PROGRAM["PairRank_C", users], PROGRAM["DBGD", users]
        spread = np.array([good.cndcg - good.cndcg_sd, good.cndcg, good.cndcg + good.cndcg_sd])
        assert good.cndcg - bad.cndcg > tolerance(spread, bad.cndcg_sd, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "with_stop", "without"), [("navigational", 0.59, 0.97), ("informational", 2.21, 2.81)]
)
def test_clicks_a_round_with_and_without_stopping_anywhere(
    real_data: Path, users: str, with_stop: float, without: float
) -> None:
    """Clicks a round that were counted on MQ2008 under each of the two rules."""
    for stop, counted in (("anywhere", with_stop), ("click", without)):
        records = simulate(
            real_data / "MQ2008", ranker="pdgd", clicks=f"{users}(stop={stop})", rounds=2000, panel=0, ideal=""
        )
        assert records["clicks"].mean() == pytest.approx(counted, rel=0.1)
