"""What another order would have got, from a service's own log: off-policy estimates, and where the log cannot tell.

A list of the log tells of another order where our draw happened to show what that one would have shown. Its probability
is exact: the log is replayed, and the model that served a list says which orders it kept and which it drew. For that a
list needs all of its candidates, which the log holds where the ranker's limit ``keep_candidates`` says so.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from pairrank import threads
from pairrank.checking import check_choice, check_number_in, check_whole
from pairrank.errors import FeatureError, InputError, OptionError
from pairrank.metrics import mean_interval
from pairrank.rankers import Ranker
from pairrank.rankers.pairrank import PairRank
from pairrank.service.learning.model import Model
from pairrank.service.learning.replay import rebuild, walked
from pairrank.service.store import open_store
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import RankerRow
from pairrank.trials import off_policy
from pairrank.trials.experiment import AS_SENT, Arm
from pairrank.trials.verdict import first_click
from pairrank.types import FloatArray, Impression, IntArray

METRICS = ("clicks", "first-click", "interleaved")
# The chance of a set of documents is a sum over its subsets: of ten there are a thousand, of twenty a million.
MOST_POSITIONS = 12
BATCH = 200

Order = Callable[[FloatArray, int], IntArray]


@dataclass(frozen=True)
class Evaluation:
    """What the log says of another order.

    Attributes
    ----------
    value, interval : mean per list of what was shown; 0 for "interleaved", as of a ranker against itself.
    estimates : of the other order, by three methods.
    lists : how many count. left_out : how many do not, by why.

    `evaluate` makes it; here by hand, to show how it is read:

    >>> other = off_policy.Estimate("ips", 0.5, (0.4, 0.6), lists=300, effective=250.0, told=1.0, doubt="")
    >>> told = Evaluation("shop", "as-sent", "clicks", 10, 300, 0.8, (0.7, 0.9), estimates=(other,), left_out={})
    >>> not told.doubt and told.interval[0] > other.interval[1]  # what was shown got more than as-sent would have
    True
    """

    ranker: str
    against: str
    metric: str
    positions: int
    lists: int
    value: float
    interval: tuple[float, float]
    estimates: tuple[off_policy.Estimate, ...]
    left_out: dict[str, int]

    @property
    def doubt(self) -> str:
        """Why the log cannot tell, or not all; empty when it can."""
        return self.estimates[0].doubt

    def to_json(self) -> dict[str, Any]:
        """By name; ends of intervals that are infinite are None."""
        told = [estimate.to_json() for estimate in self.estimates]
        return {**self.__dict__, "interval": off_policy.finite(self.interval), "estimates": told, "doubt": self.doubt}


def evaluate(
    store: str | os.PathLike[str],
    *,
    ranker: str | None = None,
    against: str | int = AS_SENT,
    metric: str = "clicks",
    positions: int = 10,
    level: float = 0.05,
) -> Evaluation:
    """What ``against`` would have got where the ranker served; ``pairrank evaluate`` on the command line.

    Parameters
    ----------
    store : ``sqlite:///FILE``, a path, or ``postgresql://…``; the service may be running.
    ranker : whose log; None where the store holds one ranker only.
    against : "as-sent", the order in which documents came; a version of the ranker, or another ranker of the store, as
        it is served or a version of it ("other@12"), by score.
    metric : "clicks" per list; "first-click": the reciprocal rank of the first; or "interleaved": in lists that are a
        team draft of the ranker's order by score and the other, clicks on the ranker's picks less those on the other's.
    positions : from the top of a list, that count.
    """
    check_choice("metric", metric, METRICS)
    check_whole("positions", positions, 1, MOST_POSITIONS)
    check_number_in("level", level, 0.0, 0.5, open_low=True)
    with closing(open_store(store, create=False)) as opened, opened.database.snapshot(), threads.single():
        row = _ranker(opened, ranker)
        if not isinstance(row.config.make(), PairRank):
            raise InputError(f"ranker {row.name!r} is {row.config.ranker}: only PairRank's draws have known chances")
        order, name = _other(opened, row, against)
        rows, left_out = _rows(opened, row, (order, name), metric, positions)
    if not rows:
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.items())
        hint = "; lists with all of their candidates are logged from when on its limit keep_candidates is set"
        said = hint if left_out["without their candidates"] or not left_out else ""
        raise InputError(f"no list of ranker {row.name!r} can be told from ({reasons or 'the log is empty'}){said}")
    log = off_policy.Log(*(np.array(column) for column in zip(*rows, strict=True)))
    own = np.zeros(len(rows)) if metric == "interleaved" else log.earned.sum(axis=1)
    mean, half = mean_interval(own, 1.0 - level) if len(own) > 1 else (own.mean(), math.inf)
    return Evaluation(
        row.name,
        name,
        metric,
        positions,
        len(own),
        float(mean),
        (float(mean - half), float(mean + half)),
        tuple(off_policy.estimates(log, level=level)),
        dict(left_out),
    )


def _ranker(store: SqlStore, name: str | None) -> RankerRow:
    rows = store.chosen(name)
    if len(rows) != 1:
        names = ", ".join(row.name for row in rows)
        which = f"the store holds the rankers {names}: say which one by ranker, or --ranker NAME"
        raise OptionError(which if rows else "the store has no rankers")
    return rows[0]


def _other(store: SqlStore, row: RankerRow, against: str | int) -> tuple[Order, str]:
    """The other order as a function of candidates and k, and its name."""
    text = str(against)
    arm = Arm.parse(f"{row.name}@{text}" if text.isdigit() else text)
    if arm.ranker is None:
        return lambda X, k: np.arange(len(X))[:k], AS_SENT
    owner = _ranker(store, arm.ranker)
    if owner.config.n_features != row.config.n_features:
        raise InputError(
            f"ranker {owner.name!r} takes other features than {row.name!r}; both must rank the same documents"
        )
    version = owner.served_version if arm.version is None else arm.version
    kept = store.snapshot(owner.id, version)
    if kept is None and not owner.base <= version <= owner.applied:
        raise OptionError(f"version {version} of ranker {owner.name!r} is not kept, and its log does not reach it")
    model = rebuild(store, owner, version) if kept is None else Model.restore(kept)
    return lambda X, k: model.ranker.rank(X, k, explore=False).ranking, f"{owner.name}@{version}"


# One list as a row of `off_policy.Log`: what each position earned, and its weights; (positions,) each.
_Told = tuple[FloatArray, ...]


def _rows(
    store: SqlStore, row: RankerRow, against: tuple[Order, str], metric: str, positions: int
) -> tuple[list[_Told], Counter[str]]:
    """Every list that can be told from, in the order of the versions that served them."""
    (order, name), (wanted, left_out) = against, _wanted(store, row)
    rows: list[_Told] = []
    for model in walked(store, row):
        numbers = wanted.pop(model.version, [])
        for start in range(0, len(numbers), BATCH):
            for clicks, body, candidates in store.with_candidates(row.id, numbers[start : start + BATCH]):
                impression = Impression.from_bytes(body)
                if impression.locked:
                    left_out["shown by score"] += 1
                    continue
                try:
                    rows.append(_told(model.ranker, impression, clicks, candidates, order, metric, positions))
                except FeatureError:  # gaps, which the ranker that showed them takes
                    left_out[f"with values that {name} does not take"] += 1
    gone = sum(len(numbers) for numbers in wanted.values())
    if gone:
        left_out["served by versions from before the log"] += gone
    return rows, left_out


def _wanted(store: SqlStore, row: RankerRow) -> tuple[dict[int, list[int]], Counter[str]]:
    """Log entries with candidates by the version that served them; the others, counted by why they cannot be used."""
    found: dict[int, list[int]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    for seq, version, trial, candidates in store.listed(row.id, row.applied):
        if trial:
            left_out["of experiments, launches or later pages"] += 1
        elif not candidates:
            left_out["without their candidates"] += 1
        else:
            found[version].append(seq)
    return found, left_out


def _told(
    model: Ranker, impression: Impression, clicked: bytes, candidates: bytes, order: Order, metric: str, positions: int
) -> _Told:
    X = np.empty((impression.n_docs, impression.features.shape[1]))
    rest = np.ones(len(X), dtype=np.bool_)
    rest[impression.ranking] = False
    X[impression.ranking] = impression.features
    X[rest] = np.frombuffer(candidates, dtype=np.float64).reshape(-1, X.shape[1])
    k = min(len(impression), positions)
    seen, shown = model.inspect(X), impression.ranking[:k]
    clicks = np.frombuffer(clicked, dtype=np.uint8)[:k].astype(np.float64)
    draws = off_policy.Draws(seen.certain, seen.blocks, shuffled=getattr(model, "exploration", "") == "random")
    if metric == "interleaved":
        weights, credit = off_policy.Draft(seen.order, order(X, len(X)), k, draws).weigh(shown)
        earned = clicks * credit
    else:
        other = order(X, k)
        weights = off_policy.weigh(shown, other, draws.set_chances(other))
        earned = clicks if metric == "clicks" else first_click(clicks > 0)
    # Positions that a short list does not have earn nothing under any order.
    pad = (0, positions - k)
    return np.pad(earned, pad), *(np.pad(column, pad, constant_values=1.0) for column in weights)
