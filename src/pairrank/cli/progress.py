"""A progress bar with the time left on a terminal; a line now and then elsewhere. Both go to standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

_QUIET = 10.0  # seconds between lines where nobody watches


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[int], None]]:
    """Give a function that is to be told how much of ``total`` is done."""
    if sys.stderr.isatty():
        try:
            import rich  # noqa: F401
        except ImportError:
            pass
        else:
            yield from _bar(total, what)
            return
    yield _lines(total, what)


def _bar(total: int, what: str) -> Iterator[Callable[[int], None]]:
    from rich import progress as shown
    from rich.console import Console

    columns = (
        shown.TextColumn("{task.description}"),
        shown.BarColumn(),
        shown.MofNCompleteColumn(),
        shown.TimeElapsedColumn(),
        shown.TextColumn("left"),
        shown.TimeRemainingColumn(),
    )
    with shown.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def _lines(total: int, what: str) -> Callable[[int], None]:
    began = last = perf_counter()

    def tell(done: int) -> None:
        nonlocal last
        now = perf_counter()
        if now - last >= _QUIET and 0 < done < total:
            last = now
            left = (now - began) / done * (total - done)
            print(f"{what}: {done} of {total}, about {left:.0f} s left", file=sys.stderr, flush=True)

    return tell
