"""What a guarded launch costs and saves: `trials.launch` with a good, a useless and a hostile ranker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pairrank import engines
from pairrank.lab.trial import REVERSED, SHUFFLED, Crowd, Study, orders, padded, scores, splits
from pairrank.metrics import NDCG
from pairrank.rng import Purpose, generator
from pairrank.trials.launch import Launch
from pairrank.trials.verdict import first_click
from pairrank.types import FloatArray, IntArray

KINDS = ("good", "useless", "hostile")
_LAUNCH = 2**43  # numbers of random streams; launches count from 0 and stay far below
POINTS = 40  # of the course of a launch that are kept


def run(study: Study, jobs: int = 1, report: Callable[[int], None] = lambda done: None) -> list[dict[str, Any]]:
    """A row per users and kind of ranker.

    The present order is that of a single feature: the one that ranks the training split best. Good is arm a, useless
    is chance, hostile is a reversed.
    """
    arms = compared(study)
    tasks = [(text, kind) for text in study.clicks for kind in KINDS]
    return engines.over_processes(partial(_row, study, arms), tasks, jobs, report)


def compared(study: Study) -> tuple[int, IntArray, dict[str, IntArray]]:
    """The number of grades, and (q, k) grades of the present order and of each kind of ranker."""
    train, served = splits(study)
    kinds = {"good": study.a, "useless": SHUFFLED, "hostile": REVERSED}
    judge = NDCG(train.grades, train.offsets, study.k)
    rng = generator(study.seed, 0, Purpose.TIES)
    quality = [judge.mean(np.asarray(train.features[:, f], dtype=np.float64), rng) for f in range(train.n_features)]
    single = np.asarray(served.features[:, int(np.argmax(quality))], dtype=np.float64)

    def top(own: FloatArray) -> IntArray:
        return np.array([padded(served.query(q)[1][r], study.k, -1) for q, r in enumerate(orders(served, own))])

    return served.n_grades, top(single), {kind: top(scores(study, text, train, served)) for kind, text in kinds.items()}


def _row(study: Study, arms: tuple[int, IntArray, dict[str, IntArray]], task: tuple[str, str]) -> dict[str, Any]:
    n_grades, present, others = arms
    text, kind = task
    crowd, ours = Crowd(text, n_grades), others[kind]
    gain = crowd.value(ours) - crowd.value(present)
    runs = [_launch(study, crowd, present, ours, gain, seed) for seed in range(study.launches)]
    modes = [run["mode"] for run in runs]
    free = [run["lists"] for run in runs if run["mode"] == "free"]
    return {
        "clicks": text,
        "ranker": kind,
        "value_as_sent": crowd.value(present),
        "gain": gain,
        "modes": {mode: modes.count(mode) for mode in sorted(set(modes))},
        "beyond_margin": sum(run["worst"] > 0 for run in runs),
        "free_after": [int(q) for q in np.quantile(free, [0.5, 0.9], method="higher")] if free else None,
        "gained": float(np.mean([run["gained"] for run in runs])),
        "at_once": gain * study.launch_lists,
        "at": np.linspace(0, study.launch_lists, POINTS + 1, dtype=int)[1:].tolist(),
        "share": np.mean([run["share"] for run in runs], axis=0).tolist(),
    }


def _launch(study: Study, crowd: Crowd, present: IntArray, ours: IntArray, gain: float, seed: int) -> dict[str, Any]:
    """One launch to its end, or until it is free or frozen; from there on nothing changes."""
    n, rng = study.launch_lists, generator(study.seed, _LAUNCH + seed, Purpose.CLICKS)
    query = rng.integers(len(present), size=n)
    values = [first_click(crowd.clicks(rows[query], rng)).sum(axis=1).tolist() for rows in (present, ours)]
    coins = rng.random(n).tolist()
    launch, shares = Launch(guard=study.guard, mode="guarded", auto=True), np.zeros(n)
    known = [(0.0, 0)] * len(present)  # of every query the values so far: their mean is what the next is expected to be
    for t, q in enumerate(query.tolist()):
        share = launch.share()
        shares[t] = share
        shown = coins[t] < share
        (total, count), value = known[q], values[shown][t]
        usual = launch.value / launch.lists if launch.lists else 0.5
        launch = launch.after(shown, value, share, (total + usual) / (count + 1))
        known[q] = total + value, count + 1
        if launch.mode != "guarded":
            shares[t + 1 :] = launch.share()
            break
    gained = np.cumsum(shares) * gain
    kept = np.linspace(0, n, POINTS + 1, dtype=int)[1:] - 1
    return {
        "mode": launch.mode,
        "lists": launch.lists,
        "gained": float(gained[-1]),
        "worst": float((-gained - study.guard.margin * np.arange(1, n + 1)).max()),
        "share": shares[kept].tolist(),
    }
