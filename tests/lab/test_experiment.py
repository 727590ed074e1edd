"""An experiment finds its runs again: without its data, after they were moved, and as older versions wrote it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pairrank import rankers
from pairrank.data import load, write_letor
from pairrank.lab.analysis.aggregate import collect
from pairrank.lab.executors import run_all
from pairrank.lab.experiment import FILE, Experiment
from pairrank.lab.report import report
from pairrank.lab.report.figures import Plate
from pairrank.sim import simulate


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "here" / "Fold1"
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        write_letor(load("synthetic:tiny", split), folder / f"{split}.txt")
    return folder.parent


def experiment(data: Path) -> Experiment:
    return Experiment(title="t", command="c", data=str(data), rankers=("pdgd",), users=("perfect",), rounds=5, seeds=2)


def test_a_report_needs_the_records_alone(data: Path, tmp_path: Path) -> None:
    made = experiment(data)
    run_all(made.specs(), tmp_path / "out")
    made.save(tmp_path / "out")
    data.rename(tmp_path / "there")
    found = Experiment.load(tmp_path / "out")
    assert found == replace(made, content=made.contents)
    assert len(collect(tmp_path / "out", found.specs()).cells) == 1
    # Named anew, the data are the same runs.
    assert [spec.run_id for spec in experiment(tmp_path / "there").specs()] == [spec.run_id for spec in made.specs()]


def test_runs_from_before_the_data_were_moved_are_reported_with_those_after(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plate, "render", lambda plate: (b"png", b"svg"))  # pictures take long and are tested elsewhere
    simulate(data, ranker="pdgd", rounds=5, out=tmp_path / "out")
    data.rename(tmp_path / "there")
    simulate(tmp_path / "there", ranker="mgd", rounds=5, out=tmp_path / "out")
    assert report.build(tmp_path / "out").results.done == 2


def test_an_experiment_from_before_content_was_kept_finds_its_runs(data: Path, tmp_path: Path) -> None:
    experiment(data).save(tmp_path)
    written = json.loads((tmp_path / FILE).read_text())
    del written["content"]
    (tmp_path / FILE).write_text(json.dumps(written))
    old = Experiment.load(tmp_path)
    assert old is not None
    assert {spec.content for spec in old.specs()} == {""}
    assert old.specs()[0].run_id != experiment(data).specs()[0].run_id


def test_options_are_those_that_act_on_the_data(data: Path) -> None:
    falling = 'pairrank(monotone={"5": -1})'  # of a feature that there is
    made = replace(experiment(data), rankers=("pairrank", falling)).resolved()
    width = made.facts["train"]["features"]
    settings = rankers.make("pairrank", n_features=width).settings
    assert made.options["pairrank"]["lam"] == made.options[falling]["lam"] == settings["lam"]
