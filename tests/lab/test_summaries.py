"""Summaries alone: the same numbers as from records, resumable, and with numpy and scipy alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pairrank.cli import main
from pairrank.errors import FileFormatError, OptionError
from pairrank.lab import summaries, tables
from pairrank.lab.aggregate import collect
from pairrank.lab.executors import run_all
from pairrank.lab.experiment import Experiment
from pairrank.lab.outcomes import Failure, RunsFailedError
from pairrank.sim import RunSpec, Summary

HOSTILE = ["ablate", "synthetic:tiny", "--study", "hostile", "--clicks", "perfect", "--rounds", "12", "--seeds", "2"]
EXPERIMENT = Experiment(
    title="Few",
    command="by hand",
    data="synthetic:tiny",
    rankers=("pairrank", "pdgd"),
    users=("perfect", "perfect(hostile=0.2)"),
    rounds=30,
    seeds=3,
)


def test_summaries_give_the_numbers_that_records_give(tmp_path: Path) -> None:
    run_all(EXPERIMENT.specs(), tmp_path / "records")
    expected = collect(tmp_path / "records", EXPERIMENT.specs())
    out = tmp_path / "summaries"
    out.mkdir()
    EXPERIMENT.save(out)
    summaries.run(EXPERIMENT, out, run_all)
    loaded, found = summaries.results(out)
    assert loaded == EXPERIMENT
    assert (found.rankers, found.users, found.done) == (expected.rankers, expected.users, expected.done)
    for key, cell in expected.cells.items():
        np.testing.assert_array_equal(found.cells[key].curves["ndcg"], cell.curves["ndcg"])
        np.testing.assert_array_equal(found.cells[key].rounds, cell.rounds)
        for name in ("cndcg", "regret"):
            np.testing.assert_allclose(found.cells[key].final(name), cell.final(name))
        assert not found.cells[key].has("n_blocks")
    plain = [{k: v for k, v in row.items() if k != "seconds"} for row in tables.summary(found)]
    for row, other in zip(plain, tables.summary(expected), strict=True):
        assert row == pytest.approx({k: other[k] for k in row})


def test_what_is_done_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "CHUNK", 1)
    asked: list[list[int]] = []

    def stops(specs: Sequence[RunSpec]) -> list[Summary]:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append([spec.seed for spec in specs])
        return run_all(specs)

    with pytest.raises(KeyboardInterrupt):
        summaries.run(EXPERIMENT, tmp_path, stops)
    assert asked == [[0] * 4, [1] * 4], "seed by seed"
    assert len(summaries.load(tmp_path)) == 8
    asked.clear()
    summaries.run(EXPERIMENT, tmp_path, stops)
    assert asked == [[2] * 4]
    summaries.run(EXPERIMENT, tmp_path, stops)
    assert asked == [[2] * 4]
    assert {s.spec for s in summaries.load(tmp_path).values()} == set(EXPERIMENT.specs())


def test_failures_do_not_stop_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "CHUNK", 1)

    def some_fail(specs: Sequence[RunSpec]) -> list[Summary]:
        if specs[0].seed == 1:
            failed = [Failure(spec, "Bad", "bad luck") for spec in specs[:1]]
            raise RunsFailedError(failed, run_all(specs[1:]), None)
        return run_all(specs)

    with pytest.raises(RunsFailedError, match="1 of 12 runs failed") as told:
        summaries.run(EXPERIMENT, tmp_path, some_fail)
    assert len(told.value.summaries) == len(summaries.load(tmp_path)) == 11


def test_few_runs_a_seed_are_taken_together() -> None:
    specs = EXPERIMENT.specs()
    assert [len(chunk) for chunk in summaries._chunks(specs)] == [12]
    many = [spec for spec in specs for _ in range(20)]
    assert [len(chunk) for chunk in summaries._chunks(many)] == [80, 80, 80]


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no summaries"):
        summaries.results(tmp_path)
    (tmp_path / summaries.FILE).write_text('[{"spec": 3}]')
    with pytest.raises(FileFormatError, match="damaged"):
        summaries.load(tmp_path)
    summaries.clear(tmp_path)
    assert summaries.load(tmp_path) == {}


def test_a_study_in_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*HOSTILE, "--engine", "serial", "--tables", "--out", str(tmp_path)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "perfect(hostile=0.3) users" in said
    page = (tmp_path / "report.md").read_text()
    assert "## Performance, perfect users" in page
    assert "P²LinRank" in page
    assert "![" not in page
    numbers = json.loads((tmp_path / "results.json").read_text())
    assert numbers["runs"]["done"] == numbers["runs"]["expected"] == len(numbers["results"]) * 2
    before = (tmp_path / summaries.FILE).read_bytes()
    assert main(words) == 0
    assert (tmp_path / summaries.FILE).read_bytes() == before, "nothing was run again"
    (tmp_path / "report.md").unlink()
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report.md").read_text() == page
    assert main([*words, "--no-resume"]) == 0
    assert (tmp_path / summaries.FILE).read_bytes() != before, "seconds, at least, differ"


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
    words = [*HOSTILE, "--engine", "processes", "--jobs", "2", "--tables", "--out", str(tmp_path / "out")]
    commands = [
        words,
        [
            "calibrate",
            "--rounds",
            "20",
            "--seeds",
            "2",
            "--clicks",
            "perfect",
            "--jobs",
            "2",
            "--out",
            str(tmp_path / "c"),
        ],
        ["simulate", "synthetic:tiny", "--ranker", "p2linrank", "--rounds", "10", "--clicks", "perfect(drift=5)"],
    ]
    for command in commands:
        done = subprocess.run([*program, *command], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
    probe = subprocess.run([sys.executable, "-c", "import pyarrow"], capture_output=True, text=True, env=environment)
    assert "is not to be here" in probe.stderr
