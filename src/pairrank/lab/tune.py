"""Hyper-parameters by validation performance: successive halving over a declared space for each ranker.

Many settings are drawn at random and played for a few rounds; the better third goes on for three times as many, and
so on to the full number. The ranker's own defaults take part to the end, so that what comes out is never worse than
they are on the validation split. All of it is runs like any other: every engine serves, and what is done is kept.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from pairrank import archive, metrics, rankers
from pairrank.checking import check_choice, check_whole
from pairrank.errors import OptionError, UnknownNameError
from pairrank.lab.experiment import USERS
from pairrank.lab.outcomes import RunsFailedError
from pairrank.lab.tuned_options import FORMAT
from pairrank.rng import Purpose, generator
from pairrank.sim import Protocol, RunSpec, Summary
from pairrank.sim.spec import data_name
from pairrank.version import __version__

KEPT = 3  # one in so many goes on, for as many times the rounds
FIRST_SEED = 1000  # seeds below are left to the experiments that the settings are for
OBJECTIVES = ("offline", "cndcg", "mix")
# As the paper does: its own rankers and the two RankNet baselines; the others have the settings of their papers.
RANKERS = ("pairrank-c", "pairrank-r", "epsilon-greedy", "sgd-ranknet")

RunAll = Callable[[Sequence[RunSpec], str | None], list[Summary]]
Options = Mapping[str, Any]


# By option, (low, high): numbers drawn evenly on a log scale, to two digits; or a list of values to choose from.
Space = Mapping[str, tuple[float, float] | list[Any]]
_PAPER: Space = {"alpha": (0.003, 1.0), "lam": (0.01, 30.0)}
SPACES: Mapping[str, Space] = MappingProxyType(
    {
        "pairrank": {"z": (0.05, 3.0), "lam": (0.1, 100.0)},
        "pairrank-c": _PAPER,
        "pairrank-r": _PAPER,
        "pdgd": {"learning_rate": (0.003, 3.0)},
        "dbgd": {"learning_rate": (0.001, 1.0), "delta": (0.1, 10.0)},
        "mgd": {"learning_rate": (0.001, 1.0), "delta": (0.1, 10.0), "n_candidates": [9, 19, 49]},
        "epsilon-greedy": {"learning_rate": (0.0003, 1.0), "epsilon": (0.02, 0.8)},
        "sgd-ranknet": {"learning_rate": (0.0003, 1.0)},
        "olranknet": {"learning_rate": (0.0001, 0.01), "alpha": (0.0005, 0.5), "lam": (0.01, 100.0)},
    }
)


def drawn(values: tuple[float, float] | list[Any], coin: float) -> Any:
    """What stands at ``coin`` in [0, 1) of the way through the values of an option."""
    if isinstance(values, list):
        return values[int(coin * len(values))]
    low, high = values
    return float(f"{low * (high / low) ** coin:.2g}")


@dataclass(frozen=True, kw_only=True)
class Task(Protocol):
    """What is tuned by which protocol, and how much is spent on it.

    ``trials`` settings are drawn per ranker; the last ones are played for ``rounds`` with ``seeds`` seeds each.
    """

    objective: str = "mix"
    users: tuple[str, ...] = USERS
    rounds: int = 2000
    seeds: int = 3
    trials: int = 18
    evaluation: str = "vali"
    panel: int = 0
    ideal: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("objective", self.objective, OBJECTIVES)
        for name in ("seeds", "trials"):
            check_whole(name, getattr(self, name), 1)

    def rungs(self) -> list[tuple[int, int]]:
        """How many settings are played for how many rounds, first to last."""
        steps = int(math.log(self.trials, KEPT) + 1e-9)
        return [(self.trials // KEPT**step, max(1, self.rounds // KEPT ** (steps - step))) for step in range(steps + 1)]

    def draws(self, space: Space) -> list[dict[str, Any]]:
        """The settings that take part: the defaults first, then what chance gives."""
        coins = generator(self.seed, 0, Purpose.INIT).random((self.trials - 1, len(space)))
        names = sorted(space)
        return [{}] + [
            {name: drawn(space[name], coin) for name, coin in zip(names, row.tolist(), strict=True)} for row in coins
        ]

    def specs(self, ranker: str, rounds: int) -> list[RunSpec]:
        """The runs of one setting on one rung."""
        rung = replace(self, rounds=rounds, schedule=f"every:{rounds}", content=self.contents)
        return [rung.run(ranker, users, FIRST_SEED + seed) for users in self.users for seed in range(self.seeds)]

    def value(self, runs: Sequence[Summary]) -> float:
        """The objective, higher is better, from 0 to 1; a setting with a failed run is out."""
        if len(runs) < self.seeds * len(self.users):
            return -math.inf
        offline = float(np.mean([run.ndcg for run in runs]))
        # Over its largest possible value, so that a mix means something.
        online = float(np.mean([run.cndcg / metrics.cndcg(np.ones(run.spec.rounds)) for run in runs]))
        return {"offline": offline, "cndcg": online, "mix": (offline + online) / 2}[self.objective]


@dataclass(frozen=True)
class Tuned:
    """What was found for one ranker: the options, their value, that of the defaults, and all that was tried."""

    ranker: str
    options: Options
    value: float
    default: float
    trials: tuple[Mapping[str, Any], ...]


def tune(ranker: str, task: Task, run_all: RunAll, out: str | None = None) -> Tuned:
    """The best options of ``ranker`` for the task; ``run_all(specs, out)`` plays the runs."""
    name, given = rankers.parse(ranker)
    alive = [{**given, **options} for options in task.draws(space(name))]
    default, tried = alive[0], list[Mapping[str, Any]]()
    values: list[float] = []
    for keep, rounds in task.rungs():
        # Settings that are still in, best first; the defaults stay to the end.
        best = sorted(range(len(values)), key=lambda i: -values[i])[:keep]
        alive = alive if not values else [alive[i] for i in best] + ([default] if alive[best[0]] is not default else [])
        alive = [options for i, options in enumerate(alive) if options not in alive[:i]]
        values = _play(name, alive, rounds, task, run_all, out)
        tried += [{"options": o, "rounds": rounds, "value": v} for o, v in zip(alive, values, strict=True)]
    first = int(np.argmax(values))
    return Tuned(name, alive[first], values[first], values[alive.index(default)], tuple(tried))


def space(name: str) -> Space:
    """What is tuned of a ranker; one of one's own says so: ``SPACE = {"rate": (0.01, 1.0), "depth": [1, 2]}``."""
    if name in SPACES:
        return SPACES[name]
    told: Space = getattr(rankers.class_of(name)[0], "SPACE", {})
    if not told:
        raise UnknownNameError(
            f"{name} has nothing to tune; there are spaces for: {', '.join(sorted(SPACES))}, and for classes with SPACE"
        )
    known = rankers.options(name)
    for option, values in told.items():
        if option not in known or not _has_values(values):
            raise OptionError(
                f"the SPACE of {name} has {option!r}: {values!r}; expected its options, each with (low, high) above 0 "
                "or a list"
            )
    return told


def _has_values(values: object) -> bool:
    match values:
        case list():
            return bool(values)
        case (int() | float() as low, int() | float() as high):
            return 0 < low <= high
    return False


def _play(
    name: str, settings: Sequence[Options], rounds: int, task: Task, run_all: RunAll, out: str | None
) -> list[float]:
    spelt = [rankers.spell(name, options) for options in settings]
    specs = [spec for ranker in spelt for spec in task.specs(ranker, rounds)]
    failed = None
    try:
        runs: Sequence[Summary] = run_all(specs, out)
    except RunsFailedError as problem:
        failed, runs = problem, problem.summaries
    values = [task.value([run for run in runs if run.spec.ranker == ranker]) for ranker in spelt]
    if failed is not None and max(values) == -math.inf:
        raise failed
    return values


def save(path: str | os.PathLike[str], task: Task, found: Sequence[Tuned], command: str) -> None:
    """Write a settings file: the options, and how they were found."""
    content = {
        "format": FORMAT,
        "rankers": {
            tuned.ranker: {
                "options": dict(tuned.options),
                "value": round(tuned.value, 5),
                # JSON has no infinity, the value of what failed.
                "value_of_defaults": round(tuned.default, 5) if math.isfinite(tuned.default) else None,
                "tried": len({json.dumps(trial["options"], sort_keys=True) for trial in tuned.trials}),
                "space": dict(sorted(space(tuned.ranker).items())),
            }
            for tuned in found
        },
        "found": {
            "command": command,
            "data": data_name(task.data),
            "fold": task.fold,
            "split": "vali",
            "objective": task.objective,
            "users": list(task.users),
            "rungs (settings, rounds)": task.rungs(),
            "seeds": [FIRST_SEED + seed for seed in range(task.seeds)],
            "pairrank": __version__,
        },
    }
    archive.write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")
