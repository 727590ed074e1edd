"""Event logs, stores and User Behavior Insights become click logs; what does not fit together is counted."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pairrank.errors import DataError, LogError, MissingExtraError, OptionError, StorageError
from pairrank.logs import Reason, Writer, fit, ingest
from pairrank.logs.ingest import TELL, kind_of, seconds

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SHOWN = {
    "type": "impression",
    "impression_id": "i1",
    "query_id": "shoes",
    "timestamp": 1_700_000_000,
    "documents": [
        {"id": "a", "features": [1, 2]},
        {"id": "b", "features": [3, 4]},
        {"id": "c", "features": [5, 6]},
    ],
}
CLICK = {"type": "click", "impression_id": "i1", "document_id": "b", "timestamp": 1_700_000_009}
QUERY = {
    "application": "shop",
    "query_id": "u1",
    "client_id": "c",
    "user_query": "red shoes",
    "timestamp": "2024-05-01T10:00:00.000Z",
    "query_response_id": "r1",
    "query_response_hit_ids": ["a", "b"],
}
EVENT = {
    "action_name": "click",
    "application": "shop",
    "query_id": "u1",
    "session_id": "s",
    "client_id": "c",
    "timestamp": "2024-05-01T10:00:07.500Z",
    "message_type": "CLICK",
    "user_query": "red shoes",
    "event_attributes": {
        "object": {"object_id": "b", "object_id_field": "sku", "internal_id": "77"},
        "position": {"ordinal": 2},
    },
}


def lines(path: Path, *records: Any) -> str:
    path.write_text("".join(record if isinstance(record, str) else json.dumps(record) + "\n" for record in records))
    return str(path)


def feature_file(path: Path, rows: list[tuple[str | None, str, list[float]]], with_query: bool = True) -> str:
    columns = {"object_id": [row[1] for row in rows], "features": [row[2] for row in rows]}
    if with_query:
        columns["query_id"] = [row[0] for row in rows]
    pq.write_table(pa.table(columns), path)
    return str(path)


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def test_what_cannot_be_written_is_all_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Writer, "add", refuse)
    with pytest.raises(OSError, match="disk full"):  # and the cursor of the join goes quietly
        ingest([lines(tmp_path / "events.jsonl", SHOWN, CLICK)], tmp_path / "log.parquet")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*log.parquet: No such file"):
        Writer(tmp_path / "no" / "log.parquet", 4)
    with pytest.raises(StorageError, match=r"cannot write to the folder .*no: No such file"):
        ingest([], tmp_path / "no" / "log.parquet")


def test_a_missing_extra_is_told_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError):
        ingest([str(tmp_path / "not there.jsonl")], tmp_path / "log.parquet")


def test_an_event_log(tmp_path: Path) -> None:
    other = {**SHOWN, "impression_id": "i2", "timestamp": 1_600_000_000, "locked": 1}
    feedback = {"type": "feedback", "impression_id": "i2", "clicks": ["a", "c"]}
    # Clicks before their list in the file: the order of lines means nothing.
    path = lines(tmp_path / "events.jsonl", CLICK, feedback, SHOWN, other, CLICK)
    found = ingest([path], tmp_path / "log.parquet")
    assert (found.n_lists, found.n_clicks) == (2, 3)
    assert not found.problems
    first, second = rows(tmp_path / "log.parquet")
    assert first["clicks"] == [True, False, True]
    assert first["locked"] == 1
    assert second["clicks"] == [False, True, False]
    assert second["documents"] == ["a", "b", "c"]
    assert second["features"] == [[1, 2], [3, 4], [5, 6]]
    assert second["query_id"] == "shoes"
    assert second["timestamp"] == datetime.fromtimestamp(1_700_000_000, tz=UTC)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["events.jsonl", "log.parquet"]


def test_user_behaviour_insights(tmp_path: Path) -> None:
    hover = {**EVENT, "action_name": "hover"}
    features = feature_file(
        tmp_path / "f.parquet", [("u1", "a", [1.0, 2.0]), (None, "a", [9.0, 9.0]), (None, "b", [3.0, 4.0])]
    )
    queries = lines(tmp_path / "queries.json", {"_source": QUERY})
    with gzip.open(tmp_path / "events.json.gz", "wt") as file:
        file.write(json.dumps(EVENT) + "\n" + json.dumps(hover) + "\n\n")
    out = tmp_path / "log.parquet"
    found = ingest([str(tmp_path / "events.json.gz"), queries], out, features=[features])
    assert not found.problems
    assert found.passed_over == {"hover": 1}
    (row,) = rows(out)
    assert row["clicks"] == [False, True]
    assert row["features"] == [[1, 2], [3, 4]]
    found = ingest([str(tmp_path / "events.json.gz"), queries], out, features=[features], actions={"hover": 0.5})
    assert (found.n_clicks, found.passed_over) == (1, {"click": 1})
    assert rows(out)[0]["clicks"] == [0, 0.5]
    for wrong in ({"impression": 1.0}, {"click": 0.0}, {"click": float("nan")}):
        with pytest.raises(OptionError, match="worth"):
            ingest([queries], out, actions=wrong)


def opensearch_bulk(folder: Path) -> str:
    """A file in the shape of OpenSearch's own sample: bulk lines, queries without hits, lists as impression events."""
    application = {"application": "shop", "client_id": "c1", "session_id": "s1", "message_type": None, "message": None}
    records: list[Any] = []

    def query(query_id: str, words: str, second: int) -> None:
        stamp = f"2024-12-11T04:56:{second:02}.000Z"
        records.append({"index": {"_index": "ubi_queries", "_id": query_id}})
        found = {"query_id": query_id, "user_query": words, "query_response_hit_ids": [], "timestamp": stamp}
        records.append({**application, "query_attributes": {}, **found})

    def event(action: str, query_id: str, document: str, ordinal: int, second: int) -> None:
        where = {
            "object": {"object_id": document, "object_id_field": "product_id"},
            "position": {"ordinal": ordinal},
        }
        facts = {"action_name": action, "query_id": query_id, "user_query": "tv", "event_attributes": where}
        records.append({"index": {"_index": "ubi_events"}})
        records.append({**application, **facts, "timestamp": f"2024-12-11T04:56:{second:02}.419Z"})

    query("tv", "tv", 10)
    for ordinal, document in ((3, "B3"), (1, "B1"), (2, "B2"), (4, "B4"), (1, "B1")):
        event("impression", "tv", document, ordinal, 10 + ordinal)
    event("click", "tv", "B2", 2, 20)
    event("add_to_cart", "tv", "B2", 2, 25)
    event("click", "tv", "B3", 3, 26)
    event("purchase", "tv", "B3", 3, 30)
    event("declined_product", "tv", "B4", 4, 31)
    event("product_hover", "tv", "B1", 1, 32)
    query("socks", "socks", 40)
    event("impression", "socks", "B4", 1, 40)
    event("impression", "socks", "B1", 2, 40)
    event("click", "socks", "B4", 1, 41)
    event("declined_product", "socks", "B4", 1, 44)
    return lines(folder / "ubi.ndjson", *records)


def test_opensearchs_own_shape(tmp_path: Path) -> None:
    features = feature_file(tmp_path / "f.parquet", [(None, f"B{n}", [float(n), 0.5]) for n in (1, 2, 3, 4)])
    out = tmp_path / "log.parquet"
    found = ingest([opensearch_bulk(tmp_path)], out, features=[features])
    assert not found.problems
    assert found.passed_over == {"product_hover": 1}
    tv, socks = rows(out)
    assert (tv["query_id"], tv["documents"]) == ("tv", ["B1", "B2", "B3", "B4"])
    assert tv["clicks"] == [0, 2, 3, -1]
    assert tv["features"] == [[1, 0.5], [2, 0.5], [3, 0.5], [4, 0.5]]
    assert tv["timestamp"] == datetime(2024, 12, 11, 4, 56, 11, 419_000, tzinfo=UTC)
    assert (socks["documents"], socks["clicks"]) == (["B4", "B1"], [0, 0])  # clicked, and then turned down
    # A purchase (3) over what was put in the cart (2), nothing (0) and what was turned down (-1), and so on.
    assert fit([str(out)], pairs="all").weight == (1 + 3 + 4) + (2 + 3) + 1


def test_impressions_tell_what_hits_do_not(tmp_path: Path) -> None:
    """Where a query says what it found and events say what was seen, what was seen counts."""
    seen = [{**EVENT, "action_name": "impression"}]
    features = feature_file(tmp_path / "f.parquet", [(None, "a", [1.0]), (None, "b", [2.0])])
    path = lines(tmp_path / "ubi.json", QUERY, *seen, EVENT)
    found = ingest([path], tmp_path / "log.parquet", features=[features])
    assert not found.problems
    assert [row["documents"] for row in rows(tmp_path / "log.parquet")] == [["b"]]


def test_features_of_a_query_that_is_called_0_are_its_own(tmp_path: Path) -> None:
    """Numbered queries had those of the query 0 wherever they had none of their own."""
    pq.write_table(
        pa.table({"query_id": [0, 0], "object_id": ["a", "b"], "features": [[1.0], [2.0]]}), tmp_path / "f.parquet"
    )
    path = lines(tmp_path / "ubi.json", QUERY, {**QUERY, "query_id": "0"})
    found = ingest([path], tmp_path / "log.parquet", features=[str(tmp_path / "f.parquet")])
    assert found.problems.counts == {Reason.NO_FEATURES: 1}
    assert [row["query_id"] for row in rows(tmp_path / "log.parquet")] == ["0"]


def test_lines_of_another_encoding_are_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    text = json.dumps({**SHOWN, "query_id": "Mädchen"}, ensure_ascii=False)
    path.write_bytes(json.dumps(SHOWN).encode() + b"\n" + text.encode("cp1252") + b"\n")
    found = ingest([str(path)], tmp_path / "log.parquet")
    assert found.problems.examples == {Reason.UNREADABLE: [f"{path} line 2: not in UTF-8"]}


def test_gains_in_feedback(tmp_path: Path) -> None:
    feedback = {"type": "feedback", "impression_id": "i1", "clicks": ["a"], "gains": {"b": 3, "c": -1}}
    ingest([lines(tmp_path / "events.jsonl", SHOWN, feedback)], tmp_path / "log.parquet")
    assert rows(tmp_path / "log.parquet")[0]["clicks"] == [1, 3, -1]


@pytest.mark.parametrize("told", [{"gains": {}}, {"gains": {}, "clicks": None}, {"gains": None, "clicks": []}])
def test_gains_of_nothing_are_feedback(tmp_path: Path, told: dict[str, Any]) -> None:
    nothing = {"type": "feedback", "impression_id": "i1", **told}
    found = ingest([lines(tmp_path / "events.jsonl", SHOWN, nothing)], tmp_path / "log.parquet")
    assert not found.problems
    assert found.n_lists == 1


def without(record: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != key}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("{not json\n", Reason.UNREADABLE),
        ("[1]\n", Reason.WRONG_TYPE),
        ({"type": "purchase"}, Reason.WRONG_TYPE),
        (without(CLICK, "document_id"), Reason.MISSING_COLUMN),
        ({**CLICK, "document_id": 7}, Reason.WRONG_TYPE),
        ({**CLICK, "timestamp": "soon"}, Reason.WRONG_TYPE),
        ({**CLICK, "impression_id": "nowhere"}, Reason.CLICK_WITHOUT_IMPRESSION),
        ({**CLICK, "document_id": "z"}, Reason.CLICK_ELSEWHERE),
        ({"type": "feedback", "impression_id": "nowhere", "clicks": []}, Reason.CLICK_WITHOUT_IMPRESSION),
        ({"type": "feedback", "impression_id": "i1", "clicks": [1]}, Reason.WRONG_TYPE),
        (SHOWN, Reason.DUPLICATE),
        ({**SHOWN, "impression_id": "i3", "documents": []}, Reason.MISSING_VALUE),
        ({**SHOWN, "impression_id": "i3", "documents": [1]}, Reason.WRONG_TYPE),
        ({**without(SHOWN, "timestamp"), "impression_id": "i3"}, Reason.MISSING_COLUMN),
        ({**SHOWN, "impression_id": "i3", "documents": [{"id": "a", "features": [1]}]}, Reason.WRONG_WIDTH),
        ({**SHOWN, "impression_id": "i3", "documents": [{"id": "a", "features": [1, None]}]}, Reason.NOT_FINITE),
        ({**SHOWN, "impression_id": "i3", "documents": [{"id": "a", "features": [1, 1e60]}]}, Reason.NOT_FINITE),
        ({**SHOWN, "impression_id": "i3", "documents": [{"id": "a", "features": 3}]}, Reason.WRONG_TYPE),
        (without(QUERY, "query_id"), Reason.MISSING_COLUMN),
        (without(QUERY, "query_response_hit_ids"), Reason.MISSING_VALUE),
        ({**QUERY, "query_response_hit_ids": "a"}, Reason.WRONG_TYPE),
        ({"type": "feedback", "impression_id": "i1"}, Reason.MISSING_COLUMN),
        ({"type": "feedback", "impression_id": "i1", "gains": {"a": True}}, Reason.WRONG_TYPE),
        (
            {**EVENT, "action_name": "impression", "event_attributes": {"object": {"object_id": "a"}}},
            Reason.MISSING_COLUMN,
        ),
        ({**EVENT, "action_name": "impression"}, Reason.NO_FEATURES),
        ({**QUERY, "query_response_hit_ids": []}, Reason.MISSING_VALUE),
        (QUERY, Reason.NO_FEATURES),
        (without(EVENT, "timestamp"), Reason.MISSING_COLUMN),
        (EVENT, Reason.CLICK_WITHOUT_IMPRESSION),
        ({**EVENT, "event_attributes": {"object": {}}}, Reason.MISSING_COLUMN),
        ({"_source": 5}, Reason.WRONG_TYPE),
        ({"_source": None}, Reason.WRONG_TYPE),
        ({**SHOWN, "impression_id": "i2", "locked": [1]}, Reason.WRONG_TYPE),
        ({**SHOWN, "impression_id": "i2", "locked": "two"}, Reason.WRONG_TYPE),
        ({**SHOWN, "impression_id": "i2", "locked": -1}, Reason.WRONG_TYPE),
        ({**SHOWN, "impression_id": "i2", "timestamp": None}, Reason.MISSING_VALUE),
        ({**QUERY, "timestamp": None}, Reason.MISSING_VALUE),
        ({**EVENT, "action_name": "impression", "timestamp": None}, Reason.MISSING_VALUE),
        ({**SHOWN, "impression_id": "i2", "documents": [{"id": "a", "features": []}]}, Reason.MISSING_VALUE),
        ({**SHOWN, "impression_id": "i2", "documents": [{"id": "a", "features": [1, "much"]}]}, Reason.WRONG_TYPE),
        ({**SHOWN, "impression_id": "i2", "documents": [{"id": "a", "features": [1, 10**400]}]}, Reason.NOT_FINITE),
        ({**SHOWN, "impression_id": "i2", "documents": [{"id": "\ud800", "features": [1, 2]}]}, Reason.WRONG_TYPE),
        ({"type": "feedback", "impression_id": "i1", "gains": {"a": 10**400}}, Reason.WRONG_TYPE),
    ],
)
def test_bad_records(record: Any, reason: Reason, tmp_path: Path) -> None:
    path = lines(tmp_path / "events.jsonl", SHOWN, CLICK, record)
    found = ingest([path], tmp_path / "log.parquet")
    assert found.problems.counts == {reason: 1}
    assert f"{path} line 3" in found.problems.examples[reason][0]
    assert [row["clicks"] for row in rows(tmp_path / "log.parquet")] == [[False, True, False]]
    (tmp_path / "log.parquet").unlink()
    with pytest.raises(LogError, match=reason.value):
        ingest([path], tmp_path / "log.parquet", on_error="stop")
    assert [p.name for p in tmp_path.iterdir()] == ["events.jsonl"]


def test_more_locked_positions_than_documents(tmp_path: Path) -> None:
    path = lines(tmp_path / "events.jsonl", {**SHOWN, "locked": 2}, {**SHOWN, "impression_id": "i2", "locked": 10**30})
    assert not ingest([path], tmp_path / "log.parquet").problems
    assert [row["locked"] for row in rows(tmp_path / "log.parquet")] == [2, 3]


def test_a_click_before_its_list_takes_the_list_out(tmp_path: Path) -> None:
    other = {**SHOWN, "impression_id": "i2"}
    path = lines(tmp_path / "events.jsonl", SHOWN, {**CLICK, "timestamp": 1_699_999_999}, other)
    found = ingest([path], tmp_path / "log.parquet")
    assert found.problems.counts == {Reason.CLICK_TOO_EARLY: 1}
    assert found.n_lists == 1


def test_a_document_that_a_list_has_twice_counts_once(tmp_path: Path) -> None:
    documents = [{"id": name, "features": [place]} for place, name in enumerate("abacb")]
    path = lines(tmp_path / "events.jsonl", {**SHOWN, "documents": documents, "locked": 3}, CLICK)
    found = ingest([path], tmp_path / "log.parquet")
    assert (found.problems.counts, found.n_clicks) == ({Reason.SHOWN_TWICE: 1}, 1)
    (row,) = rows(tmp_path / "log.parquet")
    assert (row["documents"], row["features"], row["locked"]) == (["a", "b", "c"], [[0], [1], [3]], 2)


def test_second_feedback_counts_once(tmp_path: Path) -> None:
    feedback = {"type": "feedback", "impression_id": "i1", "clicks": ["a"]}
    path = lines(tmp_path / "events.jsonl", SHOWN, feedback, {**feedback, "clicks": ["c"]})
    found = ingest([path], tmp_path / "log.parquet")
    assert found.problems.counts == {Reason.DUPLICATE: 1}
    assert rows(tmp_path / "log.parquet")[0]["clicks"] == [True, False, False]


@pytest.mark.parametrize("clicks", [["a"], []])
def test_single_clicks_do_not_count_beside_whole_feedback(tmp_path: Path, clicks: list[str]) -> None:
    """As in the service, whichever came first."""
    feedback = {"type": "feedback", "impression_id": "i1", "clicks": clicks}
    path = lines(tmp_path / "events.jsonl", SHOWN, CLICK, feedback, CLICK)
    found = ingest([path], tmp_path / "log.parquet")
    assert found.problems.counts == {Reason.DUPLICATE: 2}
    assert rows(tmp_path / "log.parquet")[0]["clicks"] == ["a" in clicks, False, False]


def test_a_truncated_archive_keeps_what_came_before(tmp_path: Path) -> None:
    text = "".join(json.dumps({**SHOWN, "impression_id": f"i{n}", "noise": n * 7919 % 997}) + "\n" for n in range(2000))
    path = tmp_path / "events.jsonl.gz"
    blob = gzip.compress(text.encode())
    path.write_bytes(blob[: len(blob) // 2])
    found = ingest([str(path)], tmp_path / "log.parquet")
    assert found.problems.counts[Reason.UNREADABLE] in (1, 2)  # the end of the file, and perhaps half a line
    assert 0 < found.n_lists < 2000


@pytest.mark.parametrize(
    "blob",
    [b"plain text", gzip.compress(b"x", mtime=0)[:5], gzip.compress(b"x", mtime=0)[:10] + b"\xff" * 9],
    ids=["plain text", "cut off", "damaged"],
)
def test_a_damaged_archive_leaves_the_other_files(blob: bytes, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl.gz").write_bytes(blob)
    others = lines(tmp_path / "others.jsonl", SHOWN, CLICK)
    found = ingest([str(tmp_path / "events.jsonl.gz"), others], tmp_path / "log.parquet")
    assert (found.problems.counts, found.n_lists) == ({Reason.UNREADABLE: 1}, 1)


def test_nothing_usable(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no list"):
        ingest([lines(tmp_path / "events.jsonl", CLICK)], tmp_path / "log.parquet")
    pq.write_table(pa.table({"features": [[1.0]]}), tmp_path / "f.parquet")
    with pytest.raises(DataError, match="object_id"):
        ingest([], tmp_path / "log.parquet", features=[str(tmp_path / "f.parquet")])
    with pytest.raises(DataError, match="not a Parquet file"):
        ingest([], tmp_path / "log.parquet", features=[lines(tmp_path / "g.parquet", CLICK)])


def test_times() -> None:
    assert seconds("2024-05-01T10:00:00.000Z") == datetime(2024, 5, 1, 10, tzinfo=UTC).timestamp()
    assert seconds("2024-05-01T12:00:00+02:00") == seconds("2024-05-01T10:00:00")
    assert seconds(1_714_557_600_000) == seconds(1_714_557_600) == 1_714_557_600.0
    assert seconds("20240501") == seconds("2024-05-01")
    # The last are milliseconds as text, which fromisoformat reads as a day of 1712.
    for wrong in (True, None, "yesterday", float("nan"), 1e300, "1712100760123"):
        with pytest.raises(ValueError):  # noqa: PT011
            seconds(wrong)


def test_kinds(tmp_path: Path) -> None:
    assert kind_of(lines(tmp_path / "a.jsonl", CLICK)) == "json"
    assert kind_of(feature_file(tmp_path / "b.data", [(None, "a", [1.0])])) == "parquet"
    assert kind_of(lines(tmp_path / "c.parquet", "ruined")) == "parquet"


def test_a_damaged_store_is_told(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"SQLite format 3\0" + bytes(100))
    log = lines(tmp_path / "events.jsonl", SHOWN, CLICK)
    found = ingest([str(path), log], tmp_path / "log.parquet")
    assert found.problems.counts == {Reason.UNREADABLE: 1}
    assert found.n_lists == 1
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE log (seq)").connection.close()
    found = ingest([str(tmp_path / "other.db"), log], tmp_path / "log.parquet")
    assert "not a store" in found.problems.examples[Reason.UNREADABLE][0]


@pytest.mark.parametrize("opened", [open, gzip.open])
def test_joining_tells_how_far_it_is(opened: Any, tmp_path: Path) -> None:
    """Months of events were read for hours without a word."""
    path = tmp_path / ("events.GZ" if opened is gzip.open else "events")
    told: list[tuple[str, int, int]] = []
    shown = {"type": "impression", "timestamp": 1, "documents": [{"id": "a", "features": [1]}]}
    with opened(path, "wt") as file:
        for _ in range(2 * TELL):
            file.write(json.dumps(shown | {"impression_id": os.urandom(40).hex()}) + "\n")
    ingest([str(path)], tmp_path / "joined.parquet", progress=lambda *what: told.append(what))
    size = path.stat().st_size
    assert [(what, total) for what, _, total in told] == [(f"joining {path.name}", size)] * 2
    assert 0.3 * size < told[0][1] < 0.7 * size < told[1][1] <= size
