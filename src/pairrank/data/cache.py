"""Parsed data sets on disk, so that a file is read as text only once.

An entry is a folder of ``.npy`` files and a ``manifest.json`` written last. It is made under another name and renamed
when whole, so a reader never meets half of one, and of two processes that make the same entry the first wins. The
manifest has every file's size, the checksum of the small ones and of samples of the large: an entry that does not
match is thrown away and made again. Entries are keyed by the SHA-256 of the source's bytes and by every option; that
of a file is itself remembered under its path, size and time of change, so that opening takes milliseconds.

The folder is ``$PAIRRANK_CACHE``, else ``~/.cache/pairrank``. Where it cannot be written, everything works without it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from pairrank import archive
from pairrank.errors import StorageError
from pairrank.types import AnyArray

FORMAT = 1
_SMALL = 2**20  # files up to this size are checked whole
_SAMPLES, _SAMPLE = 32, 4096
_STALE = 24 * 3600.0

logger = logging.getLogger(__name__)


def folder() -> Path:
    try:
        return Path(os.environ.get("PAIRRANK_CACHE") or Path.home() / ".cache" / "pairrank")
    except RuntimeError:  # no home, as for a container's user without a name: a folder that cannot be written
        return Path(os.devnull, "pairrank")


def key(**parts: Any) -> str:
    """The name of the entry that is made from ``parts`` (JSON-able), which must be all that it depends on."""
    return hashlib.sha256(json.dumps({"format": FORMAT, **parts}, sort_keys=True).encode()).hexdigest()[:40]


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's bytes; read only once for the same path, size and time of change."""
    status = path.stat()
    stamp = [str(path.resolve()), status.st_size, status.st_mtime_ns]
    note = folder() / "files" / f"{key(file=stamp)}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(note.read_bytes())["sha256"])
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        archive.write_atomically(note, json.dumps({"sha256": digest, "file": stamp}).encode())
    except (OSError, StorageError) as problem:
        _complain(problem)
    return digest


def get(name: str) -> tuple[dict[str, Any], dict[str, AnyArray]] | None:
    """The values and memory-mapped, read-only arrays of an entry; None if there is no whole one."""
    entry = folder() / "entries" / name
    try:
        manifest = json.loads((entry / "manifest.json").read_bytes())
        arrays = {}
        for array, mark in manifest["arrays"].items():
            file = entry / f"{array}.npy"
            if _mark(file) != mark:
                raise ValueError(f"{file.name} does not match the manifest")
            # A plain view of the mapping: slices of numpy's memmap class cost microseconds each.
            arrays[array] = np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
        return manifest["values"], arrays
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        if entry.exists():
            logger.info("cache entry %s is damaged (%s) and is made again", entry, problem)
            shutil.rmtree(entry, ignore_errors=True)
        return None


def put(name: str, values: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> bool:
    """Write an entry; whether there is one now (another process's is as good). A failure is logged, not raised."""
    entries = folder() / "entries"
    partial = entries / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.part"
    try:
        partial.mkdir(parents=True)
        _sweep(entries)
        for array, content in arrays.items():
            with open(partial / f"{array}.npy", "xb") as file:
                np.save(file, content, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        marks = {array: _mark(partial / f"{array}.npy") for array in arrays}
        manifest = {"values": dict(values), "arrays": marks}
        archive.write_atomically(partial / "manifest.json", json.dumps(manifest).encode())
        os.rename(partial, entries / name)
    except (OSError, StorageError) as problem:
        if (entries / name / "manifest.json").exists():
            return True
        _complain(problem)
        return False
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # there is one only if the rename was not reached
    return True


def _sweep(entries: Path) -> None:
    """Remove what killed processes left behind a day ago or earlier."""
    for partial in entries.glob(".*.part"):
        with suppress(FileNotFoundError):  # another process has just finished its own
            if time.time() - partial.stat().st_mtime > _STALE:
                shutil.rmtree(partial, ignore_errors=True)


def _mark(file: Path) -> list[Any]:
    """Size and checksum of a file, the checksum over samples only where the file is large."""
    size = file.stat().st_size
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        if size <= _SMALL:
            digest.update(content.read())
        else:
            for place in np.linspace(0, size - _SAMPLE, _SAMPLES).astype(int).tolist():
                content.seek(place)
                digest.update(content.read(_SAMPLE))
    return [size, digest.hexdigest()]


_told: set[Path] = set()


def _complain(problem: OSError | StorageError) -> None:
    """Once per folder and process."""
    if folder() in _told:
        return
    _told.add(folder())
    logger.warning(
        "the cache folder %s cannot be written (%s): data is read anew each time; set PAIRRANK_CACHE to another folder",
        folder(),
        getattr(problem, "strerror", None) or problem,
    )
