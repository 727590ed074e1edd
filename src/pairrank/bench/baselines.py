"""The other online rankers, measured as PairRank is: a round over the two products."""

from __future__ import annotations

from collections.abc import Iterator

from pairrank.bench.lists import Stream, candidates
from pairrank.bench.measure import Row
from pairrank.bench.round import over_floor

RANKERS = ("dbgd", "epsilon-greedy", "mgd", "mgd(multileaving=team-draft)", "pdgd", "sgd-ranknet")
LIMIT = 5.0


def measure(quick: bool) -> Iterator[Row]:
    """A row per ranker at 100 x 136."""
    before, rounds = (5, 40) if quick else (100, 400)
    queries = candidates(100, 136, 10 if quick else 100)
    for name in RANKERS:
        yield over_floor("baselines", name, Stream(queries), before, rounds, LIMIT)
