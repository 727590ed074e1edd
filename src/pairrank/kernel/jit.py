"""The one door to compiled code: `twin` marks array code that numba may run as plain loops (``pairrank[fast]``).

At a hundred documents a round is short enough for the number of calls to count: a loop takes the place of a dozen.
Each twin is found by its name in `jit_loops`. It compares, counts, copies and adds up in the order of the array code,
so the bits are the same, and whether loops are loaded (which depends on what is installed, on a cache on disk and on
the environment) changes no result.

They are loaded at two moments only, never in the middle of a stream: by `load` (the service before it is ready,
``pairrank warm``), which compiles if it must; and when the first ranker is made (`begin`), if that takes no longer than
to read what an earlier process compiled. ``PAIRRANK_COMPILED=1`` lets `begin` compile too; ``0`` keeps to array code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Twin:
    """Array code, and the loop that runs in its place once loops are loaded."""

    array: Callable[..., Any]
    returns: type[tuple[Any, ...]] | None
    compiled: Callable[..., Any] | None = None

    def find(self, loops: ModuleType) -> None:
        name, returns = self.array.__name__, self.returns
        loop = getattr(loops, name, None)
        if loop is None:
            raise LookupError(f"{loops.__name__} has no loop {name!r}, which {self.array.__module__} names")
        self.compiled = loop if returns is None else lambda *arguments: tuple.__new__(returns, loop(*arguments))


TWINS: dict[str, Twin] = {}
_loops: ModuleType | None = None
_begun = False


def twin(returns: type[tuple[Any, ...]] | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run a function of arrays by the loop of its name, once loops are loaded.

    Arguments go by position. A loop gives a plain tuple where the function gives a named one, which ``returns`` makes.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if function.__name__ in TWINS:
            raise LookupError(f"two functions want the loop {function.__name__!r}")
        pair = TWINS[function.__name__] = Twin(function, returns)
        if _loops is not None:
            pair.find(_loops)

        @wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            return (pair.compiled or function)(*arguments, **named)

        return call

    return decorate


def load() -> bool:
    """Compile the loops now, some twenty seconds, or read what an earlier process compiled, about one.

    False where numba is not installed, or finds no folder to keep what it compiles (twenty seconds in every process are
    not worth it), or is told to compile nothing (``NUMBA_DISABLE_JIT``), or ``PAIRRANK_COMPILED`` is 0.
    """
    global _loops
    if _loops is None and os.environ.get("PAIRRANK_COMPILED") != "0":
        try:
            if import_module("numba").config.DISABLE_JIT:
                return False
            loops = import_module("pairrank.kernel.jit_loops")
        except (ImportError, RuntimeError):
            return False
        for pair in TWINS.values():
            pair.find(loops)
        _loops = loops
    return _loops is not None


def begin() -> None:
    """Say that a ranker is made: the first one of a process loads the loops, if they were compiled before."""
    global _begun
    if not _begun and _loops is None:
        _begun = True
        if os.environ.get("PAIRRANK_COMPILED") == "1" or is_warm():
            load()


def is_warm() -> bool:
    """Whether an earlier process compiled the loops as they stand, by the age of the files in numba's cache."""
    try:
        if os.environ.get("PAIRRANK_COMPILED") == "0":
            return False
        numba = import_module("numba")
        if numba.config.DISABLE_JIT:
            return False
        # Numba alone knows where it keeps code: for every file of a folder in the same place.
        folder = numba.njit(cache=True)(_anything).stats.cache_path
    except (ImportError, RuntimeError):
        return False
    source = Path(__file__).with_name("jit_loops.py")
    ending = f".py{sys.version_info.major}{sys.version_info.minor}.nbi"
    files = [p for p in Path(folder).glob(f"{source.stem}.*{ending}") if p.stat().st_mtime >= source.stat().st_mtime]
    return set(TWINS) <= {path.name.removeprefix(f"{source.stem}.").partition("-")[0] for path in files}


def _anything() -> None:
    """A function for numba to look at, never run."""
