"""From records to curves with intervals, and paired tests between rankers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from pairrank import metrics
from pairrank.errors import NewerFormatError
from pairrank.sim import Records, RunFolder, RunSpec
from pairrank.sim.records import EVALUATION_COLUMNS
from pairrank.types import FloatArray, IntArray

LEVEL = 0.95
METRICS = ("ndcg", "cndcg")  # the two that the paper compares rankers by: offline and online


@dataclass(frozen=True, eq=False)
class Cell:
    """The runs of one ranker with one kind of users.

    seeds : (n,), rising. rounds : (m,), where curves have a value.
    curves : by name, (n, m): the evaluation columns of the records, and ``cndcg`` and ``regret`` up to a round.
    profiles : by round, for every seed the mean block size at each rank.
    seconds : computing time of all runs.
    """

    ranker: str
    clicks: str
    seeds: IntArray
    rounds: IntArray
    curves: Mapping[str, FloatArray]
    profiles: Mapping[int, list[FloatArray]] = field(default_factory=dict)
    seconds: float = 0.0

    def final(self, name: str) -> FloatArray:
        """(n,), the value after the last round, by seed."""
        return self.curves[name][:, -1]

    def has(self, name: str) -> bool:
        """Whether there is any value: not every ranker has blocks or weights."""
        return bool(np.isfinite(self.curves[name]).any())


@dataclass(frozen=True, eq=False)
class Results:
    """All cells of an experiment, by (ranker, users); a cell without a finished run is not there.

    ``notes`` says which runs could not be read, and why.
    """

    cells: Mapping[tuple[str, str], Cell]
    rankers: tuple[str, ...]
    users: tuple[str, ...]
    done: int
    expected: int
    notes: tuple[str, ...] = ()

    def get(self, ranker: str, users: str) -> Cell | None:
        """The cell, if it has a finished run."""
        return self.cells.get((ranker, users))

    def of(self, ranker: str) -> list[Cell]:
        """The cells of one ranker, in the order of the users."""
        return [self.cells[ranker, users] for users in self.users if (ranker, users) in self.cells]


@dataclass(frozen=True)
class Comparison:
    """``a`` minus ``b`` over the seeds that both have: mean, half a 95 % t interval, and p of a paired t test.

    ``p_holm`` is p after Holm's correction over the family that the comparison was made in.
    """

    a: str
    b: str
    clicks: str
    metric: str
    n: int
    mean: float
    half: float
    p: float
    p_holm: float = float("nan")


def collect(out: str | os.PathLike[str], specs: Sequence[RunSpec]) -> Results:
    """The finished runs among ``specs`` below ``out``, reduced to curves one by one: a sweep need not fit in memory."""
    found: dict[tuple[str, str], list[Cell]] = {}
    notes = []
    for spec in sorted(specs, key=lambda spec: spec.seed):
        try:
            records = RunFolder(out, spec).finished()
        except NewerFormatError as problem:
            notes.append(str(problem))
            continue
        if records is not None:
            found.setdefault((spec.ranker, spec.clicks), []).append(_one(records))
    rankers, users = (tuple(dict.fromkeys(getattr(spec, name) for spec in specs)) for name in ("ranker", "clicks"))
    cells = {key: _together(runs) for key, runs in found.items()}
    return Results(cells, rankers, users, sum(map(len, found.values())), len(specs), tuple(notes))


def _one(records: Records) -> Cell:
    """A cell of one run."""
    places = records.evaluated - 1
    curves = {name: records[name][places].astype(np.float64) for name in EVALUATION_COLUMNS}
    online = records["online_ndcg"]
    curves["cndcg"] = np.cumsum(online * metrics.GAMMA ** np.arange(len(online)))[places]
    curves["regret"] = np.cumsum(records["regret"], dtype=np.float64)[places]
    rows = {name: curve[None] for name, curve in curves.items()}
    spec, profiles = records.spec, {t: [profile] for t, profile in records.profiles.items()}
    seconds = sum(records.seconds.values())
    return Cell(spec.ranker, spec.clicks, np.array([spec.seed]), records.evaluated, rows, profiles, seconds)


def _together(runs: Sequence[Cell]) -> Cell:
    return replace(
        runs[0],
        seeds=np.concatenate([run.seeds for run in runs]),
        curves={name: np.concatenate([run.curves[name] for run in runs]) for name in runs[0].curves},
        profiles={t: [run.profiles[t][0] for run in runs] for t in runs[0].profiles},
        seconds=sum(run.seconds for run in runs),
    )


def paired(a: Cell, b: Cell, metric: str) -> Comparison:
    """``a`` against ``b`` in the final value of a metric; seeds meet the same queries and coins, so they pair up."""
    seeds, left, right = np.intersect1d(a.seeds, b.seeds, return_indices=True)
    mean, half, p = paired_test(a.final(metric)[left] - b.final(metric)[right])
    return Comparison(a.ranker, b.ranker, a.clicks, metric, len(seeds), mean, half, p)


def paired_test(differences: ArrayLike) -> tuple[float, float, float]:
    """Mean difference, half its 95 % t interval, and p of the two-sided paired t test; NaN where undefined."""
    d = np.asarray(differences, dtype=np.float64)
    n = len(d)
    if n < 2:
        return (float(d.mean()) if n else float("nan")), float("nan"), float("nan")
    mean, half = map(float, metrics.mean_interval(d, LEVEL))
    if half == 0:
        return mean, 0.0, 1.0 if mean == 0 else 0.0
    return mean, half, 2 * float(stdtr(n - 1, -abs(mean) / half * stdtrit(n - 1, (1 + LEVEL) / 2)))


def holm(p_values: Iterable[float]) -> list[float]:
    """Holm's step-down correction: adjusted p-values in the order given. NaN stays NaN and does not count."""
    p = np.array(list(p_values), dtype=np.float64)
    adjusted = p.copy()
    order = np.argsort(p)[: int(np.isfinite(p).sum())]
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(value) for value in adjusted]
