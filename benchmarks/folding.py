"""What a folded history costs: a ranker that keeps so many documents beside one that keeps all, on the same clicks.

By hand: ``python benchmarks/folding.py 136`` (features) with the capacity that rankers have, or ``--capacity 20000``.
Each time that half the capacity has come in it prints how far θ̂ is from that with the whole history: in standard
deviations (the norm of H), in the root mean square over pairs as a share of their confidence width, and the share of
lists of twenty new documents that are ordered alike in their first ten places. docs/theory.md has the bound.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from pairrank import rankers, threads
from pairrank.bench.exactness import stray

DOCUMENTS, PANEL = 10, 400


@threads.single()
def main() -> None:
    """Print a row for every half of the capacity."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=int)
    parser.add_argument("--ranker", default="pairrank")
    parser.add_argument("--capacity", type=int, help="documents (default: what 256 MiB hold)")
    parser.add_argument("--fills", type=float, default=3.0, help="how often it is filled")
    parser.add_argument("--steepness", type=float, default=4.0, help="of the users: how far scores are apart")
    args = parser.parse_args()
    d, rng = args.features, np.random.default_rng(0)
    taste = rng.normal(size=d) * args.steepness / math.sqrt(d)
    whole, folded = (rankers.make(args.ranker, n_features=d, seed=1) for _ in range(2))
    panel = rng.random((PANEL, 20, d))
    n = due = 0
    capacity = args.capacity
    while n < 100 or whole._posterior.history.n_documents <= args.fills * capacity:
        impression = whole.rank(rng.random((DOCUMENTS, d)), DOCUMENTS)
        clicks = rng.random(DOCUMENTS) < 1.0 / (1.0 + np.exp(1.0 - (impression.features - 0.5) @ taste))
        whole.learn(impression, clicks)
        folded.learn(impression, clicks)
        n += 1
        if n == 100:  # units are final: no posterior is started again
            capacity = capacity or folded._posterior._capacity
            whole._posterior._capacity, folded._posterior._capacity = 2**62, capacity
        if n >= 100 and whole._posterior.history.n_documents >= due:
            due += capacity / 2
            away = stray(folded, whole) * whole.width_factor
            pairs = away / math.sqrt(d) / whole.width_factor
            same = np.mean([np.array_equal(*(np.argsort(-r.score(X))[:10] for r in (whole, folded))) for X in panel])
            print(
                f"{n:,} lists, {whole._posterior.history.n_documents / capacity:.1f} times the capacity: "
                f"{away:.3f} standard deviations, {pairs:.3f} of a width, {100 * same:.1f} % ordered alike",
                flush=True,
            )


if __name__ == "__main__":
    main()
