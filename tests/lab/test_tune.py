from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pairrank import rankers
from pairrank.cli import main
from pairrank.errors import FileFormatError, NewerFormatError, OptionError, UnknownNameError
from pairrank.lab import ablations, tune, tuned_options
from pairrank.lab.outcomes import Failure, RunsFailedError
from pairrank.sim import Protocol, RunSpec, Summary

TASK = tune.Task(data="synthetic:tiny", rounds=90, seeds=2, trials=27, users=("perfect",))
BEST = 0.05  # the learning rate that the stand-in below likes best


def pretend(specs: Sequence[RunSpec], out: str | None) -> list[Summary]:
    """Runs whose NDCG tells how far, on a log scale, the learning rate lies from `BEST`."""
    made = []
    for spec in specs:
        rate = rankers.parse(spec.ranker)[1].get("learning_rate", 0.1)
        quality = 1 / (1 + abs(math.log(rate / BEST)))
        made.append(Summary(spec, quality, 0.0, 0, 0.0))
    return made


def test_the_best_of_those_drawn_is_found() -> None:
    found = tune.tune("sgd-ranknet", tune.Task(data="synthetic:tiny", trials=27, objective="offline"), pretend)
    drawn = [trial["options"]["learning_rate"] for trial in found.trials if trial["options"]]
    nearest = min([*drawn, 0.1], key=lambda rate: abs(math.log(rate / BEST)))
    assert found.options.get("learning_rate", 0.1) == nearest
    assert found.value >= found.default


def test_defaults_take_part_to_the_end_and_rungs_shrink() -> None:
    found = tune.tune("sgd-ranknet", TASK, pretend)
    assert TASK.rungs() == [(27, 3), (9, 10), (3, 30), (1, 90)]
    for rung, (keep, rounds) in enumerate(TASK.rungs()):
        played = [trial["options"] for trial in found.trials if trial["rounds"] == rounds]
        assert {} in played
        assert len(played) <= keep + (rung > 0)


def test_seeds_and_split_are_not_those_of_experiments() -> None:
    specs = TASK.specs("pdgd", 90)
    assert {spec.evaluation for spec in specs} == {"vali"}
    assert min(spec.seed for spec in specs) >= tune.FIRST_SEED


def test_objectives() -> None:
    spec = TASK.specs("pdgd", 90)[0]
    largest = sum(0.9995**t for t in range(90))
    runs = [Summary(spec, 0.8, 0.5 * largest, 0, 0.0)] * 2
    values = {
        name: tune.Task(data="x", objective=name, seeds=2, users=("perfect",)).value(runs) for name in tune.OBJECTIVES
    }
    assert values == pytest.approx({"offline": 0.8, "cndcg": 0.5, "mix": (0.8 + 0.5) / 2})
    assert TASK.value(runs[:1]) == -math.inf
    with pytest.raises(OptionError, match="offline"):
        tune.Task(data="x", objective="fame")
    for count in ("trials", "seeds"):
        with pytest.raises(OptionError, match=f"{count} is 0; expected a whole number, 1 or more"):
            tune.Task(data="x", **{count: 0})


def test_settings_whose_runs_fail_are_out() -> None:
    def fail_some(specs: Sequence[RunSpec], out: str | None) -> list[Summary]:
        good = [s for s in pretend(specs, out) if rankers.parse(s.spec.ranker)[1].get("learning_rate", 0.1) > BEST]
        kept = {summary.spec for summary in good}
        bad = [Failure(spec, "OptionError", "no") for spec in specs if spec not in kept]
        if bad:
            raise RunsFailedError(bad, good, out)
        return good

    found = tune.tune("sgd-ranknet", TASK, fail_some)
    assert found.options.get("learning_rate", 0.1) > BEST


def test_where_all_fail_nothing_is_found() -> None:
    def fail(specs: Sequence[RunSpec], out: str | None) -> list[Summary]:
        raise RunsFailedError([Failure(spec, "WorkerDied", "its worker died") for spec in specs], [], out)

    with pytest.raises(RunsFailedError, match="its worker died"):
        tune.tune("sgd-ranknet", TASK, fail)


def test_where_a_run_of_every_setting_fails_nothing_is_found() -> None:
    def fail_one_seed(specs: Sequence[RunSpec], out: str | None) -> list[Summary]:
        bad = [Failure(spec, "WorkerDied", "its worker died") for spec in specs if spec.seed == tune.FIRST_SEED]
        good = [spec for spec in specs if spec.seed != tune.FIRST_SEED]
        raise RunsFailedError(bad, pretend(good, out), out)

    with pytest.raises(RunsFailedError, match="its worker died"):
        tune.tune("sgd-ranknet", TASK, fail_one_seed)


def test_defaults_that_fail_have_no_value(tmp_path: Path) -> None:
    tune.save(tmp_path / "settings.json", TASK, [tune.Tuned("pdgd", {"learning_rate": 0.1}, 0.5, -math.inf, ())], "")
    told = json.loads((tmp_path / "settings.json").read_text(), parse_constant=pytest.fail)
    assert told["rankers"]["pdgd"]["value_of_defaults"] is None


def test_an_objective_that_cannot_be_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "vali", "test"):
        lines = [f"{(d % 2) * (split != 'vali')} qid:{q} 1:{d} 2:{q * d % 5}" for q in range(4) for d in range(4)]
        (tmp_path / f"{split}.txt").write_text("\n".join(lines) + "\n")
    words = ["--ranker", "pdgd", "--trials", "1", "--rounds", "1", "--seeds", "1", "--engine", "serial"]
    words = ["tune", str(tmp_path), *words, "--out", str(tmp_path / "t")]
    assert main(words) == 2
    assert "no document of the validation split is relevant" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()
    assert main([*words, "--objective", "cndcg"]) == 0


@pytest.mark.parametrize("name", sorted(tune.SPACES))
def test_every_space_gives_rankers(name: str) -> None:
    if name == "olranknet":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pairrank[neural]'")
    drawn = TASK.draws(tune.SPACES[name])
    for options in drawn:
        impression = rankers.make(name, n_features=3, **options).rank(np.eye(3))
        assert sorted(impression.ranking) == [0, 1, 2]
    for option in set().union(*drawn):
        assert len({str(options[option]) for options in drawn if option in options}) > 1, f"{option} is never varied"


def test_nothing_to_tune() -> None:
    with pytest.raises(UnknownNameError, match="nothing to tune"):
        tune.tune("offline-ranknet", TASK, pretend)


@pytest.mark.parametrize("wrong", ["offline-ranknet", "nobody", "pdgd(learning_rate=-1)"])
def test_a_ranker_that_cannot_be_tuned_is_told_before_the_others_run(tmp_path: Path, wrong: str) -> None:
    words = ["--ranker", "pdgd", "--ranker", wrong, "--trials", "1", "--rounds", "1", "--engine", "serial"]
    assert main(["tune", "synthetic:tiny", *words, "--out", str(tmp_path / "t")]) == 2
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "wrong",
    ['{"rate": (0.1, 1.0)}', '{"decay": (0.0, 1.0)}', '{"decay": (1.0, 0.5)}', '{"decay": []}', '{"decay": 0.5}'],
)
def test_a_space_that_is_none_is_told_before_any_run(
    tmp_path: Path, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"from pairrank.rankers.pdgd import PDGD\n\nclass Mine(PDGD):\n    name = 'mine'\n    SPACE = {wrong}\n"
    (tmp_path / "mine.py").write_text(text)
    words = ["--ranker", f"{tmp_path}/mine.py:Mine", "--trials", "3", "--rounds", "1", "--engine", "serial"]
    assert main(["tune", "synthetic:tiny", *words, "--out", str(tmp_path / "t")]) == 2
    assert "expected its options, each with (low, high) above 0 or a list" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


def test_a_ranker_is_tuned_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--ranker", "pdgd", "--ranker", "pdgd(decay=0.5)", "--trials", "1", "--rounds", "1", "--engine", "serial"]
    assert main(["tune", "synthetic:tiny", *words, "--out", str(tmp_path / "t")]) == 2
    assert "pdgd is to be tuned twice, and settings hold one answer" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


def test_from_the_command_to_the_other_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--rounds", "9", "--seeds", "1", "--clicks", "perfect", "--engine", "serial"]
    words = ["tune", "synthetic:tiny", "--ranker", "sgd-ranknet", "--trials", "3", *small, "--out", str(tmp_path / "t")]
    assert main(words) == 0
    file = tmp_path / "t" / "settings.json"
    content = json.loads(file.read_text())
    assert content["found"]["split"] == "vali"
    assert content["found"]["command"].startswith("pairrank tune synthetic:tiny --ranker sgd-ranknet")
    content["rankers"]["sgd-ranknet"]["options"] = {"learning_rate": 0.25}
    file.write_text(json.dumps(content))
    capsys.readouterr()
    given = ["--settings", str(file), "--rounds", "5", "--json"]
    assert main(["simulate", "synthetic:tiny", "--ranker", "sgd-ranknet", "--ranker", "pdgd", *given]) == 0
    assert [row["ranker"] for row in json.loads(capsys.readouterr().out)] == ["sgd-ranknet(learning_rate=0.25)", "pdgd"]


def test_features_are_those_of_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--trials", "1", "--rounds", "1", "--seeds", "1", "--engine", "serial", "--out", str(tmp_path / "t")]
    assert main(["tune", "synthetic:tiny", "--ranker", 'pairrank(monotone={"5": -1})', *words]) == 0
    given = ["--settings", str(tmp_path / "t" / "settings.json"), "--rounds", "1", "--json"]
    capsys.readouterr()
    assert main(["simulate", "synthetic:tiny", *given]) == 0
    assert json.loads(capsys.readouterr().out)[0]["ranker"] == 'pairrank(monotone={"5": -1})'


def test_settings_files(tmp_path: Path) -> None:
    tuned = {"pdgd": {"learning_rate": 0.3}}
    assert tuned_options.applied("pdgd", tuned) == "pdgd(learning_rate=0.3)"
    assert tuned_options.applied("pdgd(learning_rate=1)", tuned) == "pdgd(learning_rate=1)"
    assert tuned_options.applied("dbgd", tuned) == "dbgd"
    own = tmp_path / "mine.py"
    own.write_text("from pairrank.rankers.pdgd import PDGD\n\nclass Mine(PDGD):\n    name = 'mine'\n")
    tuned = {rankers.parse(f"{own}:Mine")[0]: {"learning_rate": 0.3}}
    named = tuned_options.applied(f"{own.parent}/../{own.parent.name}/mine.py:Mine", tuned)
    assert rankers.parse(named)[1] == {"learning_rate": 0.3}, "a file is the same by any path"
    with pytest.raises(UnknownNameError, match="no settings"):
        tuned_options.load(str(tmp_path / "nowhere"))
    with pytest.raises(NewerFormatError, match="upgrade"):
        tuned_options.parse('{"format": 99, "rankers": {}}', source="x")
    with pytest.raises(FileFormatError, match="pairrank tune"):
        tuned_options.parse("[]", source="x")
    with pytest.raises(OptionError, match="speed"):
        tuned_options.parse('{"format": 1, "rankers": {"pdgd": {"options": {"speed": 3}}}}', source="x")


@pytest.mark.parametrize("name", tuned_options.names())
def test_kept_settings_can_be_read(name: str) -> None:
    assert tuned_options.load(name)


@pytest.mark.parametrize("study", sorted(ablations.STUDIES))
def test_ablations_differ_in_what_they_say(study: str) -> None:
    experiment = ablations.experiment(study, Protocol(data="synthetic:tiny"), command="")
    chosen = ablations.STUDIES[study]
    assert len(set(experiment.rankers)) == len(chosen.variants) + len(chosen.beside) >= 2
    for text in experiment.rankers:
        rankers.make(text, n_features=3)


def test_drift_comes_halfway_and_attacks_in_steps() -> None:
    drift = ablations.experiment(
        "drift", Protocol(data="synthetic:tiny", rounds=700), command="", users=("perfect", "cascade")
    )
    assert drift.users == ("perfect", "perfect(drift=350)", "cascade", "cascade(drift=350)")
    users = ("navigational(stop=anywhere)",)
    hostile = ablations.experiment("hostile", Protocol(data="synthetic:tiny"), command="", users=users)
    assert hostile.users == (
        "navigational(stop=anywhere)",
        *(f"navigational(stop=anywhere, hostile={share})" for share in (0.1, 0.2, 0.3)),
    )
    for experiment in (drift, hostile):
        assert {"pairrank", "pairrank-c", "p2linrank", "posterior-sampling", "pdgd"} <= set(experiment.rankers)


def test_users_of_ones_own_keep_what_the_study_does_not_vary() -> None:
    protocol = Protocol(data="synthetic:tiny", rounds=700)
    users = ("perfect(drift=9, hostile=0.2)",)
    assert ablations.experiment("pairs", protocol, command="", users=users).users == users
    users = ("perfect(hostile=0.2)",)
    drift = ablations.experiment("drift", protocol, command="", users=users)
    assert drift.users == (*users, "perfect(drift=350, hostile=0.2)")
    for study, wrong in (("drift", "perfect(drift=9)"), ("hostile", "perfect(hostile=0.2)")):
        with pytest.raises(OptionError, match=f"the study varies {study}, .* without it, as in perfect"):
            ablations.experiment(study, protocol, command="", users=(wrong,))


def test_an_ablation_is_one_command_and_one_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--rounds", "12", "--seeds", "2", "--clicks", "perfect", "--engine", "serial"]
    assert main(["ablate", "synthetic:tiny", "--study", "refine", *small, "--out", str(tmp_path)]) == 0
    assert "PairRank_C, refine = True" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "ablation-refine.png",
        "ablation-refine.svg",
    ]
    assert "PairRank_C, refine = False" in (tmp_path / "report.html").read_text()
    with pytest.raises(UnknownNameError, match="pairs"):
        ablations.experiment("colour", Protocol(data="synthetic:tiny"), command="")
