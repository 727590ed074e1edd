"""A progress bar with the time left on a terminal; a line now and then elsewhere. Both go to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from time import perf_counter
from typing import Protocol

_QUIET = 10.0  # seconds between lines where nobody watches


class Tell(Protocol):
    """To be told how much is done; a new ``total`` or ``what`` begins another part of the work."""

    def __call__(self, done: int, /, total: int | None = None, what: str | None = None) -> None:
        """``done`` of ``total``."""


def phase(what: str) -> None:
    """Say on a terminal what is being done that cannot be counted."""
    if sys.stderr.isatty():
        print(f"{what} …", file=sys.stderr, flush=True)


@contextmanager
def progress(total: int, what: str, *, size: bool = False) -> Iterator[Tell]:
    """Give a function that is to be told how much of ``total`` is done; ``size``: the numbers are bytes."""
    if sys.stderr.isatty() and find_spec("rich") is not None:
        yield from _bar(total, what, size)
    else:
        yield _lines(total, what)


def _bar(total: int, what: str, size: bool) -> Iterator[Tell]:
    from rich import progress as shown
    from rich.console import Console

    columns = (
        shown.TextColumn("{task.description}"),
        shown.BarColumn(),
        shown.DownloadColumn() if size else shown.MofNCompleteColumn(),
        shown.TimeElapsedColumn(),
        shown.TextColumn("left"),
        shown.TimeRemainingColumn(),
    )
    with shown.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def tell(done: int, /, total: int | None = None, what: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield tell


def _lines(total: int, what: str) -> Tell:
    began = last = perf_counter()
    part = (total, what)

    def tell(done: int, /, total: int | None = None, what: str | None = None) -> None:
        nonlocal began, last, part
        now = perf_counter()
        told = (part[0] if total is None else total, part[1] if what is None else what)
        if told != part:
            began, part = now, told
        if now - last >= _QUIET and 0 < done < part[0]:
            last = now
            left = (now - began) / done * (part[0] - done)
            print(f"{part[1]}: {done} of {part[0]}, about {left:.0f} s left", file=sys.stderr, flush=True)

    return tell
