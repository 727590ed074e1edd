"""``pairrank rankers``: which rankers there are, and what they can be told."""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import textwrap
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pairrank import rankers
from pairrank.cli import experiment_options
from pairrank.rankers import Ranker

_ENTRY = re.compile(r"^([A-Za-z_][\w, ]*?) : (.*(?:\n(?:    .*|$))*)", re.MULTILINE)
_EPILOG = """\
Options go into brackets: --ranker 'pairrank(z=1, half_life=5000)'. A ranker of your own is file.py:Class.

examples:
  pairrank rankers
  pairrank rankers pairrank
  pairrank rankers mine.py:Mine
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "List the rankers, or the options of one with their defaults and what they mean."
    parser.epilog = _EPILOG
    parser.add_argument("name", nargs="?", metavar="NAME", help="a ranker, also file.py:Class")


def run(args: argparse.Namespace) -> None:
    if args.name is None:
        rows = [[name, rankers.label(name), _what(name)] for name in rankers.names()]
        print(experiment_options.fitted(["name", "in figures", "what it does"], rows))
        return
    name, given = rankers.parse(args.name)
    cls, _ = rankers.class_of(name)
    settings = rankers.make(name, n_features=1, **given).settings
    told = {word.strip(): text for words, text in _told(cls).items() for word in words.split(",")}
    columns = min(110, shutil.get_terminal_size().columns)
    wrap = textwrap.TextWrapper(columns, initial_indent="    ", subsequent_indent="    ")
    print(f"{name}: {_first_line(cls)}\n")
    for option in rankers.options(name):
        value = f"={settings[option]}" if option in settings else ""
        print(f"{option}{value}{_choices(cls, option)}")
        if option in told:
            print(wrap.fill(told[option]))
    print("\nvalues are those that act in a ranker with one feature")


def _what(name: str) -> str:
    """What a ranker does; of one that is another with options, which."""
    cls, options = rankers.class_of(name)
    return rankers.spell(cls.name, options) if options else _first_line(cls)


def _first_line(cls: type[Ranker]) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _told(cls: type[Ranker]) -> dict[str, str]:
    """What the docstrings of a class, and of those that it comes from, say of options."""
    found: dict[str, str] = {}
    for base in cls.__mro__:
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("Parameters\n----------\n")
        for words, text in _ENTRY.findall(section):
            found.setdefault(words, " ".join(text.split()))
    return found


def _choices(cls: type[Ranker], option: str) -> str:
    """The words that an option may be, as its type says."""
    hint = get_type_hints(cls).get(option)
    words: list[Any] = []
    for part in (hint, *get_args(hint)):
        if get_origin(part) is Literal:
            words += get_args(part)
    return f"    {'one of' if get_origin(hint) is Literal else 'also'} {', '.join(map(str, words))}" if words else ""
