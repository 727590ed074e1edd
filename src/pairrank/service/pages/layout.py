"""What all pages share: HTML from Python and from files, the frame around it, the policy that they are served under.

Every string is escaped unless it is `Markup` already.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from string import Template

# No inline script or style, nothing from elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
Nav = Sequence[tuple[str, str]]  # address, from the root of the service, and name of each page that there is

HTML = Path(__file__).parent / "html"


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


_PULSE = Markup('<div class="pulse" id="pulse" role="status"><span>not live</span></div>')


def filled(path: Path, **values: Child) -> Markup:
    """The HTML of a file with ``values`` in the places of their $names, escaped as in `tag`."""
    return Markup(_template(path).substitute({name: join(value) for name, value in values.items()}))


@cache
def _template(path: Path) -> Template:
    # Without indentation, which would stand as a blank between elements of one line.
    return Template("".join(line.strip() for line in path.read_text(encoding="utf-8").splitlines()))


def page(
    title: str, body: Markup, *, nav: Nav, current: str, root: str = "", script: str | None = None, **data: str
) -> Markup:
    """A whole document around ``body``; ``data`` is what the script finds on the main element.

    Addresses are relative, for a proxy may put a path before ours; ``root`` leads from the page to the service's root.
    """
    links = [tag("a", name, href=root + href, aria_current="page" if href == current else None) for href, name in nav]
    return filled(
        HTML / "frame.html",
        title=title,
        root=root,
        script=tag("script", type="module", src=script) if script else None,
        nav=join(*links),
        pulse=_PULSE if script else None,
        main=tag("main", body, id="main", tabindex=-1, **data),
    )
