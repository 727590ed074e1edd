from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pairrank import cli
from pairrank.engines import connected
from pairrank.errors import PairRankError
from pairrank.lab.executors import run_all
from pairrank.lab.outcomes import RunsFailedError
from pairrank.rankers import own
from pairrank.sim import RunSpec

pytestmark = pytest.mark.slow

BASE = RunSpec(data="synthetic:tiny", rounds=60, clicks="perfect")
SPECS = [replace(BASE, ranker=name, seed=seed) for name in ("pdgd", "pairrank(model=additive)") for seed in (0, 1)]
LONG = [replace(BASE, ranker="pdgd", rounds=2000, seed=seed) for seed in range(2)]


def test_a_command_starts_one_cluster_for_all_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    started, init = [], ray.init
    monkeypatch.setattr(ray, "init", lambda **options: started.append(init(**options)))
    words = "tune synthetic:tiny --ranker pdgd --trials 4 --rounds 90 --clicks perfect --engine ray --jobs 2"
    cli.main([*words.split(), "--out", str(tmp_path)])
    assert len(list(tmp_path.glob("**/settings.json"))) == len(started) == 1
    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def ray() -> Iterator[object]:
    pytest.importorskip("ray")
    with connected(2, None) as connection:
        yield connection


def records(out: Path) -> dict[str, bytes]:
    """What was recorded, and the functions of what is additive."""
    kept = [*out.glob("runs/*/records.parquet"), *out.glob("runs/*/functions.json")]
    return {str(path.relative_to(out)): path.read_bytes() for path in kept}


def playing() -> list[int]:
    """The Ray workers of this process that play a run right now; Ray renames a worker after its task."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes().startswith(b"ray::_work") and os.getpid() in ancestors(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def test_the_same_records_as_serial_and_failures_apart(ray: object, tmp_path: Path) -> None:
    bad = replace(BASE, ranker="pdgd(learning_rate=-1)")
    nowhere = replace(BASE, data=str(tmp_path / "nowhere"))
    run_all(SPECS, tmp_path / "serial")
    heard: list[int] = []
    with pytest.raises(RunsFailedError, match="2 of 6 runs failed") as caught:
        run_all([*SPECS[:2], bad, nowhere, *SPECS[2:]], tmp_path / "ray", "ray", report=heard.append)
    assert [failure.spec for failure in caught.value.failures] == [bad, nowhere]
    assert [summary.spec for summary in caught.value.summaries] == SPECS
    assert records(tmp_path / "ray") == records(tmp_path / "serial")
    assert heard[-1] == 6 * BASE.rounds


def test_what_is_done_is_not_run_again(ray: object, tmp_path: Path) -> None:
    run_all(SPECS[:2], tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    summaries = run_all(SPECS[:3], tmp_path, "ray")
    assert [summary.spec for summary in summaries] == SPECS[:3]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_file_of_a_ranker_of_ones_own_travels(ray: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from pairrank.rankers.pdgd import PDGD\n\nclass Mine(PDGD):\n    name = 'mine'\n"
    )
    specs = [replace(BASE, ranker=f"{tmp_path}/mine.py:Mine(decay=0.5)", seed=seed) for seed in (0, 1)]
    serial = [run.ndcg for run in run_all(specs)]
    where = own.place(specs[0].ranker.partition("(")[0])
    assert where is not None
    monkeypatch.setattr(own, "_sent", {where.digest: own.source(where)})
    (tmp_path / "mine.py").unlink()  # as on the workers' machines
    assert [run.ndcg for run in run_all(specs, engine="ray")] == serial


@pytest.mark.crash
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes through /proc")
def test_a_worker_that_is_killed_is_retried(ray: object, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            for pid in playing()[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.01)

    run_all(LONG, tmp_path / "calm")
    killer = threading.Thread(target=kill_one)
    killer.start()
    summaries = run_all(LONG, tmp_path / "killed", "ray")
    killer.join()
    assert killed
    assert [summary.spec for summary in summaries] == LONG
    assert records(tmp_path / "killed") == records(tmp_path / "calm")


def test_an_address_where_nobody_is() -> None:
    ray = pytest.importorskip("ray")
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(PairRankError, match="cannot connect to Ray at"):
        run_all(SPECS[:1], engine="ray", address="127.0.0.1:1")
