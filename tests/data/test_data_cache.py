"""The cache: hits, damage, half-written entries, two processes at once, and a folder that cannot be written."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pairrank.data import cache

ARRAYS = {"big": np.arange(2_000_000, dtype=np.float32).reshape(-1, 4), "ids": np.array(["a", "bé"])}


def entry(folder: Path, name: str) -> Path:
    return folder / "entries" / name


def test_what_is_put_is_got_mapped_and_read_only() -> None:
    assert cache.get("one") is None
    assert cache.put("one", {"x": 1}, ARRAYS)
    found = cache.get("one")
    assert found is not None
    values, arrays = found
    assert values == {"x": 1}
    for name, array in ARRAYS.items():
        assert np.array_equal(arrays[name], array)
        assert type(arrays[name]) is np.ndarray
        assert not arrays[name].flags.writeable
    assert isinstance(arrays["big"].base, np.memmap)


def test_what_is_written_does_not_depend_on_the_encoding_of_the_system(tmp_path: Path) -> None:
    program = """
from pathlib import Path
from pairrank.data import cache
for _ in range(2):
    cache.fingerprint(Path(cache.__file__))
assert cache.put("one", {"x": "é"}, {}) and cache.get("one") == ({"x": "é"}, {})
"""
    strict = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    environment = {**os.environ, "PAIRRANK_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, *strict, "-c", program], check=True, env=environment)


def test_keys_depend_on_every_part() -> None:
    keys = {cache.key(a=1, b=2), cache.key(a=1, b=3), cache.key(a=1), cache.key(a=1, b="2")}
    assert len(keys) == 4
    assert cache.key(a=1, b=2) == cache.key(b=2, a=1)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["big.npy", "ids.npy", "manifest.json"])
@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_damaged_entry_is_thrown_away_and_made_again(cache_folder: Path, file: str, damage: object) -> None:
    cache.put("one", {}, ARRAYS)
    damage(entry(cache_folder, "one") / file)  # type: ignore[operator]
    assert cache.get("one") is None
    assert not entry(cache_folder, "one").exists()
    assert cache.put("one", {}, ARRAYS)
    assert cache.get("one") is not None


def test_nothing_half_written_is_taken_for_an_entry(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def power_cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", power_cut)
    with pytest.raises(KeyboardInterrupt):
        cache.put("one", {}, ARRAYS)
    monkeypatch.undo()
    monkeypatch.setenv("PAIRRANK_CACHE", str(cache_folder))
    assert list((cache_folder / "entries").iterdir()) == []
    assert cache.get("one") is None
    assert cache.put("one", {}, ARRAYS)


def test_what_a_killed_process_left_is_swept_away_in_time(cache_folder: Path) -> None:
    old, new = (cache_folder / "entries" / f".{age}.part" for age in ("old", "new"))
    for partial in (old, new):
        partial.mkdir(parents=True)
    os.utime(old, (0, 0))
    cache.put("one", {}, ARRAYS)
    assert (old.exists(), new.exists()) == (False, True)


def _put_many(folder: str, start: object, n: int) -> None:
    os.environ["PAIRRANK_CACHE"] = folder
    start.wait()  # type: ignore[attr-defined]
    for number in range(n):
        assert cache.put(f"entry{number}", {"number": number}, {"a": np.full(1000, number)})
        found = cache.get(f"entry{number}")
        assert found is not None
        assert (found[1]["a"] == number).all()


def test_processes_at_once_agree(cache_folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    workers = [context.Process(target=_put_many, args=(str(cache_folder), start, 40)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(list((cache_folder / "entries").iterdir())) == 40  # and no partial ones left


def test_a_folder_that_cannot_be_written_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PAIRRANK_CACHE", str(tmp_path / "file" / "cache"))  # nobody, not even root, can make this
    source = tmp_path / "source.txt"
    source.write_text("text")
    with caplog.at_level(logging.WARNING):
        assert not cache.put("one", {}, ARRAYS)
        assert not cache.put("two", {}, ARRAYS)
        cache.fingerprint(source)
    assert cache.get("one") is None
    assert len(caplog.records) == 1
    assert "cannot be written" in caplog.text
    assert "set PAIRRANK_CACHE" in caplog.text


def test_fingerprints_are_remembered_until_the_file_changes(
    tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source.txt"
    source.write_text("first")
    first = cache.fingerprint(source)
    (note,) = (cache_folder / "files").iterdir()
    note.write_text(json.dumps({"sha256": "remembered"}))
    assert cache.fingerprint(source) == "remembered"
    note.write_text("damaged")
    assert cache.fingerprint(source) == first
    source.write_text("other")  # of the same length
    os.utime(source, ns=(1, 1))
    assert cache.fingerprint(source) != first


def test_the_default_folder_is_under_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PAIRRANK_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "pairrank"


def test_a_user_without_a_home_does_without_the_cache(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("PAIRRANK_CACHE")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)  # as `docker run --user` gives: a number without a name
    assert cache.get("one") is None
    assert not cache.put("one", {}, ARRAYS)
    assert "set PAIRRANK_CACHE" in caplog.text
