"""How soon a good ranker is free in the service, with query_id and without: launches as in `pairrank trial`.

The laboratory guesses a list's value by its own rule; this takes the service's, `LaunchCourse.expected`.

    python benchmarks/launch_queries.py MQ2008 [--launches 30]
"""

from __future__ import annotations

import argparse

import numpy as np

from pairrank.lab import launches
from pairrank.lab.trial import Crowd, Study, first_click
from pairrank.rng import Purpose, generator
from pairrank.service.learning.trials import LaunchCourse, place_of
from pairrank.trials.launch import Launch
from pairrank.types import IntArray


def launched(study: Study, crowd: Crowd, present: IntArray, ours: IntArray, seed: int, known: bool) -> tuple[str, int]:
    """Mode at the end, and lists until then."""
    rng = generator(study.seed, 2**43 + seed, Purpose.CLICKS)
    query = rng.integers(len(present), size=study.launch_lists)
    values = [first_click(crowd.clicks(rows[query], rng)).sum(axis=1).tolist() for rows in (present, ours)]
    coins = rng.random(study.launch_lists).tolist()
    launch, sums = Launch(study.guard, "guarded", auto=True), dict[str, tuple[float, int]]()
    for t, q in enumerate(query.tolist()):
        share, place = launch.share(), place_of(str(q))
        is_ours = bool(coins[t] < share)
        value = values[is_ours][t]
        guess = LaunchCourse(launch, 0, 0, known=sums).expected(place) if known else None
        launch = launch.after(is_ours, value, share, guess)
        total, count = sums.get(place, (0.0, 0))
        sums[place] = (total + value, count + 1)
        if launch.mode != "guarded":
            break
    return launch.mode, launch.lists


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--launches", type=int, default=30)
    args = parser.parse_args()
    study = Study(data=args.data)
    n_grades, present, others = launches.compared(study)
    print("| users | query_id | free | after, median |")
    print("| --- | --- | --- | --- |")
    for text in ("perfect", "navigational"):
        for known in (True, False):
            crowd = Crowd(text, n_grades)
            runs = [launched(study, crowd, present, others["good"], seed, known) for seed in range(args.launches)]
            free = [lists for mode, lists in runs if mode == "free"]
            median = f"{int(np.median(free)):,}" if free else "–"
            sent = "sent" if known else "not sent"
            print(f"| {text} | {sent} | {len(free)} of {len(runs)} | {median} |", flush=True)


if __name__ == "__main__":
    main()
