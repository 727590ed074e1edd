"""How rankers and users look in every figure and table: one label, one colour, one line style, one marker each.

Colours are Okabe and Ito's, which colour-blind people can tell apart; styles and markers do so in grey.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any
from zlib import crc32

from pairrank import rankers, short_text
from pairrank.errors import UnknownNameError

Style = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Look:
    """Label, colour, line style and marker."""

    label: str
    colour: str
    style: Style = "-"
    marker: str = ""


_LONG, _DOTS, _MIXED = (0, (7.0, 2.0)), (0, (1.0, 1.5)), (0, (5.0, 1.5, 1.0, 1.5))
# The looks that published figures have; a ranker that is not among them gets one of `_MORE`.
_RANKERS: Mapping[str, tuple[str, Style, str]] = {
    "pairrank": ("#D55E00", "-", "o"),
    "pairrank-c": ("#0072B2", "-", "s"),
    "pairrank-r": ("#56B4E9", _LONG, "D"),
    "pdgd": ("#009E73", _MIXED, "^"),
    "mgd": ("#CC79A7", "--", "v"),
    "dbgd": ("#E69F00", _DOTS, "P"),
    "sgd-ranknet": ("#6A3D9A", "--", "X"),
    "epsilon-greedy": ("#8C8C8C", _MIXED, "*"),
    "p2linrank": ("#7F3B08", _LONG, "<"),
    "posterior-sampling": ("#B2182B", "--", ">"),
    "olranknet": ("#A6761D", "-", "X"),
    "offline-ranknet": ("#000000", _DOTS, ""),
}
_MORE: tuple[tuple[str, Style, str], ...] = (
    ("#1B7837", "-", "h"),
    ("#762A83", _LONG, "p"),
    ("#35978F", "--", "d"),
    ("#BF812D", _MIXED, "8"),
    ("#DE77AE", "-", "H"),
    ("#4D4D4D", _LONG, "1"),
)
_USERS: Mapping[str, Look] = {
    "perfect": Look("perfect", "#222222", "-", "o"),
    "navigational": Look("navigational", "#8C510A", "--", "s"),
    "informational": Look("informational", "#4B6A2E", _MIXED, "^"),
}
# For what has no look of its own: variants of one ranker, other users.
_SPARE = tuple(Look("", *drawn) for drawn in (*_RANKERS.values(), *_MORE))


def base(ranker: str) -> str:
    """A ranker's name without options."""
    return _parsed(ranker)[0]


def _parsed(ranker: str) -> tuple[str, Mapping[str, Any]]:
    try:
        return rankers.parse(ranker)
    except UnknownNameError:  # of an object that was handed to `simulate`, or of a package that is not installed here
        return short_text.parse(ranker) or (ranker, {})


def of_rankers(texts: Sequence[str]) -> dict[str, Look]:
    """Looks by text. A label that occurs once keeps its own look, whatever its options; variants get spare ones.

    Classes of one name, in two files or in two states of a file, are called by their whole names.
    """
    names = [base(text) for text in texts]
    labels = [rankers.label(name) for name in names]
    taken = {_own(name).colour for name, label in zip(names, labels, strict=True) if labels.count(label) == 1}
    spare = cycle([look for look in _SPARE if look.colour not in taken] or _SPARE)
    alike = Counter(map(rankers.label, set(names)))
    return {
        text: _own(name)
        if labels.count(label) == 1
        else replace(next(spare), label=_variant(label if alike[label] == 1 else name, _parsed(text)[1]))
        for text, name, label in zip(texts, names, labels, strict=True)
    }


def of_users(texts: Sequence[str]) -> dict[str, Look]:
    """Looks by text. A name that occurs once keeps its own look, whatever its options; variants get spare ones."""
    names, spare = [text.partition("(")[0] for text in texts], cycle(_SPARE)
    own = {name: look for name, look in _USERS.items() if names.count(name) == 1}
    return {text: replace(own.get(name) or next(spare), label=text) for text, name in zip(texts, names, strict=True)}


def of_times(rounds: Sequence[int]) -> dict[int, Look]:
    """Looks of points in time, light to dark."""
    drawn = (("#B8B8B8", _DOTS), ("#E69F00", "--"), ("#D55E00", _MIXED), ("#0072B2", _LONG), ("#000000", "-"))
    chosen = rounds[-len(drawn) :]
    shades = drawn[len(drawn) - len(chosen) :]
    return {
        t: Look(f"after {t:,} round{'s' if t > 1 else ''}", *shade) for t, shade in zip(chosen, shades, strict=True)
    }


def _own(name: str) -> Look:
    """The look of a ranker, everywhere the same."""
    others = [other for other in rankers.names() if other not in _RANKERS]
    place = others.index(name) if name in others else crc32(rankers.label(name).encode())  # one's own, in a file
    drawn = _RANKERS[name] if name in _RANKERS else _MORE[place % len(_MORE)]
    return Look(rankers.label(name), *drawn)


def _variant(label: str, options: Mapping[str, Any]) -> str:
    told = ", ".join(f"{key} = {value}" for key, value in sorted(options.items()))
    return f"{label}, {told}" if told else label
