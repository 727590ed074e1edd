"""Imports point downwards only: a walk over the syntax trees, with no list of exceptions."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pairrank"

# A module may import from rows below its own and from its own package; faces in one row never import each other.
LAYERS = [
    {"cli"},
    {"service", "lab", "export", "logs", "bench", "sklearn", "integrations"},
    {"sim", "engines", "checks"},
    {"rankers", "click_models", "metrics", "data", "client", "upstream", "trials", "store_log"},
    {"estimator", "features", "documents"},
    {"kernel"},
    {"state"},
    {"types"},
    {"archive", "rng", "progress", "short_text", "threads", "checking", "drawing", "notebook"},
    {"errors", "version"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def module_of(path: Path) -> str:
    parts = ("pairrank", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def named(node: ast.AST) -> list[str]:
    """The modules that a piece of code names to be imported or started, longest form first."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno} imports relatively"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module":
        return texts(node.args[:1])
    if isinstance(node, (ast.List, ast.Tuple)):  # a command: python -m pairrank is the command line
        words = texts(node.elts)
        return [word + ".cli" * (word == "pairrank") for flag, word in pairwise(words) if flag == "-m"]
    return []


def texts(nodes: Sequence[ast.expr]) -> list[str]:
    """Strings; of an f-string what stands before its first value: ``pairrank.rankers.{name}`` is in that package."""
    found = []
    for node in nodes:
        first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
        value = first.value if isinstance(first, ast.Constant) else ""
        found.append(value.rstrip(".") if isinstance(value, str) else "")
    return found


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, module) for every module of ours that a file imports, by whatever means, at whatever time."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        for name in named(node):
            while name and name not in NAMES:
                name = name.rpartition(".")[0]  # a name in a module
            if name.startswith("pairrank."):
                found.append((node.lineno, name))  # type: ignore[attr-defined]
    return found


MODULES = [p for p in sorted(SOURCE.rglob("*.py")) if part_of(p) not in ("__init__", "__main__")]
NAMES = {module_of(path) for path in SOURCE.rglob("*.py")}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    own = part_of(path)
    assert own in LEVEL, f"{own} has no place among the layers"
    for line, module in imports(path):
        target = module.split(".")[1]
        if target != own:
            assert LEVEL[target] > LEVEL[own], f"{path}:{line}: {own} must not import {target}"


@pytest.mark.parametrize("package", sorted({part_of(path) for path in MODULES if path.parent != SOURCE}))
def test_no_circle_inside_a_package(package: str) -> None:
    """What a module imports, directly or not, does not import it: also not late, in a function."""
    graph = {
        module_of(path): {
            name for _, name in imports(path) if name.split(".")[1] == package and name != module_of(path)
        }
        for path in MODULES
        if part_of(path) == package
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as problem:
        pytest.fail(" → ".join(problem.args[1]))


def test_the_walk_sees_every_way_to_import() -> None:
    code = """
from pairrank.sim import run
import pairrank.lab.tune as tuning
def late():
    importlib.import_module("pairrank.kernel.pairs")
    import_module(f"pairrank.rankers.{name}")
    [sys.executable, "-m", "pairrank", "serve"]
    [sys.executable, "-m", "pairrank.service.process"]
"""
    seen = {name for node in ast.walk(ast.parse(code)) for name in named(node)}
    assert seen == {
        "pairrank.sim.run",
        "pairrank.lab.tune",
        "pairrank.kernel.pairs",
        "pairrank.rankers",
        "pairrank.cli",
        "pairrank.service.process",
    }


def test_no_drawers() -> None:
    assert not [p for p in MODULES if p.stem in ("utils", "helpers", "common", "misc")]
