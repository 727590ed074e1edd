"""SQLite in one file: write-ahead log, every acknowledged commit flushed, one writer at a time.

After a flush that failed the system no longer writes what waited for it, although everybody still reads it. Commits
that were made without a flush would then be missing in the middle of the write-ahead log, and after a power cut all
that follows them, too. So a connection that met a fault of the disk is thrown away, and the next one checks the file,
writes the log once more and folds all of it back, with flushes of its own, before anything is acknowledged again. It
may read before that: a disk that is full is no reason to hide what is on it.

A flush can also succeed without having been one: ext4 answers so for a transaction of its journal that has just failed
in somebody else's name. A change that needs the journal, made after the flush, then fails, and the commit with it.

SQLite itself can lose pages when a commit starts the write-ahead log anew while a checkpoint runs (`has_reset_fault`).
So nothing is checkpointed by the way (``wal_autocheckpoint`` is 0), and the one place that folds the log back holds the
write lock meanwhile, which every writer of every process must have: no commit, so no new start, can fall between.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar

from pairrank.errors import StorageError
from pairrank.service.store.database import BusyError, Database, Row, unavailable
from pairrank.store_log import sqlite_uri

BUSY_SECONDS = 10.0
# The learner folds the write-ahead log back. From this size on nobody may write meanwhile, so that it can end; where
# there is no learner, a writer does it. The file is cut to this size when the log starts anew.
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


def has_reset_fault(version: tuple[int, ...]) -> bool:
    """Whether SQLite of this version has the WAL-reset bug (sqlite.org/wal.html#walresetbug): all from 3.7.0 to 3.51.2
    but two later releases of older lines."""
    return version < (3, 51, 3) and not (3, 50, 7) <= version < (3, 51) and not (3, 44, 6) <= version < (3, 45)


RESET_FAULT = has_reset_fault(sqlite3.sqlite_version_info)


def sqlite_library() -> str:
    """The version of SQLite in use, and whether it has that bug."""
    fault = ", which has the WAL-reset bug: nobody writes while the write-ahead log is folded back"
    return f"SQLite {sqlite3.sqlite_version}{fault if RESET_FAULT else ''}"


def file_locks() -> Any:
    """The module fcntl: whoever learns on SQLite locks a file, and no system but those of the Unix kind has it."""
    try:
        import fcntl
    except ImportError:
        raise StorageError(
            "this system cannot run the service, which needs file locks (fcntl) as Linux and macOS have them; the "
            "library, the laboratory and `pairrank store` work here"
        ) from None
    return fcntl


class SqliteDatabase(Database):
    """A connection to one SQLite file."""

    words: ClassVar[Mapping[str, str]] = {"SERIAL_KEY": "INTEGER PRIMARY KEY AUTOINCREMENT", "BYTES": "BLOB"}
    MOST_BYTES: ClassVar[int] = 990_000_000  # a row has a billion

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = True, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        super().__init__()
        self.path = Path(path)
        self._busy_seconds = busy_seconds
        self._lead: int | None = None
        self._flush: bool | None = None
        self._suspect = False  # it met a fault; nothing is written until the file was checked and flushed
        self._reopened = False  # since the fault
        self._renewed = -RENEW_SECONDS
        self._file: tuple[int, int] | None = None  # which file the connection has open
        self._beside: int | None = None
        try:
            self._connection = self._connect("rwc" if create else "rw")
        except sqlite3.Error as problem:
            needed = "it must be an SQLite file, in a folder that can be written"
            raise StorageError(f"{self.path} cannot be opened as a store ({needed}): {problem}") from problem

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        connection = self._plain(mode)
        try:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            if ("meta",) in tables or (mode == "rwc" and not tables):  # what is no store stays as it is
                connection.execute("PRAGMA journal_mode = WAL")
            elif mode == "rwc":
                raise sqlite3.DatabaseError("it holds another program's tables")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA fullfsync = ON")  # else macOS flushes no further than into the drive's own cache
            connection.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")
        except sqlite3.Error:
            connection.close()
            raise
        self._flush, self._file = None, self._file_now()
        self.connected += 1
        return connection

    def _file_now(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _plain(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            sqlite_uri(self.path, mode),
            uri=True,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )

    @property
    def library(self) -> str:
        return sqlite_library()

    def _usable(self, *, writing: bool = False) -> sqlite3.Connection:
        """The connection; a new one when the old one met a fault, for ``writing`` over a file checked and flushed."""
        if self._connection.in_transaction:
            return self._connection
        if self._file_now() != self._file:  # deleted or replaced: what is written to the old one is lost
            self._distrust()
            if self._lead is not None:  # who learns must hear of it before all else: its models are of the old one
                os.close(self._lead)
                self._lead = None
                raise StorageError("the store cannot be used right now: its file was deleted or replaced")
        if not self._suspect or (self._reopened and not writing):
            return self._connection
        if time.monotonic() - self._renewed < RENEW_SECONDS:
            raise StorageError("the store cannot be used right now: the disk has failed")
        self._renewed = time.monotonic()
        try:
            old, self._connection = self._connection, self._connect()  # one that is closed could not be asked again
            old.close()
            self._reopened = True
            if writing and self._busy_seconds > 0:  # one that never waits acknowledges nothing; others check
                self._flush_again()
        except sqlite3.Error as problem:
            raise unavailable(problem) from problem
        self._suspect = not writing
        return self._connection

    def _distrust(self) -> None:
        self._suspect, self._reopened = True, False

    def _flush_again(self) -> None:
        """Write everything that the write-ahead log holds into the file, flush it, and start the log anew: what a flush
        left out of it would hide all that follows after a power cut."""
        (answer,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise StorageError(f"the store is damaged: {answer[:200]}; restore a backup")
        self._connection.execute("PRAGMA synchronous = FULL")
        start = self._wal_start()
        with self._no_writer():
            self._write_wal_again()
            whole = self._fold(alone=False)
        self._connection.execute("PRAGMA user_version = 0")  # a commit: it starts the log anew when nobody reads there
        if not whole or self._wal_start() == start:
            raise BusyError("the store cannot be used right now: it is busy after a fault of the disk")

    def _write_wal_again(self) -> None:
        """Write the write-ahead log over itself and flush it. What a failed flush left out counts as written, so a
        checkpoint would change the file while no log on the disk could mend a change that the power cut short."""
        try:
            with open(f"{self.path}-wal", "r+b", buffering=0) as file:
                place = 0
                while block := os.pread(file.fileno(), 2**20, place):
                    place += os.pwrite(file.fileno(), block, place)
                os.fsync(file.fileno())
        except FileNotFoundError:
            pass
        except OSError as problem:
            raise unavailable(problem) from problem

    def _fold(self, *, alone: bool = RESET_FAULT) -> bool:
        """Copy the write-ahead log into the file and flush that; whether all of it is there. The only checkpoint.

        ``alone``: with the write lock, held by another connection since a checkpoint may not have a transaction.
        """
        with self._no_writer() if alone else nullcontext():
            (busy, pages, copied) = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return not busy and pages == copied

    @contextmanager
    def _no_writer(self) -> Iterator[None]:
        with closing(self._plain("rw")) as guard:
            guard.execute("BEGIN IMMEDIATE")
            yield
            guard.execute("ROLLBACK")

    def _wal_start(self) -> bytes:
        """The write-ahead log's header, another one whenever the log starts anew."""
        try:
            with open(f"{self.path}-wal", "rb") as file:  # a file without locks, so closing it frees none of SQLite's
                return file.read(32)
        except OSError:
            return b""

    def _wal_bytes(self) -> int:
        try:
            return os.stat(f"{self.path}-wal").st_size
        except OSError:
            return 0

    def _unavailable(self, problem: sqlite3.Error) -> StorageError:
        # The low byte of the code is the kind; the rest says more.
        if getattr(problem, "sqlite_errorcode", 0) & 0xFF in _FAULTS:
            self._distrust()
        return unavailable(problem)

    def _answer(self, sql: str, values: Sequence[Any]) -> tuple[list[str], list[Row]]:
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
        self._usable(writing=True)
        if flush is not self._flush:
            self.all(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
            self._flush = flush
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as problem:
            if _is_busy(problem):
                raise BusyError("the store cannot be used right now: it is busy") from problem
            raise self._unavailable(problem) from problem

    def _commit(self) -> None:
        self.all("COMMIT")
        if self._flush:
            self._prove()
            if self._wal_bytes() > 2 * MAX_WAL_BYTES:  # nobody else does it
                self.tend()

    def _prove(self) -> None:
        """Raise when the file system has failed, which its flush may have kept to itself."""
        try:
            if self._beside is None:
                self._beside = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(self._beside, (os.fstat(self._beside).st_size + 1) % 4096)
        except OSError as problem:
            self._distrust()
            raise unavailable(problem) from problem

    @property
    def _lock_file(self) -> str:
        return f"{self.path}.learner"

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # after some faults SQLite has rolled back by itself
                self._connection.execute("ROLLBACK")

    def hold(self, things: Collection[int]) -> set[int]:
        """All or none: by the lock beside the file, which the system frees when the process dies, however it dies."""
        if self._lead is not None:
            return set(things)
        fcntl = file_locks()
        try:
            handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise unavailable(problem) from problem
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return set()
        self._lead = handle
        return set(things)

    def has_table(self, name: str) -> bool:
        return bool(self.all("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def tend(self) -> None:
        """Fold the write-ahead log back into the file."""
        try:
            with self.reading():
                self._usable(writing=True)
                self._fold(alone=RESET_FAULT or self._wal_bytes() > MAX_WAL_BYTES)
        except sqlite3.Error as problem:
            if not _is_busy(problem):  # else the next time will do
                raise self._unavailable(problem) from problem

    def check(self) -> list[str]:
        lines = [str(row[0]) for row in self.all("PRAGMA integrity_check")]
        lines += [f"broken reference: {row}" for row in self.all("PRAGMA foreign_key_check")]
        return [line for line in lines if line != "ok"]

    def batches(self, sql: str, size: int) -> Iterator[list[Row]]:
        try:
            cursor = self._connection.execute(sql)
            while rows := cursor.fetchmany(size):
                yield rows
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def restart_serial(self, table: str) -> None:
        """Nothing: SQLite numbers new rows from above the highest by itself."""

    def vacuum(self) -> None:
        self.all("VACUUM")
        self.tend()

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """A consistent copy of the whole file while others read and write."""
        try:
            with closing(sqlite3.connect(path)) as target, self.reading():
                self._connection.backup(target)
        except sqlite3.Error as problem:
            raise StorageError(f"cannot copy {self.path} to {path}: {problem}") from problem

    def close(self) -> None:
        with self._turn:
            self._connection.close()
            for handle in (self._lead, self._beside):
                if handle is not None:
                    os.close(handle)
            self._lead = self._beside = None


def _is_busy(problem: sqlite3.Error) -> bool:
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
