"""Rankers of one's own, named by where they are: ``path/to/file.py:Class``, or an entry point of another package.

A file's name carries a digest of its content, ``file.py:Class@0123456789ab``: a run that is done was made with exactly
that file, and one that has changed since is another ranker. A class is loaded only where somebody names it; a saved
model or a store never leads to code being run.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple, cast

from pairrank import archive
from pairrank.errors import OptionError, StorageError, UnknownNameError
from pairrank.rankers.base import Ranker

GROUP = "pairrank.rankers"
_PLACE = re.compile(r'([^"]+?\.py):([A-Za-z_]\w*)(?:@([0-9a-f]{12}))?')
_SPELT = re.compile(rf"({_PLACE.pattern})\s*(\(.*\))?", re.DOTALL)

# Files that came from elsewhere, by digest: a worker on another machine does not have them.
_sent: dict[str, bytes] = {}


class Place(NamedTuple):
    """A class in a file of a certain content."""

    path: str
    cls: str
    digest: str

    def __str__(self) -> str:
        return f"{self.path}:{self.cls}@{self.digest}"


def place(name: str) -> Place | None:
    """Where a ranker is, from ``file.py:Class``, with or without a digest; None for other names."""
    match = _PLACE.fullmatch(name.strip())
    if match is None:
        return None
    path, cls, digest = match.groups()
    return Place(path, cls, digest or _digest(_read(path)))


def split(text: str) -> tuple[Place, str] | None:
    """The place and the options in brackets, from ``file.py:Class(rate=0.1)``; None for other texts."""
    match = _SPELT.fullmatch(text.strip())
    where = place(match[1]) if match else None
    return None if match is None or where is None else (where, match[5] or "")


def source(where: Place) -> bytes:
    """The file's content, if it is still what the place says."""
    found = _sent.get(where.digest)
    if found is None:
        found = _read(where.path)
        if _digest(found) != where.digest:
            raise OptionError(
                f"{where.path} has changed since {where} was named: leave out @{where.digest} to take it as it is now"
            )
    return found


def receive(sources: dict[str, bytes]) -> None:
    """Take over the contents of files by digest, as `source` gave them elsewhere."""
    _sent.update(sources)


def load(where: Place) -> type[Ranker]:
    """The class, or one sentence with file and line."""
    return _load(where, source(where))


def entry_names() -> list[str]:
    """What other packages offer under the entry points ``pairrank.rankers``."""
    return sorted(_entries())


def from_entry(name: str) -> type[Ranker] | None:
    """The class of an entry point, or None where there is none of this name."""
    entry = _entries().get(name)
    if entry is None:
        return None
    try:
        found = entry.load()
    except Exception as problem:
        raise OptionError(f"the ranker {name!r} of {entry.value} cannot be loaded: {_told(problem)}") from problem
    return _checked(found, f"the entry point {name!r} ({entry.value})")


def defined(name: str) -> type[Ranker] | None:
    """The class of that ``name`` that this process has defined last, if any; the package's own are not looked for."""
    found = [cls for cls in _below(cast(Any, Ranker)) if vars(cls).get("name") == name and not inspect.isabstract(cls)]
    return found[-1] if found else None


def _below(cls: type[Ranker]) -> Iterator[type[Ranker]]:
    for child in cls.__subclasses__():
        yield child
        yield from _below(child)


@cache
def _entries() -> dict[str, Any]:
    from importlib.metadata import entry_points  # takes as long as all of this package

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _read(path: str) -> bytes:
    try:
        return archive.read_file(path)
    except StorageError as problem:
        raise UnknownNameError(f"{problem}; expected a ranker as path/to/file.py:Class") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


@cache
def _load(where: Place, content: bytes) -> type[Ranker]:
    name = f"pairrank_own_{where.digest}"
    module = sys.modules.get(name)
    if module is None:
        module = ModuleType(name)
        module.__file__ = where.path
        sys.modules[name] = module  # dataclasses look their module up
        try:
            exec(compile(content, where.path, "exec", dont_inherit=True), vars(module))
        except (Exception, SystemExit) as problem:
            del sys.modules[name]
            alone = "; a ranker's file finds what is installed, not what lies beside it"  # no digest tells of that
            why = alone if isinstance(problem, ModuleNotFoundError) else ""
            raise OptionError(f"{where.path}, {_told(problem, where.path)}{why}") from problem
    found = getattr(module, where.cls, None)
    if found is None:
        known = [n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == name]
        raise UnknownNameError(f"{where.path} has no class {where.cls}; there are: {', '.join(known) or 'none'}")
    lines = content.decode(errors="replace").splitlines()
    line = next((n for n, text in enumerate(lines, 1) if f"class {where.cls}" in text), 1)
    return _checked(found, f"{where.path}, line {line}: {where.cls}")


def _checked(found: object, what: str) -> type[Ranker]:
    if not isinstance(found, type) or not issubclass(found, Ranker):
        raise OptionError(f"{what} is no subclass of pairrank.rankers.Ranker")
    if inspect.isabstract(found):
        raise OptionError(f"{what} does not write {', '.join(sorted(found.__abstractmethods__))}")
    if not isinstance(getattr(found, "name", None), str):
        raise OptionError(f'{what} has no name; expected a line such as name: ClassVar[str] = "mine"')
    return found


def _told(problem: BaseException, path: str | None = None) -> str:
    """What went wrong in one sentence, with the last line of ``path`` that had to do with it."""
    if isinstance(problem, SyntaxError):
        return f"line {problem.lineno}: {problem.msg}"
    return f"{_line(problem, path)}{type(problem).__name__}: {problem}"


def line_of(name: str, problem: BaseException) -> str:
    """``file.py, line 12: `` where ``problem`` came through the file that ``name`` names; else nothing."""
    match = _PLACE.match(name)
    line = _line(problem, match[1]) if match else ""
    return f"{match[1]}, {line}" if match and line else ""


def _line(problem: BaseException, path: str | None) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == path]
    return f"line {lines[-1]}: " if lines else ""
