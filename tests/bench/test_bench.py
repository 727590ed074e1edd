"""`pairrank bench --quick` once, whole: every benchmark answers with finite figures. How fast is not tested here."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from pairrank import bench
from pairrank.bench import beside, exactness, many_candidates, raw_units, round, streams, whole_run
from pairrank.cli import main


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    from contextlib import redirect_stdout
    from io import StringIO

    pytest.importorskip("sklearn")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        patch.setenv("PAIRRANK_CACHE", str(tmp_path_factory.mktemp("cache")))
        assert main(["bench", "--quick", "--json"]) == 0
    answer: dict[str, object] = json.loads(said.getvalue())
    return answer


@pytest.mark.slow
def test_every_benchmark_has_its_rows(report: dict[str, object]) -> None:
    rows = report["rows"]
    assert isinstance(rows, list)
    counts = {name: sum(row["benchmark"] == name for row in rows) for name in bench.NAMES}
    assert sum(counts.values()) == len(rows)
    assert counts == {
        "round": len(round.SHAPES) * len(round.RANKERS),
        "streams": 5 * sum(len(case.workloads) for case in streams.CASES),
        "many": 2 * 4 * len(many_candidates.RANKERS),
        "exactness": 2 * len(exactness.RANKERS),
        "units": 2 * len(raw_units.RANKERS),
        "additive": 2,
        "whole-run": 4 * len(whole_run.RANKERS),
        "parsing": 3,
        "sweep": 1,
        "baselines": len(bench.round.BASELINES),
    }


@pytest.mark.slow
def test_every_figure_is_a_finite_ratio(report: dict[str, object]) -> None:
    rows = report["rows"]
    assert isinstance(rows, list)
    for row in rows:
        assert all(math.isfinite(row[name]) and row[name] >= 0 for name in ("value", "low", "high")), row
        assert row["low"] <= row["high"]
        assert all(math.isfinite(value) for value in row["detail"].values()), row
    assert len({(row["benchmark"], row["case"], row["figure"]) for row in rows}) == len(rows)


@pytest.mark.slow
def test_shares_of_a_run_add_up(report: dict[str, object]) -> None:
    rows = report["rows"]
    assert isinstance(rows, list)
    shares = [row["value"] for row in rows if row["benchmark"] == "whole-run"]
    assert sum(shares) == pytest.approx(len(whole_run.RANKERS), abs=0.3)  # medians need not add up to the last digit


@pytest.mark.slow
def test_the_report_states_its_threads_and_clock(report: dict[str, object]) -> None:
    assert "1 thread" in str(report["blas"])
    assert report["clock"] == bench.CLOCK
    assert report["quick"] is True


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "speed"]) == 2
    assert "'speed'" in capsys.readouterr().err


def test_streams_go_on_until_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CASES", (streams.Case("pairrank", ("usual",), 6.0, 1.3),))
    rows = list(streams.measure(quick=True, until=80))
    late = [row.case.rpartition(", ")[2] for row in rows if "late" in row.figure]
    assert late == ["round 50 against 30", "round 80 against 30"]
    assert rows[-1].case.endswith("80 rounds from the first on")


def test_the_markdown_has_a_line_per_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--quick", "--markdown", "--only", "baselines"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| baselines |") for line in lines) == len(bench.round.BASELINES)


PROGRAM = """
import numpy as np

class Program:  # with an interface of its own
    def __init__(self, width):
        self.theta = np.zeros(width)

    def order(self, documents):
        return np.argsort(-(documents @ self.theta), kind="stable")

    def reward(self, documents, clicked):
        if clicked.any() and not clicked.all():
            self.theta = self.theta + documents[clicked].mean(axis=0) - documents[~clicked].mean(axis=0)
"""
ADAPTER = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from program import Program

from pairrank.rankers.base import Draw, Ranker


@dataclass(eq=False, kw_only=True)
class Against(Ranker):
    name: ClassVar[str] = "against"

    def _reset(self):
        self.program = Program(self.n_features)

    def _rank(self, features, k, rng):
        return Draw(self.program.order(features)[:k], np.zeros(k, dtype=np.int64), False, {})

    def _learn(self, impression, clicks):
        self.program.reward(impression.features, clicks)

    def score(self, features):
        return features @ self.program.theta
"""


@pytest.mark.parametrize("both", [["--only", "round", "--against", "."], ["serve", "--only", "round"]])
def test_what_is_measured_apart_is_not_asked_for_together(both: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--quick", *both]) == 2
    assert "are measured apart" in capsys.readouterr().err


def test_another_program_runs_beside_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--against", str(tmp_path), "--quick"]) == 2
    assert "expected a class Against" in capsys.readouterr().err
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "against.py").write_text(ADAPTER)
    assert main(["bench", "--against", str(tmp_path), "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == len(beside.SHAPES) * len(beside.QUICK) * len(beside.RANKERS)
    for row in rows:
        assert row["value"] == pytest.approx(row["detail"]["their_ms"] / row["detail"]["our_ms"])
        assert row["value"] > 0
