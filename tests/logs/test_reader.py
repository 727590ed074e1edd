"""Every way in which a click log can be wrong is counted, explained and left out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pairrank
from pairrank.cli import main
from pairrank.errors import DataError
from pairrank.logs import Problems, Reason, clicklog, fit, reader, spread, validate

from .conftest import lists

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

GOOD = {
    "query_id": "q",
    "timestamp": 1_000_000,
    "documents": ["a", "b"],
    "features": [[1.0, 2.0], [3.0, 4.0]],
    "clicks": [True, False],
}
SCHEMA = {
    "query_id": pa.string(),
    "timestamp": pa.timestamp("ms"),
    "documents": pa.list_(pa.string()),
    "features": pa.list_(pa.list_(pa.float64())),
    "clicks": pa.list_(pa.bool_()),
}


def table(rows: list[dict[str, Any]], **changed: Any) -> Any:
    types = {**SCHEMA, **changed}
    kept = {name: kind for name, kind in types.items() if kind is not None}
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kept.items()})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"query_id": None}, Reason.MISSING_VALUE),
        ({"timestamp": None}, Reason.MISSING_VALUE),
        ({"documents": None}, Reason.MISSING_VALUE),
        ({"documents": ["a", None]}, Reason.MISSING_VALUE),
        ({"clicks": [None, True]}, Reason.MISSING_VALUE),
        ({"features": [[1.0, 2.0], None]}, Reason.MISSING_VALUE),
        ({"features": [[1.0, 2.0], [3.0, None]]}, Reason.MISSING_VALUE),
        ({"documents": [], "features": [], "clicks": []}, Reason.MISSING_VALUE),
        ({"documents": [], "features": []}, Reason.CLICK_WITHOUT_IMPRESSION),
        ({"clicks": [True]}, Reason.LENGTHS_DIFFER),
        ({"features": [[1.0, 2.0]]}, Reason.LENGTHS_DIFFER),
        ({"features": [[1.0, 2.0], [3.0, 4.0, 5.0]]}, Reason.WRONG_WIDTH),
        ({"features": [[1.0, 2.0], [3.0, float("nan")]]}, Reason.NOT_FINITE),
        ({"features": [[1.0, 2.0], [3.0, float("inf")]]}, Reason.NOT_FINITE),
        ({"features": [[1.0, 2.0], [3.0, 1e100]]}, Reason.NOT_FINITE),
        ({"timestamp": 999_999}, Reason.OUT_OF_ORDER),
    ],
)
def test_bad_rows(change: dict[str, Any], reason: Reason, tmp_path: Path) -> None:
    path = str(tmp_path / "log.parquet")
    pq.write_table(table([GOOD, {**GOOD, **change}, GOOD]), path)
    problems, n_lists, n_pairs = validate([path])
    assert problems.counts == {reason: 1}
    assert problems.examples == {reason: [f"{path} row 1"]}
    kept = 3 if reason is Reason.OUT_OF_ORDER else 2
    assert (n_lists, n_pairs) == (kept, kept)
    assert reason.meaning in problems.text()
    assert problems.to_json()[reason.value]["count"] == 1
    # The fit leaves out just the same rows: the log without them gives the same model.
    clean = str(tmp_path / "clean.parquet")
    pq.write_table(table([GOOD] * kept), clean)
    np.testing.assert_array_equal(fit([path]).theta, fit([clean]).theta)


@pytest.mark.parametrize(
    ("changed", "reason", "words"),
    [
        ({"clicks": None}, Reason.MISSING_COLUMN, "clicks"),
        ({"timestamp": None, "features": None}, Reason.MISSING_COLUMN, "timestamp, features"),
        ({"timestamp": pa.int64()}, Reason.WRONG_TYPE, "timestamp is int64"),
    ],
)
def test_bad_files(changed: dict[str, Any], reason: Reason, words: str, tmp_path: Path) -> None:
    bad, good = str(tmp_path / "bad.parquet"), str(tmp_path / "good.parquet")
    pq.write_table(table([GOOD] * 7, **changed), bad)
    pq.write_table(table([GOOD]), good)
    problems, n_lists, _ = validate([bad, good])
    assert problems.counts == {reason: 7}
    assert words in problems.examples[reason][0]
    assert n_lists == 1


def test_a_column_that_comes_twice(tmp_path: Path) -> None:
    path, once = str(tmp_path / "twice.parquet"), table([GOOD])
    pq.write_table(once.append_column("clicks", once["clicks"]), path)
    problems, _, _ = validate([path])
    assert problems.examples == {
        Reason.WRONG_TYPE: [f"{path}: clicks came more than once, expected one column of that name"]
    }


def test_wrong_inner_types(tmp_path: Path) -> None:
    path = str(tmp_path / "bad.parquet")
    rows = [{**GOOD, "clicks": ["yes", "no"]}]
    pq.write_table(table(rows, clicks=pa.list_(pa.string())), path)
    problems, _, _ = validate([path])
    assert problems.counts == {Reason.WRONG_TYPE: 1}


def test_gains_of_any_number_type(tmp_path: Path) -> None:
    whole, halves, absurd = (str(tmp_path / f"{name}.parquet") for name in ("whole", "halves", "absurd"))
    pq.write_table(table([{**GOOD, "clicks": [3, 0]}], clicks=pa.list_(pa.int8())), whole)
    pq.write_table(table([{**GOOD, "clicks": [1.5, -1.5]}], clicks=pa.list_(pa.float32())), halves)
    assert fit([whole]).weight == 3.0
    np.testing.assert_array_equal(fit([whole]).theta, fit([halves]).theta)
    pq.write_table(table([{**GOOD, "clicks": [float("nan"), 0.0]}], clicks=pa.list_(pa.float64())), absurd)
    assert validate([absurd])[0].counts == {Reason.NOT_FINITE: 1}
    pq.write_table(table([{**GOOD, "clicks": [2**60 + 1, 0]}], clicks=pa.list_(pa.int64())), absurd)
    assert validate([absurd])[0].counts == {Reason.NOT_FINITE: 1}


def test_features_of_whole_numbers(tmp_path: Path) -> None:
    """A log of prices in cents was refused whole."""
    paths = [str(tmp_path / f"{kind}.parquet") for kind in ("int64", "double")]
    for path, kind in zip(paths, (pa.int64(), pa.float64()), strict=True):
        pq.write_table(table([GOOD], features=pa.list_(pa.list_(kind))), path)
    np.testing.assert_array_equal(fit(paths[:1]).theta, fit(paths[1:]).theta)


def test_a_writer_takes_gaps_as_pandas_has_them(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"price": pd.array([1, None], "Int64"), "rating": [4.5, 3.0]})
    with clicklog.Writer(tmp_path / "log.parquet", 2) as writer:
        writer.add("q", 0.0, ["a", "b"], frame, pd.array([True, False], "boolean"))
    assert np.isnan(pq.read_table(tmp_path / "log.parquet")["features"].to_pylist()[0][1][0])
    assert validate([str(tmp_path / "log.parquet")], missing="mean")[1:] == (1, 1)


def test_what_is_masked_is_missing_to_a_writer(tmp_path: Path) -> None:
    path, masked = str(tmp_path / "log.parquet"), np.ma.masked_equal
    with clicklog.Writer(path, 1) as writer:
        writer.add("q", 0.0, ["a", "b"], masked([[1.0], [-9.0]], -9.0), [0, 1])
        writer.add("q", 1.0, ["a", "b"], [[1.0], [2.0]], masked([0, 9], 9))
    assert np.isnan(pq.read_table(path)["features"].to_pylist()[0][1][0])
    assert validate([path], missing="mean")[0].counts == {Reason.NOT_FINITE: 1}


def test_a_writer_keeps_what_it_was_given_when_arrays_are_used_again(tmp_path: Path) -> None:
    X, clicks = np.zeros((2, 1)), np.zeros(2, dtype=np.float32)
    with clicklog.Writer(tmp_path / "log.parquet", 1) as writer:
        for n in range(2):
            X[:], clicks[0] = n, n
            writer.add("q", 1.8e9 + n, ["a", "b"], X, clicks)
    table = clicklog.parquet().read_table(tmp_path / "log.parquet")
    assert table["features"].to_pylist() == [[[0.0], [0.0]], [[1.0], [1.0]]]
    assert table["clicks"].to_pylist() == [[0.0, 0.0], [1.0, 0.0]]


def test_a_writer_takes_clicks_that_only_know_how_to_become_an_array(tmp_path: Path) -> None:
    class Tensor:
        def __array__(self, dtype: Any = None) -> Any:  # as in numpy 1, and PyTorch
            return np.array([1.0, 0.0], dtype=dtype)

    with clicklog.Writer(tmp_path / "log.parquet", 1) as writer:
        writer.add("q", 1.8e9, ["a", "b"], np.zeros((2, 1)), Tensor())  # without a warning
    assert clicklog.parquet().read_table(tmp_path / "log.parquet")["clicks"].to_pylist() == [[1.0, 0.0]]


def test_texts_may_be_categories(tmp_path: Path) -> None:
    plain, path = (str(tmp_path / f"{name}.parquet") for name in ("plain", "categories"))
    texts = pa.dictionary(pa.int32(), pa.string())
    rows = [GOOD, {**GOOD, "clicks": [False, True]}, {**GOOD, "query_id": None}]
    pq.write_table(table(rows), plain)
    made = table(rows, documents=None).append_column("documents", table(rows)["documents"].cast(pa.list_(texts)))
    pq.write_table(made.set_column(0, "query_id", made["query_id"].dictionary_encode()), path)
    assert pq.read_schema(path).field("query_id").type == texts
    assert validate([path])[1:] == validate([plain])[1:] == (2, 2)
    assert validate([path])[0].counts == {Reason.MISSING_VALUE: 1}
    pq.write_table(made.set_column(0, "query_id", made["timestamp"].dictionary_encode()), path)
    assert validate([path])[0].counts == {Reason.WRONG_TYPE: 3}


def test_any_number_of_locked_positions(tmp_path: Path) -> None:
    path = str(tmp_path / "log.parquet")
    rows = [{**GOOD, "locked": locked} for locked in (2**63 + 5, 0)]
    pq.write_table(table(rows, locked=pa.uint64()), path)
    problems, n_lists, n_pairs = validate([path])
    assert (problems.counts, n_lists, n_pairs) == ({}, 2, 1)


def test_truncated_and_damaged_files(
    write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clicklog, "GROUP_BYTES", 4000)
    path = write("whole.parquet", lists(300))
    blob = Path(path).read_bytes()
    truncated, damaged = tmp_path / "truncated.parquet", tmp_path / "damaged.parquet"
    truncated.write_bytes(blob[: len(blob) // 2])
    # Destroy the pages of one row group in the middle, but leave the footer.
    group = pq.ParquetFile(path).metadata.row_group(2)
    start = min(group.column(i).dictionary_page_offset or group.column(i).data_page_offset for i in range(6))
    damaged.write_bytes(blob[:start] + b"\xff" * 200 + blob[start + 200 :])
    problems, n_lists, _ = validate([str(truncated), str(damaged)])
    assert problems.counts == {Reason.UNREADABLE: 1 + group.num_rows}
    assert n_lists == 300 - group.num_rows
    assert fit([str(damaged), path]).n_lists == 600 - group.num_rows


def test_order_of_time_is_watched_across_row_groups(write: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BATCH", 3)
    monkeypatch.setattr(clicklog, "GROUP_BYTES", 160)
    rng = np.random.default_rng(0)
    times = rng.permutation(60).astype(float)
    path = Path(write("x.parquet", [])).with_name("shuffled.parquet")
    with clicklog.Writer(path, 4) as writer:
        for time in times:
            writer.add("q", time, ["a"], np.zeros((1, 4)), [False])
    assert pq.ParquetFile(path).num_row_groups > 3
    problems, n_lists, _ = validate([str(path)])
    assert problems.counts == {Reason.OUT_OF_ORDER: int((np.diff(times) < 0).sum())}
    assert n_lists == 60


def test_problems_keep_a_few_examples_and_all_counts() -> None:
    one, two = Problems(), Problems()
    for row in range(4):
        one.add(Reason.DUPLICATE, f"row {row}")
        two.add(Reason.DUPLICATE, f"row {row + 4}", count=10)
    one.merge(two)
    assert one.counts == {Reason.DUPLICATE: 44}
    assert one.examples[Reason.DUPLICATE] == [f"row {row}" for row in range(5)]
    assert Problems().text().strip() == "no bad rows"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"features": [[1.0]]}, "do not fit"),
        ({"features": [["x", 1.0]]}, "the list 'q' are no numbers: could not"),
        ({"clicks": ["a"]}, "the list 'q' are no numbers: could not"),  # ids, as `learn` takes them
        ({"timestamp": datetime(2024, 5, 1)}, "the list 'q' are no numbers: unsupported"),
        ({"timestamp": float("nan")}, "the list 'q' are no numbers: cannot"),
        ({"features": [[np.datetime64("2024-05-01", "D"), np.datetime64("2024-05-02", "D")]]}, "type datetime64"),
        ({"locked": None}, "the list 'q' are no numbers: int()"),
        ({"above": 2**31}, "the list 'q' are no numbers: Python int"),
        ({"documents": ["\ud800"]}, "the list 'q' are not texts: ['\\ud800']"),
        ({"documents": [1]}, "the list 'q' are not texts: [1]"),
        ({"query_id": None}, "the list None are not texts: ['a']"),
    ],
)
def test_a_writer_refuses_what_does_not_fit_and_leaves_nothing(
    wrong: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """Ids that are no texts came to light when a row group was full, as pyarrow's error, and a part stayed behind."""
    given = {"query_id": "q", "timestamp": 0.0, "documents": ["a"], "features": [[1.0, 2.0]], "clicks": [True]}
    with clicklog.Writer(tmp_path / "log.parquet", 2) as writer:
        with pytest.raises(DataError, match=re.escape(words)):
            writer.add(**given | wrong)
        writer.add(**given)
    assert validate([str(tmp_path / "log.parquet")])[1] == 1
    with pytest.raises(DataError), clicklog.Writer(tmp_path / "other.parquet", 2) as writer:
        writer.add(**given | wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_missing_values_mean_what_the_ranker_says(write: Callable[..., str], tmp_path: Path) -> None:
    """A fit for pairrank(missing=mean) left out every list with a gap, which that ranker learns from online."""
    whole, gaps, events = lists(40), lists(40), tmp_path / "events.jsonl"
    for (X, _), (Y, _) in zip(whole, gaps, strict=True):
        X[0, 1], Y[0, 1] = X[1:, 1].mean(dtype=np.float64) if len(X) > 1 else 0.0, np.nan
    expected = fit([write("whole.parquet", whole)])
    path = write("gaps.parquet", gaps)
    assert validate([path])[0].counts == {Reason.NOT_FINITE: 40}
    nulls = [[[None if x != x else x for x in row] for row in X.tolist()] for X, _ in gaps]
    table = pq.read_table(path)
    features = pa.array(nulls, pa.list_(pa.list_(pa.float64())))
    pq.write_table(table.set_column(table.schema.names.index("features"), "features", features), tmp_path / "n.parquet")
    for log in (path, str(tmp_path / "n.parquet")):
        assert not validate([log], missing="mean")[0]
        np.testing.assert_allclose(fit([log], missing="mean").theta, expected.theta, rtol=1e-5)  # means of 32 bits
        np.testing.assert_allclose(spread([log], missing="mean"), spread([str(tmp_path / "whole.parquet")]), rtol=1e-5)
    for X, _ in whole:
        X[0, 1] = 0.5
    np.testing.assert_allclose(fit([path], missing=0.5).theta, fit([write("half.parquet", whole)]).theta, rtol=1e-12)
    with events.open("w") as file:
        for n, (rows, (_, clicks)) in enumerate(zip(nulls, gaps, strict=True)):
            documents = [{"id": str(i), "features": row} for i, row in enumerate(rows)]
            clicked = [str(i) for i in np.flatnonzero(clicks)]
            shown = {"type": "impression", "impression_id": str(n), "timestamp": 1e9 + n, "documents": documents}
            told = {"type": "feedback", "impression_id": str(n), "clicks": clicked}
            file.write(f"{json.dumps(shown)}\n{json.dumps(told)}\n")
    out = tmp_path / "model"
    assert main(["fit", str(events), "--ranker", "pairrank(missing=mean)", "--out", str(out)]) == 0
    np.testing.assert_allclose(pairrank.load(out).weights, expected.theta, rtol=1e-5)
