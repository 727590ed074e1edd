"""What the README shows runs: its lines of Python here, its session with the service as part of the quick start."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_ten_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks(README, "python")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    weights = names["ranker"].weights  # type: ignore[attr-defined]
    assert weights.argmax() == 0  # it learned what people like
    assert weights[0] > 3 * np.abs(weights[1:]).max()
    assert "blocks:" in capsys.readouterr().out
    assert (tmp_path / "model.pairrank").is_file()
    assert len([line for line in code.splitlines() if line and not line.startswith("import")]) <= 10


def test_the_common_job_takes_eight_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids, names, a frame, clicks by id, save and load; the guide begins with the same lines."""
    code = blocks(README, "python")[1]
    assert code == blocks((ROOT / "docs" / "guide" / "your-data.md").read_text(), "python")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert f"```text\n{capsys.readouterr().out}```" in README  # the list that stands under it
    assert names["ranker"].feature_names == ("price", "rating", "in_stock")  # type: ignore[attr-defined]
    assert len([line for line in code.splitlines() if line and not line.startswith(("import", "from"))]) <= 8


def test_the_first_screen_has_the_two_commands() -> None:
    screen = README.split("## ")[0]
    assert re.findall(r"^make \w+", screen, re.MULTILINE) == ["make demo", "make test"]


def test_the_session_is_the_quick_start_that_is_run() -> None:
    run = (ROOT / "docs" / "quickstart-service.md").read_text()
    session = blocks(README, "bash")
    assert len(session) >= 5
    assert session == blocks(run, "bash")[: len(session)]


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
