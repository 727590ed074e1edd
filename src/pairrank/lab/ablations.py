"""Studies by name: one choice of PairRank's varied, all else equal; and rankers under drift and under attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pairrank import click_models, rankers, short_text
from pairrank.errors import OptionError, UnknownNameError
from pairrank.lab.experiment import SCHEDULE, USERS, Experiment
from pairrank.sim import Protocol
from pairrank.sim.spec import data_name

BASE = "pairrank-c"  # the paper's ranker: most of these choices are the paper's or the authors' program's

# The way from the paper's ranker to our default, one remedy after the other.
_SCORE = {"width": "score", "z": 0.2}
_AVERAGED = {**_SCORE, "pairs": "averaged"}
_SHOWN = {**_SCORE, "pairs": "shown"}


@dataclass(frozen=True)
class Study:
    """What varies.

    variants : options of one ranker; where it has a choice already, that is one of the variants.
    base : the ranker, unless told otherwise. beside : other rankers that take part as they are.
    hostile : there are also users with such shares of attackers. drift : also users whose intent changes halfway.
    """

    variants: tuple[Mapping[str, Any], ...]
    base: str = BASE
    beside: tuple[str, ...] = ()
    hostile: tuple[float, ...] = ()
    drift: bool = False

    def users(self, who: str, rounds: int) -> list[str]:
        """The users of the study that ``who`` become."""
        who = click_models.canonical(who)
        name, given = short_text.parse(who) or (who, {})
        changes: list[dict[str, Any]] = [{"hostile": share} for share in self.hostile]
        if self.drift:
            changes.append({"drift": max(rounds // 2, 1)})
        if taken := [option for change in changes for option in change if option in given]:
            raise OptionError(
                f"the study varies {taken[0]}, and the users {who!r} say it already; give them without it, as in {name}"
            )
        return [who, *(click_models.canonical(short_text.spell(name, given | change)) for change in changes)]


# Each of the default's choices that has another answer.
_OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"pairs": "averaged"},
    {"pairs": "averaged", "offsets": False},
    {"offsets": False},
    {"units": "range"},
    {"exploration": "random"},
)
_OTHERS = ("pairrank-c", "pdgd", "mgd", "dbgd", "sgd-ranknet", "p2linrank", "posterior-sampling")
_FORGETTING: tuple[Mapping[str, Any], ...] = ({}, *({"half_life": lists} for lists in (250, 500, 1000)))

STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        "pairs": Study(({"pairs": "adjacent"}, {"pairs": "matched"}, {"pairs": "all"}, {"pairs": "averaged"})),
        "refine": Study(({"refine": False}, {"refine": True})),
        "alpha": Study(({"alpha": "theory"}, *({"alpha": alpha} for alpha in (0.01, 0.03, 0.1, 0.3, 1.0)))),
        # The authors' loss is a mean: in the paper's units its penalty grows with the number of pairs.
        "lambda": Study(
            (
                *({"lam": lam, "loss": "sum"} for lam in (0.01, 0.1, 1.0, 10.0)),
                *({"lam": lam, "loss": "mean"} for lam in (0.01, 0.1)),
            )
        ),
        # Without width nothing is uncertain, and nothing is explored.
        "exploration": Study(({"exploration": "conservative"}, {"exploration": "random"}, {"alpha": 0.0, "z": 0.0})),
        "remedies": Study(
            ({}, _SCORE, _AVERAGED, _SHOWN, {**_SHOWN, "offsets": True}, {**_SHOWN, "offsets": True, "units": "spread"})
        ),
        "z": Study(tuple({"width": "score", "z": z} for z in (0.05, 0.1, 0.2, 0.4, 0.8)), base="pairrank"),
        "options": Study(({}, *_OPTIONS), base="pairrank"),
        "drift": Study(_FORGETTING, base="pairrank", beside=_OTHERS, drift=True),
        "hostile": Study(({},), base="pairrank", beside=_OTHERS, hostile=(0.1, 0.2, 0.3)),
    }
)


def experiment(
    study: str,
    protocol: Protocol,
    *,
    command: str,
    base: str | None = None,
    users: tuple[str, ...] = USERS,
    seeds: int = 10,
) -> Experiment:
    """The variants of ``base`` that ``study`` compares by ``protocol``, with those beside them, as an experiment."""
    if study not in STUDIES:
        raise UnknownNameError(f"no study is called {study!r}; there are: {', '.join(STUDIES)}")
    chosen = STUDIES[study]
    base = base or chosen.base
    name, given = rankers.parse(base)
    variants = [rankers.spell(name, {**given, **variant}) for variant in chosen.variants]
    return Experiment(
        **protocol.shared() | {"schedule": SCHEDULE},
        title=f"Ablation of {base} on {data_name(protocol.data)}: {study}",
        command=command,
        rankers=tuple(dict.fromkeys([*variants, *chosen.beside])),
        users=tuple(dict.fromkeys(text for who in users for text in chosen.users(who, protocol.rounds))),
        seeds=seeds,
        study=study,
    ).resolved()
