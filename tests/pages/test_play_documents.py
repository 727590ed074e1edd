from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

from pairrank.service.playground import documents
from pairrank.service.playground.words import query_words, words

SOURCE = '''
"""About beasts.

More.
"""
import json, os.path
from re import compile
from . import near

def feed(beast, *, food="hay"):
    """Give it something. Then wait.

    This function is deprecated.
    """
    def inner():
        """Not reachable from outside."""

def silent(): pass

class Zoo(dict):
    """A place."""
    def __init__(self, size=3): "never shown"
    def __len__(self): "special methods are left out"
    async def open(self): "Let people in."
    class _Cage:
        "Where one sits."
'''


@pytest.fixture
def found(tmp_path: Path) -> dict[str, documents.Document]:
    path = tmp_path / "beasts.py"
    path.write_text(SOURCE)
    broken = tmp_path / "broken.py"
    broken.write_text("def (")
    listed, imports = documents.collect([("beasts", path), ("broken", broken), ("gone", tmp_path / "gone.py")])
    assert imports == Counter({"json": 1, "os.path": 1, "re": 1})
    return {d.qualified: d for d in listed}


def test_documented_things_of_a_source_file_become_documents(found: dict[str, documents.Document]) -> None:
    own = {name: d for name, d in found.items() if d.module == "beasts"}
    kinds = {name: d.kind for name, d in own.items()}
    assert kinds == {
        "beasts": "module",
        "beasts.feed": "function",
        "beasts.Zoo": "class",
        "beasts.Zoo.open": "method",
        "beasts.Zoo._Cage": "class",
    }
    feed = own["beasts.feed"]
    assert feed.signature == "(beast, *, food='hay')"
    assert feed.summary == "Give it something."
    assert feed.deprecated
    assert not feed.private
    assert own["beasts.Zoo._Cage"].private
    assert own["beasts.Zoo"].signature == "(self, size=3)"


def test_things_in_c_are_asked_for_their_words(found: dict[str, documents.Document]) -> None:
    assert found["math.sqrt"].signature == "(x, /)"
    assert found["math.sqrt"].summary == "Return the square root of x."
    assert found["dict.get"].kind == "method"
    assert found["os.getcwd"].signature == "()"
    # Where the docstring starts with the call, that line is the signature and not the summary.
    assert found["itertools.chain"].signature.startswith("(*iterables)")
    assert not found["itertools.chain"].summary.startswith("chain(")


def test_files_are_parsed_and_never_imported() -> None:
    before = set(sys.modules)
    files = documents.source_files()
    modules = {name for name, _ in files}
    documents.collect([(name, path) for name, path in files if name in ("this", "antigravity", "turtle", "os.path")])
    assert {"this", "antigravity"} <= modules
    assert not {"this", "antigravity", "turtle"} & (set(sys.modules) - before)
    assert "os.path" in modules
    assert not any(name.split(".")[0] in ("test", "idlelib") for name in modules)


def test_the_modules_in_c_that_are_imported_are_no_source_files() -> None:
    """Importing must stay free of side effects: only modules that have no Python source of their own are listed."""
    tree = ast.parse(Path(documents.__file__).read_text())
    table = next(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "_IN_C"
    )
    listed = set(ast.literal_eval(table))
    sources = {name for name, _ in documents.source_files()}
    assert listed & sources <= {"signal"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("OrderedDict", ["ordered", "dict", "ordereddict"]),
        ("parse_qs", ["parse", "qs"]),
        ("HTTPServer", ["http", "server", "httpserver"]),
        ("utf8", ["utf", "8", "utf8"]),
        ("lists glass is", ["list", "glass", "is"]),
        ("<script>alert(1)</script>", ["script", "alert", "1", "script"]),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_a_query_is_its_telling_words_unless_it_has_no_others() -> None:
    assert query_words("the size of the list of lists") == ["size", "list"]
    assert query_words("to be or to be") == ["to", "be", "or"]
    assert len(query_words(" ".join(f"w{chr(97 + i)}" for i in range(26)))) == 12
