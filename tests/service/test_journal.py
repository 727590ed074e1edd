"""The write-ahead log cut at every byte of its last record: the state before it or after it, never between."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from scene import Scene

from pairrank.service.learning.replay import replay
from pairrank.service.learning.verify import verify
from pairrank.service.store import open_store


def state(path: Path) -> tuple[object, ...]:
    """All that clients could have been told."""
    database = sqlite3.connect(path)
    try:
        database.execute("PRAGMA synchronous = OFF")  # this looks only; there is nothing to protect
        return (
            database.execute("SELECT log_seq, feedback_count FROM rankers").fetchall(),
            database.execute("SELECT seq, number, clicks, length(body) FROM log ORDER BY seq").fetchall(),
            database.execute("SELECT number FROM impressions ORDER BY number").fetchall(),
        )
    finally:
        database.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: thousands of copies are made."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as name:
        yield Path(name)


def test_a_cut_anywhere_in_the_last_record(folder: Path) -> None:
    path = folder / "store.db"
    small = sqlite3.connect(path)
    small.execute("PRAGMA page_size = 1024")  # as many frames in fewer bytes
    small.execute("VACUUM")
    small.close()
    store = open_store(path)
    scene = Scene(store)
    items = scene.serve(4)
    scene.feedback(items[:2])
    scene.learn()
    wal = Path(f"{path}-wal")
    store.database.all("PRAGMA wal_checkpoint(TRUNCATE)")
    scene.feedback(items[2:3])
    start = wal.stat().st_size
    before = folder / "before"
    before.mkdir()
    for name in ("store.db", "store.db-wal"):
        shutil.copy(folder / name, before / name)
    scene.feedback(items[3:], 1)
    whole, database = wal.read_bytes(), path.read_bytes()
    assert len(whole) > start > 0
    store.close()
    cut = folder / "cut"
    old = state(before / "store.db")
    states = []
    for end in range(start, len(whole) + 1):
        cut.mkdir()
        (cut / "store.db").write_bytes(database)
        (cut / "store.db-wal").write_bytes(whole[:end])
        states.append(state(cut / "store.db"))
        shutil.rmtree(cut)
    new = states[-1]
    assert new != old
    first_new = states.index(new)
    assert states[:first_new] == [old] * first_new
    assert states[first_new:] == [new] * (len(states) - first_new)
    # The last frame holds the commit: without all of it nothing of the record counts.
    assert first_new == len(states) - 1


def test_a_cut_store_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = open_store(path)
    scene = Scene(store)
    items = scene.serve(3)
    scene.feedback(items[:1])
    scene.feedback(items[1:2])
    wal = Path(f"{path}-wal").read_bytes()
    database = path.read_bytes()
    store.close()
    folder = tmp_path / "cut"
    folder.mkdir()
    (folder / "store.db").write_bytes(database)
    (folder / "store.db-wal").write_bytes(wal[:-1])
    after = open_store(folder / "store.db")
    scene.store = after
    assert scene.row.log_seq == 1
    assert [v.status.value for v in scene.feedback(items)] == ["duplicate", "accepted", "accepted"]
    scene.learn()
    assert replay(after, scene.row).same
    assert verify(after) == []
    after.close()
