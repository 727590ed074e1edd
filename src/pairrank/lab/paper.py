"""The paper's experiments as values: which rankers, which users, how long, how often."""

from __future__ import annotations

from pairrank.lab import tuned_options as tuned
from pairrank.lab.experiment import SCHEDULE, SEEDS, USERS, Experiment
from pairrank.lab.tuned_options import Settings
from pairrank.sim import Protocol
from pairrank.sim.spec import data_name

# The paper's, in the order of tables and legends; the last one learns from labels and is the ceiling. Rankers that are
# younger than the paper take part in studies of their own.
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

# Small enough for a minute on two cores, noisy enough that rankers differ.
DEMO = Protocol(data="synthetic:linear(queries=300, docs=25, features=30, noise=1)", rounds=600)
DEMO_SEEDS = 5


def comparison(
    protocol: Protocol,
    *,
    command: str,
    title: str = "",
    users: tuple[str, ...] = USERS,
    seeds: int = SEEDS,
    settings: Settings | None = None,
    more: tuple[str, ...] = (),
) -> Experiment:
    """All rankers, and ``more``, against all users by ``protocol``, with tuned ``settings`` where given."""
    return Experiment(
        **protocol.shared() | {"schedule": SCHEDULE},
        title=title or f"PairRank and its baselines on {data_name(protocol.data)}",
        command=command,
        rankers=tuple(dict.fromkeys(tuned.applied(name, settings or {}) for name in (*RANKERS, *more))),
        users=users,
        seeds=seeds,
    ).resolved()
