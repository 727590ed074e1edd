"""Clicks to lists: a join on disk, so that logs larger than memory can come in any order."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairrank.documents import MAX_MAGNITUDE
from pairrank.errors import LogError, StorageError
from pairrank.logs.clicklog import Writer
from pairrank.logs.problems import Problems, Reason

_TABLES = """
CREATE TABLE lists (id TEXT PRIMARY KEY, query_id TEXT, time REAL, documents TEXT, features BLOB, width INTEGER,
    locked INTEGER, above INTEGER, place TEXT) WITHOUT ROWID;
CREATE TABLE bare (list TEXT, place TEXT);
CREATE TABLE shown (list TEXT, document TEXT, ordinal REAL, time REAL, place TEXT);
CREATE TABLE clicks (list TEXT, document TEXT, gain REAL, time REAL, place TEXT, whole INTEGER);
CREATE TABLE feedback (list TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE features (query_id TEXT, document TEXT, body BLOB, PRIMARY KEY (query_id, document)) WITHOUT ROWID;
"""
# Feature files name documents without a query by this.
ANY_QUERY = ""


class Join:
    """Takes lists, clicks and features in any order, then writes a click log in the order of time.

    Everything waits in a SQLite file in ``folder`` that is gone when the ``with`` ends. What does not fit together is
    noted in ``problems``; ``missing`` says whether NaN is a value of a feature.
    """

    def __init__(self, problems: Problems, folder: str | os.PathLike[str], *, missing: bool) -> None:
        self.problems, self._missing = problems, missing
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="pairrank-join-", dir=folder)
        except OSError as problem:
            raise StorageError(f"cannot write to the folder {folder}: {problem.strerror}") from problem
        self._db = sqlite3.connect(Path(self._folder.name) / "join.db")
        self._db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
        self._folder.cleanup()

    def add_list(
        self,
        key: str,
        query_id: str,
        time: float,
        documents: Sequence[str],
        features: ArrayLike | None,
        place: str,
        locked: int = 0,
        above: int = 0,
    ) -> None:
        """A list as shown, ``above`` on earlier pages; without ``features`` those of `add_features` count."""
        body, width = None, 0
        first = sorted({document: n for n, document in reversed([*enumerate(documents)])}.values())
        if features is not None:
            matrix = _matrix(features, len(documents), self._missing)
            if isinstance(matrix, Reason):
                self.problems.add(matrix, place)
                return
            body, width = matrix[first].tobytes(), matrix.shape[1]
        if len(first) < len(documents):
            self.problems.add(Reason.SHOWN_TWICE, place)
            documents, locked = [documents[n] for n in first], sum(n < locked for n in first)
        row = (key, query_id, time, json.dumps(list(documents), ensure_ascii=False), body, width, locked, above, place)
        try:
            self._db.execute("INSERT INTO lists VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        except sqlite3.IntegrityError:
            self.problems.add(Reason.DUPLICATE, place)

    def add_query(self, key: str, place: str) -> None:
        """A query that does not say what it found: a fault unless documents come by `add_shown`."""
        self._db.execute("INSERT INTO bare VALUES (?, ?)", (key, place))

    def add_shown(self, key: str, document: str, ordinal: float, time: float, place: str) -> None:
        """One document of the list ``key``, at the place ``ordinal``; the list is what came like this."""
        self._db.execute("INSERT INTO shown VALUES (?, ?, ?, ?, ?)", (key, document, ordinal, time, place))

    def add_click(self, key: str, document: str, gain: float, time: float | None, place: str) -> None:
        """An action on a document of the list ``key`` that is worth ``gain``; 1 for a click."""
        self._db.execute("INSERT INTO clicks VALUES (?, ?, ?, ?, ?, 0)", (key, document, gain, time, place))

    def add_feedback(self, key: str, gains: Mapping[str, float], time: float | None, place: str) -> None:
        """All gains of the list ``key``, whole and final; a second time, and single clicks, are noted and left out."""
        try:
            self._db.execute("INSERT INTO feedback VALUES (?)", (key,))
        except sqlite3.IntegrityError:
            self.problems.add(Reason.DUPLICATE, place)
            return
        # A row even without a click, so that feedback on a list that is not there comes to light.
        for document, gain in gains.items() or [(None, 0.0)]:
            self._db.execute("INSERT INTO clicks VALUES (?, ?, ?, ?, ?, 1)", (key, document, gain, time, place))

    def add_features(self, query_id: str | None, document: str | None, features: ArrayLike, place: str) -> None:
        """What is known of a document for a query, or (None) for all; the last to come counts."""
        matrix = _matrix([features], 1, self._missing)
        if isinstance(matrix, Reason) or document is None:
            self.problems.add(matrix if isinstance(matrix, Reason) else Reason.MISSING_VALUE, place)
            return
        key, body = ANY_QUERY if query_id is None else query_id, matrix.tobytes()
        self._db.execute("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", (key, document, body))

    def write(self, path: str | os.PathLike[str], on_error: str) -> tuple[int, int]:
        """Join, and write the click log; how many lists and clicks.

        `LogError`, and nothing is written, when no list is left, or by ``on_error`` "stop" when anything is wrong.
        """
        self._db.executescript("CREATE INDEX clicks_list ON clicks (list);")
        self._assemble()
        self._strangers()
        n_lists = n_clicks = 0
        joined = self._joined()
        if (first := next(joined, None)) is None:
            self.problems.check(on_error)
            raise LogError("the logs hold no list that could be used", self.problems)
        with Writer(path, first[3].shape[1]) as writer:
            for query_id, time, documents, X, gains, locked, above, place in chain([first], joined):
                if X.shape[1] != writer.n_features:
                    self.problems.add(Reason.WRONG_WIDTH, place)
                    continue
                worth = np.array([gains.get(document, 0.0) for document in documents])
                writer.add(query_id, time, documents, X, worth, locked, above)
                n_lists, n_clicks = n_lists + 1, n_clicks + int((worth > 0).sum())
            self.problems.check(on_error)
        return n_lists, n_clicks

    def _assemble(self) -> None:
        """Make lists of what was shown piece by piece; they stand in place of what a query said that it found."""
        query = (
            "SELECT list, document, min(ordinal), min(time), place FROM shown GROUP BY list, document "
            "ORDER BY list, min(ordinal), min(rowid)"
        )
        for key, rows in groupby(self._db.execute(query), key=itemgetter(0)):
            pieces = list(rows)
            documents, time = json.dumps([piece[1] for piece in pieces]), min(piece[3] for piece in pieces)
            self._db.execute(
                "INSERT OR REPLACE INTO lists VALUES (?, ?, ?, ?, NULL, 0, 0, 0, ?)",
                (key, key, time, documents, pieces[0][4]),
            )

    def _strangers(self) -> None:
        """Note clicks whose list is not there, and queries of which no list is known."""
        for table, reason in (("clicks", Reason.CLICK_WITHOUT_IMPRESSION), ("bare", Reason.MISSING_VALUE)):
            query = f"SELECT t.place FROM {table} t LEFT JOIN lists l ON l.id = t.list WHERE l.id IS NULL"
            for (place,) in self._db.execute(f"{query} ORDER BY t.rowid"):
                self.problems.add(reason, place)

    def _joined(self) -> Iterator[tuple[str, float, list[str], NDArray[np.float64], dict[str, float], int, int, str]]:
        columns = "id, query_id, time, documents, features, width, locked, above, place"
        rows = self._db.execute(f"SELECT {columns} FROM lists ORDER BY time, id")
        for key, query_id, time, text, body, width, locked, above, place in rows:
            documents = json.loads(text)
            gains = self._gains(key, time, set(documents))
            if gains is None:
                continue
            if body is None:
                X = self._features(query_id, documents)
            else:
                X = np.frombuffer(body, dtype=np.float64).reshape(-1, width)
            if X is None:
                self.problems.add(Reason.NO_FEATURES, place)
                continue
            yield query_id, time, documents, X, gains, locked, above, place

    def _gains(self, key: str, shown: float, documents: set[str]) -> dict[str, float] | None:
        """By document, the gains of its best and worst action added; None where an action is older than the list."""
        best: dict[str, float] = {}
        worst: dict[str, float] = {}
        query = "SELECT document, gain, time, place, whole FROM clicks WHERE list = ? ORDER BY whole DESC, rowid"
        final = 0
        for document, gain, time, place, whole in self._db.execute(query, (key,)):
            final |= whole
            if document is None:
                continue
            if final > whole:  # a single click beside feedback, which is all that was done
                self.problems.add(Reason.DUPLICATE, place)
            elif document not in documents:
                self.problems.add(Reason.CLICK_ELSEWHERE, place)
            elif time is not None and time < shown:
                self.problems.add(Reason.CLICK_TOO_EARLY, place)
                return None
            else:
                best[document] = max(best.get(document, 0.0), gain)
                worst[document] = min(worst.get(document, 0.0), gain)
        return {document: gain + worst[document] for document, gain in best.items()}

    def _features(self, query_id: str, documents: Sequence[str]) -> NDArray[np.float64] | None:
        query = "SELECT body FROM features WHERE document = ? AND query_id IN (?, ?) ORDER BY query_id = ? LIMIT 1"
        rows = []
        for document in documents:
            # The query's own features come first: for them `query_id = ANY_QUERY` is 0.
            found = self._db.execute(query, (document, query_id, ANY_QUERY, ANY_QUERY)).fetchone()
            if found is None:
                return None
            rows.append(np.frombuffer(found[0], dtype=np.float64))
        if len({len(row) for row in rows}) != 1:
            return None
        return np.stack(rows)


def _matrix(features: Any, n_documents: int, missing: bool) -> NDArray[np.float64] | Reason:
    try:
        wide = np.asarray(features, dtype=np.float64)
    except OverflowError:
        return Reason.NOT_FINITE
    except (TypeError, ValueError):
        widths = {len(row) if isinstance(row, list) else 1 for row in features}
        return Reason.WRONG_WIDTH if len(widths) > 1 else Reason.WRONG_TYPE
    if wide.ndim != 2 or len(wide) != n_documents:
        return Reason.LENGTHS_DIFFER
    if wide.shape[1] == 0:
        return Reason.MISSING_VALUE
    if not ((np.abs(wide) <= MAX_MAGNITUDE) | (missing & np.isnan(wide))).all():
        return Reason.NOT_FINITE
    return wide
