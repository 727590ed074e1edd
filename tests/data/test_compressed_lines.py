"""Blocks of whole lines out of plain, compressed, cut-off and foreign files."""

from __future__ import annotations

import bz2
import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pairrank.data import compressed_lines, letor
from pairrank.errors import DataError, MissingExtraError

TEXT = "".join(f"0 qid:{n // 7} 1:{n * 0.37:.4f} 2:{n % 13}\n" for n in range(5000)).encode()
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda text: bytes(pa.compress(text, "zstd", asbytes=True)),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_lines, "BLOCK", 4096)


def whole(path: Path) -> bytes:
    blocks = list(compressed_lines.lines(path))
    assert all(block.endswith(b"\n") for block in blocks)
    return b"".join(blocks)


@pytest.mark.parametrize("suffix", [*COMPRESS, *map(str.upper, COMPRESS)])
def test_compressed_text_comes_out_whole_even_in_several_members(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    half = len(TEXT) // 2
    compress = COMPRESS[suffix.lower()]
    path.write_bytes(compress(TEXT[:half]) + compress(TEXT[half:]))
    assert whole(path) == TEXT
    with compressed_lines.writer(path) as file:
        file.write(TEXT)
    assert path.stat().st_size < len(TEXT) / 2
    assert whole(path) == TEXT


def test_a_last_line_without_a_newline_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT[:-1])
    assert whole(path) == TEXT


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_cut_off_file_is_an_error_with_its_name_and_line(tmp_path: Path, suffix: str, kept: float) -> None:
    path = tmp_path / f"a.txt{suffix}"
    content = COMPRESS[suffix](TEXT)
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(DataError, match=r"line \d+: the compressed data is cut off or damaged") as caught:
        letor.parse(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_that_is_not_what_its_name_says_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(TEXT)
    with pytest.raises(DataError, match="line 1: the compressed data is cut off or damaged"):
        letor.parse(path)


def test_a_folder_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 1: cannot be read: Is a directory"):
        letor.parse(tmp_path)


def test_without_pyarrow_the_line_that_installs_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(COMPRESS[".zst"](TEXT))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pairrank\[lab\]'"):
        whole(path)
    with pytest.raises(MissingExtraError):
        compressed_lines.writer(path)
