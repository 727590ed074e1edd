"""HTML from Python: every string is escaped unless it is `Markup` already."""

from __future__ import annotations

import html


class Markup(str):
    """Text that is HTML already: only of what this package wrote itself, such as a drawing."""

    __slots__ = ()


Child = str | int | float | None


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element. ``class_`` is class, ``data_x`` is data-x; True gives a bare attribute, None and False none."""
    spelt = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    return Markup(f"<{name}{spelt}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Several children one after another; None is nothing."""
    return Markup("".join(_escape(child) for child in children if child is not None))


def _escape(child: Child) -> str:
    return child if isinstance(child, Markup) else html.escape(str(child), quote=True)


def _attribute(key: str, value: str | int | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value), quote=True)}"'
