"""Where a framework is not installed, its adapter answers with the line that installs it."""

from __future__ import annotations

import importlib
import sys

import pytest

from pairrank.errors import MissingExtraError


@pytest.mark.parametrize(
    ("adapter", "package"),
    [
        ("langchain", "langchain_core"),
        ("llamaindex", "llama_index"),
        ("haystack", "haystack"),
        ("lancedb", "lancedb"),
        ("pyterrier", "pyterrier"),
        ("rerankers", "rerankers"),
    ],
)
def test_the_line_that_installs_it(adapter: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"pairrank.integrations.{adapter}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"pip install 'pairrank\[{adapter}\]'"):
        importlib.import_module(f"pairrank.integrations.{adapter}")
