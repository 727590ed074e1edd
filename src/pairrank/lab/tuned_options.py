"""Tuned options of rankers: a JSON file that `pairrank tune` writes and that the other commands take.

``{"format": 1, "rankers": {"pdgd": {"options": {"learning_rate": 0.03}, ...}, ...}, "found": {...}}``; all but the
options tells how they were found. Some files are kept in the package, under a name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pairrank import archive, rankers
from pairrank.errors import FileFormatError, NewerFormatError, UnknownNameError

FORMAT = 1
Settings = Mapping[str, Mapping[str, Any]]


def names() -> list[str]:
    """The settings that are kept in the package."""
    return sorted(Path(entry.name).stem for entry in _kept().iterdir() if entry.name.endswith(".json"))


def load(name: str) -> Settings:
    """Options by ranker, from a file or from the package."""
    if name in names():
        return parse((_kept() / f"{name}.json").read_text(encoding="utf-8"), source=name)
    if not Path(name).exists():
        raise UnknownNameError(f"there are no settings {name!r}; expected a file or one of: {', '.join(names())}")
    return parse(archive.read_file(name), source=name)


def parse(text: str | bytes, *, source: str) -> Settings:
    """Options by ranker, from the text of a file."""
    try:
        content = json.loads(text)
        NewerFormatError.check(source, int(content["format"]), FORMAT)
        settings = {str(name): dict(entry["options"]) for name, entry in content["rankers"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise FileFormatError(f"{source} is not a settings file, as pairrank tune writes them") from None
    for name, options in settings.items():
        # A file that names what does not exist is refused at the door; features are known with the data.
        known = {option: value for option, value in options.items() if option not in ("feature_names", "monotone")}
        rankers.make(name, n_features=1, **known)
    return settings


def applied(text: str, settings: Settings) -> str:
    """A ranker's short text with its tuned options; those that the text gives itself come first."""
    name, given = rankers.parse(text)
    # Of one's own by class and digest: a file is the same by any path.
    tuned = {known.rpartition(":")[2]: options for known, options in settings.items()}
    return rankers.spell(name, {**tuned.get(name.rpartition(":")[2], {}), **given})


def _kept() -> Any:
    return files("pairrank.lab") / "tuned"
