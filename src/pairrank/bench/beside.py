"""Another program beside ours, on the same lists with the same users: the authors' own, or whatever a user has.

Its folder holds ``against.py`` with a class ``Against``, a ranker of one's own (`rankers.own`) that calls the program
beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pairrank.bench.lists import Stream, candidates, make
from pairrank.bench.measure import Row, amortised
from pairrank.errors import OptionError

SHAPES = ((100, 136), (20, 46))
# Rounds of the stretches that are compared, and the rankers of ours that are.
STRETCHES, QUICK = ((80, 100), (480, 500), (980, 1000)), ((5, 10),)
RANKERS = ("pairrank", "pairrank(preset=authors)")


def measure(folder: str, quick: bool) -> Iterator[Row]:
    """A row per shape, stretch and ranker: their round over ours."""
    path = Path(folder) / "against.py"
    if not path.is_file():
        raise OptionError(
            f"there is no {path}; expected a class Against in it: a ranker that calls the program beside it"
        )
    sys.path.insert(0, folder)  # a ranker's file by itself finds nothing beside it
    for n_docs, n_features in SHAPES:
        queries = candidates(n_docs, n_features, 10 if quick else 100)
        names = (f"{path}:Against", *RANKERS)
        played = [(Stream(queries), make(name, n_features)) for name in names]
        for start, stop in QUICK if quick else STRETCHES:
            for stream, ranker in played:
                stream.play(ranker, start - stream.t)
            theirs, *ours = (stream.play(ranker, stop - start)[:, :2].sum(axis=1) for stream, ranker in played)
            for name, own in zip(RANKERS, ours, strict=True):
                case = f"{folder} and {name}, {n_docs} x {n_features}, rounds {start} to {stop}"
                took = {"their_ms": 1e3 * float(theirs.mean()), "our_ms": 1e3 * float(own.mean())}
                yield Row("against", case, "their rank + learn over ours", *amortised(theirs, own), detail=took)
