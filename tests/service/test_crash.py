"""Processes are killed at random points, hundreds of times; `crash.py` says what must hold, and runs thousands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parent / "crash.py"
KILLS = {"sqlite": 250, "postgres": 70}


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_nothing_acknowledged_is_lost_and_nothing_is_learned_twice(kind: str, request: pytest.FixtureRequest) -> None:
    command = [sys.executable, HARNESS, "--kills", str(KILLS[kind])]
    if kind == "postgres":
        request.getfixturevalue("postgres")  # skips where there is none
        command.append("--postgres")
    # A process of its own: the harness forks, and must not inherit threads.
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "faults=[]" in done.stdout
