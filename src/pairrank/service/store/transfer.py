"""Copy a whole store into an empty one: backup, restore, and moving from SQLite to PostgreSQL."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from pairrank.errors import StorageError
from pairrank.service.store import open_store, sqlite_path
from pairrank.service.store.database import marks
from pairrank.service.store.log import SqlStore
from pairrank.service.store.schema import TABLES
from pairrank.service.store.sqlite import SqliteDatabase

BATCH = 200


def backup(store: SqlStore, target: str | os.PathLike[str]) -> None:
    """A consistent copy of a store as one SQLite file, while the store is in use; the file is a store itself."""
    path = Path(target)
    if path.exists():
        raise StorageError(f"{path} exists; a backup never overwrites")
    partial = path.with_name(f".{path.name}.part")
    _remove(partial)
    try:
        if isinstance(store.database, SqliteDatabase):
            store.database.copy_to(partial)
        with closing(open_store(partial)) as copy:
            if not isinstance(store.database, SqliteDatabase):
                copy_rows(store, copy)
            copy.database.tend()
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        _remove(partial)


def restore(source: str, target: str) -> None:
    """Fill an empty store (a database without rankers, or a file that does not exist) from a backup."""
    path = sqlite_path(target)
    if path is not None and path.exists():
        raise StorageError(f"{path} exists; restore into a new file")
    try:
        with closing(open_store(source, create=False)) as origin, closing(open_store(target)) as copy:
            if copy.rankers() or copy.access_keys():
                raise StorageError("the store to restore into is not empty")
            copy_rows(origin, copy)
    except BaseException:
        if path is not None:  # an empty store is not what was asked for, and would be in the way of the next try
            _remove(path)
        raise


def _remove(path: Path) -> None:
    """Delete a store's file, if it is there, and what lies beside it."""
    for suffix in ("", "-wal", "-shm", ".learner"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def copy_rows(source: SqlStore, target: SqlStore) -> None:
    """All rows of all tables, read at one moment and written in one transaction."""
    with source.database.snapshot(), target.database.transaction():
        target.database.all(target.database.BE_PATIENT)
        for table in TABLES:
            columns = source.database.columns(table)
            insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {marks(columns)}"
            for rows in source.database.batches(f"SELECT {', '.join(columns)} FROM {table}", BATCH):
                target.database.many(insert, rows)
        for table in ("rankers", "audit", "experiments"):
            target.database.restart_serial(table)
        target.database.bump()
