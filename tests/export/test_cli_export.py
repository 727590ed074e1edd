from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pairrank import export
from pairrank.cli import main
from pairrank.data.normalize import Normaliser
from pairrank.rankers.ranknet import SGDRankNet


@pytest.fixture
def model(tmp_path: Path) -> Path:
    ranker = SGDRankNet(2)
    ranker._weights = np.array([0.5, -1.0])
    ranker.save(tmp_path / "model.pairrank")
    return tmp_path / "model.pairrank"


def test_names_and_normaliser_travel(model: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    (tmp_path / "norm.json").write_text(Normaliser("global", np.array([0.0, 1.0]), np.array([2.0, 4.0])).to_json())
    (tmp_path / "names.txt").write_text("# two\ntitle\n\nage\n")
    arguments = ["--normaliser", str(tmp_path / "norm.json"), "--names", str(tmp_path / "names.txt")]
    assert main(["export", str(model), "--format", "elasticsearch", "--name", "shop", *arguments]) == 0
    output = capsysbinary.readouterr()
    body = json.loads(output.out)["model"]
    assert body["name"] == "shop"
    assert json.loads(body["model"]["definition"]) == {"title": 0.5, "age": -1.0}
    assert body["model"]["feature_normalizers"]["age"] == {"min_max": {"minimum": 1.0, "maximum": 5.0}}
    assert output.err == b""


def test_files_as_windows_writes_them(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "names.txt").write_bytes("\ufefftitle\r\nhöhe\r\n".encode())
    words = ["--format", "solr", "--out", str(tmp_path / "solr.json"), "--names", str(tmp_path / "names.txt")]
    assert main(["export", str(model), *words]) == 0
    made = (tmp_path / "solr.json").read_bytes()
    assert export.loads(made).feature_names == ("title", "höhe")
    assert export.loads(b"\xef\xbb\xbf" + made.replace(b"\n", b"\r\n")) == export.loads(made)
    (tmp_path / "names.txt").write_bytes("title\nhöhe\n".encode("latin-1"))
    capsys.readouterr()
    assert main(["export", str(model), *words]) == 2
    assert capsys.readouterr().err == f"pairrank: the names in {tmp_path / 'names.txt'} are not in UTF-8\n"


def test_one_format_to_another_and_back(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = (str(tmp_path / name) for name in ("a.json", "b.txt", "c.json"))
    assert main(["export", str(model), "--format", "solr", "--names", "title,age", "--out", first]) == 0
    assert main(["export", first, "--format", "ranklib", "--out", second]) == 0
    assert main(["export", second, "--format", "solr", "--out", third]) == 0
    assert Path(first).read_bytes() == Path(third).read_bytes()
    assert "no normaliser" in capsys.readouterr().err


def test_per_query_normalisation_goes_where_engines_apply_it(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "norm.json").write_text(Normaliser("query").to_json())
    assert main(["export", str(model), "--format", "solr", "--normaliser", str(tmp_path / "norm.json")]) == 2
    captured = capsys.readouterr()
    assert "solr cannot normalise within the query; vespa, elasticsearch-linear" in captured.err
    assert captured.out == ""
    names = ["--names", "bm25(title),attribute(age)"]
    assert main(["export", str(model), "--format", "vespa", "--normaliser", "query", *names]) == 0
    assert "0.5 * normalize_linear(bm25(title)) +" in capsys.readouterr().out


def test_two_normalisers_are_one_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = export.LinearModel.of([1.0], normaliser=[export.MinMax(0, 1)])
    (tmp_path / "model.json").write_bytes(export.dumps(model, "json"))
    (tmp_path / "norm.json").write_text(Normaliser("global", np.zeros(1), np.ones(1)).to_json())
    paths = [str(tmp_path / "model.json"), "--normaliser", str(tmp_path / "norm.json")]
    assert main(["export", *paths, "--format", "solr"]) == 2
    assert "its own normalisers" in capsys.readouterr().err


def test_standard_output_takes_bytes(model: Path) -> None:
    pytest.importorskip("onnx")
    command = [sys.executable, "-m", "pairrank", "export", str(model), "--format", "onnx"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert export.loads(done.stdout, "onnx").weights.tolist() == [0.5, -1.0]
