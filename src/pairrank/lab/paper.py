"""The paper's experiments as values: which rankers, which users, how long, how often."""

from __future__ import annotations

from pathlib import Path

from pairrank.lab import settings as tuned
from pairrank.lab.experiment import USERS, Experiment
from pairrank.lab.settings import Settings

# In the order of tables and legends; the last one learns from labels and is the ceiling.
RANKERS = (
    "pairrank",
    "pairrank-c",
    "pairrank-r",
    "pdgd",
    "mgd",
    "dbgd",
    "epsilon-greedy",
    "sgd-ranknet",
    "offline-ranknet",
)
# Rankers that are younger than the paper take part in studies of their own, not in its experiments.
YOUNGER = ("p2linrank", "posterior-sampling")
ROUNDS, SEEDS = 5000, 20

# Small enough for a minute on two cores, noisy enough that rankers differ.
DEMO_DATA = "synthetic:linear(queries=300, docs=25, features=30, noise=1)"
DEMO_ROUNDS, DEMO_SEEDS = 600, 5


def comparison(
    data: str,
    *,
    command: str,
    title: str = "",
    users: tuple[str, ...] = USERS,
    rounds: int = ROUNDS,
    seeds: int = SEEDS,
    fold: int = 1,
    k: int = 10,
    normalise: str = "query",
    settings: Settings | None = None,
) -> Experiment:
    """All rankers against all users on ``data``, with tuned ``settings`` where given."""
    return Experiment(
        title=title or f"PairRank and its baselines on {Path(data).name}",
        command=command,
        data=data,
        rankers=tuple(tuned.applied(name, settings or {}) for name in RANKERS),
        users=users,
        rounds=rounds,
        seeds=seeds,
        fold=fold,
        k=k,
        normalise=normalise,
    ).resolved()
