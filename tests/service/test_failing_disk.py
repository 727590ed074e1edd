"""System calls that fail and power that goes, at some of the calls of a short run; `sweep.py` does it at every one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from preload import compiled

SWEEP = Path(__file__).parent / "sweep.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "which",
    [("--every", "101"), ("--every", "301", "--times", "20"), ("--power", "15")],
)
def test_nothing_acknowledged_is_lost_and_nothing_is_learned_twice(which: tuple[str, ...], tmp_path: Path) -> None:
    preload = {"LD_PRELOAD": str(compiled("disk", tmp_path)), "PAIRRANK_COMPILED": "0", "SWEEP": "1"}
    # A process of its own: it forks, and its system calls are not the plain ones.
    command = [sys.executable, SWEEP, "--rounds", "25", *which]
    done = subprocess.run(command, env=os.environ | preload, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "lives with a fault" in done.stdout
    assert " 0 failed" in done.stdout
