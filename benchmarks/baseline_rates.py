"""The learning rates of the two RankNet baselines, chosen on validation data: the table in docs/reproducing.md.

    python benchmarks/baseline_rates.py DATA [DATA ...] --rounds 2000

Prints, for every setting of the grid and every data set, held-out NDCG@10 on the validation split, cNDCG@10 of the
lists shown over its largest possible value, and the mean of the two; each a mean over the paper's users and two seeds
that no experiment uses. The test split is never read.
"""

from __future__ import annotations

import argparse

import numpy as np

import pairrank

RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
GRID = [
    *(f"epsilon-greedy(learning_rate={rate}, epsilon=0.8)" for rate in (0.0003, *RATES[:-1])),
    *(
        f"sgd-ranknet(learning_rate={rate}, pairs={pairs})"
        for pairs in ("adjacent", "matched", "all")
        for rate in RATES
    ),
]
USERS = ("perfect", "navigational", "informational")
SEEDS = (1000, 1001)
GAMMA = 0.9995


def measure(data: str, ranker: str, rounds: int) -> tuple[float, float]:
    runs = [
        pairrank.simulate(
            data,
            ranker=ranker,
            clicks=users,
            rounds=rounds,
            seed=seed,
            evaluation="vali",
            schedule=f"every:{rounds}",
            panel=0,
            ideal="",
        )
        for users in USERS
        for seed in SEEDS
    ]
    largest = (1 - GAMMA**rounds) / (1 - GAMMA)
    return float(np.mean([run.ndcg for run in runs])), float(np.mean([run.cndcg for run in runs])) / largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--rounds", type=int, default=2000)
    args = parser.parse_args()
    for ranker in GRID:
        for data in args.data:
            held_out, shown = measure(data, ranker, args.rounds)
            print(f"{ranker:<50}{data:<30}{held_out:.3f}  {shown:.3f}  {(held_out + shown) / 2:.3f}", flush=True)


if __name__ == "__main__":
    main()
