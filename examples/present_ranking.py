"""What starting from the present ranking is worth: NDCG@10 of the lists that a shop's first visitors see.

Products have features in their own units. The present ranking is a sum with weights set by hand: right in most signs,
not in size. `python examples/present_ranking.py` prints, as a mean over seeds, how good lists 1 to 10, 11 to 50 and
51 to 200 are for the present order, for a ranker that starts cold, and for one that starts from the present weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from pairrank import PairRank, click_models, metrics
from pairrank.rankers import priors
from pairrank.rng import Purpose, generator

NAMES = ["text_match", "rating", "sales", "price", "age_days", "margin"]
WIDE = np.array([1.0, 4.0, 500.0, 200.0, 365.0, 0.5])  # a feature is spread evenly from 0 to this
WANTED = np.array([2.0, 1.5, 1.0, -1.0, -0.3, 0.0]) / WIDE
BY_HAND = np.array([2.0, 0.3, 2.0, -0.2, 0.0, 1.0]) / WIDE
SPANS = ((0, 10), (10, 50), (50, 200))


def visitors(seed: int, rounds: int = SPANS[-1][1]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The candidates of each visitor, and how well each product suits: grades 0 to 4."""
    found = []
    for number in range(rounds):
        rng = generator(seed, number, Purpose.DATA)
        X = rng.random((30, len(NAMES))) * WIDE
        utility = X @ WANTED + rng.normal(0.0, 0.3, 30)
        found.append((X, np.searchsorted([0.6, 1.2, 1.8, 2.4], utility)))
    return found


def shown(ranker: PairRank | None, seed: int, locked: int = 0) -> np.ndarray:
    """(n_spans,), NDCG@10 of the lists that visitors see; without a ranker those of the present order."""
    users = click_models.make("navigational", n_grades=5)
    values = []
    for number, (X, grades) in enumerate(visitors(seed)):
        if ranker is None:
            ranking = np.argsort(-(X @ BY_HAND), kind="stable")[:10]
        else:
            impression = ranker.rank(X, 10, locked=locked)
            ranking = impression.ranking
            coins = generator(seed, number, Purpose.CLICKS).random((10, 2))
            ranker.learn(impression, users.clicks(grades[ranking], coins))
        values.append(metrics.ndcg(ranking, grades))
    return np.array([np.mean(values[start:stop]) for start, stop in SPANS])


def warm(seed: int, strength: float) -> PairRank:
    """A ranker that starts from the weights set by hand; two evenly spread values differ by a variance of w²/6."""
    ranker = PairRank(feature_names=NAMES, seed=seed)
    priors.from_weights(BY_HAND, strength=strength, variance=WIDE**2 / 6).apply(ranker)
    return ranker


def main(argv: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args(argv).seeds)
    ways = {
        "the present order": lambda seed: shown(None, seed),
        "cold": lambda seed: shown(PairRank(feature_names=NAMES, seed=seed), seed),
        "cold, `locked=3`": lambda seed: shown(PairRank(feature_names=NAMES, seed=seed), seed, locked=3),
        "from the present weights, strength 30": lambda seed: shown(warm(seed, 30), seed),
        "from the present weights, strength 100": lambda seed: shown(warm(seed, 100), seed),
        "from the present weights, strength 300": lambda seed: shown(warm(seed, 300), seed),
        "from the present weights, strength 1,000": lambda seed: shown(warm(seed, 1000), seed),
    }
    print("| | lists 1–10 | 11–50 | 51–200 |\n| --- | --- | --- | --- |")
    table = {}
    for name, way in ways.items():
        table[name] = np.mean([way(seed) for seed in seeds], axis=0)
        print(f"| {name} | " + " | ".join(f"{value:.3f}"[1:] for value in table[name]) + " |")
    return table


if __name__ == "__main__":
    main()
