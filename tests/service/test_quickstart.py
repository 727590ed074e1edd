"""The quick start, run as it is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import free_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "quickstart-service.md"


def blocks(language: str, port: int) -> list[str]:
    text = PAGE.read_text(encoding="utf-8").replace("8000", str(port))
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.slow
def test_the_session_runs_and_the_order_changes(tmp_path: Path) -> None:
    command = tmp_path / "bin" / "pairrank"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pairrank "$@"\n')
    command.chmod(0o755)
    port = free_port()
    session = [block for block in blocks("bash", port) if "pip install" not in block]
    start = f"pairrank serve --port {port} > serve.log 2>&1 &\n"
    python = "cat > client.py <<'PY'\n" + blocks("python", port)[0] + f"PY\n{sys.executable} client.py\n"
    assert len(session) == 5
    script = "set -e\n" + start + "\n".join(session[:-1]) + python + session[-1]
    env = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-m", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = re.findall(r'"ranking":\[\{"id":"(\w+)","position":1', done.stdout)
    assert answers[-1] == "boots"
    assert '{"status":"accepted"}' in done.stdout
    assert '"feedback_count":40' in done.stdout
    assert "the same" in done.stdout
