"""The short text of a ranker or a click model, ``pairrank-c(alpha=0.3, pairs=all)``: a name, options in brackets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pairrank.errors import OptionError

_SPELT = re.compile(r"\s*([A-Za-z][A-Za-z0-9._-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_OPTION = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*")
_WORD = re.compile(r'[^,"\[\]]+?(?=\s*(?:,|$))')
_END = re.compile(r"\s*(?:,|$)")
_BARE = re.compile(r"[A-Za-z][\w-]*")
_SHORT = re.compile(r"-?(\.\d+|\d+\.)")  # .5 and 5., which JSON does not know
_WORDS = {"True": True, "False": False, "None": None}


def parse(text: str) -> tuple[str, dict[str, Any]] | None:
    """The name and the options of a short text; None where it is not one.

    A value is JSON, a number such as .5, Python's True, False or None, or else a bare word. Options that cannot be
    read are an error.
    """
    match = _SPELT.fullmatch(text)
    if match is None:
        return None
    options: dict[str, Any] = {}
    rest, place = match[2] or "", 0
    while rest[place:].strip():
        option = _OPTION.match(rest, place)
        value, place = _read(rest, option.end()) if option else (None, -1)
        end = _END.match(rest, place) if place >= 0 else None
        if option is None or end is None:
            raise OptionError(f"cannot read the options of {text!r}; expected name=value, name=value")
        if option[1] in options:
            raise OptionError(f"{text!r} gives {option[1]} twice; expected each option once")
        options[option[1]] = value
        place = end.end()
    return match[1], options


def spell(name: str, options: Mapping[str, Any]) -> str:
    """The short text that `parse` reads: the name alone, or with its options in brackets, in their order.

    >>> spell("pairrank-c", {"alpha": 0.3, "pairs": "all"})
    'pairrank-c(alpha=0.3, pairs=all)'
    """
    spelt = ", ".join(f"{key}={_spelt(value)}" for key, value in options.items())
    return f"{name}({spelt})" if spelt else name


def _spelt(value: Any) -> str:
    bare = isinstance(value, str) and _BARE.fullmatch(value) and _value(value) == value
    return str(value) if bare else json.dumps(value)


def _read(text: str, place: int) -> tuple[Any, int]:
    """The value that stands there, and where it ends; -1 where none does."""
    if text.startswith(('"', "[", "{"), place):
        try:
            return json.JSONDecoder().raw_decode(text, place)
        except (ValueError, RecursionError):
            raise OptionError(f"cannot read {text[place:]}; expected JSON, as in [0.5, 1]") from None
    word = _WORD.match(text, place)
    return (_value(word[0]), word.end()) if word else (None, -1)


def _value(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    try:
        return json.loads(word)
    except ValueError:
        return float(word) if _SHORT.fullmatch(word) else word
