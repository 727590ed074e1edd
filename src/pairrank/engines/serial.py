"""In this process, one item after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

from pairrank.engines.base import Engine, Item, Result


class Serial(Engine):
    """The plainest engine, and the one that the others are compared with."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        yield from map(function, items)

    def _start(self, opened: ExitStack) -> None:
        """Nothing to start."""
