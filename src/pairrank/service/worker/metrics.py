"""What the service counts and measures, for Prometheus.

A worker counts in memory, and in a file for the other workers: whoever is asked adds up those of all, dead ones too.
All that is counted of a ranker is one row, which another ranker may have when it is deleted: with rankers that come
and go for ever, neither memory nor the text grows.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from pairrank.service.settings import METRICS_FOLDER
from pairrank.service.store.values import RankerRow, Status, Verdict
from pairrank.types import AnyArray, FloatArray

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_POSITION = 20
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, float("inf"))
_POSITIONS = [str(position) for position in range(1, MAX_POSITION + 1)]
# By name: what is told of it, and a label with its values. Requests are counted in the first row, which has no ranker.
_COUNTERS: Mapping[str, tuple[str, str, list[str]]] = {
    "documents": ("Candidates ranked", "", [""]),
    "explored": ("Lists in which chance had a say", "", [""]),
    "blocks": ("Blocks in the lists shown", "", [""]),
    "feedback": ("Feedback by outcome", "status", list(Status)),
    "events": ("Single events by outcome", "status", list(Status)),
    "shown_at_position": ("Positions of lists that got feedback", "position", _POSITIONS),
    "clicks_at_position": ("Clicks", "position", _POSITIONS),
    "requests": ("Requests by status", "status", [*(str(status.value) for status in HTTPStatus), "other"]),
}
_KEYS = [(name, value) for name, (_, _, values) in _COUNTERS.items() for value in values]
_PLACES = {key: place for place, key in enumerate(_KEYS, len(BUCKETS) + 1)}  # after the buckets and the sum of seconds
_ROW = np.dtype([("ranker", "S64"), ("numbers", np.float64, (len(BUCKETS) + 1 + len(_KEYS),))])


class Metrics:
    """The counters of one worker; those of all workers are added up when the supervisor has set a folder for them."""

    def __init__(self) -> None:
        self._rows: AnyArray = np.zeros(8, dtype=_ROW)
        self._places: dict[int, int] = {}  # the row of a ranker, by its id
        self._handle: int | None = None
        self._file = ""
        if folder := os.environ.get(METRICS_FOLDER):
            with suppress(OSError):  # a full disk, or whoever tidies up has taken the folder: counted in memory alone
                self._handle, self._file = tempfile.mkstemp(dir=folder)

    def answered(self, status: int) -> None:
        self._add(0, {_PLACES.get(("requests", str(status)), _PLACES["requests", "other"]): 1.0})

    def took(self, row: RankerRow, seconds: float) -> None:
        self._add(self._place(row), {bisect_left(BUCKETS, seconds): 1.0, len(BUCKETS): seconds})

    def listed(self, row: RankerRow, documents: int, blocks: int, explored: bool) -> None:
        amounts = {"documents": documents, "blocks": blocks, "explored": int(explored)}
        self._add(self._place(row), {_PLACES[name, ""]: float(amount) for name, amount in amounts.items()})

    def count(self, row: RankerRow, name: str, statuses: Iterable[Status]) -> None:
        """Count "feedback" or "events" by what became of them."""
        self._add(self._place(row), {_PLACES[name, status]: n for status, n in Counter(statuses).items()})

    def clicked(self, row: RankerRow, verdict: Verdict) -> None:
        """Count one list with feedback: click-through by position is clicks over shown."""
        names = _POSITIONS[verdict.above :][: verdict.shown]
        seen = [_PLACES["shown_at_position", position] for position in names]
        clicks = [_PLACES["clicks_at_position", names[place]] for place in verdict.positions if place < len(names)]
        self._add(self._place(row), dict.fromkeys([*seen, *clicks], 1.0))

    def keep(self, rows: Iterable[RankerRow]) -> None:
        """Forget all rankers but these."""
        for gone in self._places.keys() - {row.id for row in rows}:
            place = self._places.pop(gone)
            self._rows[place] = 0
            self._write(place)

    def render(self, rows: Collection[RankerRow], lags: dict[str, float]) -> bytes:
        """All metrics as text: the workers' counters, and gauges read from the store."""
        requests, rankers = self._sums()
        living = {row.name for row in rows} or rankers.keys()  # what a dead worker counted may be of others
        sums = {name: rankers[name] for name in sorted(living & rankers.keys())}
        return generate_latest(_Families([*_counters(requests, sums), *_gauges(rows, lags)]))

    def _place(self, row: RankerRow) -> int:
        place = self._places.get(row.id)
        if place is None:
            place = min(set(range(1, len(self._rows) + 1)).difference(self._places.values()))
            if place == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._places[row.id] = place
            self._rows["ranker"][place] = row.name.encode()
        return place

    def _add(self, place: int, amounts: Mapping[int, float]) -> None:
        numbers = self._rows["numbers"][place]
        for column, amount in amounts.items():
            numbers[column] += amount
        self._write(place)

    def _write(self, place: int) -> None:
        if self._handle is not None:
            with suppress(OSError):  # a full disk: requests are answered all the same
                os.pwrite(self._handle, self._rows[place].tobytes(), place * _ROW.itemsize)

    def _sums(self) -> tuple[FloatArray, dict[str, FloatArray]]:
        """What all workers have counted: of requests, and by the names of rankers."""
        parts = [self._rows]
        with suppress(OSError):
            for file in Path(self._file).parent.iterdir() if self._file else ():
                if file != Path(self._file):
                    read = file.read_bytes()
                    parts.append(np.frombuffer(read, dtype=_ROW, count=len(read) // _ROW.itemsize))
        rankers: dict[str, FloatArray] = {}
        for row in (row for part in parts for row in part[1:] if row["ranker"]):
            name = row["ranker"].decode()
            rankers[name] = rankers.get(name, 0.0) + row["numbers"]
        return sum(part["numbers"][0] for part in parts if len(part)), rankers


class _Families(NamedTuple):
    """What Prometheus' own text is made from."""

    families: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def _counters(requests: FloatArray, sums: Mapping[str, FloatArray]) -> Iterator[Metric]:
    """What `Metrics._sums` gave; of a label only the values that have come."""
    seconds = HistogramMetricFamily("pairrank_rank_seconds", "Time to answer a rank request", labels=["ranker"])
    limits = [floatToGoString(bucket) for bucket in BUCKETS]  # type: ignore[no-untyped-call]
    for ranker, numbers in sums.items():
        counted = accumulate(numbers[: len(BUCKETS)].tolist())
        seconds.add_metric([ranker], list(zip(limits, counted, strict=True)), numbers[len(BUCKETS)])
    yield seconds
    for name, (text, label, values) in _COUNTERS.items():
        of_rankers = name != "requests"
        labels = [*(["ranker"] if of_rankers else []), *([label] if label else [])]
        family = CounterMetricFamily(f"pairrank_{name}", text, labels=labels)
        for ranker, numbers in (sums if of_rankers else {"": requests}).items():
            for value in values:
                number = numbers[_PLACES[name, value]]
                if number or not label:
                    family.add_metric([one for one in (ranker, value) if one], number)
        yield family


def _gauges(rows: Collection[RankerRow], lags: Mapping[str, float]) -> Iterator[Metric]:
    for name, text, value in (
        ("model_version", "Log entry of the newest model", lambda row: row.version),
        ("feedback_logged", "Feedback in the log", lambda row: row.feedback_count),
        ("learner_lag_events", "Entries logged and not yet applied", lambda row: row.lag),
        ("learner_lag_seconds", "Age of the oldest entry not applied", lambda row: lags.get(row.name, 0.0)),
        ("open_impressions", "Impressions waiting for feedback", lambda row: row.open_count),
        ("skipped_entries", "Entries that taught nothing", lambda row: row.skipped),
        ("set_aside_entries", "Entries that the ranker refused or failed on", lambda row: row.set_aside),
        ("stopped", "1 when the log is damaged and not followed", lambda row: int(row.stopped is not None)),
        ("frozen", "1 when the ranker does not learn", lambda row: int(row.frozen)),
        ("launch_share", "Share of the lists that get this ranker's order", lambda row: row.launch_share),
        ("launch_breaches", "Launches stopped by a breach", lambda row: row.launch.breaches if row.launch else 0),
    ):
        family = GaugeMetricFamily(f"pairrank_{name}", text, labels=["ranker"])
        for row in rows:
            family.add_metric([row.name], value(row))
        yield family
