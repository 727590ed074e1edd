"""State that is saved and that can be taken back, declared once.

A class names in ``SAVED`` the attributes that learning changes. From that follow `state_of` (by name, for files),
`restore` and `checkpoint`. Two rules make the last one cheap: arrays in ``SAVED`` are replaced, never changed in place,
and a `Growing` array is only written beyond its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from pairrank.types import AnyArray


class Settings(dict[str, Any]):
    """Options by name as they act; also as attributes: ``settings["z"]`` is ``settings.z``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no setting {name!r}; there are: {', '.join(self)}") from None


class Saved:
    """Something with state: ``SAVED`` names its attributes: arrays, numbers, `Growing`, `Saved`, or None.

    ``LATER`` names those of them that older files lack: they keep the value that they start with.
    """

    SAVED: ClassVar[tuple[str, ...]] = ()
    LATER: ClassVar[tuple[str, ...]] = ()


def state_of(thing: Saved) -> dict[str, Any]:
    """Arrays and numbers by name; names of what lies deeper are joined by dots."""
    result: dict[str, Any] = {}
    for name in thing.SAVED:
        value, key = getattr(thing, name), name.lstrip("_")
        if value is None:
            continue
        if isinstance(value, Growing):
            result[key] = value.rows
        elif isinstance(value, Saved):
            result.update((f"{key}.{inner}", v) for inner, v in state_of(value).items())
        else:
            result[key] = value
    return result


def restore(thing: Saved, state: Mapping[str, Any]) -> None:
    """Take over what `state_of` gave; `KeyError` or `ValueError` where it does not fit."""
    for name in thing.SAVED:
        value, key = getattr(thing, name), name.lstrip("_")
        if value is None or (name in thing.LATER and key not in state):
            continue
        if isinstance(value, Growing):
            rows = _fitting(key, state[key], (-1, *value.rows.shape[1:]), value.rows.dtype)
            setattr(thing, name, Growing(rows))
        elif isinstance(value, Saved):
            restore(value, {k.removeprefix(f"{key}."): v for k, v in state.items() if k.startswith(f"{key}.")})
        elif isinstance(value, np.ndarray):
            setattr(thing, name, _fitting(key, state[key], value.shape, value.dtype).copy())
        else:
            setattr(thing, name, type(value)(state[key]))


def checkpoint(thing: Saved) -> Callable[[], None]:
    """A function that takes back everything that happens to ``thing`` from now on; constant time and memory."""
    kept: list[tuple[dict[str, Any], dict[str, Any]]] = []
    waiting: list[Any] = [thing]
    for one in waiting:
        own = vars(one)
        kept.append((own, own.copy()))
        for name in one.SAVED:
            if isinstance(value := own[name], Saved):
                waiting.append(value)

    def take_back() -> None:
        for own, before in kept:
            own.clear()
            own.update(before)

    return take_back


# Rows that a growing array moves at a time: a megabyte of a hundred features.
STEP = 2048


class Growing(Saved):
    """An array that grows at its end in constant time: what it holds moves to a larger room bit by bit, ahead of need.

    >>> numbers = Growing(np.empty(0))
    >>> numbers.extend(2)[:] = 5.0
    >>> numbers.rows
    array([5., 5.])
    """

    def __init__(self, start: AnyArray) -> None:
        self._room = start.copy()
        self._length = len(start)
        self._larger: AnyArray | None = None  # the next room, and how many rows have moved there
        self._moved = 0

    def __len__(self) -> int:
        return self._length

    @property
    def rows(self) -> AnyArray:
        """What has been appended so far: a view, good until the next `extend`."""
        return self._room[: self._length]

    def extend(self, n: int) -> AnyArray:
        """Grow by ``n`` rows: a view of them, to be written to."""
        needed = self._length + n
        if 4 * needed > 3 * len(self._room):
            self._move_on(needed)
        added = self._room[self._length : needed]
        self._length = needed
        return added

    def _move_on(self, needed: int) -> None:
        """Move a step of the rows to a larger room, and whatever is left once there must be room for ``needed``."""
        length, capacity = self._length, len(self._room)
        if self._larger is None or needed > len(self._larger):
            size = max(needed, 2 * capacity, 64)
            self._larger, self._moved = np.empty((size, *self._room.shape[1:]), dtype=self._room.dtype), 0
        full = needed > capacity
        if full or length - self._moved >= STEP:
            rows = slice(self._moved, length if full else self._moved + STEP)
            self._larger[rows], self._moved = self._room[rows], rows.stop
        if full:
            self._room, self._larger = self._larger, None


def _fitting(name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """``value`` as an array of ``shape``, where -1 stands for any length."""
    array = np.asarray(value)
    if array.ndim != len(shape) or any(s not in (-1, n) for s, n in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    if array.dtype != dtype:
        raise ValueError(f"{name} has type {array.dtype}, expected {dtype}")
    return array
