"""Where everything that must not be lost lies: SQLite in one file, or PostgreSQL by URL."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pairrank.errors import MissingExtraError, OptionError, StorageError
from pairrank.service.store.log import SqlStore
from pairrank.service.store.schema import OLD_MODELS
from pairrank.service.store.sqlite import SqliteDatabase
from pairrank.store_log import check_postgres, place

__all__ = ["SqlStore", "open_impatient", "open_store", "sqlite_path"]


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite store (``sqlite:///FILE``, or a plain path), or None for another kind of store."""
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///"))
    return None if "://" in url else Path(url)


def open_impatient(url: str | os.PathLike[str]) -> SqlStore | None:
    """A connection that raises `BusyError` instead of waiting for another writer; None where there is no such thing."""
    path = sqlite_path(os.fspath(url))
    return None if path is None else SqlStore(SqliteDatabase(path, create=False, busy_seconds=0.0))


def open_store(url: str | os.PathLike[str], *, create: bool = True) -> SqlStore:
    """A store by its address; its tables are brought up to date, and made if ``create``. One instance is one
    connection."""
    text = os.fspath(url)
    path = sqlite_path(text)
    if path is not None:
        if not create and not path.exists():
            raise StorageError(f"there is no store at {path}")
        store = SqlStore(SqliteDatabase(path, create=create))
    elif text.startswith(("postgresql://", "postgres://")):
        try:
            from pairrank.service.store.postgres import PostgresDatabase
        except ModuleNotFoundError:
            raise MissingExtraError("psycopg", "postgres") from None
        check_postgres(text)
        store = SqlStore(PostgresDatabase(text))
    else:
        raise OptionError(f"the store is {place(text)!r}; expected sqlite:///FILE, a path, or postgresql://…")
    try:
        if not create and not store.database.has_table("meta"):  # an empty file, or somebody else's database
            raise StorageError(f"there is no store at {place(text) if path is None else path}")
        if store.database.migrate() in OLD_MODELS:
            store.upgrade_models(time.time())
    except BaseException:
        store.close()
        raise
    return store
