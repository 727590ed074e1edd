"""Text files, plain or compressed (.gz, .bz2, .zst), as blocks of whole lines."""

from __future__ import annotations

import bz2
import gzip
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pairrank.checking import import_extra

SUFFIXES = ("", ".gz", ".bz2", ".zst")
# Bytes of text at a time: enough to make the cost of starting an array operation small, not so much as to fill memory.
BLOCK = 2**19


def _zstandard(file: Any, mode: str = "rb") -> Any:
    arrow = import_extra("pyarrow", "lab")
    if mode == "rb":
        return arrow.CompressedInputStream(file, "zstd")
    return arrow.CompressedOutputStream(open(file, mode), "zstd")


_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".zst": _zstandard}


class DamageError(Exception):
    """Compressed data that end too early or make no sense."""


def lines(path: Path, progress: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """Blocks of whole lines; a last line without a newline gets one, and a mark of byte order is passed over.

    ``progress`` is called with the number of bytes of the file read so far. Raises `OSError` or `DamageError`.
    """
    rest, mark = b"", BOM_UTF8
    with open(path, "rb") as file:
        for block in _decompressed(file, path.suffix.lower()):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield (rest + block[:cut]).removeprefix(mark)
                rest, mark = block[cut:], b""
            else:
                rest += block
            if progress is not None:
                progress(file.tell())
    if rest:
        yield rest.removeprefix(mark) + b"\n"


def _decompressed(file: BinaryIO, suffix: str) -> Iterator[bytes]:
    """The content of ``file`` in blocks."""
    content = _OPENERS[suffix](file) if suffix in _OPENERS else file
    try:
        while block := content.read(BLOCK):
            yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise DamageError(problem) from None
    except OSError as problem:
        if problem.errno is None:  # what bz2 and Arrow say of bytes that are not their own, and Arrow of too few
            raise DamageError(problem) from None
        raise


def writer(path: Path) -> BinaryIO:
    """A file to write bytes to, compressed as the ending of its name says."""
    opened: BinaryIO = _OPENERS.get(path.suffix.lower(), open)(path, "wb")
    return opened
