"""How a ranker has been doing, read from its log: bounded in memory, and only new entries are read again."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from pairrank import metrics
from pairrank.errors import FileFormatError
from pairrank.rankers import Ranker
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import Entry, RankerRow
from pairrank.types import FloatArray, Impression, Inspection

# Of a longer log only the end counts: what was before is not worth a wait.
LOOK_BACK = 10_000
RANKERS = 50  # looked at last, whose lists are kept
POINTS = 120
RANKS = (1, 5, 10)
_COLUMNS = ("time", "log_entry", "clicked", "ndcg", "positions", "explored", "blocks", *(f"size_{r}" for r in RANKS))
_BATCH = 500


def summarise(entry: Entry) -> list[float] | None:
    """What one entry of the log says, by `_COLUMNS`, NaN where it says nothing; None when it holds no list."""
    if entry.body is None or entry.clicks is None:
        return None
    impression = Impression.from_bytes(entry.body)
    clicks = np.frombuffer(entry.clicks, dtype=np.uint8)
    above = int(impression.memory.get("above", 0))  # on earlier pages: positions are those of the whole list
    n_clicks, worth = int(clicks.sum()), metrics.discount(above + len(clicks))
    sizes = block_sizes(impression)
    return [
        entry.created,
        entry.seq,
        n_clicks > 0,
        # The clicks' discounted gain over that of the same number of clicks at the top.
        float(worth[above:] @ clicks / worth[:n_clicks].sum()) if n_clicks else math.nan,
        len(impression),
        int((sizes > 1).sum()) if impression.explored else 0,
        int(impression.blocks[-1]) + 1,
        *(float(sizes[rank - 1 - above]) if above < rank <= above + len(sizes) else math.nan for rank in RANKS),
    ]


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


def point(lists: FloatArray) -> dict[str, Any]:
    """Neighbouring lists (n, columns) as one point of a chart; None where there is nothing to take a mean of."""
    column = dict(zip(_COLUMNS, lists.T, strict=True))
    return {
        "time": float(column["time"][-1]) if len(lists) else 0.0,
        "log_entry": int(column["log_entry"][-1]) if len(lists) else 0,
        "lists": len(lists),
        "ctr": _mean(column["clicked"]),
        "ndcg": _mean(column["ndcg"]),
        "explored": float(column["explored"].sum() / column["positions"].sum()) if len(lists) else None,
        "blocks": _mean(column["blocks"]),
        **{f"size_{rank}": _mean(column[f"size_{rank}"]) for rank in RANKS},
    }


def _mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def points(lists: FloatArray, most: int = POINTS) -> list[dict[str, Any]]:
    """At most so many points of equally many lists, oldest first."""
    width = max(1, -(-len(lists) // most))
    return [point(lists[start : start + width]) for start in range(0, len(lists), width)]


class LogStatistics:
    """The newest lists of the rankers that somebody looks at, brought up to date then."""

    def __init__(self) -> None:
        # A ranker that was deleted and made anew may have its old id: the time of making tells them apart.
        self._read: OrderedDict[tuple[int, float], tuple[FloatArray, int]] = OrderedDict()

    def lists(self, row: RankerRow) -> FloatArray:
        """(n, columns), as far as `catch_up` has read."""
        return self._place(row)[0]

    def catch_up(self, store: SqlStore, row: RankerRow) -> bool:
        """Read one more batch of a ranker's log, in one thread at a time; whether there may be more."""
        lists, seen = self._place(row)
        entries = store.log(row.id, seen, _BATCH)
        found = []
        for entry in entries:
            with suppress(FileFormatError):  # the learner reports damage; figures only leave the entry out
                found.append(summarise(entry))
        new = np.array([one for one in found if one is not None], dtype=np.float64).reshape(-1, len(_COLUMNS))
        if entries:
            lists, seen = np.concatenate([lists, new])[-LOOK_BACK:], entries[-1].seq
        self._read[row.id, row.created] = lists, seen
        self._read.move_to_end((row.id, row.created))
        if len(self._read) > RANKERS:
            self._read.popitem(last=False)
        return len(entries) == _BATCH

    def _place(self, row: RankerRow) -> tuple[FloatArray, int]:
        nothing = np.empty((0, len(_COLUMNS))), max(row.base, row.log_seq - LOOK_BACK)
        return self._read.get((row.id, row.created), nothing)


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
