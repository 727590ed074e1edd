"""What a linear model of the labels reaches held out, by normalisation: the most that any linear ranker can learn.

By hand: ``python benchmarks/linear_ceiling.py MSLR-sample`` deals the queries of all splits into five parts, trains
`OfflineRankNet` on four and prints the mean NDCG@10 on the fifth, with its standard error over the parts.
"""

from __future__ import annotations

import argparse

import numpy as np

from pairrank import data, metrics, threads
from pairrank.rankers.ranknet import OfflineRankNet

SPLITS, PARTS = ("train", "vali", "test"), 5


@threads.single()
def main() -> None:
    """Print a row for every normalisation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    for normalise in ("none", "query", "log1p+global"):
        reached = ceilings(parser.parse_args().data, normalise)
        error = np.std(reached, ddof=1) / PARTS**0.5
        print(f"{normalise:13s} {np.mean(reached):.3f} ± {error:.3f}  ({', '.join(f'{r:.3f}' for r in reached)})")


def ceilings(path: str, normalise: str) -> list[float]:
    """NDCG@10 on each part of a model trained on the others."""
    queries: list[tuple[np.ndarray, np.ndarray]] = []
    for split in SPLITS:
        part = data.load(path, split=split, normalise=normalise, drop_constant=False)
        cuts = part.offsets[1:-1]
        queries += zip(np.split(part.features, cuts), np.split(part.grades, cuts), strict=True)
    dealt = np.random.default_rng(0).permutation(len(queries)) % PARTS
    reached = []
    for part_number in range(PARTS):
        X, grades, offsets = joined([q for q, p in zip(queries, dealt, strict=True) if p != part_number])
        model = OfflineRankNet(n_features=X.shape[1]).fit(X, grades, offsets)
        X, grades, offsets = joined([q for q, p in zip(queries, dealt, strict=True) if p == part_number])
        reached.append(metrics.NDCG(grades, offsets).mean(X @ model.weights))
    return reached


def joined(queries: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, grades and offsets of several queries."""
    features, grades = zip(*queries, strict=True)
    return np.concatenate(features).astype(np.float64), np.concatenate(grades), np.cumsum([0, *map(len, grades)])


if __name__ == "__main__":
    main()
