"""What the service counts and measures, for Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache, partial
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric

from pairrank.service.store.values import RankerRow

MAX_POSITION = 20
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ListCounters(NamedTuple):
    """What one ranker's lists are counted with."""

    seconds: Histogram
    documents: Counter
    explored: Counter
    blocks: Counter


class Metrics:
    """The counters of one worker; those of all workers are added up when the supervisor has set a folder for them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        count = partial(Counter, namespace="pairrank", registry=self.registry)
        buckets = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
        told = ("pairrank_rank_seconds", "Time to answer a rank request", ["ranker"])
        self.rank_seconds = Histogram(*told, buckets=buckets, registry=self.registry)
        self.documents = count("documents", "Candidates ranked", ["ranker"])
        self.explored = count("explored", "Lists in which chance had a say", ["ranker"])
        self.blocks = count("blocks", "Blocks in the lists shown", ["ranker"])
        self.feedback = count("feedback", "Feedback by outcome", ["ranker", "status"])
        self.events = count("events", "Single events by outcome", ["ranker", "status"])
        self.shown_at = count("shown_at_position", "Positions of lists that got feedback", ["ranker", "position"])
        self.clicks_at = count("clicks_at_position", "Clicks", ["ranker", "position"])
        self.requests = count("requests", "Requests by status", ["status"])
        # Looked up once: what every request moves.
        self._status = cache(self.requests.labels)
        self.ranked = cache(self._ranked)

    def answered(self, status: int) -> None:
        """Count one request by the status of its answer."""
        self._status(status).inc()

    def _ranked(self, ranker: str) -> ListCounters:
        counters = (self.documents, self.explored, self.blocks)
        return ListCounters(self.rank_seconds.labels(ranker), *(counter.labels(ranker) for counter in counters))

    def clicked(self, ranker: str, positions: Iterable[int], shown: int) -> None:
        """Count one list with feedback: click-through by position is clicks over shown."""
        for position in range(min(shown, MAX_POSITION)):
            self.shown_at.labels(ranker, position + 1).inc()
        for position in positions:
            if position < MAX_POSITION:
                self.clicks_at.labels(ranker, position + 1).inc()

    def render(self, rows: Iterable[RankerRow], lags: dict[str, float]) -> bytes:
        """All metrics as text: the workers' counters, and gauges read from the store."""
        counters, gauges = self.registry, CollectorRegistry()
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            counters = CollectorRegistry()
            multiprocess.MultiProcessCollector(counters)  # type: ignore[no-untyped-call]
        gauges.register(_Gauges(list(rows), lags))
        return generate_latest(counters) + generate_latest(gauges)


def _share(row: RankerRow) -> float:
    if row.launch is None or row.launch.mode == "free":
        return 1.0
    return row.launch.share if row.launch.mode == "guarded" else 0.0


class _Gauges:
    def __init__(self, rows: list[RankerRow], lags: dict[str, float]) -> None:
        self._rows, self._lags = rows, lags

    def collect(self) -> Iterable[Metric]:
        for name, text, value in (
            ("model_version", "Log entry of the newest model", lambda row: row.version),
            ("feedback_logged", "Feedback in the log", lambda row: row.feedback_count),
            ("learner_lag_events", "Entries logged and not yet applied", lambda row: row.lag),
            ("learner_lag_seconds", "Age of the oldest entry not applied", lambda row: self._lags.get(row.name, 0.0)),
            ("open_impressions", "Impressions waiting for feedback", lambda row: row.open_count),
            ("skipped_entries", "Entries that taught nothing", lambda row: row.skipped),
            ("set_aside_entries", "Entries that the ranker refused or failed on", lambda row: row.set_aside),
            ("stopped", "1 when the log is damaged and not followed", lambda row: int(row.stopped is not None)),
            ("frozen", "1 when the ranker does not learn", lambda row: int(row.frozen)),
            ("launch_share", "Share of the lists that get this ranker's order", _share),
            ("launch_breaches", "Launches stopped by a breach", lambda row: row.launch.breaches if row.launch else 0),
        ):
            family = GaugeMetricFamily(f"pairrank_{name}", text, labels=["ranker"])
            for row in self._rows:
                family.add_metric([row.name], value(row))
            yield family
