"""SQLite in one file: write-ahead log, every acknowledged commit flushed, one writer at a time.

After a flush that failed the system no longer writes what waited for it, although everybody still reads it. Commits
that were made without a flush would then be missing in the middle of the write-ahead log, and after a power cut all
that follows them, too. So a connection that met a fault of the disk is thrown away, and the next one checks the file
and folds the whole log back, with a flush of its own, before anything is acknowledged again.

A flush can also succeed without having been one: ext4 answers so for a transaction of its journal that has just failed
in somebody else's name. A change that needs the journal, made after the flush, then fails, and the commit with it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from pairrank.errors import StorageError
from pairrank.service.store.database import BusyError, Database, Row, unavailable

BUSY_SECONDS = 10.0
# The learner folds the write-ahead log back while nobody waits. This many pages (80 MiB) is for when there is none.
AUTO_CHECKPOINT_PAGES = 20_000
MAX_WAL_BYTES = 64 * 2**20
# Faults after which neither the connection nor what it wrote is trusted: the disk's, and damage.
_FAULTS = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOTADB,
}
# A disk that fails is not asked again for each request.
RENEW_SECONDS = 0.25


class SqliteDatabase(Database):
    """A connection to one SQLite file."""

    words: ClassVar[Mapping[str, str]] = {
        "SERIAL_KEY": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "BYTES": "BLOB",
    }

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = True, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        super().__init__()
        self.path = Path(path)
        self._busy_seconds = busy_seconds
        self._lead: int | None = None
        self._flush: bool | None = None
        self._suspect = False
        self._renewed = -RENEW_SECONDS
        self._beside: int | None = None
        try:
            self._connection = self._connect("rwc" if create else "rw")
        except sqlite3.Error as problem:
            raise unavailable(problem) from problem

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {AUTO_CHECKPOINT_PAGES}")
        self._flush = None
        return connection

    def _usable(self) -> sqlite3.Connection:
        """The connection; a new one, over a file that was checked and flushed, when the old one met a fault."""
        if not self._suspect or self._connection.in_transaction:
            return self._connection
        if time.monotonic() - self._renewed < RENEW_SECONDS:
            raise StorageError("the store cannot be used right now: the disk has failed")
        self._renewed = time.monotonic()
        with suppress(sqlite3.Error):
            self._connection.close()
        try:
            self._connection = self._connect()
            if self._busy_seconds > 0:  # one that never waits acknowledges nothing; it leaves the check to the others
                self._flush_again()
        except sqlite3.Error as problem:
            raise unavailable(problem) from problem
        self._suspect = False
        return self._connection

    def _flush_again(self) -> None:
        """Write everything that the write-ahead log holds into the file and flush it."""
        (answer,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise StorageError(f"the store is damaged: {answer[:200]}; restore a backup")
        self._connection.execute("PRAGMA synchronous = FULL")
        (busy, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise BusyError("the store cannot be used right now: it is busy after a fault of the disk")

    def _unavailable(self, problem: sqlite3.Error) -> StorageError:
        # The low byte of the code is the kind; the rest says more.
        self._suspect |= getattr(problem, "sqlite_errorcode", 0) & 0xFF in _FAULTS
        return unavailable(problem)

    def answer(self, sql: str, values: Sequence[Any] = ()) -> tuple[list[str], list[Row]]:
        try:
            cursor = self._usable().execute(sql, values)
            return [column[0] for column in cursor.description or ()], cursor.fetchall()
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            self._usable().executemany(sql, rows)
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def _begin(self, flush: bool) -> None:
        self._usable()
        if flush is not self._flush:
            self.all(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
            self._flush = flush
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise BusyError("the store cannot be used right now: it is busy") from problem
            raise self._unavailable(problem) from problem

    def _commit(self) -> None:
        self.all("COMMIT")
        if self._flush:
            self._prove()

    def _prove(self) -> None:
        """Raise when the file system has failed, which its flush may have kept to itself."""
        try:
            if self._beside is None:
                self._beside = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(self._beside, (os.fstat(self._beside).st_size + 1) % 4096)
        except OSError as problem:
            self._suspect = True
            raise unavailable(problem) from problem

    @property
    def _lock_file(self) -> str:
        return f"{self.path}.learner"

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # after some faults SQLite has rolled back by itself
                self._connection.execute("ROLLBACK")

    def try_lead(self) -> bool:
        """Take the lock beside the file; the system frees it when the process dies, however it dies."""
        if self._lead is not None:
            return True
        try:
            handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise unavailable(problem) from problem
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._lead = handle
        return True

    def leads(self) -> bool:
        return self._lead is not None

    def has_table(self, name: str) -> bool:
        return bool(self.all("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def tend(self) -> None:
        """Fold the write-ahead log back into the file; block writers for it only when it has grown large."""
        with self.reading():
            self.all("PRAGMA wal_checkpoint(PASSIVE)")
            wal = Path(f"{self.path}-wal")
            if wal.exists() and wal.stat().st_size > MAX_WAL_BYTES:
                self.all("PRAGMA wal_checkpoint(TRUNCATE)")

    def check(self) -> list[str]:
        """SQLite's own check of every page and index."""
        with self.reading():
            lines = [str(row[0]) for row in self.all("PRAGMA integrity_check")]
            lines += [f"broken reference: {row}" for row in self.all("PRAGMA foreign_key_check")]
        return [line for line in lines if line != "ok"]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self.reading():
            self.all("BEGIN")
            try:
                yield
            finally:
                self._rollback()

    def batches(self, sql: str, size: int) -> Iterator[list[Row]]:
        cursor = self._connection.execute(sql)
        while rows := cursor.fetchmany(size):
            yield rows

    def restart_serial(self, table: str) -> None:
        """Nothing: SQLite numbers new rows from above the highest by itself."""

    def vacuum(self) -> None:
        """Give freed pages back to the file system."""
        with self.reading():
            self.all("VACUUM")
            self.all("PRAGMA wal_checkpoint(TRUNCATE)")

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """A consistent copy of the whole file while others read and write."""
        target = sqlite3.connect(path)
        try:
            with self.reading():
                self._connection.backup(target)
        except sqlite3.Error as problem:
            raise unavailable(problem) from problem
        finally:
            target.close()

    def close(self) -> None:
        """Close the connection and free the learner's lock."""
        with self._turn:
            self._connection.close()
            for handle in (self._lead, self._beside):
                if handle is not None:
                    os.close(handle)
            self._lead = self._beside = None
