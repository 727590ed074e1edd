from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pairrank.sim import RunSpec, simulate

ROUNDS = 1500


def command(out: Path) -> list[str]:
    asked = ["--ranker", "pdgd", "--clicks", "perfect", "--rounds", str(ROUNDS), "--seeds", "2", "--json"]
    return [sys.executable, "-m", "pairrank", "simulate", "synthetic:tiny", *asked, "--out", str(out)]


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_ctrl_c_and_the_same_command_again(tmp_path: Path, engine: str) -> None:
    process = subprocess.Popen(
        [*command(tmp_path), "--engine", engine], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not list(tmp_path.glob("runs/*/spec.json")) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert printed == ""
    (told,) = errors.splitlines()
    assert told == (
        f"pairrank: interrupted; what is done is kept in {tmp_path}, and the same command goes on from there"
    )
    assert list(tmp_path.glob("runs/*/checkpoint.bin"))
    again = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=120, check=True)
    (row,) = json.loads(again.stdout)
    spec = {"data": "synthetic:tiny", "ranker": "pdgd", "clicks": "perfect", "rounds": ROUNDS}
    undisturbed = [simulate(RunSpec(**spec, seed=seed)) for seed in (0, 1)]
    assert row["ndcg"] == sum(records.ndcg for records in undisturbed) / 2
    assert row["regret"] == sum(records.regret for records in undisturbed) / 2
    assert not list(tmp_path.glob("runs/*/checkpoint.bin"))
