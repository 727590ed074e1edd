"""The rankers, by name. One algorithm, one file; this table is the only place that lists them.

A ranker of one's own is named by its place, ``path/to/file.py:Class``, or by an entry point of the group
``pairrank.rankers`` (`rankers.own`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NamedTuple

from pairrank import archive, short_text
from pairrank.checking import nearest
from pairrank.errors import FileFormatError, OptionError, UnknownNameError
from pairrank.rankers import own
from pairrank.rankers.base import Ranker
from pairrank.rankers.linear import LinearRanker

__all__ = ["LinearRanker", "Ranker", "class_of", "label", "load", "make", "names", "options", "parse", "paths", "spell"]


class _Entry(NamedTuple):
    module: str
    cls: str
    label: str  # in figures and tables
    options: Mapping[str, Any] = MappingProxyType({})
    needs: str = ""  # a package that an extra brings


_REGISTRY: Mapping[str, _Entry] = MappingProxyType(
    {
        "dbgd": _Entry("dbgd", "DBGD", "DBGD"),
        "epsilon-greedy": _Entry("epsilon_greedy", "EpsilonGreedy", "ε-greedy"),
        "mgd": _Entry("mgd", "MGD", "MGD"),
        "offline-ranknet": _Entry("ranknet", "OfflineRankNet", "offline RankNet (ceiling)"),
        "olranknet": _Entry("neural", "OlRankNet", "olRankNet", needs="torch"),
        "p2linrank": _Entry("p2linrank", "P2LinRank", "P²LinRank"),
        "pairrank": _Entry("pairrank", "PairRank", "PairRank"),
        "pairrank-c": _Entry("pairrank", "PairRank", "PairRank_C", {"preset": "paper", "exploration": "conservative"}),
        "pairrank-memory": _Entry("memory", "MemoryRank", "PairRank with a memory"),
        "pairrank-r": _Entry("pairrank", "PairRank", "PairRank_R", {"preset": "paper", "exploration": "random"}),
        "pdgd": _Entry("pdgd", "PDGD", "PDGD"),
        "posterior-sampling": _Entry("posterior_sampling", "PosteriorSampling", "posterior sampling"),
        "sgd-ranknet": _Entry("ranknet", "SGDRankNet", "SGD RankNet"),
    }
)


def names() -> list[str]:
    """The rankers of this package and those of other packages' entry points, in alphabetical order.

    One that needs a package of an extra is listed where that is installed.
    """
    present = (name for name, entry in _REGISTRY.items() if not entry.needs or _installed(entry.needs))
    return sorted({*present, *own.entry_names()})


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # by an import hook that knows of nothing else
        return False


def label(name: str) -> str:
    """How a ranker is called in figures and tables."""
    if name in _REGISTRY:
        return _REGISTRY[name].label
    where = own.place(name)
    return name if where is None else where.cls


def paths() -> list[str]:
    """Where the registered rankers' classes are, each once, as in ``pairrank.rankers.pdgd.PDGD``."""
    return list(dict.fromkeys(f"pairrank.rankers.{entry.module}.{entry.cls}" for entry in _REGISTRY.values()))


def class_of(name: str) -> tuple[type[Ranker], Mapping[str, Any]]:
    """The class of a ranker by its name without options, and the options that the name stands for."""
    if name in _REGISTRY:
        entry = _REGISTRY[name]
        return getattr(import_module(f"pairrank.rankers.{entry.module}"), entry.cls), entry.options
    where = own.place(name)
    cls = own.from_entry(name) if where is None else own.load(where)
    if cls is None:
        raise _unknown(name)
    return cls, {}


def options(name: str) -> dict[str, Any]:
    """The options of a ranker by name, with their defaults."""
    cls, fixed = class_of(name)
    return {
        f.name: fixed.get(f.name, f.default) for f in fields(cls) if f.init and f.name not in ("n_features", "seed")
    }


def make(name: str, *, n_features: int, seed: int = 0, **more: Any) -> Ranker:
    """A ranker by name; ``name`` may carry options, as in ``pairrank-c(alpha=0.3)``."""
    base, spelt = parse(name)
    cls, fixed = class_of(base)
    known, given = options(base), {**fixed, **spelt, **more}
    for option in given:
        if option not in known:
            raise OptionError(f"{base} has no option {option!r}{nearest(option, known)}")
    return cls(n_features, seed=seed, **given)


def load(path: str | os.PathLike[str], *, ranker: type[Ranker] | str | None = None) -> Ranker:
    """The ranker that ``save`` wrote; it continues exactly where it stopped.

    A ranker of your own is found where its class is defined in this process, or an entry point offers it. Else name it:
    ``load("mine.pairrank", ranker=Mine)`` or ``ranker="mine.py:Mine"``. No code is run that you do not name.
    """
    return from_bytes(archive.read_file(path), source=str(path), ranker=ranker)


def from_bytes(blob: bytes, *, source: str = "these bytes", ranker: type[Ranker] | str | None = None) -> Ranker:
    """The ranker that ``to_bytes`` wrote; ``ranker`` as in `load`."""
    if isinstance(ranker, str):
        ranker = class_of(parse(ranker)[0])[0]
    if ranker is not None:
        return ranker.from_bytes(blob, source=source)
    values, _ = archive.unpack(blob, "ranker", source=source)
    name = str(values.get("name"))
    for known in _REGISTRY:
        cls, _ = class_of(known)
        if cls.name == name:
            return cls.from_bytes(blob, source=source)
    found = own.defined(name) or own.from_entry(name)
    if found is not None:
        return found.from_bytes(blob, source=source)
    raise FileFormatError(
        f"{source} holds the ranker {name!r}, which is none of this package: for one of your own give its class too, "
        "as in pairrank.load(path, ranker=YourRanker) or ranker='file.py:YourRanker'"
    )


def parse(text: str, *, files: bool = True) -> tuple[str, dict[str, Any]]:
    """The name and options of a ranker's short text: ``pairrank-c(alpha=0.3, pairs=all)``; inverse of `spell`.

    ``files=False`` knows no rankers in files: for names that come from elsewhere, since to make such a ranker is to run
    its file.
    """
    if not isinstance(text, str):
        raise UnknownNameError(f"a ranker's name is {text!r}; expected a text, as in 'pairrank'")
    file = own.split(text) if files else None
    spelt = short_text.parse(text if file is None else f"file{file[1]}")
    if file is not None and spelt is not None:
        return str(file[0]), spelt[1]
    if spelt is None or (spelt[0] not in _REGISTRY and spelt[0] not in own.entry_names()):
        raise _unknown(text)
    return spelt


def _unknown(text: str) -> UnknownNameError:
    open_bracket = "(" in text and not text.rstrip().endswith(")")
    hint = "; is a bracket missing?" if open_bracket else ""
    return UnknownNameError(f"no ranker is called {text!r}{hint}{nearest(text.partition('(')[0], names())}")


def spell(name: str, options: Mapping[str, Any]) -> str:
    """The short text of a ranker: the name alone, or with its options in brackets, by name; inverse of `parse`."""
    return short_text.spell(name, dict(sorted(options.items())))
