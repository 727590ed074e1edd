"""Five folds of a small data set: the queries of its splits are dealt into five parts, each of which is tested once.

By hand: ``python benchmarks/folds.py MSLR-sample --out MSLR-folds``; then ``MSLR-folds@1-5`` is data for every command.
Fold i is tested on part i, tuned on the next one and trained on the other three, as LETOR's folds are.
"""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

import numpy as np

from pairrank import data
from pairrank.data.layout import SPLITS
from pairrank.types import AnyArray, IntArray

PARTS = 5

Query = tuple[AnyArray, IntArray, str]


def main() -> None:
    """Write Fold1 to Fold5, each with a file for every split."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder in LETOR format")
    parser.add_argument("--out", required=True, metavar="DIR", help="where the folds go")
    given = parser.parse_args()
    parts = dealt(given.data, "none")
    for fold in range(PARTS):
        folder = Path(given.out) / f"Fold{fold + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        tested, tuned, *trained = parts[fold:] + parts[:fold]
        for split, queries in zip(SPLITS, (list(chain(*trained)), tuned, tested), strict=True):
            data.write_letor(joined(queries), folder / f"{split}.txt.gz")


def dealt(path: str, normalise: str) -> list[list[Query]]:
    """Features, grades and id of every query of all splits, in five parts."""
    queries: list[Query] = []
    for split in SPLITS:
        part = data.load(path, split=split, normalise=normalise, drop_constant=False)
        queries += zip(*zip(*part.queries(), strict=True), part.query_ids.tolist(), strict=True)
    places = np.random.default_rng(0).permutation(len(queries)) % PARTS
    return [[query for query, place in zip(queries, places, strict=True) if place == i] for i in range(PARTS)]


def joined(queries: list[Query]) -> data.Dataset:
    """Several queries as one data set."""
    features, grades, names = zip(*queries, strict=True)
    offsets = np.cumsum([0, *map(len, grades)])
    numbers = np.arange(1, features[0].shape[1] + 1)
    return data.Dataset(np.concatenate(features), np.concatenate(grades), offsets, np.array(names), numbers)


if __name__ == "__main__":
    main()
