"""A flush that fails, wherever there is one: nothing acknowledged is lost when the power goes afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from preload import compiled

from pairrank.service.learning.verify import verify
from pairrank.service.store import open_store

HERE = Path(__file__).parent
# No fault; then flushes after whose failure feedback was lost while connections were not renewed.
FEW = (0, 56, 100, 112)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("lossy", tmp_path_factory.mktemp("lossy"))


def life(library: Path, folder: Path, fail_at: int) -> tuple[list[str], list[str]]:
    """What a store on a disk that fails at this flush acknowledged, and what it refused; the disk is left behind."""
    (folder / "disk").mkdir()
    environment = os.environ | {"LD_PRELOAD": str(library), "LOSSY_DISK": str(folder / "disk")}
    run = subprocess.run(
        [sys.executable, HERE / "lossy_run.py", folder],
        env=environment | {"LOSSY_FAIL_AT": str(fail_at), "PAIRRANK_COMPILED": "0"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = run.stdout.splitlines()
    assert "started" in lines or fail_at < 20, run.stderr
    said = [line.split()[1] for line in lines if line.startswith(("accepted", "duplicate"))]
    return said, [line for line in lines if line.startswith("refused")]


@pytest.mark.parametrize(
    "fail_at",
    [*FEW, *(pytest.param(number, marks=pytest.mark.slow) for number in range(20, 122, 2) if number not in FEW)],
)
def test_no_acknowledged_feedback_is_lost(library: Path, tmp_path: Path, fail_at: int) -> None:
    said, refused = life(library, tmp_path, fail_at)
    assert len(said) + len(refused) >= 50
    assert bool(refused) == (fail_at > 0)
    assert len(refused) < 10  # it goes on afterwards
    store = open_store(tmp_path / "disk" / "store.db")  # what the power cut left
    logged = {f"{number}-{token}" for number, token in store.database.all("SELECT number, token FROM log")}
    assert set(said) <= logged
    assert verify(store) == []
    store.close()
