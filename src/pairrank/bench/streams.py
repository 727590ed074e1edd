"""Whatever the clicks: one ranker under unlike streams, from its first list on: early, late, and its longest round.

* ``usual``: realistic features, users of the informational table, 200 queries;
* ``repeated``: the same with 108 queries in all;
* ``constant``: the usual ones, with every tenth feature the same for all documents;
* ``perfect``: users who click on what is relevant and on nothing else;
* ``dense``: features without structure, and six clicks in every list of ten, whatever was shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pairrank.bench.lists import SEED, LabelledList, Stream, candidates, make, two_products
from pairrank.bench.measure import Row
from pairrank.bench.round import over_products
from pairrank.rng import Purpose, generator
from pairrank.types import BoolArray, Impression

WORKLOADS = ("usual", "repeated", "constant", "perfect", "dense")
N_DOCS, N_FEATURES = 100, 136
# Rounds of the stretches that are compared; the longest round is looked for up to the beginning of the last. Late ones
# are long in proportion to t: work that comes each time the history has grown by a factor falls into them, too.
STRETCHES = ((100, 200), (500, 900), (10_000, 11_250))
QUICK = ((10, 20), (30, 40), (50, 60))
PAUSE_MS = 50.0


class Case(NamedTuple):
    """A ranker, the streams that it meets, and what a round and late over early may be."""

    ranker: str
    workloads: tuple[str, ...]
    over_floor: float
    late: float


CASES = (
    Case("pairrank", WORKLOADS, 2.5, 1.15),
    Case("pairrank-c", ("usual",), 6.0, 1.3),
    Case("pairrank(preset=authors)", ("usual",), 6.0, 1.3),
)


@dataclass(eq=False)
class Dense(Stream):
    """Users who click on the six best of ten, by a linear taste and much noise."""

    def clicks(self, query: LabelledList, impression: Impression) -> BoolArray:
        """What the users click on."""
        n_docs, n_features = query.features.shape
        taste = generator(SEED, 0, Purpose.DATA).normal(scale=n_features**-0.5, size=n_features)
        noise = generator(SEED, self.t, Purpose.CLICKS).gumbel(size=n_docs)
        liked = (query.features @ taste + noise)[impression.ranking]
        best: BoolArray = liked >= np.sort(liked)[-6:][0]
        return best


def workload(name: str, n_docs: int, n_features: int, quick: bool) -> Stream:
    """The stream called ``name``."""
    count = 10 if quick else 108 if name == "repeated" else 200
    if name == "dense":
        rng = generator(SEED, 1, Purpose.DATA)
        lists = rng.standard_normal((count, n_docs, n_features))
        return Dense([LabelledList(features, np.zeros(n_docs, dtype=np.int64)) for features in lists])
    queries = candidates(n_docs, n_features, count)
    if name == "constant":
        varies = np.arange(n_features) % 10 > 0
        queries = [query._replace(features=np.where(varies, query.features, 0.5)) for query in queries]
    return Stream(queries, "perfect" if name == "perfect" else "informational")


def measure(quick: bool, until: int = 0) -> Iterator[Row]:
    """For each ranker and stream: a row per stretch, one of each late over the early one, one of the longest round.

    With ``until`` a last stretch begins at that round.
    """
    stretches = QUICK if quick else STRETCHES
    further = ((until, until * 5 // 4),) if until > stretches[-1][1] else ()
    for case in CASES:
        for name in case.workloads:
            yield from _rows(case, name, stretches + further, quick)


def _rows(case: Case, name: str, stretches: tuple[tuple[int, int], ...], quick: bool) -> Iterator[Row]:
    stream, ranker = workload(name, N_DOCS, N_FEATURES, quick), make(case.ranker, N_FEATURES)
    floor = two_products(stream, N_FEATURES)
    title = f"{case.ranker}, {name}, {N_DOCS} x {N_FEATURES}"
    rows: list[Row] = []
    longest = 0.0
    for start, stop in stretches:
        longest = max(longest, float(stream.play(ranker, start - stream.t).sum(axis=1).max(initial=0.0)))
        taken = stream.play(ranker, stop - start, floor)
        rows.append(row := over_products("streams", title, start, stop, taken, case.over_floor))
        yield row
        if len(rows) > 2:
            what = f"{title}, round {start} against {stretches[1][0]}"
            figure, early = "mean round late over early, each over its floor", rows[1].value
            yield Row("streams", what, figure, row.value / early, row.low / early, row.high / early, limit=case.late)
    what = f"{title}, {start} rounds from the first on"
    pause = 1e3 * longest
    limit = PAUSE_MS if start <= STRETCHES[-1][0] else None
    yield Row("streams", what, "the longest round, ms", pause, pause, pause, limit=limit)
