"""What a guarded launch does while lists are on their way: the service's rule for the share, with lists that come late.

A list's value is 0 or 1, the noisiest that there is. The present order is worth .45 per list, ours that plus a gain. A
list comes back after ``in flight`` others were served, and the share is worked out anew after every hundredth part of
that, as the learner does four times a second in a window of ten minutes or less.

    python benchmarks/launch_in_flight.py [--launches 40] [--lists 10000]
"""

from __future__ import annotations

import argparse
from collections import deque

import numpy as np

from pairrank.rng import Purpose, generator
from pairrank.trials.launch import Guard, Launch

PRESENT = 0.45
GAINS = {"good": 0.05, "useless": -0.1, "hostile": -0.26}


def launched(gain: float, in_flight: int, lists: int, seed: int) -> tuple[str, int, float, float]:
    """Mode at the end, lists until then, what was gained in all, and the most by which it was beyond the margin."""
    guard, rng = Guard(), generator(seed, in_flight, Purpose.CLICKS)
    launch, flight = Launch(guard, "guarded", auto=True), deque[tuple[bool, float, float]]()
    among, at_stake, share, gained, beyond = max(in_flight // 100, 1), 0.0, 0.0, 0.0, -1.0
    draws = rng.random((lists, 2))
    for served in range(lists):
        if served % among == 0:
            share = launch.share(len(flight), at_stake, among=among)
        ours = bool(draws[served, 0] < share)
        flight.append((ours, float(draws[served, 1] < PRESENT + gain * ours), share))
        at_stake += share
        gained += gain * share
        beyond = max(beyond, -gained - guard.margin * (served + 1))
        if len(flight) > in_flight:
            came, value, drawn = flight.popleft()
            at_stake -= drawn
            launch = launch.after(came, value, drawn)
        if launch.mode != "guarded":
            break
    rest = lists - served - 1
    return launch.mode, served + 1, gained + (gain * rest if launch.mode == "free" else 0.0), beyond


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=40)
    parser.add_argument("--lists", type=int, default=10_000)
    args = parser.parse_args()
    print("| ranker | in flight | ended | lists until then, median | gained | beyond the margin |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind, gain in GAINS.items():
        for in_flight in (0, 200, 2000):
            runs = [launched(gain, in_flight, args.lists, seed) for seed in range(args.launches)]
            modes = [mode for mode, *_ in runs]
            ended = ", ".join(f"{mode} {modes.count(mode)}" for mode in sorted(set(modes)))
            until = int(np.median([n for _, n, _, _ in runs]))
            gained = float(np.mean([g for _, _, g, _ in runs]))
            wrong = sum(beyond > 0 for *_, beyond in runs)
            print(f"| {kind} | {in_flight:,} | {ended} | {until:,} | {gained:+.0f} | {wrong} |", flush=True)


if __name__ == "__main__":
    main()
