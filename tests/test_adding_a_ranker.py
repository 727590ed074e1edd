"""Adding a ranker is one file and one row: done to a copy of the tree, which then knows it everywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with the page's own example as a ranker of the package."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    page = (ROOT / "docs" / "adding-a-ranker.md").read_text()
    example = re.search(r"```python\n(.*?class Perceptron.*?)```", page, re.DOTALL)
    assert example
    package = tree / "src" / "pairrank" / "rankers"
    (package / "perceptron.py").write_text(example[1])
    registry = package / "__init__.py"
    row = '        "perceptron": _Entry("perceptron", "Perceptron", "Perceptron"),\n'
    text, n = re.subn(r'(?=        "posterior-sampling": _Entry)', row, registry.read_text())
    assert n == 1
    registry.write_text(text)
    return tree


def run(tree: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    done = subprocess.run([sys.executable, *command], env=environment, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_known_by_name_and_has_a_look(tree: Path) -> None:
    program = """
import pairrank
from pairrank import rankers
from pairrank.lab.report import styles
print(pairrank.__file__)
print("perceptron" in rankers.names(), rankers.paths()[-3:], styles.of_rankers(rankers.names())["perceptron"].label)
"""
    told = run(tree, "-c", program)
    assert told.startswith(str(tree))
    assert "True" in told
    assert "Perceptron" in told


def test_simulate_runs_it(tree: Path) -> None:
    told = run(tree, "-m", "pairrank", "simulate", "synthetic:tiny", "--ranker", "perceptron", "--rounds", "20")
    assert "perceptron" in told


@pytest.mark.slow
def test_the_suites_that_walk_the_registry_pass_with_it(tree: Path) -> None:
    words = [
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-k",
        "perceptron or look or registered or rankers",
    ]
    told = run(tree, *words, "tests/test_checks.py", "tests/lab/test_figures.py", "tests/lab/test_paper.py")
    assert re.search(r"\d\d+ passed", told)
