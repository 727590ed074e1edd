"""Ranking that learns from clicks while it serves.

``PairRank`` is the ranker; ``rankers`` has it and its baselines by name; ``data``, ``click_models``, ``metrics`` and
``simulate`` are the laboratory's bench. Importing this needs numpy and scipy alone.
"""

from __future__ import annotations

from importlib import import_module

from pairrank.version import __version__

TYPE_CHECKING = False  # as type checkers know it; `typing` itself would be a sixth of `pairrank --help`
if TYPE_CHECKING:
    from typing import Any

    from pairrank import errors as errors
    from pairrank import rankers as rankers
    from pairrank.rankers import load as load
    from pairrank.rankers.pairrank import PairRank as PairRank
    from pairrank.service.evaluation import evaluate as evaluate
    from pairrank.sim import simulate as simulate
    from pairrank.types import Impression as Impression
    from pairrank.types import Inspection as Inspection

__all__ = ["Impression", "Inspection", "PairRank", "__version__", "errors", "evaluate", "load", "rankers", "simulate"]

# Loaded when first asked for, so that `import pairrank` and `pairrank --help` stay quick.
_LAZY = {
    "Impression": "pairrank.types",
    "Inspection": "pairrank.types",
    "PairRank": "pairrank.rankers.pairrank",
    "evaluate": "pairrank.service.evaluation",
    "load": "pairrank.rankers",
    "simulate": "pairrank.sim",
}
_MODULES = frozenset(
    (
        "archive",
        "checks",
        "client",
        "click_models",
        "data",
        "documents",
        "drawing",
        "errors",
        "export",
        "kernel",
        "lab",
        "logs",
        "metrics",
        "rankers",
        "rng",
        "sim",
        "trials",
    )
)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _MODULES:
        return import_module(f"pairrank.{name}")
    raise AttributeError(f"module 'pairrank' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
