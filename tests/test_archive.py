from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pairrank import archive
from pairrank.errors import FileFormatError, NewerFormatError, OptionError, StorageError

arrays = hnp.arrays(
    st.sampled_from(["f8", "f4", "i8", "i4", "i2", "u1", "u8", "?"]),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
)
values = st.dictionaries(
    st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.text(max_size=5), max_size=3
)


@given(values, st.dictionaries(st.text("abc.", min_size=1, max_size=4), arrays, max_size=3))
def test_round_trip(scalars: dict[str, object], contents: dict[str, np.ndarray]) -> None:
    blob = archive.pack("thing", scalars, contents)
    assert blob == archive.pack("thing", scalars, contents)
    out, back = archive.unpack(blob, "thing")
    assert out == scalars
    assert back.keys() == contents.keys()
    for name, array in contents.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


@given(values, st.dictionaries(st.text(max_size=4), arrays, max_size=3))
def test_the_header_is_json_in_its_one_canonical_form(
    scalars: dict[str, object], contents: dict[str, np.ndarray]
) -> None:
    blob = archive.pack('a "kind"', scalars, contents)
    text = blob[8 : 8 + int.from_bytes(blob[:8], "little")].decode()
    header = json.loads(text)
    assert text.rstrip() == json.dumps(header, sort_keys=True, separators=(",", ":"))
    assert header["__metadata__"]["pairrank"] == 'a "kind"'
    assert header["__metadata__"]["values"] == json.dumps(scalars, sort_keys=True)
    assert header.keys() == {"__metadata__", *contents}


def test_row_order_and_byte_order_do_not_matter() -> None:
    array = np.arange(6.0).reshape(2, 3)
    blob = archive.pack("thing", {}, {"a": array})
    assert blob == archive.pack("thing", {}, {"a": np.asfortranarray(array)})
    assert blob == archive.pack("thing", {}, {"a": array.astype(">f8")})


def test_any_buffer_is_read() -> None:
    blob = archive.pack("box", {"a": 1}, {"b": np.arange(3.0)})
    for buffer in (bytearray(blob), memoryview(blob)):
        values, arrays = archive.unpack(buffer, "box")  # type: ignore[arg-type]
        assert (values, arrays["b"].tolist()) == ({"a": 1}, [0.0, 1.0, 2.0])


def test_a_header_that_could_not_be_read_is_not_written() -> None:
    blob = archive.pack("thing", {"text": "x" * (archive.MAX_HEADER - 400)}, {})
    assert archive.unpack(archive.sealed(blob), "thing")[0].keys() == {"text"}
    for size in (archive.MAX_HEADER - 170, archive.MAX_HEADER):  # the first one is too long with its seal alone
        with pytest.raises(StorageError, match=r"take 16,777,\d{3} bytes; a file holds 16,777,216 at most"):
            archive.sealed(archive.pack("thing", {"text": "x" * size}, {}))


def test_every_truncation_and_every_flipped_byte_is_noticed() -> None:
    blob = archive.pack("thing", {"x": 1}, {"a": np.arange(4.0)})
    for cut in range(len(blob)):
        with pytest.raises(FileFormatError):
            archive.unpack(blob[:cut], "thing")
    for place in range(len(blob)):
        bad = bytearray(blob)
        bad[place] ^= 0x55
        try:
            out, back = archive.unpack(bytes(bad), "thing")
        except FileFormatError:
            continue
        # What still opens can differ only in the header's scalars; the arrays are under the checksum.
        assert place < len(blob) - 32
        assert set(back) != {"a"} or np.array_equal(back["a"], np.arange(4.0)) or back["a"].dtype != np.float64, out


def test_a_sealed_file_opens_as_it_was_written_or_not_at_all() -> None:
    content = {"lam": 12.0, "seed": 3}, {"a": np.arange(4.0), "b": np.arange(4.0)}
    plain = archive.pack("thing", *content)
    sealed = archive.sealed(plain)
    for place in range(len(sealed)):
        for flip in (0x01, 0x55):
            bad = bytearray(sealed)
            bad[place] ^= flip
            try:
                values, arrays = archive.unpack(bytes(bad), "thing")
            except FileFormatError:
                continue
            assert archive.pack("thing", values, arrays) == plain, bytes(bad)


@pytest.mark.parametrize("finish", [lambda blob: blob, archive.sealed])
def test_a_safetensors_reader_understands_the_layout(finish: Callable[[bytes], bytes]) -> None:
    blob = finish(archive.pack("thing", {}, {"a": np.arange(3.0)}))
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + length])
    assert header["a"] == {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}
    assert all(isinstance(value, str) for value in header["__metadata__"].values())
    assert np.frombuffer(blob[8 + length :]).tolist() == [0.0, 1.0, 2.0]


def test_other_kinds_and_newer_versions_are_refused() -> None:
    blob = archive.pack("thing", {}, {})
    with pytest.raises(FileFormatError, match="holds a thing"):
        archive.unpack(blob, "other")
    with pytest.raises(NewerFormatError, match="upgrade"):
        archive.unpack(blob.replace(b'"format":"1"', b'"format":"2"'), "thing")


@pytest.mark.parametrize("version", ["²", "9" * 5000, "one", ""])
def test_a_version_that_is_no_number_is_told(version: str) -> None:
    header = json.dumps({"__metadata__": {"pairrank": "thing", "format": version}}).encode()
    with pytest.raises(FileFormatError, match="no readable format version"):
        archive.unpack(len(header).to_bytes(8, "little") + header, "thing")


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file"
    archive.write_atomically(target, b"one")
    archive.write_atomically(target, b"two")
    assert target.read_bytes() == b"two"
    with pytest.raises(StorageError, match="cannot write"):
        archive.write_atomically(tmp_path / "no" / "file", b"x")
    with pytest.raises(StorageError, match="cannot write"):
        archive.write_atomically(target / "below a file", b"x")
    with pytest.raises(StorageError, match="cannot read"):
        archive.read_file(tmp_path / "absent")
    with pytest.raises(StorageError, match="cannot write"):
        archive.write_atomically(tmp_path / ("x" * 300), b"x")
    with pytest.raises(OptionError, match="name of a file"):
        archive.write_atomically(tmp_path / "a\0b", b"x")
    assert os.listdir(tmp_path) == ["file"]


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        archive.write_atomically(tmp_path / "file", b"x")
    assert os.listdir(tmp_path) == []


def test_a_working_folder_that_is_gone_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StorageError, match="cannot write x: No such file"):
        archive.write_atomically("x", b"one")


def test_a_link_is_followed_and_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    archive.write_atomically(tmp_path / "link", b"one")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"one"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    archive.write_atomically(pipe, b"two")
    assert os.read(reader, 9) == b"two"
    os.close(reader)
    assert pipe.is_fifo()
