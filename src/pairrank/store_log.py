"""A service's store as others may read it: lists that were answered, in order, and the model. Nothing is changed."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pairrank.checking import import_extra
from pairrank.errors import NewerFormatError, OptionError, StorageError
from pairrank.types import Impression

# The newest version of the tables whose log is known to look like this; a test compares it with the service's own.
SCHEMA = 5
ROWS = 500  # fetched at a time


class LoggedList(NamedTuple):
    """A list that was answered: who showed it, what it showed, and one byte of clicks for each position."""

    ranker: str
    seq: int
    number: int
    served: float
    query_id: str | None
    documents: list[str]
    clicks: bytes
    body: bytes

    def impression(self) -> Impression:
        """The impression with its features; raises `FileFormatError` where it is damaged."""
        return Impression.from_bytes(self.body)


class StoredModel(NamedTuple):
    """The model that a ranker serves: what ``to_bytes`` gave, and the names of its features, if it has any."""

    ranker: str
    body: bytes
    feature_names: tuple[str, ...] | None


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` is the address of a store (``sqlite:///FILE``, ``postgresql://…``) and not a plain path."""
    return "://" in os.fspath(path)


def place(store: str | os.PathLike[str]) -> str:
    """Where a store lies, for messages: its address without the user's name and password.

    >>> place("postgresql://shop:secret@db.example/ranking?password=secret&sslpassword=secret")
    'postgresql://db.example/ranking?password=…&sslpassword=…'
    """
    text = os.fspath(store)
    scheme, found, rest = text.partition("://")
    if not found or scheme == "sqlite":
        return text
    return re.sub("(?<=password=)[^&]*", "…", f"{scheme}://{rest.rpartition('@')[2]}")


def check_postgres(address: str) -> None:
    """`OptionError` for what cannot be read as an address: PostgreSQL's own message repeats parts of the password."""
    psycopg = import_extra("psycopg", "postgres")
    try:
        psycopg.conninfo.conninfo_to_dict(address)
        readable = address.partition("?")[0].count("@") < 2
    except psycopg.Error:
        readable = False
    if not readable:
        how = "in a name or password write %25 for %, %40 for @, %2F for / and %3A for :"
        raise OptionError(f"{place(address)} cannot be read as an address; {how}")


def sqlite_uri(path: Path, mode: str) -> str:
    """A file as SQLite shall open it: ``mode`` is ``ro``, ``rw`` or ``rwc``.

    On a disk that cannot be written SQLite cannot make the files that all who use a store share; there nobody changes
    it either, so whoever does not want to make a store reads it without them, unless a log is left to be read, too.
    """
    still = False
    with suppress(OSError, AttributeError):  # where the system cannot tell
        log = Path(f"{path}-wal")
        still = bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY) and not (log.exists() and log.stat().st_size)
    still &= mode != "rwc"
    return f"{path.absolute().as_uri()}?mode={mode}{'&immutable=1' if still else ''}"


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` is the address of a store, or a SQLite file."""
    if is_address(path):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def entries(store: str | os.PathLike[str], ranker: str | None = None) -> Iterator[LoggedList]:
    """What a ranker of the store has learned from, or will: lists answered while it was frozen, or whose entries were
    set aside, are left out. ``ranker`` may be None where the store holds one only.
    """
    with _opened(os.fspath(store)) as rows:
        _check_schema(store, rows)
        found = _find(store, rows, ranker, "--store-ranker")
        if found is None:
            return
        skip = "AND NOT EXISTS (SELECT 1 FROM set_aside s WHERE s.ranker_id = l.ranker_id AND s.seq = l.seq) "
        query = (
            "SELECT seq, number, served, query_id, ids, clicks, body FROM log l "
            f"WHERE ranker_id = ? AND kind = 'feedback' {skip if _has_table(rows, 'set_aside') else ''}ORDER BY seq"
        )
        key, name = found
        for seq, number, served, query_id, documents, clicks, body in rows(query, (key,)):
            shown = [str(document) for document in json.loads(documents)]
            yield LoggedList(name, seq, number, served, query_id, shown, bytes(clicks), bytes(body))


def served_model(store: str | os.PathLike[str], ranker: str | None = None) -> StoredModel:
    """The model that a ranker serves now: of the version that is pinned, else the newest.

    ``ranker`` may be None where the store holds one only.
    """
    with _opened(os.fspath(store)) as rows:
        _check_schema(store, rows)
        found = _find(store, rows, ranker, "--ranker")
        query = (
            "SELECT r.config, s.body FROM rankers r JOIN heads h ON h.ranker_id = r.id "
            "JOIN snapshots s ON s.ranker_id = r.id AND s.version = COALESCE(r.pinned, h.version) WHERE r.id = ?"
        )
        for config, body in rows(query, (found[0],)) if found else ():
            names = json.loads(config).get("feature_names")
            return StoredModel(found[1] if found else "", bytes(body), None if names is None else tuple(names))
    raise StorageError(f"{place(store)} holds no model")


def _find(store: str | os.PathLike[str], rows: _Rows, ranker: str | None, option: str) -> tuple[int, str] | None:
    """Number and name of the ranker that is asked for; None in a store without any."""
    ids = {str(name): int(key) for key, name in rows("SELECT id, name FROM rankers ORDER BY name")}
    if ranker is None and len(ids) > 1:
        raise OptionError(
            f"{place(store)} holds the rankers {', '.join(ids)}: say which one by ranker, or {option} NAME"
        )
    if ranker is not None and ranker not in ids:
        raise OptionError(f"{place(store)} holds no ranker {ranker!r}; it has: {', '.join(ids) or 'none'}")
    return next(((key, name) for name, key in ids.items() if ranker in (None, name)), None)


class _Rows:
    """Calls give the rows of a statement, some at a time; driver errors come out as `StorageError`."""

    def __init__(self, connection: Any, errors: type[Exception], postgres: bool) -> None:
        self._connection, self._errors, self.postgres = connection, errors, postgres

    def __call__(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        try:
            # A named cursor of PostgreSQL stays in the server; SQLite's are like that anyway.
            with closing(self._connection.cursor(*(["log"] if self.postgres else []))) as cursor:
                cursor.execute(sql.replace("?", "%s") if self.postgres else sql, values)
                while rows := cursor.fetchmany(ROWS):
                    yield from rows
        except self._errors as problem:
            raise StorageError(f"the store cannot be read: {' '.join(str(problem).split())}") from problem


@contextmanager
def _opened(address: str) -> Iterator[_Rows]:
    if address.startswith(("postgresql://", "postgres://")):
        psycopg = import_extra("psycopg", "postgres")
        check_postgres(address)
        try:
            connection: Any = psycopg.connect(address, connect_timeout=5)
        except psycopg.Error as problem:
            raise StorageError(f"the store cannot be read: {' '.join(str(problem).split())}") from problem
        connection.read_only = True
        # One transaction, so that everything read is of one moment.
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with closing(connection):
            yield _Rows(connection, psycopg.Error, postgres=True)
        return
    path = Path(address.removeprefix("sqlite:///"))
    if is_address(path) or not path.exists():
        raise StorageError(f"there is no store at {place(address)}")
    try:
        file = sqlite3.connect(sqlite_uri(path, "ro"), uri=True, isolation_level=None)
        file.execute("BEGIN")
        file.execute("SELECT 1 FROM sqlite_master")  # nothing is opened before
    except sqlite3.Error as problem:
        how = "it must be an SQLite file, in a folder that can be written"
        raise StorageError(f"{path} cannot be read ({how}): {problem}") from problem
    with closing(file):
        yield _Rows(file, sqlite3.Error, postgres=False)


def _check_schema(store: str | os.PathLike[str], rows: _Rows) -> None:
    if not _has_table(rows, "meta"):
        raise StorageError(f"{place(store)} is not a store of the service")
    found = max((int(value) for (value,) in rows("SELECT value FROM meta WHERE name = 'schema'")), default=0)
    NewerFormatError.check("the store's schema", found, SCHEMA)


def _has_table(rows: _Rows, name: str) -> bool:
    if rows.postgres:
        return [*rows("SELECT to_regclass(?)", (name,))] != [(None,)]
    return bool([*rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,))])
