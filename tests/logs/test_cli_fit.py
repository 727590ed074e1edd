from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pairrank
from pairrank.cli import main
from pairrank.logs import fit
from pairrank.logs.ingest import Ingested, ingest

from .conftest import lists


def test_fit_writes_a_ranker_that_goes_on(
    write: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, report = write("a.parquet", lists(100)), tmp_path / "model.pairrank", tmp_path / "report.json"
    arguments = ["fit", path, "--out", str(out), "--ranker", "pairrank(lam=3)", "--seed", "5"]
    assert main([*arguments, "--report", str(report)]) == 0
    ranker = pairrank.load(out)
    assert (ranker.seed, ranker.n_ranked) == (5, 0)
    np.testing.assert_allclose(ranker.weights, fit([path], lam=3.0).theta, rtol=1e-12)
    assert json.loads(report.read_text())["n_lists"] == 100
    assert "100 lists" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "model.pairrank", "report.json"]


@pytest.mark.parametrize("command", ["fit", "warmstart"])
def test_a_ranker_from_logs_keeps_names(
    write: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Without them the service that it was imported into, and frames, could not give features by name."""
    arguments = [command, write("a.parquet", lists(20)), "--out", str(tmp_path / "model"), "--names"]
    assert main([*arguments, "price,age"]) == 2
    assert "2 feature_names came for 4 features" in capsys.readouterr().err
    assert main([*arguments, "price,age,sales,stock"]) == 0
    assert pairrank.load(tmp_path / "model").feature_names == ("price", "age", "sales", "stock")


def test_check_counts_and_says_no(
    write: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = lists(10)
    assert main(["fit", write("good.parquet", made), "--check"]) == 0
    made[3][0][0, 0] = np.nan
    assert main(["fit", write("bad.parquet", made), "--check"]) == 1
    assert "not-finite" in capsys.readouterr().err


def test_check_tells_of_a_log_without_a_document(write: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    empty = [(X[:0], clicks[:0]) for X, clicks in lists(3)]
    assert main(["fit", write("empty.parquet", empty), "--check"]) == 1
    assert "3  missing-value" in capsys.readouterr().err
    assert main(["fit", write("none.parquet", []), "--check"]) == 1  # nothing to learn from is not all right
    assert "the logs hold no list that could be used" in capsys.readouterr().err


def test_a_check_writes_into_no_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It joined the log in the folder above the working one, which is /home where one works at home."""
    from pairrank.cli import fit as command

    places: list[Path] = []

    def watched(logs: list[str], out: str, **how: Any) -> Ingested:
        places.append(Path(out))
        return ingest(logs, out, **how)

    monkeypatch.setattr(command, "ingest", watched)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for folder in ("temporary", "home"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "home")
    Path("events.jsonl").write_text("not JSON\n")
    assert main(["fit", "events.jsonl", "--check"]) == 1
    assert [place.parent.parent for place in places] == [tmp_path / "temporary"]


def test_a_table_that_is_no_click_log_is_told_by_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "nothing").mkdir()
    pq.write_table(pa.table({"query_id": ["q"], "price": [1.0]}), tmp_path / "products.parquet")
    assert main(["fit", str(tmp_path / "products.parquet"), "--out", str(tmp_path / "model")]) == 2
    assert "timestamp, documents, features, clicks" in capsys.readouterr().err
    assert main(["fit", str(tmp_path / "nothing"), "--out", str(tmp_path / "model")]) == 2
    assert "no files" in capsys.readouterr().err


def test_event_logs_are_joined_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, keep, out = tmp_path / "events.jsonl", tmp_path / "joined.parquet", tmp_path / "model"
    records = []
    for number, (X, clicks) in enumerate(lists(50)):
        documents = [{"id": str(row), "features": x.tolist()} for row, x in enumerate(X)]
        shown = {"type": "impression", "impression_id": str(number), "timestamp": number, "documents": documents}
        clicked = [str(row) for row in np.flatnonzero(clicks)]
        records += [shown, {"type": "feedback", "impression_id": str(number), "clicks": clicked}]
    records.append({"type": "click", "impression_id": "ghost", "document_id": "1"})
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert main(["fit", str(log), "--out", str(out), "--keep", str(keep)]) == 0
    told = capsys.readouterr().err
    assert "click-without-impression" in told
    assert "50 good lists" in told
    np.testing.assert_allclose(pairrank.load(out).weights, fit([str(keep)]).theta, rtol=1e-12)
    assert main(["fit", str(log), "--out", str(tmp_path / "other"), "--on-error", "stop"]) == 2
    assert not (tmp_path / "other").exists()
    assert "good lists" not in capsys.readouterr().err  # they are there, and nobody has counted them


def test_what_was_left_out_on_the_way_is_told_where_nothing_is_left_to_learn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = [{"id": "a", "features": [1.0]}, {"id": "b", "features": [2.0]}]
    shown = {"type": "impression", "impression_id": "i", "timestamp": 1, "documents": documents}
    stray = {"type": "click", "impression_id": "ghost", "document_id": "a"}
    (tmp_path / "events.jsonl").write_text(f"{json.dumps(shown)}\n{json.dumps(stray)}\n")
    assert main(["fit", str(tmp_path / "events.jsonl"), "--out", str(tmp_path / "model")]) == 2
    told = capsys.readouterr().err
    assert "no pair to learn from" in told
    assert "click-without-impression" in told
    assert "no bad rows" not in told


def test_what_was_passed_over_is_told_where_nothing_is_left_to_learn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logs that call a click otherwise had no pair to learn from, and nothing said why."""
    shown = {"query_id": "q", "timestamp": 1, "query_response_hit_ids": ["a", "b"]}
    event = {"query_id": "q", "timestamp": 2, "action_name": "klick", "event_attributes": {"object": {"object_id": 7}}}
    (tmp_path / "ubi.jsonl").write_text(f"{json.dumps(shown)}\n{json.dumps(event)}\n")
    features = tmp_path / "features.parquet"
    pq.write_table(pa.table({"object_id": ["a", "b"], "features": [[1.0], [2.0]]}), features)
    options = ["--features", str(features), "--out", str(tmp_path / "model")]
    assert main(["fit", str(tmp_path / "ubi.jsonl"), *options]) == 2
    assert "1  passed over: events of the action 'klick'" in capsys.readouterr().err


def test_a_file_that_is_named_twice_counts_once(write: Callable[..., str], tmp_path: Path) -> None:
    path = write("a.parquet", lists(20))
    assert main(["fit", str(tmp_path), path, "--check"]) == 0
    assert main(["fit", path, str(tmp_path), "--out", str(tmp_path / "model")]) == 0
    np.testing.assert_array_equal(pairrank.load(tmp_path / "model").weights, fit([path]).theta)


@pytest.mark.parametrize(("options", "code"), [(["--out"], 2), (["--check"], 1), (["--on-error", "stop", "--out"], 2)])
@pytest.mark.parametrize("name", ["events.jsonl", "products.parquet", "unclicked.jsonl"])
def test_the_report_is_written_where_no_list_can_be_used(
    tmp_path: Path, name: str, options: list[str], code: int
) -> None:
    pq.write_table(pa.table({"price": [1.0]}), tmp_path / "products.parquet")
    (tmp_path / "events.jsonl").write_text('{"type": "impression", "impression_id": "i1"}\nnot JSON\n')
    shown = {"type": "impression", "impression_id": "i1", "query_id": "q", "timestamp": 1, "documents": [{"id": "a"}]}
    (tmp_path / "unclicked.jsonl").write_text(json.dumps(shown) + "\n")
    before = {path.name for path in tmp_path.iterdir()}
    model = [str(tmp_path / "model")] if options[-1] == "--out" else []
    report = tmp_path / "report.json"
    assert main(["fit", str(tmp_path / name), *options, *model, "--report", str(report)]) == code
    found = json.loads(report.read_text())
    assert (found["n_lists"], bool(found["problems"])) == (0, True)
    assert {path.name for path in tmp_path.iterdir()} == before | {"report.json"}


@pytest.mark.parametrize("option", ["--out", "--report", "--keep", "--checkpoint"])
def test_a_folder_that_is_not_there_is_told_before_anything_is_read(
    write: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    path = write("a.parquet", lists(10))
    assert main(["fit", path, "--out", str(tmp_path / "model"), option, str(tmp_path / "no" / "file")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.parquet"]


def test_wrong_usage(write: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("a.parquet", lists(5))
    assert main(["fit", path]) == 2
    assert "--out" in capsys.readouterr().err
    assert main(["fit", "--out", "x"]) == 2
    assert main(["fit", path, "--out", str(tmp_path / "x"), "--ranker", "pdgd"]) == 2
    assert "cannot take a prior" in capsys.readouterr().err


def test_a_folder_is_all_its_files_at_any_depth(write: Callable[..., str], tmp_path: Path) -> None:
    one, two = write("b.parquet", lists(30, seed=1)), write("a.parquet", lists(30, seed=2))
    paths = [str(tmp_path / "sub" / "day=1" / "a.parquet"), str(tmp_path / "sub" / "day=2" / "b.parquet")]
    for path, place in zip((two, one), paths, strict=True):
        Path(place).parent.mkdir(parents=True)
        Path(path).rename(place)
    for name in ("day=1/.hidden", "_SUCCESS", "_log/0.json"):
        (tmp_path / "sub" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "sub" / name).write_text("not a log")
    assert main(["fit", str(tmp_path / "sub"), "--out", str(tmp_path / "model")]) == 0
    np.testing.assert_allclose(pairrank.load(tmp_path / "model").weights, fit(paths).theta, rtol=1e-12)
