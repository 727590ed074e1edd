from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pairrank.engines import start
from pairrank.errors import OptionError, PairRankError


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    if number == 2:
        raise ZeroDivisionError("two")
    return number


def die(number: int) -> int:
    if number == 2:
        os._exit(3)
    return number


@pytest.mark.parametrize("name", ["serial", "processes"])
def test_results_come_in_order(name: str) -> None:
    with start(name, 2) as engine:
        assert list(engine.map(square, range(20))) == [n * n for n in range(20)]
        assert list(engine.map(square, [])) == []
        with pytest.raises(ZeroDivisionError, match="two"):
            list(engine.map(fail, range(5)))
        assert list(engine.map(square, range(3))) == [0, 1, 4]


@pytest.mark.slow
def test_ray_gives_the_same() -> None:
    pytest.importorskip("ray")
    with start("ray", 2) as engine:
        assert list(engine.map(abs, range(-20, 20))) == [abs(n) for n in range(-20, 20)]


def test_items_are_taken_as_they_are_needed() -> None:
    taken = 0

    def items() -> object:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield number

    with start("processes", 2) as engine:
        results = engine.map(square, items())  # type: ignore[arg-type]
        next(results)
        assert taken <= 4
        results.close()  # type: ignore[attr-defined]


def test_a_dead_worker_is_reported() -> None:
    with start("processes", 1) as engine, pytest.raises(PairRankError, match="a worker died"):
        list(engine.map(die, range(5)))


PARENT = """
import sys, time
from pairrank.engines import start

if __name__ == "__mp_main__" and "slow" in sys.argv:  # a worker that still imports
    print("ready", flush=True)
    time.sleep(1)

if __name__ == "__main__":
    with start("processes", 1) as engine:
        assert list(engine.map(abs, [-1])) == [1]
        print("ready", flush=True)
        time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("workers", ["ready", "slow"])
@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent_and_without_a_word(
    tmp_path: Path, ended_by: signal.Signals, workers: str
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    command = [sys.executable, str(script), workers]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        # Ctrl-C in a terminal reaches the whole group, a kill one process.
        (os.killpg if ended_by == signal.SIGINT else os.kill)(parent.pid, ended_by)
        # A worker that is left holds its end of the pipe.
        _, told = parent.communicate(timeout=30)
        assert "SpawnProcess" not in told
        assert "spawn_main" not in told


ABANDONED = """
from pairrank.engines import start

def results():
    with start("processes", 1) as engine:
        yield from engine.map(abs, [-1, -2])

if __name__ == "__main__":
    kept = results()
    assert next(kept) == 1
"""


def test_a_pool_that_is_given_up_as_the_interpreter_ends_does_not_hold_it_up(tmp_path: Path) -> None:
    script = tmp_path / "abandoned.py"
    script.write_text(ABANDONED)
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_wrong_engines() -> None:
    for name, workers in (("spark", None), ("serial", 0), ("serial", True), ("serial", -np.int64(2))):
        with pytest.raises(OptionError), start(name, workers):  # type: ignore[arg-type]
            pass
