"""An experiment: rankers crossed with users and seeds on one data set, as a value that is kept beside its records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from pairrank import archive, click_models, rankers
from pairrank.errors import FileFormatError, NewerFormatError, OptionError, PairRankError
from pairrank.sim import Protocol, RunSpec
from pairrank.sim.run import load_splits
from pairrank.sim.spec import canonical

FORMAT = 1
FILE = "experiment.json"
DEFAULTS = "defaults.json"
USERS = ("perfect", "navigational", "informational")
ROUNDS, SEEDS = 5000, 20  # the paper's
CEILING = "offline-ranknet"  # sees the labels and does not compete
# Dense at the start, where rankers learn, and a few times in every 200 rounds, over which the paper averages.
SCHEDULE = "geometric:12+every:100"


@dataclass(frozen=True, kw_only=True)
class Experiment(Protocol):
    """What is run, by which protocol, and what the report says of it.

    title : of the report. command : the command line that makes it.
    rankers, users : short texts, in the order of tables and legends. seeds : how many, from 0.
    study : name of the ablation, or nothing for a comparison of rankers.
    facts : what is said of the data: by split, the numbers of queries, documents, features and grades.
    options : by ranker, all of its options as this version resolves them, defaults included.
    """

    title: str
    command: str
    rankers: tuple[str, ...]
    users: tuple[str, ...] = USERS
    seeds: int = SEEDS
    rounds: int = ROUNDS
    schedule: str = SCHEDULE
    study: str = ""
    facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def specs(self, seeds: Iterable[int] | None = None) -> list[RunSpec]:
        """All runs; seed by seed, so that a sweep under way can be looked at as a smaller one that is whole.

        ``seeds`` : where they do not count from 0.
        """
        return [
            self.run(ranker, users, seed)
            for seed in (range(self.seeds) if seeds is None else seeds)
            for users in self.users
            for ranker in self.rankers
        ]

    def resolved(self) -> Experiment:
        """The same with facts and options filled in."""
        facts = {
            split.split: {
                "queries": split.n_queries,
                "documents": split.n_docs,
                "features": split.n_features,
                "grades": split.n_grades,
            }
            for split in load_splits(self)
        }
        width = facts["train"]["features"]
        for who in self.users:
            click_models.make(who, n_grades=facts["train"]["grades"])
        return replace(self, facts=facts, options={ranker: options(ranker, width) for ranker in self.rankers})

    def save(self, out: str | os.PathLike[str]) -> None:
        """Write it to its file in ``out``."""
        text = json.dumps({"format": FORMAT, **asdict(self), "content": self.contents}, indent=1)
        archive.write_atomically(Path(out) / FILE, text.encode() + b"\n")

    @classmethod
    def load(cls, out: str | os.PathLike[str]) -> Experiment | None:
        """The experiment of a folder; None where nobody wrote one down."""
        path = Path(out) / FILE
        if not path.exists():
            return None
        try:
            values: dict[str, Any] = dict(json.loads(archive.read_file(path)))
            version = int(values.pop("format"))
        except (KeyError, TypeError, ValueError):
            raise FileFormatError(f"{path} is damaged; delete it to report on whatever runs there are") from None
        NewerFormatError.check(path, version, FORMAT)
        if set(values) - {f.name for f in fields(cls)}:
            raise FileFormatError(f"{path} is damaged: its fields are {sorted(values)}")
        read: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**{"content": "", **read})


def check_defaults(out: str | os.PathLike[str], names: Iterable[str], resume: bool = True) -> None:
    """Write every ranker's options in full to ``out``; refuse to ``resume`` where its runs are of other ones."""
    path, made = Path(out) / DEFAULTS, Experiment.load(out)
    before: dict[str, Any] = dict(made.options) if made else {}
    try:
        before |= json.loads(archive.read_file(path)) if path.exists() else {}
    except (TypeError, ValueError):
        raise FileFormatError(f"{path} is damaged; give another --out, or delete it") from None
    # Of one feature, as here and in experiments of older versions; in others of as many as the data have.
    widths = (1, made.facts.get("train", {}).get("features", 1)) if made else (1,)
    now: dict[str, Any] = {}
    for name in names:
        with suppress(PairRankError):  # one that cannot be made is told by its run
            now[canonical(name)] = [json.loads(json.dumps(options(name, width))) for width in widths]
    for ranker, given in now.items():
        if resume and ranker in before and before[ranker] not in given:
            raise OptionError(
                f"{os.fspath(out)} holds runs of {ranker} with other defaults than this version's; give another --out, "
                "or --no-resume to run them again"
            )
    if path.parent.exists():  # `demo` asks before it makes one
        before |= {ranker: given[0] for ranker, given in now.items()}
        archive.write_atomically(path, json.dumps(before, indent=1).encode() + b"\n")


def options(ranker: str, n_features: int = 1) -> dict[str, Any]:
    """All options of a ranker, resolved, as JSON gives them back."""
    made = rankers.make(ranker, n_features=n_features)
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in made.settings.items()}
