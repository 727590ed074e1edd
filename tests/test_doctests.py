"""Examples in docstrings run, and every public class of the library has one."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from pairrank import rankers

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "pairrank"
WITH_EXAMPLES = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text())
PUBLIC = [
    "pairrank.types.Impression",
    "pairrank.types.Inspection",
    "pairrank.client.Client",
    "pairrank.documents.Columns",
    "pairrank.drawing.Panel",
    "pairrank.rankers.base.Ranker",
    "pairrank.rankers.linear.LinearRanker",
    *rankers.paths(),
]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", [module_of(path) for path in WITH_EXAMPLES])
def test_examples_in_docstrings_run(name: str) -> None:
    module = import_module(name)
    assert not doctest.testmod(module, extraglobs={"np": np}).failed


@pytest.mark.parametrize("path", PUBLIC)
def test_every_public_class_has_an_example(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert ">>> " in (inspect.getdoc(getattr(import_module(module), name)) or "")
