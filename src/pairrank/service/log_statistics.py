"""How a ranker has been doing, read from its log: bounded in memory, and only new entries are read again."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pairrank import metrics
from pairrank.errors import FileFormatError
from pairrank.rankers import Ranker
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import Entry, RankerRow
from pairrank.types import AnyArray, FloatArray, Impression, Inspection

# Of a longer log only the end is read: what was before is not worth a wait.
LOOK_BACK = 10_000
POINTS = 60
RANKS = (1, 5, 10)
_BATCH = 500


@dataclass(slots=True)
class Bin:
    """Sums over neighbouring lists of the log."""

    lists: int = 0
    clicked: int = 0
    gain: float = 0.0
    positions: int = 0
    explored: int = 0
    blocks: int = 0
    at: float = 0.0
    seq: int = 0
    sizes: FloatArray | None = None  # (3,) sums of block sizes at RANKS
    reached: FloatArray | None = None  # (3,) lists that are long enough

    def add(self, other: Bin) -> None:
        """Take over what a later bin counted."""
        for name in ("lists", "clicked", "gain", "positions", "explored", "blocks"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.at, self.seq = other.at, other.seq
        if other.sizes is not None and other.reached is not None:
            self.sizes = other.sizes if self.sizes is None else self.sizes + other.sizes
            self.reached = other.reached if self.reached is None else self.reached + other.reached

    def point(self) -> dict[str, Any]:
        """The bin as means, for a chart; None where there is nothing to take a mean of."""
        at_ranks: list[float | None] = [None] * len(RANKS)
        if self.sizes is not None and self.reached is not None:
            at_ranks = [_mean(float(a), float(b)) for a, b in zip(self.sizes, self.reached, strict=True)]
        return {
            "time": self.at,
            "log_entry": self.seq,
            "lists": self.lists,
            "ctr": _mean(self.clicked, self.lists),
            "ndcg": _mean(self.gain, self.clicked),
            "explored": _mean(self.explored, self.positions),
            "blocks": _mean(self.blocks, self.lists),
            **{f"size_{rank}": value for rank, value in zip(RANKS, at_ranks, strict=True)},
        }


def summarise(entry: Entry) -> Bin | None:
    """What one entry of the log says, or None when it holds no list."""
    if entry.body is None or entry.clicks is None:
        return None
    impression = Impression.from_bytes(entry.body)
    clicks = np.frombuffer(entry.clicks, dtype=np.uint8)
    n_clicks = int(clicks.sum())
    sizes = block_sizes(impression)
    at_ranks = [float(sizes[rank - 1]) if rank <= len(sizes) else 0.0 for rank in RANKS]
    return Bin(
        lists=1,
        clicked=int(n_clicks > 0),
        gain=_ndcg_of_clicks(clicks, n_clicks) if n_clicks else 0.0,
        positions=len(impression),
        explored=int((sizes > 1).sum()) if impression.explored else 0,
        blocks=int(impression.blocks[-1]) + 1,
        at=entry.created,
        seq=entry.seq,
        sizes=np.array(at_ranks),
        reached=np.array([float(rank <= len(sizes)) for rank in RANKS]),
    )


def _ndcg_of_clicks(clicks: AnyArray, n_clicks: int) -> float:
    """The clicks' discounted gain over that of the same number of clicks at the top."""
    worth = metrics.discount(len(clicks))
    return float(worth @ clicks / worth[:n_clicks].sum())


def block_sizes(impression: Impression) -> FloatArray:
    """(k,), the size of the block that each position came from, over all candidates where the ranker noted it."""
    sizes = np.ones(len(impression))
    own = impression.blocks[impression.locked :]
    if not len(own):
        return sizes
    ends = impression.memory.get("ends")
    own = own - own[0]
    if ends is None or len(ends) <= own[-1]:
        sizes[impression.locked :] = np.bincount(own)[own]
    else:
        sizes[impression.locked :] = np.diff(ends, prepend=-1)[own]
    return sizes


class History:
    """At most ``2 * points`` bins of equally many lists; when they are full, neighbours are joined."""

    def __init__(self, points: int = POINTS) -> None:
        self._points = points
        self._width = 1
        self._bins: list[Bin] = []

    def add(self, entry: Entry) -> None:
        """Take in one entry of the log."""
        one = summarise(entry)
        if one is None:
            return
        if self._bins and self._bins[-1].lists < self._width:
            self._bins[-1].add(one)
            return
        if len(self._bins) == 2 * self._points:
            for first, second in zip(self._bins[::2], self._bins[1::2], strict=True):
                first.add(second)
            self._bins, self._width = self._bins[::2], 2 * self._width
        self._bins.append(one)

    def points(self) -> list[dict[str, Any]]:
        """Oldest first."""
        return [part.point() for part in self._bins]

    def newest(self) -> dict[str, Any]:
        """The newest tenth of the lists, as one point."""
        return _together(self._bins[-self._tenth :])

    def oldest(self) -> dict[str, Any]:
        """The oldest tenth of the lists, as one point."""
        return _together(self._bins[: self._tenth])

    @property
    def _tenth(self) -> int:
        return max(len(self._bins) // 10, 1)


def _together(bins: Iterable[Bin]) -> dict[str, Any]:
    whole = Bin()
    for part in bins:
        whole.add(part)
    return whole.point()


class LogStatistics:
    """The histories of all rankers of a store, brought up to date when somebody looks."""

    def __init__(self) -> None:
        # A ranker that was deleted and made anew may have its old id: the time of making tells them apart.
        self._histories: dict[tuple[int, float], tuple[History, int]] = {}
        self._turn = threading.Lock()

    def history(self, row: RankerRow) -> History:
        """The history of one ranker, as far as `catch_up` has read."""
        return self._place(row)[0]

    def catch_up(self, store: SqlStore, row: RankerRow) -> bool:
        """Read one more batch of a ranker's log; whether there may be more."""
        with self._turn:
            history, seen = self._place(row)
            entries = store.log(row.id, seen, _BATCH)
            for entry in entries:
                try:
                    history.add(entry)
                except FileFormatError:  # the learner reports damage; figures only leave the entry out
                    continue
            if entries:
                self._histories[row.id, row.created] = (history, entries[-1].seq)
            return len(entries) == _BATCH

    def _place(self, row: RankerRow) -> tuple[History, int]:
        start = max(row.base, row.log_seq - LOOK_BACK)
        return self._histories.setdefault((row.id, row.created), (History(), start))


def kept_orders(model: Ranker, entries: Iterable[Entry]) -> dict[str, Any] | None:
    """Of the pairs of documents in some lists, the share whose order ``model`` keeps, and how many of those it expects
    to be wrong itself: the mean of 1 − `Inspection.chance`, None where it knows no chances.

    Clicks cannot tell: a kept order is never shown the other way round.
    """
    seen = [model.inspect(Impression.from_bytes(entry.body).features) for entry in entries if entry.body is not None]
    views: list[Inspection] = [view for view in seen if view is not None]
    pairs = sum(math.comb(len(view.order), 2) for view in views)
    if not pairs:
        return None
    doubts = [1.0 - view.chance[view.certain] for view in views if view.chance is not None]
    doubt = np.concatenate(doubts) if doubts else np.empty(0)
    kept = sum(int(view.certain.sum()) for view in views)
    return {"lists": len(views), "share": kept / pairs, "wrong": float(doubt.mean()) if len(doubt) else None}


def _mean(total: float, count: float) -> float | None:
    return total / count if count else None
