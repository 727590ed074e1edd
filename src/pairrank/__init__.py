"""Ranking that learns from clicks while it serves.

``PairRank`` is the ranker; ``rankers`` has it and its baselines by name; ``data``, ``clicks``, ``metrics`` and
``simulate`` are the laboratory's bench. Importing this needs numpy and scipy alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pairrank import errors, rankers
from pairrank.rankers import load
from pairrank.types import Impression, Inspection
from pairrank.version import __version__

if TYPE_CHECKING:
    from pairrank.rankers.pairrank import PairRank as PairRank
    from pairrank.sim import simulate as simulate

__all__ = ["Impression", "Inspection", "PairRank", "__version__", "errors", "load", "rankers", "simulate"]

# Loaded when first asked for, so that `import pairrank` stays quick.
_LAZY = {"PairRank": "pairrank.rankers.pairrank", "simulate": "pairrank.sim"}
_MODULES = frozenset(
    (
        "archive",
        "checks",
        "client",
        "clicks",
        "data",
        "drawing",
        "export",
        "kernel",
        "lab",
        "logs",
        "metrics",
        "rng",
        "sim",
    )
)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _MODULES:
        return import_module(f"pairrank.{name}")
    raise AttributeError(f"module 'pairrank' has no attribute {name!r}")
