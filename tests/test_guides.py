"""The code in the guides to export, logs and warm starts runs, block after block, as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).resolve().parent.parent / "docs" / "guide"
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["export", "logs", "warmstart"])
def test_every_block_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BLOCK.findall((GUIDES / f"{page}.md").read_text())
    assert {kind for kind, _ in blocks} == {"python", "bash"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, object] = {}
    for kind, code in blocks:
        if kind == "python":
            exec(compile(code, f"{page}.md", "exec"), names)
        else:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], capture_output=True, text=True)
            assert done.returncode == 0, f"{code}\n{done.stderr}"


@pytest.mark.parametrize("page", ["export", "logs", "warmstart"])
def test_links_between_pages_resolve(page: str) -> None:
    text = (GUIDES / f"{page}.md").read_text()
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    assert targets
    assert all((GUIDES / target).exists() for target in targets)


def test_the_table_of_reasons_is_complete() -> None:
    from pairrank.logs import Reason

    text = (GUIDES / "logs.md").read_text()
    assert {name for name in re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE) if name in set(Reason)} == set(
        Reason
    )
