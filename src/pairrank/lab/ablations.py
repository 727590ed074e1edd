"""Ablations by name: one choice of PairRank's varied, all else equal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pairrank import rankers
from pairrank.errors import UnknownNameError
from pairrank.lab.experiment import USERS, Experiment

BASE = "pairrank-c"  # the paper's ranker: all of these choices are the paper's or the authors' program's

# The way from the paper's ranker to our default, one remedy after the other.
_SCORE = {"width": "score", "z": 0.4, "lam": 30.0}
_AVERAGED = {**_SCORE, "pairs": "averaged"}

# What varies. Where the ranker itself has a choice already, it is one of the variants.
STUDIES: Mapping[str, tuple[Mapping[str, Any], ...]] = MappingProxyType(
    {
        "pairs": ({"pairs": "adjacent"}, {"pairs": "matched"}, {"pairs": "all"}, {"pairs": "averaged"}),
        "refine": ({"refine": False}, {"refine": True}),
        "alpha": ({"alpha": "theory"}, *({"alpha": alpha} for alpha in (0.01, 0.03, 0.1, 0.3, 1.0))),
        # The authors' loss is a mean: in the paper's units its penalty grows with the number of pairs.
        "lambda": (
            *({"lam": lam, "loss": "sum"} for lam in (0.01, 0.1, 1.0, 10.0)),
            *({"lam": lam, "loss": "mean"} for lam in (0.01, 0.1)),
        ),
        # Without width nothing is uncertain, and nothing is explored.
        "exploration": (
            {"exploration": "conservative"},
            {"exploration": "random"},
            {"alpha": 0.0, "z": 0.0},
        ),
        "remedies": (
            {},
            _SCORE,
            _AVERAGED,
            {**_AVERAGED, "learn_from": "uncertain", "biased_weight": 0.0},
            {**_AVERAGED, "learn_from": "fair", "biased_weight": 0.0},
            {**_AVERAGED, "learn_from": "fair", "biased_weight": 0.25},
        ),
        "z": tuple({"width": "score", "z": z} for z in (0.1, 0.2, 0.4, 0.7, 1.0)),
    }
)


def experiment(
    study: str,
    data: str,
    *,
    command: str,
    base: str = BASE,
    users: tuple[str, ...] = USERS,
    rounds: int = 2000,
    seeds: int = 10,
    fold: int = 1,
    k: int = 10,
    normalise: str = "query",
) -> Experiment:
    """The variants of ``base`` that ``study`` compares, as an experiment."""
    if study not in STUDIES:
        raise UnknownNameError(f"no study is called {study!r}; there are: {', '.join(STUDIES)}")
    name, given = rankers.parse(base)
    return Experiment(
        title=f"Ablation of {base} on {Path(data).name}: {study}",
        command=command,
        data=data,
        rankers=tuple(rankers.spell(name, {**given, **variant}) for variant in STUDIES[study]),
        users=users,
        rounds=rounds,
        seeds=seeds,
        fold=fold,
        k=k,
        normalise=normalise,
        study=study,
    ).resolved()
