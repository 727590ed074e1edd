"""One connection to a database, as little of it as the tables need; SQLite and PostgreSQL each write it once."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from pairrank.errors import NewerFormatError, StorageError
from pairrank.service.store.schema import MIGRATIONS, VERSION

Row = tuple[Any, ...]


class BusyError(StorageError):
    """Somebody else is writing just now."""


class AwayError(StorageError):
    """The database server cannot be connected to."""


class Database(ABC):
    """A connection that one thread at a time may use. SQL has ``?`` for values.

    Everything raised for reasons outside this program (a full disk, a server gone) is a `StorageError`.
    """

    words: ClassVar[Mapping[str, str]]
    MOST_BYTES: ClassVar[int]  # of one value, with room for what a model grows by while it learns
    BEGIN_SNAPSHOT: ClassVar[str] = "BEGIN"
    BE_PATIENT: ClassVar[str] = "SELECT 1"  # in a transaction that may take its time between statements

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self.connected = 0  # how often: the next time it may be another store, as a backup in the place of the old one

    @property
    @abstractmethod
    def library(self) -> str:
        """Which database this is, of which version, and what is known to be wrong with it."""

    @abstractmethod
    def _answer(self, sql: str, values: Sequence[Any]) -> tuple[list[str], list[Row]]:
        """The names of the columns and the rows that a statement answers; nothing where it answers nothing."""

    @abstractmethod
    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """One statement for many rows of values."""

    @abstractmethod
    def _begin(self, flush: bool) -> None:
        """Start a transaction. ``flush`` False: visible to all on commit, but a power cut may undo it."""

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _rollback(self) -> None:
        """Undo the transaction; never raises."""

    @abstractmethod
    def hold(self, things: Collection[int]) -> set[int]:
        """Those of ``things`` that are this learner's from now on: nobody else has them until the next call, `close`,
        or the death of the process or the connection, after which nothing is written through it."""

    @abstractmethod
    def has_table(self, name: str) -> bool:
        """Whether there is a table of this name."""

    @abstractmethod
    def tend(self) -> None:
        """What the database needs done now and then by somebody in no hurry."""

    @abstractmethod
    def check(self) -> list[str]:
        """The database's own view of its health: one line for each fault."""

    def check_writable(self) -> None:
        """Raise where it is known that nothing can be written."""
        return

    @abstractmethod
    def batches(self, sql: str, size: int) -> Iterator[list[Row]]:
        """The rows of a statement, some at a time."""

    @abstractmethod
    def restart_serial(self, table: str) -> None:
        """After rows were copied in: number new rows from above the highest."""

    @abstractmethod
    def vacuum(self) -> None:
        """Give back the space of rows that were dropped."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    def answer(self, sql: str, values: Sequence[Any] = ()) -> tuple[list[str], list[Row]]:
        """As `_answer`, in this thread's turn."""
        with self._turn:
            return self._answer(sql, values)

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.answer(sql, values)[1]

    def named(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows that a statement answers, each by the names of its columns."""
        names, rows = self.answer(sql, values)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def columns(self, table: str) -> list[str]:
        return self.answer(f"SELECT * FROM {table} LIMIT 0")[0]

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        rows = self.all(sql, values)
        return rows[0] if rows else None

    def insert(self, table: str, values: Mapping[str, Any], then: str = "") -> list[Row]:
        """Add one row, by the names of its columns; ``then`` is what follows the values in SQL."""
        names = ", ".join(values)
        return self.all(f"INSERT INTO {table} ({names}) VALUES {marks(values)} {then}", tuple(values.values()))

    @contextmanager
    def transaction(self, *, flush: bool = True) -> Iterator[None]:
        """All or nothing. With ``flush``, on disk when the block has ended."""
        with self._turn:
            self._begin(flush)
            try:
                yield
                self._commit()
            except BaseException:
                self._rollback()
                raise

    def reading(self) -> AbstractContextManager[object]:
        """Keep other threads of this process off the connection for several statements."""
        return self._turn

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Inside, everything read is of one moment."""
        with self._turn:
            self.all(self.BEGIN_SNAPSHOT)
            try:
                yield
            finally:
                self._rollback()

    def migrate(self) -> int:
        """Bring the tables to this program's version, and say which they had; newer ones are refused and left alone."""
        before = self.schema()
        if before == VERSION:
            return before
        with self.transaction():
            self.all("CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL)")
            found = self.schema()
            for script in MIGRATIONS[found:]:
                self.script(script)
            if found < VERSION:
                self.all(
                    "INSERT INTO meta (name, value) VALUES ('schema', ?) "
                    "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    (VERSION,),
                )
                self.all("INSERT INTO meta (name, value) VALUES ('epoch', 1) ON CONFLICT (name) DO NOTHING")
        return before

    def schema(self) -> int:
        """The version of the tables, 0 when there are none; a newer one than this program's is refused."""
        if not self.has_table("meta"):
            return 0
        row = self.one("SELECT value FROM meta WHERE name = 'schema'")
        found = int(row[0]) if row else 0
        NewerFormatError.check("the store's schema", found, VERSION)
        return found

    def script(self, text: str) -> None:
        """Several statements without values, in this database's words."""
        for word, own in self.words.items():
            text = text.replace(word, own)
        for statement in text.split(";"):
            if statement.strip():
                self.all(statement)

    def bump(self) -> None:
        """Tell every worker that rankers, limits or keys have changed."""
        self.all("UPDATE meta SET value = value + 1 WHERE name = 'epoch'")


def marks(values: Collection[object]) -> str:
    """A place in SQL for each of ``values``, in brackets; NULL where there are none, which nothing equals."""
    return f"({', '.join('?' * len(values)) or 'NULL'})"


def unavailable(problem: Exception, kind: type[StorageError] = StorageError) -> StorageError:
    """The `StorageError` for what a database driver raised."""
    text = " ".join(str(problem).partition("\nLINE ")[0].split()) or type(problem).__name__  # without the statement
    return kind(f"the store cannot be used right now: {text[:200]}")
