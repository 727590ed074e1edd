from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pairrank import rankers, simulate
from pairrank.cli import main
from pairrank.metrics import mean_interval
from pairrank.sim import RunSpec

KEYS = ["ranker", "clicks", "rounds", "seeds", "ndcg", "ndcg_ci", "cndcg", "cndcg_ci", "regret", "seconds"]


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main(["simulate", "synthetic:tiny", "--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    return found


def test_runs_that_fail_do_not_keep_the_others_from_the_table(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "train.txt").write_text("".join(f"1 qid:{n // 4} 1:{n} 2:{n * n}\n" for n in range(40)))
    asked = ["--ranker", "pdgd", "--ranker", "offline-ranknet", "--rounds", "5", "--seeds", "2", "--json"]
    assert main(["simulate", str(tmp_path / "train.txt"), *asked]) == 1
    told = capsys.readouterr()
    assert [(row["ranker"], row["seeds"]) for row in json.loads(told.out)] == [("pdgd", 2)]
    assert "2 of 4 runs failed; the others are unharmed" in told.err


@pytest.mark.parametrize("command", ["simulate", "quality", "reproduce", "tune"])
@pytest.mark.parametrize("wrong", ["--ranker pdgd(lr=1)", "--clicks table(click=[0,1],stop_after=[0,1])"])
def test_what_cannot_be_run_is_told_before_the_first_run(
    command: str, wrong: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = ["--ranker", "pairrank", "--clicks", "perfect", *wrong.split(), "--rounds", "9", "--seeds", "2"]
    assert main([command, "synthetic:tiny", *asked, "--out", str(out)]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert ("'lr'" in told) or "2 grades" in told
    assert not out.exists()


def test_a_run_that_is_done_is_told_by_its_spec_where_its_data_are_gone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data, out = tmp_path / "train.txt", str(tmp_path / "out")
    data.write_text("".join(f"{n % 2} qid:{n // 4} 1:{n} 2:{n * n}\n" for n in range(40)))
    assert main(["simulate", str(data), "--rounds", "5", "--out", out]) == 0
    data.unlink()
    (spec,) = tmp_path.glob("out/runs/*/spec.json")
    told = capsys.readouterr().out
    assert main(["simulate", "--spec", str(spec), "--out", out]) == 0
    assert capsys.readouterr().out == told


def test_a_row_per_ranker_and_users(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--ranker", "pdgd", "--ranker", "dbgd", "--clicks", "perfect", "--clicks", "cascade"]
    found = rows(capsys, *asked, "--rounds", "40", "--seeds", "3")
    assert [(row["ranker"], row["clicks"]) for row in found] == [
        ("pdgd", "perfect"),
        ("pdgd", "cascade"),
        ("dbgd", "perfect"),
        ("dbgd", "cascade"),
    ]
    for row in found:
        assert list(row) == KEYS
        assert (row["rounds"], row["seeds"]) == (40, 3)
    runs = [simulate("synthetic:tiny", ranker="pdgd", clicks="perfect", rounds=40, seed=seed) for seed in range(3)]
    assert (found[0]["ndcg"], found[0]["ndcg_ci"]) == mean_interval([run.ndcg for run in runs])
    assert (found[0]["cndcg"], found[0]["cndcg_ci"]) == mean_interval([run.cndcg for run in runs])
    assert found[0]["regret"] == np.mean([run.regret for run in runs])


def test_one_seed_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "--ranker", "pdgd", "--rounds", "10")
    assert row["ndcg_ci"] is None
    assert row["cndcg_ci"] is None
    assert row["clicks"] == "navigational"


def test_out_keeps_the_records(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = rows(capsys, "--ranker", "pdgd", "--rounds", "10", "--seeds", "2", "--out", str(tmp_path))
    assert len(list(tmp_path.glob("runs/*/records.parquet"))) == 2
    assert rows(capsys, "--ranker", "pdgd", "--rounds", "10", "--seeds", "2", "--out", str(tmp_path)) == first


def test_stop_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "--ranker", "pdgd", "--rounds", "10", "--stop", "anywhere")
    assert row["clicks"] == "navigational(stop=anywhere)"


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "synthetic:tiny", "--ranker", "pdgd", "--rounds", "10"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == KEYS
    assert row.split()[:4] == ["pdgd", "navigational", "10", "1"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["synthetic:tiny", "--ranker", "nobody"],
        ["synthetic:tiny", "--clicks", "nobody"],
        ["synthetic:nothing"],
        ["synthetic:tiny", "--ranker", "pdgd(speed=3)"],
    ],
)
def test_wrong_names_are_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(["simulate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("option", ["--rounds", "--seeds", "--k", "--fold"])
@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5"])
def test_wrong_numbers_are_wrong_usage(capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", "synthetic:tiny", option, value])
    assert stopped.value.code == 2
    assert option in capsys.readouterr().err


@pytest.mark.slow
def test_every_ranker_and_user(capsys: pytest.CaptureFixture[str]) -> None:
    users = ["perfect", "navigational", "informational", "almost-random", "position(eta=1)", "cascade", "mixed"]
    asked = [x for name in rankers.names() for x in ("--ranker", name)] + [x for u in users for x in ("--clicks", u)]
    found = rows(capsys, *asked, "--rounds", "50")
    assert len(found) == len(rankers.names()) * len(users)
    assert all(0 < row["ndcg"] <= 1 and row["regret"] >= 0 for row in found)  # type: ignore[operator]


def test_what_a_spec_would_overrule_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    spec = RunSpec(data="synthetic:tiny", ranker="pdgd", rounds=3).to_json()
    assert main(["simulate", "--spec", spec]) == 0
    assert main(["simulate", "synthetic:tiny", "--spec", spec, "--ranker", "dbgd", "--rounds", "9"]) == 2
    assert "--spec says all that a run is, and data, ranker, rounds came too" in capsys.readouterr().err
