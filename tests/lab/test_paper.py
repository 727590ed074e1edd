from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path

import pytest

from pairrank import rankers
from pairrank.cli import experiment_options, main, parser
from pairrank.lab import paper
from pairrank.lab.experiment import USERS, Experiment
from pairrank.lab.report.figures import Plate
from pairrank.sim import Protocol, RunFolder

SMALL = ["--rounds", "8", "--seeds", "2", "--engine", "serial"]


def test_the_papers_rankers_are_registered() -> None:
    assert set(paper.RANKERS) <= set(rankers.names())


def test_reproduce_is_the_papers_experiment_unless_told_otherwise() -> None:
    args = parser("reproduce").parse_args(["synthetic:tiny", "--out", "unused"])
    experiment = paper.comparison(
        experiment_options.protocol(args), command="", users=experiment_options.users(args), seeds=args.seeds
    )
    assert (experiment.seeds, experiment.rounds, experiment.k) == (20, 5000, 10)
    assert experiment.users == USERS
    specs = experiment.specs()
    assert len(specs) == len({spec.run_id for spec in specs}) == 20 * len(USERS) * len(paper.RANKERS)
    assert experiment.facts["train"]["queries"] > experiment.facts["test"]["queries"] > 0


def test_a_ranker_of_the_papers_that_is_named_too_runs_once() -> None:
    more = ("pdgd()", "pairrank-c(alpha=0.5)", "pairrank-c( alpha=0.5 )")
    experiment = paper.comparison(Protocol(data="synthetic:tiny"), command="", more=more)
    assert experiment.rankers == (*paper.RANKERS, "pairrank-c(alpha=0.5)")


def test_settings_reach_the_specs() -> None:
    experiment = paper.comparison(
        Protocol(data="synthetic:tiny"), command="", settings={"pdgd": {"learning_rate": 0.3}}
    )
    assert "pdgd(learning_rate=0.3)" in experiment.rankers
    assert experiment.options["pdgd(learning_rate=0.3)"]["learning_rate"] == 0.3


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path), *SMALL]) == 0
    said = capsys.readouterr().out
    for users in USERS:
        assert f"{users} users" in said
    assert said.count(" *") >= 2 * len(USERS)  # a winner offline and online for each
    assert f"report: {tmp_path / 'report.html'}" in said
    assert (tmp_path / "report.html").is_file()
    assert len(list((tmp_path / "figures").iterdir())) == 16


def test_reproduce_goes_on_past_a_failure_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plate, "render", lambda plate: (b"png", b"svg"))  # pictures take long and are tested elsewhere
    words = ["reproduce", "synthetic:tiny", "--clicks", "perfect", "--out", str(tmp_path), *SMALL]
    experiment = paper.comparison(Protocol(data="synthetic:tiny", rounds=8), command="", users=("perfect",), seeds=2)
    folder = RunFolder(tmp_path, experiment.specs()[0])
    folder.path.parent.mkdir(parents=True)
    folder.path.write_text("in the way")  # where the run's folder should be
    assert main(words) == 1
    captured = capsys.readouterr()
    assert "1 of 18 runs failed; the others are unharmed" in captured.err
    assert "to repeat: pairrank simulate --spec" in captured.err
    assert "17 of 18 runs are done" in captured.out
    folder.path.unlink()
    assert main(words) == 0
    kept = Experiment.load(tmp_path)
    assert kept is not None
    told = ["synthetic:tiny", "--clicks", "perfect", "--out", tmp_path.name, *SMALL]
    assert shlex.split(kept.command) == ["pairrank", "reproduce", *told]


def test_a_command_is_told_without_the_folders_of_the_machine() -> None:
    words = ["reproduce", "/home/me/MQ2008/", "--out=results/mq", "--ranker", "own/a.py:Own(rate=0.5)", "--k", "5"]
    told = experiment_options.command(Namespace(words=words))
    assert told == "pairrank reproduce MQ2008/ --out=mq --ranker 'a.py:Own(rate=0.5)' --k 5"
