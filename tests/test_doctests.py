"""Examples in docstrings run, and every class of the reference has one."""

from __future__ import annotations

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest

from pairrank import rankers

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "pairrank"
WITH_EXAMPLES = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text())
SERVICE = "http://127.0.0.1:8000"
# A directive of a page of the reference: what it shows, and the members that it names where it names some.
SHOWN = re.compile(r"^::: (\S+)((?:\n(?: .*)?)*)", re.MULTILINE)


def classes_of_the_reference() -> dict[str, type]:
    """Classes that the reference shows, and every ranker. Exceptions are raised by others, and need no example."""
    found = [getattr(import_module(module), name) for module, _, name in (p.rpartition(".") for p in rankers.paths())]
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for path, options in SHOWN.findall(page.read_text()):
            thing = resolve_name(path)
            members = re.search(r"(?<!_)members: \[(.*)\]", options)
            if inspect.isclass(thing):
                found.append(thing)
            elif members:
                found += [getattr(thing, name) for name in members[1].split(", ")]
            elif inspect.ismodule(thing):
                found += [value for value in vars(thing).values() if getattr(value, "__module__", None) == path]
    named = {f"{one.__module__}.{one.__name__}": one for one in found if inspect.isclass(one)}
    return {
        name: one
        for name, one in sorted(named.items())
        if not issubclass(one, BaseException) and not one.__name__.startswith("_")
    }


CLASSES = classes_of_the_reference()


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", [module_of(path) for path in WITH_EXAMPLES])
# PyTerrier's own use of pandas.
@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_examples_in_docstrings_run(request: pytest.FixtureRequest, name: str) -> None:
    if name == "pairrank.rankers.neural":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pairrank[neural]'")
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(exclude_empty=True).find(import_module(name), extraglobs={"np": np}):
        for example in test.examples:
            if SERVICE in example.source:
                example.source = example.source.replace(SERVICE, request.getfixturevalue("address"))
        runner.run(test)
    assert runner.tries
    assert not runner.failures


@pytest.mark.parametrize("name", [module_of(path) for path in sorted((SOURCE / "integrations").glob("[a-z]*.py"))])
def test_every_class_of_the_adapters_has_an_example(name: str) -> None:
    module = import_module(name)
    own = [one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == name]
    assert own
    assert all(">>> " in (one.__doc__ or "") for one in own)


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_the_reference_has_an_example(name: str) -> None:
    assert ">>> " in (CLASSES[name].__doc__ or "")


def test_the_reference_shows_classes() -> None:
    shown = {"pairrank.types.Impression", "pairrank.client.Client", "pairrank.documents.Columns"}
    assert shown <= set(CLASSES)
