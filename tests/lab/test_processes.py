from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pairrank import engines
from pairrank.errors import PairRankError
from pairrank.lab.executors import run_all
from pairrank.lab.outcomes import RETRIES, Failure, RunsFailedError
from pairrank.lab.processes import run
from pairrank.sim import RunSpec

BASE = RunSpec(data="synthetic:tiny", rounds=60, clicks="perfect")
SPECS = [replace(BASE, ranker=name, seed=seed) for name in ("pdgd", "pairrank") for seed in (0, 1)]
LONG = [replace(BASE, ranker="pdgd", rounds=2000, seed=seed) for seed in range(2)]


def records(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.glob("runs/*/records.parquet")}


def children(parent: int) -> list[int]:
    """The processes that play runs for ``parent``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            words = (entry / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if entry.name.isdigit() and int(fields[1]) == parent and b"spawn_main" in words:
            found.append(int(entry.name))
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes through /proc")


@pytest.mark.slow
def test_the_same_records_as_serial_and_failures_apart(tmp_path: Path) -> None:
    bad = replace(BASE, ranker="pdgd(learning_rate=-1)")
    heard: list[int] = []
    run_all(SPECS, tmp_path / "serial")
    with pytest.raises(RunsFailedError, match="1 of 5 runs failed") as caught:
        run_all([*SPECS[:2], bad, *SPECS[2:]], tmp_path / "processes", "processes", jobs=2, report=heard.append)
    assert [summary.spec for summary in caught.value.summaries] == SPECS
    assert records(tmp_path / "processes") == records(tmp_path / "serial")
    assert heard == sorted(heard)


@pytest.mark.slow
@pytest.mark.crash
@needs_proc
def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            if list(tmp_path.glob("killed/runs/*/spec.json")):  # a run is under way
                for pid in children(os.getpid())[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.01)

    run_all(LONG, tmp_path / "calm")
    killer = threading.Thread(target=kill_one)
    killer.start()
    summaries = run_all(LONG, tmp_path / "killed", "processes", jobs=2)
    killer.join()
    assert killed
    assert [summary.spec for summary in summaries] == LONG
    assert records(tmp_path / "killed") == records(tmp_path / "calm")


@pytest.mark.slow
@pytest.mark.crash
@needs_proc
def test_a_run_that_kills_its_worker_every_time_is_given_up(tmp_path: Path) -> None:
    stop = threading.Event()
    victim = tmp_path / "runs" / LONG[0].run_id / "spec.json"

    def kill_all() -> None:
        while not stop.is_set():
            if victim.exists():
                for pid in children(os.getpid()):
                    os.kill(pid, signal.SIGKILL)
                victim.unlink(missing_ok=True)
            time.sleep(0.005)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        (result,) = run(LONG[:1], tmp_path, 1, lambda rounds: None)
    finally:
        stop.set()
        killer.join()
    assert isinstance(result, Failure)
    assert f"died {RETRIES + 1} times" in result.reason


@pytest.mark.slow
@pytest.mark.crash
@needs_proc
def test_a_killed_driver_leaves_nobody_behind_and_can_be_resumed(tmp_path: Path) -> None:
    out = tmp_path / "killed"
    words = [
        "simulate",
        "synthetic:tiny",
        "--ranker",
        "pdgd",
        "--clicks",
        "perfect",
        "--rounds",
        "2000",
        "--seeds",
        "2",
    ]
    more = ["--engine", "processes", "--jobs", "2", "--out", str(out)]
    driver = subprocess.Popen([sys.executable, "-m", "pairrank", *words, *more], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not list(out.glob("runs/*/spec.json")) and time.monotonic() < until and driver.poll() is None:
        time.sleep(0.01)
    workers = children(driver.pid)
    driver.kill()
    driver.wait()
    assert workers
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(alive, workers))
    run_all(LONG, out, "processes", jobs=2)
    run_all(LONG, tmp_path / "calm")
    assert records(out) == records(tmp_path / "calm")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


SWEEP = """
import atexit
import os
import time
from concurrent.futures.process import _ThreadWakeup
from pairrank.lab.executors import run_all
from pairrank.sim import RunSpec

if __name__ == "__mp_main__":  # a worker that still imports
    os.write(1, b"ready\\n")  # two workers may say so at once: in one piece
    time.sleep(2)

def close(wakeup):  # with the pool's lock held: an interpreter that ends meanwhile waits for ever
    time.sleep(0.5)
    at_once(wakeup)

if __name__ == "__main__":
    at_once, _ThreadWakeup.close = _ThreadWakeup.close, close
    atexit.register(time.sleep, 0.2)
    specs = [RunSpec(data="synthetic:tiny", ranker="pdgd", rounds=60, seed=seed) for seed in range(4)]
    run_all(specs, None, "processes")
"""


@pytest.mark.slow
@pytest.mark.crash
@needs_proc
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_workers_start_is_told_by_the_driver_alone(tmp_path: Path, times: int) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP)
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        for _ in range(times):
            os.killpg(driver.pid, signal.SIGINT)
            time.sleep(0.5)
        try:
            _, told = driver.communicate(timeout=60)
        finally:
            driver.kill()  # or nobody would ever end one that hangs
    assert told.count("Traceback") == times  # each of the driver's own
    assert told.endswith("KeyboardInterrupt\n")
    assert driver.returncode == -signal.SIGINT


def test_where_processes_cannot_share_memory_the_way_without_them_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_semaphore(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")  # as without a /dev/shm that can be written

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", no_semaphore)
    with pytest.raises(PairRankError, match=r"Read-only file system\); one process does without"):
        run_all(SPECS[:2], engine="processes", jobs=2)
    with pytest.raises(PairRankError, match=r"Read-only file system\); one process does without"):
        engines.over_processes(abs, [1, 2], 2, lambda done: None)
