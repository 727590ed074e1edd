"""``pairrank data inspect``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pairrank.cli import main


def test_counts_are_those_of_mq2008(real_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "inspect", str(real_data / "MQ2008"), "--json", "--no-cache"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["total"]["queries"] == 784
    assert report["total"]["documents"] == 15_211
    assert report["total"]["grades"] == [12_279, 2_001, 931]
    assert report["total"]["without_relevant"] == 220
    assert report["varying_features"] == 40
    assert report["closest"] == "MQ2008"
    assert report["differences"] == {}
    assert main(["data", "inspect", str(real_data / "MQ2008")]) == 0
    assert "complete: queries, documents, features and grades are those published for MQ2008" in capsys.readouterr().out


def test_a_part_of_a_known_set_is_told_from_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "part.txt"
    path.write_text("2 qid:1 1:1 46:1\n0 qid:1 1:2\n0 qid:2 1:1\n")
    assert main(["data", "inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "the nearest published set is MQ2008, but it differs:" in out
    assert "queries: 2 here, 784 published" in out
    assert "2 of 46 features vary" in out


def test_synthetic_names_have_three_splits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "inspect", "synthetic:tiny"]) == 0
    out = capsys.readouterr().out
    assert out.split("\n")[0].split() == ["train", "vali", "test", "total"]
    assert "no published set has this number of features and grades" in out


def test_a_folder_without_a_validation_split_is_shown_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.txt").write_text("1 qid:1 1:1\n0 qid:1 1:2\n")
    assert main(["data", "inspect", str(tmp_path), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["splits"]) == ["train", "test"]


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "inspect", str(tmp_path / "nowhere")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "no such file or folder" in err
