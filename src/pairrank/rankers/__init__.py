"""The rankers, by name. One algorithm, one file; this table is the only place that lists them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from pairrank import archive, short_text
from pairrank.errors import FileFormatError, OptionError, UnknownNameError
from pairrank.rankers.base import LinearRanker, Ranker

__all__ = ["LinearRanker", "Ranker", "label", "load", "make", "names", "parse", "paths", "spell"]


class _Entry(NamedTuple):
    module: str
    cls: str
    label: str  # in figures and tables
    options: Mapping[str, Any] = MappingProxyType({})


_REGISTRY: Mapping[str, _Entry] = MappingProxyType(
    {
        "dbgd": _Entry("dbgd", "DBGD", "DBGD"),
        "epsilon-greedy": _Entry("epsilon_greedy", "EpsilonGreedy", "ε-greedy"),
        "mgd": _Entry("mgd", "MGD", "MGD"),
        "offline-ranknet": _Entry("ranknet", "OfflineRankNet", "offline RankNet (ceiling)"),
        "p2linrank": _Entry("p2linrank", "P2LinRank", "P²LinRank"),
        "pairrank": _Entry("pairrank", "PairRank", "PairRank"),
        "pairrank-c": _Entry("pairrank", "PairRank", "PairRank_C", {"preset": "paper", "exploration": "conservative"}),
        "pairrank-r": _Entry("pairrank", "PairRank", "PairRank_R", {"preset": "paper", "exploration": "random"}),
        "pdgd": _Entry("pdgd", "PDGD", "PDGD"),
        "posterior-sampling": _Entry("posterior_sampling", "PosteriorSampling", "posterior sampling"),
        "sgd-ranknet": _Entry("ranknet", "SGDRankNet", "SGD RankNet"),
    }
)


def names() -> list[str]:
    """The registered rankers, in alphabetical order."""
    return sorted(_REGISTRY)


def label(name: str) -> str:
    """How a registered ranker is called in figures and tables."""
    return _REGISTRY[name].label


def paths() -> list[str]:
    """Where the registered rankers' classes are, each once, as in ``pairrank.rankers.pdgd.PDGD``."""
    return list(dict.fromkeys(f"pairrank.rankers.{entry.module}.{entry.cls}" for entry in _REGISTRY.values()))


def make(name: str, *, n_features: int, seed: int = 0, **options: Any) -> Ranker:
    """A ranker by name; ``name`` may carry options, as in ``pairrank-c(alpha=0.3)``."""
    base, spelt = parse(name)
    entry = _REGISTRY[base]
    cls: type[Ranker] = getattr(import_module(f"pairrank.rankers.{entry.module}"), entry.cls)
    try:
        return cls(n_features, seed=seed, **{**entry.options, **spelt, **options})
    except TypeError as problem:
        raise OptionError(f"{name}: {problem}") from None


def load(path: str | os.PathLike[str], *, ranker: type[Ranker] | None = None) -> Ranker:
    """The ranker that ``save`` wrote; it continues exactly where it stopped.

    ``ranker`` is the class of a ranker of your own, which no table here lists: ``load("mine.pairrank", ranker=Mine)``.
    """
    return from_bytes(archive.read_file(path), source=str(path), ranker=ranker)


def from_bytes(blob: bytes, *, source: str = "these bytes", ranker: type[Ranker] | None = None) -> Ranker:
    """The ranker that ``to_bytes`` wrote; ``ranker`` as in `load`."""
    if ranker is not None:
        return ranker.from_bytes(blob, source=source)
    values, _ = archive.unpack(blob, "ranker", source=source)
    for entry in _REGISTRY.values():
        cls: type[Ranker] = getattr(import_module(f"pairrank.rankers.{entry.module}"), entry.cls)
        if cls.name == values.get("name"):
            return cls.from_bytes(blob, source=source)
    raise FileFormatError(
        f"{source} holds the ranker {values.get('name')!r}, which is none of this package: for one of your own give "
        "its class too, as in pairrank.load(path, ranker=YourRanker)"
    )


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """The name and options of a ranker's short text: ``pairrank-c(alpha=0.3, pairs=all)``; inverse of `spell`."""
    spelt = short_text.parse(text)
    if spelt is None or spelt[0] not in _REGISTRY:
        raise UnknownNameError(f"no ranker is called {text!r}; there are: {', '.join(names())}")
    return spelt


def spell(name: str, options: Mapping[str, Any]) -> str:
    """The short text of a ranker: the name alone, or with its options in brackets, by name; inverse of `parse`."""
    return short_text.spell(name, dict(sorted(options.items())))
