"""Others read a store's log through one door: what was learned from, in order, of a schema that is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scene import FEATURES, Scene

import pairrank
from pairrank import export, rankers, store_log
from pairrank.cli import main
from pairrank.errors import NewerFormatError, OptionError, StorageError
from pairrank.service.store import SqlStore, open_store
from pairrank.service.store.schema import VERSION
from pairrank.types import Impression

pq = pytest.importorskip("pyarrow.parquet")


def test_the_reader_knows_todays_schema() -> None:
    """Whoever adds a migration looks at what `store_log` reads, and raises its number."""
    assert VERSION <= store_log.SCHEMA


def test_what_was_answered_in_order(store: SqlStore, store_url: str) -> None:
    scene, other = Scene(store), Scene(store, "b")
    served = scene.serve(6)
    scene.feedback(served[:3], 1)  # one list never gets an answer, one only when the ranker is frozen
    other.feedback(other.serve(1))
    store.set_frozen("a", True, scene.now, "test")
    scene.feedback(served[3:4])
    store.set_frozen("a", False, scene.now, "test")
    scene.feedback(served[4:5], None)
    with pytest.raises(OptionError, match="a, b: say which one by ranker, or --store-ranker NAME"):
        next(store_log.entries(store_url))
    with pytest.raises(OptionError, match="no ranker 'c'"):
        next(store_log.entries(store_url, "c"))
    found = list(store_log.entries(store_url, "a"))
    assert [entry.number for entry in found] == [served[place].number for place in (0, 1, 2, 4)]
    assert [entry.clicks for entry in found] == [bytes([0, 1, 0])] * 3 + [bytes(3)]
    for entry in found:
        rows = [int(document[1:]) for document in entry.documents]
        np.testing.assert_array_equal(entry.impression().features, FEATURES[rows])
        assert (entry.ranker, entry.query_id, entry.served) == ("a", f"q{entry.number}", scene.now)


@pytest.mark.postgres
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)  # a file has no password
def test_no_message_tells_a_password(store: SqlStore, store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    Scene(store), Scene(store, "b")
    scheme, _, rest = store_url.partition("://")
    user, _, where = rest.rpartition("@")
    secret = f"{scheme}://{user or 'pairrank'}:hush@{where}"
    nowhere = "postgresql://shop:hush@127.0.0.1:1/none"
    for words in (
        ["export", secret, "--format", "json"],
        ["fit", secret, "--out", "m"],
        ["fit", nowhere, "--out", "m"],
    ):
        assert main(words) != 0
        told = capsys.readouterr().err
        assert "hush" not in told, told
    assert store_log.place("sqlite:///a@b.db") == "sqlite:///a@b.db"


@pytest.mark.parametrize("address", ["hu%zzsh@h", "hush@[::1", "a@hush@127.0.0.1:1", "hu/sh@127.0.0.1:1@h"])
def test_addresses_that_cannot_be_read_are_not_repeated(address: str) -> None:
    pytest.importorskip("psycopg")
    for opened in (open_store, lambda text: next(store_log.entries(text))):
        with pytest.raises(OptionError, match="%25 for %") as caught:
            opened(f"postgresql://shop:{address}/none")
        assert "hu" not in str(caught.value)


def test_entries_set_aside_are_left_out(store: SqlStore, store_url: str) -> None:
    scene = Scene(store)
    scene.feedback(scene.serve(3))
    with store.database.transaction():
        store.database.all("INSERT INTO set_aside (ranker_id, seq, reason) VALUES (?, 2, 'bad')", (scene.row.id,))
    assert [entry.seq for entry in store_log.entries(store_url)] == [1, 3]


def test_a_newer_schema_is_refused(store: SqlStore, store_url: str) -> None:
    with store.database.transaction():
        store.database.all("UPDATE meta SET value = 99 WHERE name = 'schema'")
    with pytest.raises(NewerFormatError, match="schema has version 99"):
        next(store_log.entries(store_url))


def test_no_store(tmp_path: Path) -> None:
    for address in (
        str(tmp_path / "none.db"),
        f"sqlite:///{tmp_path}/none.db",
        f"sqlite:///{tmp_path}",
        "mysql://x",
        "postgresql://127.0.0.1:1/x",
    ):
        with pytest.raises(StorageError):
            next(store_log.entries(address))
    (tmp_path / "damaged.db").write_bytes(b"SQLite format 3\0" + b"x" * 4096)
    with pytest.raises(StorageError, match=r"damaged.db cannot be read \(.*in a folder that can be written\)"):
        next(store_log.entries(tmp_path / "damaged.db"))


def test_fit_from_a_store(store: SqlStore, store_url: str, tmp_path: Path) -> None:
    scene = Scene(store)
    items = scene.serve(40)
    shown = Impression.from_bytes(items[0].body)
    page = shown.with_features(shown.features, above=np.array(3)).to_bytes()  # as a later page has it
    store.database.all("UPDATE impressions SET body = ? WHERE number = ?", (page, items[0].number))
    scene.feedback(items, 2)
    out, keep = tmp_path / "model", tmp_path / "log.parquet"
    assert main(["fit", store_url, "--out", str(out), "--keep", str(keep)]) == 0
    assert pairrank.load(out).n_features == 2
    rows = pq.read_table(keep).to_pylist()
    assert sorted(row["above"] for row in rows) == [0] * 39 + [3]
    for row in rows:
        assert row["clicks"] == [0, 0, 1]
        np.testing.assert_array_equal(row["features"], FEATURES[[int(document[1:]) for document in row["documents"]]])


def test_of_a_pinned_ranker_the_pinned_version_is_exported(store: SqlStore, store_url: str) -> None:
    scene = Scene(store)
    scene.feedback(scene.serve(20), 2)
    scene.learn()
    pinned = export.load(store_url)
    store.pin("a", scene.row.version, scene.now, "test")
    scene.feedback(scene.serve(20), 1)
    scene.learn()
    assert export.load(store_url) == pinned
    store.pin("a", None, scene.now, "test")
    assert export.load(store_url) != pinned


def test_export_from_a_store(store: SqlStore, store_url: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    scene = Scene(store, "shop")
    named = replace(scene.row.config, feature_names=("title", "age"))
    with store.database.transaction():
        store.database.all("UPDATE rankers SET config = ?", (named.to_json(),))
    scene.feedback(scene.serve(40), 2)
    scene.learn()
    assert main(["export", store_url, "--format", "json"]) == 0
    model = export.loads(capsysbinary.readouterr().out)
    assert (model.name, model.feature_names) == ("shop", ("title", "age"))
    snapshot = store.snapshot(scene.row.id, scene.row.version)
    assert snapshot is not None
    assert model.weights.tolist() == rankers.from_bytes(snapshot.body).weights.tolist()  # type: ignore[attr-defined]
    assert np.any(model.weights)
    Scene(store, "other")
    assert main(["export", store_url, "--format", "json"]) == 2
    assert b"other, shop: say which one by ranker, or --ranker NAME" in capsysbinary.readouterr().err
    assert main(["export", store_url, "--format", "json", "--ranker", "other"]) == 0
