"""What a linear model of the labels reaches held out, by normalisation: the most that any linear ranker can learn.

By hand: ``python benchmarks/linear_ceiling.py MSLR-sample`` deals the queries of all splits into five parts, trains
`OfflineRankNet` on four and prints the mean NDCG@10 on the fifth, with its standard error over the parts.
"""

from __future__ import annotations

import argparse

import numpy as np
from folds import PARTS, dealt, joined

from pairrank import metrics, threads
from pairrank.rankers.ranknet import OfflineRankNet


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
    parts = dealt(path, normalise)
    reached = []
    for part in parts:
        train, test = joined([query for other in parts if other is not part for query in other]), joined(part)
        X = train.features.astype(np.float64)
        model = OfflineRankNet(n_features=train.n_features).fit(X, train.grades, train.offsets)
        reached.append(metrics.NDCG(test.grades, test.offsets).mean(test.features.astype(np.float64) @ model.weights))
    return reached


if __name__ == "__main__":
    main()
