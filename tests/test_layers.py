"""Imports point downwards only: a walk over the syntax trees, with no list of exceptions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pairrank"

# A module may import from rows below its own and from its own package; faces in one row never import each other.
LAYERS = [
    {"cli"},
    {"service", "lab", "export", "logs", "bench", "sklearn", "integrations"},
    {"sim", "checks"},
    {"rankers", "clicks", "metrics", "data", "drawing", "client", "upstream", "trials", "store_log"},
    {"features"},
    {"kernel"},
    {"types"},
    {"archive", "rng", "progress", "short_text", "threads", "checking"},
    {"errors", "version"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(node.lineno, name) for name in names]
    return [(line, name.split(".")[1]) for line, name in found if name.startswith("pairrank.")]


MODULES = [p for p in sorted(SOURCE.rglob("*.py")) if part_of(p) not in ("__init__", "__main__")]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    own = part_of(path)
    assert own in LEVEL, f"{own} has no place among the layers"
    for line, target in imports(path):
        if target == own or target not in LEVEL:
            continue  # its own package, or a name such as __version__ from the package itself
        assert LEVEL[target] > LEVEL[own], f"{path}:{line}: {own} must not import {target}"


def test_no_drawers() -> None:
    assert not [p for p in MODULES if p.stem in ("utils", "helpers", "common", "misc")]
