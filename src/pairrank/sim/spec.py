"""What a simulated run is: a frozen value, to and from JSON, with an id that is a hash of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from pairrank import click_models, rankers
from pairrank.checking import check_choice, check_whole
from pairrank.data.layout import SPLITS
from pairrank.data.loading import content_key
from pairrank.errors import FileFormatError, NewerFormatError, OptionError, PairRankError, UnknownNameError
from pairrank.rng import check_seed
from pairrank.types import IntArray

SPEC_VERSION = 1

_NAMED = ("synthetic:", "memory:")  # data that are no files
_SCHEDULE = re.compile(r"(geometric|every):[1-9]\d*(\+(geometric|every):[1-9]\d*)*")


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How runs are made and measured, whatever the ranker, the users and the seed.

    Attributes
    ----------
    data : folder, file or ``synthetic:`` name. fold, normalise : how it is read.
    rounds : queries served. k : positions shown.
    evaluation : the split that held-out NDCG@10 is measured on.
    schedule : after which rounds it is measured: ``geometric:N`` (N times in every tenfold), ``every:N``, or both,
        joined by ``+``; and after the last.
    panel : how many training queries the block statistics are averaged over.
    ideal : the ranker whose weights the cosine compares with, fitted to the training labels; empty for none. Known
        ideal weights of the data come first.
    content : a hash of what files at ``data`` hold, empty for names; None where nobody has looked yet, see `contents`.
    """

    data: str
    rounds: int = 1000
    k: int = 10
    fold: int = 1
    normalise: str = "query"
    evaluation: str = "test"
    schedule: str = "geometric:12"
    panel: int = 10
    ideal: str = "offline-ranknet"
    content: str | None = None

    def __post_init__(self) -> None:
        for name in ("data", "normalise", "evaluation", "schedule", "ideal"):
            object.__setattr__(self, name, _text(name, getattr(self, name)))
        for name, low in (("rounds", 1), ("k", 1), ("fold", 1), ("panel", 0)):
            object.__setattr__(self, name, check_whole(name, getattr(self, name), low))  # no numpy number, for the JSON
        check_choice("evaluation", self.evaluation, SPLITS)
        if not _SCHEDULE.fullmatch(self.schedule):
            raise OptionError(f"schedule is {self.schedule!r}; expected geometric:N or every:N, as in geometric:12")
        if self.content is None and self.data.startswith(_NAMED):
            object.__setattr__(self, "content", "")

    @cached_property
    def contents(self) -> str:
        """``content``, found where it was not given: the first question reads the files.

        It stands for the path in a run's id: data that were moved are the same, data that were changed are not.
        """
        return content(self.data, self.fold, self.evaluation) if self.content is None else self.content

    def shared(self) -> dict[str, Any]:
        """The fields of a protocol by name, for a value that has them too."""
        return {f.name: getattr(self, f.name) for f in fields(Protocol)} | {"content": self.contents}

    def run(self, ranker: str, clicks: str, seed: int) -> RunSpec:
        """The run of one ranker with one kind of users and one seed."""
        return RunSpec(ranker=ranker, clicks=clicks, seed=seed, **self.shared())


@dataclass(frozen=True, kw_only=True)
class RunSpec(Protocol):
    """One simulated run: a protocol with a ranker, users and a seed. Equal specs give equal records, bit for bit.

    Attributes
    ----------
    ranker : short text, as in ``pairrank-c(alpha=0.3)``. clicks : the users' short text.
    seed : of the queries, the users' coins and the ranker.

    >>> spec = RunSpec(data="synthetic:tiny", ranker="pairrank-c( alpha = 0.3 )", rounds=30, schedule="every:10")
    >>> spec.ranker
    'pairrank-c(alpha=0.3)'
    >>> spec.evaluation_rounds()
    array([10, 20, 30])
    >>> RunSpec.from_json(spec.to_json()) == spec
    True
    """

    ranker: str = "pairrank"
    clicks: str = "navigational"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "seed", check_seed(self.seed))
        if not isinstance(self.ranker, str):
            raise OptionError(
                f"ranker is {described(self.ranker)}; a spec holds a short text such as pairrank-c(alpha=0.3), and a "
                "ranker of your own goes to pairrank.simulate(..., ranker=YourRanker(n_features))"
            )
        # One spelling for one run, so that its id does not depend on spaces or on the order of options.
        object.__setattr__(self, "ranker", canonical(self.ranker))
        object.__setattr__(self, "clicks", click_models.canonical(_text("clicks", self.clicks)))

    @property
    def run_id(self) -> str:
        """Sixteen hex digits, a hash of everything above but where the data lie."""
        return hashlib.sha256(self._json("data" if self.contents else "content").encode()).hexdigest()[:16]

    def evaluation_rounds(self) -> IntArray:
        """The rounds after which the ranker is evaluated, rising; the last one is always among them."""
        rounds = np.concatenate([_rounds(part, self.rounds) for part in self.schedule.split("+")])
        return np.union1d(rounds[rounds < self.rounds], [self.rounds])

    def to_json(self) -> str:
        """Canonical JSON, with the version of the format."""
        return self._json("" if self.contents else "content")

    def _json(self, without: str) -> str:
        values = {**asdict(self), "content": self.contents}
        values.pop(without, None)
        return json.dumps({"version": SPEC_VERSION, **values}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "this spec") -> RunSpec:
        """The spec that `to_json` wrote; refuses what a newer version wrote."""
        try:
            values: dict[str, Any] = dict(json.loads(text))
            version = int(values.pop("version"))
        except (KeyError, TypeError, ValueError):
            raise FileFormatError(f"{source} is not the JSON of a run's spec, or is damaged") from None
        NewerFormatError.check(source, version, SPEC_VERSION)
        unknown = set(values) - {f.name for f in fields(cls)}
        if unknown or "data" not in values:
            raise FileFormatError(f"{source} is damaged: its fields are {sorted(values)}")
        return cls(**{"content": "", **values})


def content(data: str, fold: int, evaluation: str) -> str:
    """A hash of what a run takes from files at ``data``; empty for names, and where there are no such files."""
    if data.startswith(_NAMED):
        return ""
    try:
        return content_key(data, ("train", evaluation), fold)
    except (OSError, PairRankError):
        return ""  # loading them will say what is wrong


def _text(name: str, value: object) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise OptionError(f"{name} is {value!r}; expected a text")
    return os.fspath(value)


def _rounds(schedule: str, last: int) -> IntArray:
    kind, number = schedule.split(":")
    if kind == "every":
        return np.arange(int(number), last, int(number))
    steps = np.arange(int(number) * np.log10(last) + 1) / int(number)
    return np.rint(10.0**steps).astype(np.int64)


def data_name(data: str) -> str:
    """What data are called in titles and tables: the last part of their path, or the whole name."""
    return os.path.basename(os.path.abspath(data))  # "." has a name, too


def described(ranker: object) -> str:
    """What came in place of a ranker, for a message."""
    return f"the class {ranker.__name__}" if isinstance(ranker, type) else f"a {type(ranker).__name__}"


def canonical(ranker: str) -> str:
    """A ranker's short text in the one spelling that specs have."""
    try:
        return rankers.spell(*rankers.parse(ranker))
    except UnknownNameError:
        # Perhaps somebody's own ranker, handed to `simulate` as an object; `rankers.make` will say if it is not.
        return ranker
