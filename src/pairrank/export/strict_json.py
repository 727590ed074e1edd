"""JSON that reads back as it was written: no double keys, no NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pairrank.errors import ExportError, NewerFormatError


def write(document: Mapping[str, Any]) -> bytes:
    """Two spaces of indentation, keys in the order given, a line feed at the end."""
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def parse(text: bytes | str, source: str) -> dict[str, Any]:
    """The object that ``text`` holds; anything else, a key that comes twice and NaN raise `ExportError`."""
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except ExportError as problem:
        raise ExportError(f"{source}: {problem}") from None
    except (ValueError, RecursionError) as problem:
        raise ExportError(f"{source} is not JSON: {problem}") from None
    if not isinstance(document, dict):
        raise ExportError(f"{source} holds a JSON {type(document).__name__}; expected an object")
    return document


def model(blob: bytes, format: str, version: int, source: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A model in one of our own formats and its features; refused where it is another format or a newer version."""
    content = parse(blob, source)
    if content.get("format") != format:
        raise ExportError(f"{source} has the format {content.get('format')!r}; expected {format!r}")
    NewerFormatError.check(source, entry(content, "version", int, source), version)
    features = entry(content, "features", list, source)
    if not all(isinstance(feature, dict) for feature in features):
        raise ExportError(f"{source} lists features that are not objects")
    return content, features


def entry(document: object, key: str, kind: type, source: str) -> Any:
    """``document[key]``, which must be there and of type ``kind``."""
    if not isinstance(document, dict):
        raise ExportError(f"{source}: a JSON {type(document).__name__} stands where an object with {key!r} should")
    value = document.get(key)
    if not isinstance(value, kind):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise ExportError(f"{source}: {key!r} holds {found}; expected a {kind.__name__}")
    return value


def number(value: object, what: str) -> float:
    """``value``, a finite number (or a text that holds one, as Solr writes them), as a float."""
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        result = float(value)
    except (ValueError, OverflowError):
        raise ExportError(f"{what} is {value!r}; expected a number") from None
    if not math.isfinite(result):
        raise ExportError(f"{what} is {value!r}; expected a finite number")
    return result


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ExportError(f"the key {twice!r} comes twice in one object")
    return document


def _refuse(constant: str) -> float:
    raise ExportError(f"{constant} is not a number that JSON knows")
