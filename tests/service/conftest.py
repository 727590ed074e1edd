"""Stores for the service's tests: SQLite files, and a private PostgreSQL where its binaries are installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster import Postgres, postgres_bin, running

from pairrank.service.store import SqlStore, open_store


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    binaries = postgres_bin()
    if binaries is None or not (binaries / "initdb").exists():
        pytest.skip("no PostgreSQL server binaries: install the package postgresql")
    pytest.importorskip("psycopg")
    with running(binaries) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store, of each kind. Beside a test that fails stands what PostgreSQL said meanwhile."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    with open(server.folder / "server.log", errors="replace") as log:
        log.seek(0, os.SEEK_END)
        yield server.new_database()
        sys.stderr.write(log.read()[-4000:])


@pytest.fixture
def open_another(store_url: str) -> Iterator[Callable[[], SqlStore]]:
    """Opens connections to the store; they are closed at the end."""
    opened: list[SqlStore] = []

    def open_one() -> SqlStore:
        opened.append(open_store(store_url))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_another: Callable[[], SqlStore]) -> SqlStore:
    """An empty store, of each kind."""
    return open_another()
