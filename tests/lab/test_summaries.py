"""Summaries alone: resumable, and with numpy and scipy alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pairrank.errors import FileFormatError
from pairrank.lab import summaries
from pairrank.lab.executors import run_all
from pairrank.lab.experiment import Experiment
from pairrank.lab.outcomes import Failure, RunsFailedError
from pairrank.sim import RunSpec, Summary

EXPERIMENT = Experiment(
    title="Few",
    command="by hand",
    data="synthetic:tiny",
    rankers=("pairrank", "pdgd"),
    users=("perfect", "perfect(hostile=0.2)"),
    rounds=30,
    seeds=3,
)


def test_what_is_done_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "CHUNK", 1)
    asked: list[list[int]] = []

    def stops(specs: Sequence[RunSpec]) -> list[Summary]:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append([spec.seed for spec in specs])
        return run_all(specs)

    with pytest.raises(KeyboardInterrupt):
        summaries.keep(EXPERIMENT.specs(), tmp_path, stops)
    assert asked == [[0] * 4, [1] * 4], "seed by seed"
    assert len(summaries.load(tmp_path)) == 8
    asked.clear()
    summaries.keep(EXPERIMENT.specs(), tmp_path, stops)
    assert asked == [[2] * 4]
    summaries.keep(EXPERIMENT.specs(), tmp_path, stops)
    assert asked == [[2] * 4]
    assert {s.spec for s in summaries.load(tmp_path).values()} == set(EXPERIMENT.specs())


def test_two_commands_at_once_keep_the_runs_of_both(tmp_path: Path) -> None:
    specs = EXPERIMENT.specs()

    def meanwhile(own: Sequence[RunSpec]) -> list[Summary]:
        summaries.keep(specs[2:4], tmp_path, run_all)
        return run_all(own)

    summaries.keep(specs[:2], tmp_path, meanwhile)
    assert {s.spec for s in summaries.load(tmp_path).values()} == set(specs[:4])


def test_failures_do_not_stop_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "CHUNK", 1)

    def some_fail(specs: Sequence[RunSpec]) -> list[Summary]:
        if specs[0].seed == 1:
            failed = [Failure(spec, "Bad", "bad luck") for spec in specs[:1]]
            raise RunsFailedError(failed, run_all(specs[1:]), None)
        return run_all(specs)

    with pytest.raises(RunsFailedError, match="1 of 12 runs failed") as told:
        summaries.keep(EXPERIMENT.specs(), tmp_path, some_fail)
    assert len(told.value.summaries) == len(summaries.load(tmp_path)) == 11


def test_few_runs_a_seed_are_taken_together() -> None:
    specs = EXPERIMENT.specs()
    assert [len(chunk) for chunk in summaries._chunks(specs, summaries.CHUNK)] == [12]
    many = [spec for spec in specs for _ in range(20)]
    assert [len(chunk) for chunk in summaries._chunks(many, summaries.CHUNK)] == [80, 80, 80]


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / summaries.FILE).write_text('[{"spec": 3}]')
    with pytest.raises(FileFormatError, match="damaged"):
        summaries.load(tmp_path)
    summaries.clear(tmp_path)
    assert summaries.load(tmp_path) == {}


def test_numpy_and_scipy_are_enough(tmp_path: Path) -> None:
    """Everything else that is installed cannot be imported, in workers neither."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Bare:\n"
        "    allowed = {'numpy', 'scipy', 'pairrank', *sys.stdlib_module_names}\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        top = name.partition('.')[0]\n"
        "        if top not in self.allowed and not top.startswith('_'):\n"
        "            raise ModuleNotFoundError(f'{name} is not to be here', name=name)\n"
        "sys.meta_path.insert(0, Bare())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    program = [sys.executable, "-m", "pairrank"]
    runs = ["--rounds", "12", "--seeds", "2", "--rival", "pdgd", "--clicks", "perfect", "--jobs", "2"]
    commands = [
        ["quality", "synthetic:tiny", *runs, "--out", str(tmp_path / "out")],
        ["simulate", "synthetic:tiny", "--ranker", "p2linrank", "--rounds", "10", "--clicks", "perfect(drift=5)"],
    ]
    for command in commands:
        done = subprocess.run([*program, *command], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
    probe = subprocess.run([sys.executable, "-c", "import pyarrow"], capture_output=True, text=True, env=environment)
    assert "is not to be here" in probe.stderr
