"""The values that go into and come out of a store."""

from __future__ import annotations

import hmac
import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from pairrank import rankers
from pairrank.errors import OptionError, PairRankError
from pairrank.rankers import priors
from pairrank.trials.experiment import Definition

DAY = 86_400.0


class RankerExistsError(PairRankError):
    """A ranker of this name has another configuration; configurations are frozen."""


class ConflictError(PairRankError):
    """Something of this name is another, or something that runs needs what should go."""


class VersionError(PairRankError):
    """A version that is not kept, so that nothing can go back to it."""


class Status(StrEnum):
    """What became of feedback or of an event. Only the first changed anything."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  # the impression has its feedback, or the event was seen before
    LATE = "late"  # an event after the window closed
    EXPIRED = "expired"  # older than the retention, compacted away, or from before the store was restored
    UNKNOWN = "unknown"  # no such impression was ever served
    FOREIGN = "foreign"  # a document that the impression did not show


@dataclass(frozen=True, slots=True)
class Prior:
    """Weights (n_features,) to start from, None where one is not known, worth ``strength`` pairs of clicks.

    variance : of the difference of two documents of one list, one for all features or one each; None is the default.
    """

    weights: tuple[float | None, ...]
    strength: float
    variance: float | tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """What a ranker is, fixed when it is created."""

    n_features: int
    ranker: str = "pairrank"
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    prior: Prior | None = None

    def make(self) -> rankers.Ranker:
        """A ranker that has seen nothing."""
        rankers.parse(self.ranker, files=False)  # nor one that a store names
        named = {} if self.feature_names is None else {"feature_names": self.feature_names}
        ranker = rankers.make(self.ranker, n_features=self.n_features, seed=self.seed, **named, **self.options)
        if self.prior is not None:
            lam = priors.settings_of(ranker).lam
            weights = [math.nan if weight is None else weight for weight in self.prior.weights]
            variance = priors.EVEN if self.prior.variance is None else self.prior.variance
            priors.from_weights(weights, lam=lam, strength=self.prior.strength, variance=variance).apply(ranker)
        return ranker

    def to_json(self) -> str:
        values = asdict(self)
        if self.prior is None:  # as it was written before there were priors
            del values["prior"]
        elif self.prior.variance is None:
            del values["prior"]["variance"]
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Config:
        values = json.loads(text)
        names, prior = values.pop("feature_names"), values.pop("prior", None)
        if prior is not None:
            known: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in prior.items()}
            prior = Prior(**known)
        return cls(**values, feature_names=None if names is None else tuple(names), prior=prior)


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be changed while a ranker serves.

    explore_share : share of the impressions that may explore; the rest is shown by score and teaches nothing.
    locked : positions at the top that are always by score.
    window_seconds : how long single events are collected before an impression is learned.
    retention_seconds : how long an impression waits for feedback before it expires.
    max_open : impressions that may wait at once.
    keep_candidates : lists of up to so many documents are logged with what was not shown, for ``pairrank evaluate``.
    """

    explore_share: float = 1.0
    locked: int = 0
    window_seconds: float = 600.0
    retention_seconds: float = DAY
    max_open: int = 1_000_000
    keep_candidates: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def changed(self, values: Mapping[str, Any]) -> Limits:
        """These limits with some replaced, if they go together."""
        merged = replace(self, **values)  # each within its own bounds: see `LimitsBody`
        if not 0 < merged.window_seconds <= merged.retention_seconds <= 3650 * DAY:
            given = f"window_seconds is {merged.window_seconds:g} and retention_seconds {merged.retention_seconds:g}"
            raise OptionError(f"{given}; expected 0 < window_seconds <= retention_seconds <= ten years")
        return merged


@dataclass(frozen=True, slots=True)
class Aside:
    """A log entry that was set aside: it made the ranker fail, changed nothing, and is passed over by every replay."""

    log_entry: int
    reason: str


class LaunchHead(NamedTuple):
    """How a ranker is launched, as it acts: ``share`` of a guarded one was worked out at ``looked``.

    epoch : the log entry that began it. decided : what was asked for, JSON. most_lost : of a document's exposure.
    """

    mode: str
    epoch: int
    decided: str
    most_lost: float
    share: float
    looked: float
    breaches: int


@dataclass(frozen=True, slots=True)
class RankerRow:
    """A ranker as the store has it: its configuration, the head of its log and the head of its model."""

    id: int
    name: str
    config: Config
    limits: Limits
    secret: str
    frozen: bool
    pinned: int | None
    next_number: int
    log_seq: int
    base: int
    feedback_count: int
    created: float
    version: int
    applied: int
    learned: int
    skipped: int
    digest: str
    updated: float
    open_count: int
    set_aside: int  # entries that the ranker refused or failed on
    last_set_aside: Aside | None  # the last of them
    stopped: str | None  # why the learner does not follow this ranker's log any further
    launch: LaunchHead | None = None

    @property
    def served_version(self) -> int:
        """The version that lists are made with."""
        return self.version if self.pinned is None else self.pinned

    @property
    def lag(self) -> int:
        """How many entries are logged and not yet applied."""
        return self.log_seq - self.applied

    @property
    def launch_share(self) -> float:
        """The share of the lists that get this ranker's order, and not the present one."""
        return 1.0 if self.launch is None else {"free": 1.0, "guarded": self.launch.share}.get(self.launch.mode, 0.0)


class Head(NamedTuple):
    """Where a ranker stands: its model's version, the last entry applied, the last one logged, impressions waiting."""

    version: int
    applied: int
    log_seq: int
    open_count: int
    stopped: bool
    launch: LaunchHead | None = None


# The digits of a batch in a token.
_BATCH = 12


def new_batch() -> str:
    """A random mark for impression numbers that were allocated together.

    A store that is restored, or a copy of its file, gives out numbers again. With the mark of its allocation in each
    token no id is ever given out twice, and none of before is taken for that of another list.
    """
    return secrets.token_hex(_BATCH // 2)


def token_of(secret: str, number: int, batch: str) -> str:
    """What proves that an impression was served: its number's batch, and 64 bits that only this ranker can tell."""
    mac = _mac(secret).copy()
    mac.update(f"{batch}-{number}".encode())
    return batch + mac.digest()[:8].hex()


def proves(secret: str, number: int, token: str) -> bool:
    """Whether a token was made by `token_of`, by this store or by one that it was restored or copied from."""
    return hmac.compare_digest(token.encode(), token_of(secret, number, token[:_BATCH]).encode())


@lru_cache(maxsize=64)
def _mac(secret: str) -> hmac.HMAC:
    """HMAC-SHA256 with the key taken in: most of the work for a text as short as a number."""
    return hmac.new(secret.encode(), digestmod="sha256")


class Served(NamedTuple):
    """An impression as it goes into the store."""

    ranker_id: int
    number: int
    token: str
    created: float
    closes: float
    expires: float
    version: int
    query_id: str | None
    ids: str  # JSON: the shown documents' ids in shown order
    body: bytes  # Impression.to_bytes()
    experiment_id: int | None = None  # where it counts
    client: int | None = None  # of a split: a hash of who got it
    share: float | None = None  # of a guarded launch: with which probability it was ours
    held: int = 0  # 1: logged when its window closes, in the order served, with or without a click
    trial: str | None = None  # JSON: what else counting and further pages need
    candidates: bytes | None = None  # the features of what was not shown, float64, by row number


class Feedback(NamedTuple):
    """The clicks of one impression, whole and final."""

    ranker_id: int
    number: int
    token: str
    clicks: frozenset[str]


class Event(NamedTuple):
    """One click, or another signal, by itself; a reformulation is of the whole list."""

    ranker_id: int
    number: int
    token: str
    event_id: str
    document_id: str | None
    kind: str = "click"


class Verdict(NamedTuple):
    """The answer to feedback or to an event.

    late : accepted after the window. positions, shown : those clicked, of so many; above : so many stood on earlier
    pages. foreign : what was not shown.
    """

    status: Status
    late: bool = False
    positions: tuple[int, ...] = ()
    shown: int = 0
    foreign: str = ""
    above: int = 0


class Entry(NamedTuple):
    """One entry of a ranker's log. Kinds: feedback, frozen (kept, never learned), rollback, launch (a mode begins)."""

    seq: int
    kind: str
    created: float
    target: int | None
    clicks: bytes | None  # one byte a shown position, 0 or 1
    body: bytes | None
    experiment_id: int | None = None
    counts: int | None = None  # 0: a client of a split that has counted before
    trial: str | None = None
    version: int | None = None  # the one that served it
    query_id: str | None = None
    signals: str | None = None  # JSON: what came beside clicks, by kind the shown positions


class ExperimentRow(NamedTuple):
    """An experiment as the store has it; ``state`` is what the log has shown so far, None before anything."""

    id: int
    name: str
    ranker_id: int
    definition: Definition
    created: float
    ended: float | None
    state: dict[str, Any] | None


class Snapshot(NamedTuple):
    """A model after the log entry ``version``."""

    version: int
    learned: int
    skipped: int
    digest: str
    created: float
    kept: bool
    body: bytes = b""


class ImpressionRow(NamedTuple):
    """An impression as the pages show it."""

    number: int
    token: str
    state: str
    time: float
    model_version: int
    query_id: str | None
    ids: tuple[str, ...]
    clicks: tuple[bool, ...] | None  # of a collecting impression: those that have come so far
    log_entry: int | None
    body: bytes | None
    closes: float | None  # when the window of single events closes; None once the impression is logged


class Key(NamedTuple):
    """An access key: only the digest of its secret is kept."""

    name: str
    roles: frozenset[str]
    digest: str
    created: float
