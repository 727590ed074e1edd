"""An experiment: rankers crossed with users and seeds on one data set, as a value that is kept beside its records."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from pairrank import archive, rankers
from pairrank.errors import FileFormatError, NewerFormatError, OptionError
from pairrank.sim import RunSpec
from pairrank.sim.run import load_splits
from pairrank.sim.spec import content

FORMAT = 1
FILE = "experiment.json"
USERS = ("perfect", "navigational", "informational")
# Dense at the start, where rankers learn, and a few times in every 200 rounds, over which the paper averages.
SCHEDULE = "geometric:12+every:100"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is run, and what the report says of it.

    Attributes
    ----------
    title : of the report. command : the command line that makes it.
    data, fold, normalise, k, rounds, schedule : as in `RunSpec`. seeds : how many, from 0.
    rankers, users : short texts, in the order of tables and legends.
    study : name of the ablation, or nothing for a comparison of rankers.
    facts : what is said of the data: by split, the numbers of queries, documents, features and grades.
    options : by ranker, all of its options as this version resolves them, defaults included.
    content : as in `RunSpec`; kept, so that a report needs the records alone.
    """

    title: str
    command: str
    data: str
    rankers: tuple[str, ...]
    users: tuple[str, ...] = USERS
    rounds: int = 5000
    seeds: int = 20
    fold: int = 1
    k: int = 10
    normalise: str = "query"
    schedule: str = SCHEDULE
    study: str = ""
    facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    content: str | None = None

    def __post_init__(self) -> None:
        if self.content is None:
            object.__setattr__(self, "content", content(self.data, self.fold, "test"))

    def specs(self) -> list[RunSpec]:
        """All runs; seed by seed, so that a sweep under way can be looked at as a smaller one that is whole."""
        return [
            RunSpec(
                data=self.data,
                ranker=ranker,
                clicks=users,
                rounds=self.rounds,
                seed=seed,
                k=self.k,
                fold=self.fold,
                normalise=self.normalise,
                schedule=self.schedule,
                content=self.content,
            )
            for seed in range(self.seeds)
            for users in self.users
            for ranker in self.rankers
        ]

    def resolved(self) -> Experiment:
        """The same with facts and options filled in."""
        return replace(
            self,
            facts=facts(self.data, self.fold, self.normalise),
            options={ranker: options(ranker) for ranker in self.rankers},
        )

    def check_defaults(self, out: str | os.PathLike[str]) -> None:
        """Refuse to go on in a folder whose records were made when a ranker's defaults were others."""
        before = Experiment.load(out)
        for ranker, known in (before.options if before else {}).items():
            if known != self.options.get(ranker, known):
                raise OptionError(
                    f"{os.fspath(out)} holds runs of {ranker} with other defaults than this version's; give another "
                    "--out, or --no-resume to run them again"
                )

    def save(self, out: str | os.PathLike[str]) -> None:
        """Write it to its file in ``out``."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=1)
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
        if version > FORMAT:
            raise NewerFormatError(f"{path} has format {version}; this PairRank reads up to {FORMAT}: upgrade pairrank")
        if set(values) - {f.name for f in fields(cls)}:
            raise FileFormatError(f"{path} is damaged: its fields are {sorted(values)}")
        read: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**{"content": "", **read})


def facts(data: str, fold: int, normalise: str) -> dict[str, dict[str, int]]:
    """Numbers of queries, documents, features and grades of the splits that are trained and evaluated on."""
    splits = load_splits(RunSpec(data=data, fold=fold, normalise=normalise))
    return {
        split.split: {
            "queries": split.n_queries,
            "documents": split.n_docs,
            "features": split.n_features,
            "grades": split.n_grades,
        }
        for split in splits
    }


def options(ranker: str) -> dict[str, Any]:
    """All options of a ranker, resolved, as JSON gives them back."""
    made = rankers.make(ranker, n_features=1)
    settings = getattr(made, "settings", None)
    found: dict[str, Any] = asdict(settings) if settings is not None else made.options()
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}
