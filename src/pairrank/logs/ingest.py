"""Other logs into click logs: our own event log, the service's store, and User Behavior Insights 1.3.

**Event log**: JSON lines, as the service's HTTP bodies are: ``{"type": "impression", "impression_id", "timestamp",
"query_id"?, "documents": [{"id", "features"}…], "locked"?}`` in shown order; ``{"type": "feedback",
"impression_id", "clicks": [ids], "timestamp"?}``, or ``"gains": {id: gain}``, whole and final; ``{"type": "click",
"impression_id", "document_id", "timestamp"?}``.

**Store**: the service's store, a SQLite file or a PostgreSQL URL; its log of feedback.

**User Behavior Insights**: JSON lines of queries and events, in one file or several, as they are indexed, answered or
sent in bulk (lines of actions such as ``{"index": …}`` are passed over). A list is what the ``impression`` events of a
``query_id`` show, each a document ``event_attributes.object.object_id`` at ``event_attributes.position.ordinal``; where
there are none, the ``query_response_hit_ids`` of the query. Other events on such documents are worth what `ACTIONS`
says of their ``action_name``; of several on one document the best and the worst add up. UBI holds no features: they
come from Parquet files with the columns ``object_id`` (string), ``features`` (list<float>) and perhaps ``query_id``
(string).

Times are ISO 8601 texts, or numbers: seconds since 1970, or milliseconds when above 10^11.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from pairrank import store_log
from pairrank.errors import DataError, FileFormatError, OptionError, StorageError
from pairrank.logs.clicklog import parquet
from pairrank.logs.join import Join
from pairrank.logs.problems import Problems, Progress, Reason
from pairrank.logs.reader import MAX_GAIN

# What a UBI action on a document is worth, in clicks. All others are counted and passed over.
ACTIONS: Mapping[str, float] = {"click": 1.0, "add_to_cart": 2.0, "purchase": 3.0, "declined_product": -1.0}
IMPRESSION = "impression"
# Lines of a bulk request that say where the next line goes.
BULK = ("index", "create")
# Lines between two reports of progress.
TELL = 1000
# What reading a compressed file raises where it is cut off, damaged or not compressed.
DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)


@dataclass
class Ingested:
    """What came in: lists, clicks on them, actions passed over by name, and what was wrong."""

    n_lists: int = 0
    n_clicks: int = 0
    passed_over: Counter[str] = field(default_factory=Counter)
    problems: Problems = field(default_factory=Problems)


class _RecordError(Exception):
    """A record that cannot be taken, and why."""

    def __init__(self, reason: Reason, what: str) -> None:
        super().__init__(what)
        self.reason = reason


def kind_of(path: str | os.PathLike[str]) -> str:
    """ "parquet", "store" or "json", by the first bytes of a file; an address is a store's."""
    if store_log.is_store(path):
        return "store"
    try:
        with _opened(path) as file:
            start = file.read(4)
    except DAMAGED:
        start = b""  # reading on will say what is wrong with it
    except OSError as problem:
        raise StorageError(f"cannot read {path}: {problem.strerror or problem}") from None
    # A Parquet file that lost its first bytes is still better reported as such.
    return "parquet" if start == b"PAR1" or str(path).endswith(".parquet") else "json"


def ingest(
    paths: Sequence[str],
    out: str | os.PathLike[str],
    *,
    features: Sequence[str] = (),
    actions: Mapping[str, float] = ACTIONS,
    ranker: str | None = None,
    on_error: str = "skip",
    missing: bool = False,
    progress: Progress | None = None,
) -> Ingested:
    """Join the logs at ``paths`` (JSON lines, stores) into one click log at ``out``.

    Parameters
    ----------
    features : Parquet files with features, for UBI. actions : what UBI's actions are worth, by name.
    ranker : the ranker's name, for a store that holds several.
    on_error : "skip" or "stop" (raise `LogError` if anything is wrong, and write nothing).
    missing : whether NaN, or null, is a value of a feature, as for an additive model.
    progress : called now and then with what is going on, how many bytes of a file are read, and of how many.
    """
    for action, gain in actions.items():
        if action == IMPRESSION or not 0 < abs(gain) <= MAX_GAIN:
            raise OptionError(f"the action {action!r} is worth {gain}; expected another than impression, and not 0")
    parquet()  # before hours of reading
    result = Ingested()
    with Join(result.problems, Path(out).parent, missing=missing) as join:
        for path in features:
            _read_features(path, join)
        for path in paths:
            if kind_of(path) == "store":
                _read_store(path, join, ranker)
            else:
                _read_lines(path, join, actions, result.passed_over, progress)
        result.problems.check(on_error)
        result.n_lists, result.n_clicks = join.write(out, on_error)
    return result


def seconds(value: object) -> float:
    """A time as seconds since 1970; raises `ValueError` for what is none."""
    if isinstance(value, str) and not (value.isdecimal() and len(value) > 8):  # "1712100760123" is no day of 1712
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
        raise ValueError(value)
    return float(value) / 1000 if abs(value) > 1e11 else float(value)


# JSON lines.


def _read_lines(
    path: str, join: Join, actions: Mapping[str, float], passed_over: Counter[str], progress: Progress | None
) -> None:
    for place, line in _lines(path, join.problems, progress):
        try:
            record = json.loads(line)
            record = record.get("_source", record) if isinstance(record, dict) else record  # as search engines answer
            if not isinstance(record, dict):
                raise _RecordError(Reason.WRONG_TYPE, "not an object a line")
            if len(record) == 1 and isinstance(next((record[word] for word in BULK if word in record), None), dict):
                continue
            if "type" in record:
                _read_event(record, join, place)
            elif "action_name" in record:
                _read_ubi_event(record, join, place, actions, passed_over)
            else:
                _read_ubi_query(record, join, place)
        except _RecordError as problem:
            join.problems.add(problem.reason, f"{place}: {problem}")
        except UnicodeEncodeError:
            join.problems.add(Reason.WRONG_TYPE, f"{place}: a text holds half a character (a lone surrogate)")
        except UnicodeDecodeError:
            join.problems.add(Reason.UNREADABLE, f"{place}: not in UTF-8")
        except (ValueError, RecursionError):
            join.problems.add(Reason.UNREADABLE, f"{place}: not JSON, one object a line")


def _lines(path: str, problems: Problems, progress: Progress | None) -> Iterator[tuple[str, bytes]]:
    number = 0
    try:
        with _opened(path) as file:
            on_disk, size = getattr(file, "fileobj", file), os.path.getsize(path)
            for number, line in enumerate(file, 1):
                if progress is not None and number % TELL == 0:
                    progress(f"joining {Path(path).name}", on_disk.tell(), size)
                if line.strip():
                    yield f"{path} line {number}", line
    except (OSError, *DAMAGED) as problem:
        problems.add(Reason.UNREADABLE, f"{path} after line {number}: {problem}")


def _opened(path: str | os.PathLike[str]) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(path, "rb") if str(path).lower().endswith(".gz") else open(path, "rb")


def _read_event(record: Mapping[str, Any], join: Join, place: str) -> None:
    kind = record["type"]
    if kind == "impression":
        documents = _get(record, "documents", list)
        if not documents:
            raise _RecordError(Reason.MISSING_VALUE, "no documents")
        locked = record.get("locked") or 0
        if not all(isinstance(document, dict) for document in documents):
            raise _RecordError(Reason.WRONG_TYPE, "documents are not objects")
        if type(locked) is not int or locked < 0:
            raise _RecordError(Reason.WRONG_TYPE, f"locked is {locked!r}")
        join.add_list(
            _get(record, "impression_id", str),
            str(record.get("query_id") or record["impression_id"]),
            _time(record),
            [_get(document, "id", str) for document in documents],
            [_get(document, "features", list) for document in documents],
            place,
            min(locked, len(documents)),
        )
    elif kind == "feedback":
        join.add_feedback(_get(record, "impression_id", str), _feedback(record), _time(record, None), place)
    elif kind == "click":
        key, document = _get(record, "impression_id", str), _get(record, "document_id", str)
        join.add_click(key, document, 1.0, _time(record, None), place)
    else:
        raise _RecordError(Reason.WRONG_TYPE, f"type is {kind!r}")


def _feedback(record: Mapping[str, Any]) -> dict[str, float]:
    """Gains by document: those given, and 1 for each click."""
    record = {key: value for key, value in record.items() if value is not None}
    gains = _get(record, "gains", dict) if "gains" in record else {}
    if not all(_is_number(gain) and abs(gain) <= MAX_GAIN for gain in gains.values()):
        raise _RecordError(Reason.WRONG_TYPE, f"gains are not numbers up to {MAX_GAIN:g}")
    clicks = _get(record, "clicks", list) if "clicks" in record or "gains" not in record else []
    if not all(isinstance(document, str) for document in clicks):
        raise _RecordError(Reason.WRONG_TYPE, "clicks are not texts")
    return dict.fromkeys(clicks, 1.0) | gains


def _read_ubi_query(record: Mapping[str, Any], join: Join, place: str) -> None:
    key, time = _get(record, "query_id", str), _time(record)
    hits = record.get("query_response_hit_ids") or []
    if not isinstance(hits, list):
        raise _RecordError(Reason.WRONG_TYPE, f"query_response_hit_ids is a {type(hits).__name__}")
    if hits:
        join.add_list(key, key, time, [str(hit) for hit in hits], None, place)
    else:
        join.add_query(key, place)


def _read_ubi_event(
    record: Mapping[str, Any], join: Join, place: str, actions: Mapping[str, float], passed_over: Counter[str]
) -> None:
    action, time = _get(record, "action_name", str), _time(record)
    if action != IMPRESSION and action not in actions:
        passed_over[action] += 1
        return
    key, attributes = _get(record, "query_id", str), _get(record, "event_attributes", dict)
    document = _get(attributes, "object", dict).get("object_id")
    if document is None:
        raise _RecordError(Reason.MISSING_COLUMN, "no event_attributes.object.object_id")
    if action != IMPRESSION:
        join.add_click(key, str(document), actions[action], time, place)
        return
    ordinal = _get(attributes, "position", dict).get("ordinal")
    if not _is_number(ordinal):
        raise _RecordError(Reason.MISSING_COLUMN, "no event_attributes.position.ordinal, a number")
    join.add_shown(key, str(document), float(ordinal), time, place)


def _is_number(value: object) -> bool:
    """Whether it is a number that a float can hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _get(record: Mapping[str, Any], key: str, kind: type) -> Any:
    value = record.get(key)
    if value is None:
        raise _RecordError(Reason.MISSING_COLUMN, f"no {key}")
    if not isinstance(value, kind):
        raise _RecordError(Reason.WRONG_TYPE, f"{key} is a {type(value).__name__}")
    return value


def _time(record: Mapping[str, Any], default: object = ...) -> Any:
    value = record.get("timestamp", default)
    if value is None:
        if default is None:
            return None
        raise _RecordError(Reason.MISSING_VALUE, "timestamp is null")
    if value is ...:
        raise _RecordError(Reason.MISSING_COLUMN, "no timestamp")
    try:
        return seconds(value)
    except (ValueError, OverflowError):
        told = f"timestamp is {value!r}, neither ISO 8601 nor seconds or milliseconds"
        raise _RecordError(Reason.WRONG_TYPE, told) from None


# Stores and feature files.


def _read_store(path: str, join: Join, ranker: str | None) -> None:
    store = store_log.place(path)
    try:
        for entry in store_log.entries(path, ranker):
            key, place = f"{entry.ranker}-{entry.number}", f"{store} log entry {entry.seq}"
            try:
                shown = entry.impression()
            except FileFormatError as problem:
                join.problems.add(Reason.UNREADABLE, f"{place}: {problem}")
                continue
            gains, query_id = dict(zip(entry.documents, entry.clicks, strict=True)), entry.query_id or key
            counts = shown.locked, int(shown.memory.get("above", 0))
            join.add_list(key, query_id, entry.served, entry.documents, shown.features, place, *counts)
            join.add_feedback(key, {document: float(gain) for document, gain in gains.items() if gain}, None, place)
    except StorageError as problem:
        join.problems.add(Reason.UNREADABLE, f"{store}: {problem}")


def _read_features(path: str, join: Join) -> None:
    try:
        file = parquet().ParquetFile(path)
    except (OSError, ValueError) as problem:
        raise DataError(f"{path} is not a Parquet file of features: {problem}") from None
    with file:
        missing = {"object_id", "features"} - set(file.schema_arrow.names)
        if missing:
            raise DataError(f"{path} has no column {', '.join(sorted(missing))}")
        columns = [name for name in ("query_id", "object_id", "features") if name in file.schema_arrow.names]
        for batch in file.iter_batches(4096, columns=columns):
            for row in batch.to_pylist():
                place = f"{path} object {row['object_id']!r}"
                join.add_features(row.get("query_id"), row["object_id"], row["features"], place)
