"""The first lists that a ranker learned, whole, as arrays of its state and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairrank.types import BoolArray, Impression

# Impressions with their clicks, oldest first.
FirstLists = tuple[tuple[Impression, BoolArray], ...]


def packed(first: FirstLists) -> dict[str, Any]:
    """Arrays by name: the impressions' bytes one after the other, where each ends, and all clicks."""
    bodies = [impression.to_bytes() for impression, _ in first]
    return {
        "first.bodies": np.frombuffer(b"".join(bodies), dtype=np.uint8),
        "first.ends": np.cumsum([len(body) for body in bodies], dtype=np.int64),
        "first.clicks": np.concatenate([np.empty(0, dtype=np.bool_), *(clicks for _, clicks in first)]),
    }


def unpacked(state: dict[str, Any]) -> FirstLists:
    """What `packed` wrote."""
    raw, clicks = state["first.bodies"].tobytes(), state["first.clicks"]
    start = place = 0
    first = []
    for end in state["first.ends"].tolist():
        impression = Impression.from_bytes(raw[start:end])
        first.append((impression, clicks[place : place + len(impression)].copy()))
        start, place = end, place + len(impression)
    return tuple(first)
