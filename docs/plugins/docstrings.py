"""Our docstrings as Markdown: sections of `name : what it is` become lists, doctests become code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_RULE = re.compile(r"-{3,}")
_ENTRY = re.compile(r"([A-Za-z_][\w, ]*?) : (.*)")
_CODE = re.compile(r"(``.+?``|`.+?`)", re.DOTALL)


class Sections(Extension):
    """Rewrites every docstring before it is rendered."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """A docstring of this project as Markdown."""
    lines = text.splitlines()
    out: list[str] = []
    section = code = False
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if _RULE.fullmatch(line):
            continue
        if line and _RULE.fullmatch(following):
            section = True
            out += ["", f"**{line}**", ""]
            continue
        doctest = line.startswith(">>>") or (code and line != "")  # with what it prints
        if doctest != code:
            out.append("```pycon" if doctest else "```")
            code = doctest
        entry = _ENTRY.fullmatch(line) if section else None
        if doctest:
            out.append(re.sub(r"\s+# doctest:.*", "", line))
        elif entry:
            out.append(f"- `{entry[1]}`: {_escaped(entry[2])}")
        elif not section and line.startswith("    "):
            out.append(line)
        else:
            out.append(_escaped(line))
    return "\n".join([*out, "```"] if code else out)


def _escaped(text: str) -> str:
    """Text in which the signs of formulas are not taken for Markdown's; code stays as it is."""
    parts = _CODE.split(text)
    return "".join(part if odd % 2 else re.sub(r"([_*<\[\]])", r"\\\1", part) for odd, part in enumerate(parts))
