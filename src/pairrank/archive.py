"""Arrays and plain values to bytes and back, without pickle.

The layout is that of a safetensors file, so any safetensors reader opens it: eight bytes with the length of a JSON
header, the header (for each array its type, shape and place), then the raw arrays. Plain values travel as JSON in the
header's ``__metadata__``, with the format's version and a SHA-256 of the arrays (in files one of the rest of the header
too). The same content always gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairrank.errors import FileFormatError, NewerFormatError, OptionError, StorageError

FORMAT_VERSION = 1
MAX_HEADER = 16 * 2**20

_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "U8": np.dtype("u1"),
    "U64": np.dtype("<u8"),
    "BOOL": np.dtype("?"),
}
_SEAL = "header"
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_values = json.JSONEncoder(sort_keys=True).encode
_header = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def pack(kind: str, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """``values`` (JSON-able) and ``arrays`` as bytes; ``kind`` says what they are and is checked by `unpack`."""
    header: dict[str, Any] = {}
    body: list[bytes] = []
    offset = 0
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        dtype = array.dtype if array.dtype in _NAMES else array.dtype.newbyteorder("<")
        raw = array.astype(dtype, copy=False).tobytes()  # row by row, whatever the layout in memory
        end = offset + len(raw)
        header[name] = {"dtype": _NAMES[dtype], "shape": array.shape, "data_offsets": (offset, end)}
        body.append(raw)
        offset = end
    data = b"".join(body)
    digest = hashlib.sha256(data).hexdigest()
    told = {"format": str(FORMAT_VERSION), "pairrank": kind, "sha256": digest, "values": _values(values)}
    return _joined({"__metadata__": told, **header}, data)


def sealed(blob: bytes) -> bytes:
    """What `pack` gave with a SHA-256 of its header too, for files; bytes in a store have a checksum beside them."""
    header, data = _split(blob, "what is to be sealed")
    header["__metadata__"][_SEAL] = _digest(header)
    return _joined(header, data)


def _joined(header: Mapping[str, Any], data: bytes | memoryview) -> bytes:
    text = _header(header).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise StorageError(f"names and plain values take {len(text):,} bytes; a file holds {MAX_HEADER:,} at most")
    return len(text).to_bytes(8, "little") + text + data


def _digest(header: Mapping[str, Any]) -> str:
    return hashlib.sha256(_header(header).encode()).hexdigest()


def unpack(blob: bytes, kind: str, *, source: str = "these bytes") -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The values and (read-only) arrays that `pack` was given; raises `FileFormatError` for anything else."""
    header, data = _split(blob, source)
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or "pairrank" not in metadata:
        raise FileFormatError(f"{source} was not written by PairRank; expected a {kind}")
    seal = metadata.pop(_SEAL, None)
    intact = seal is None or seal == _digest(header)
    del header["__metadata__"]
    try:
        version = int(str(metadata.get("format")))
    except ValueError:
        raise FileFormatError(f"{source} has no readable format version; it is damaged") from None
    NewerFormatError.check(source, version, FORMAT_VERSION)
    if metadata["pairrank"] != kind:
        raise FileFormatError(f"{source} holds a {metadata['pairrank']}; expected a {kind}")
    if not intact or hashlib.sha256(data).hexdigest() != metadata.get("sha256"):
        raise FileFormatError(f"{source} is truncated or damaged: its checksum does not match")
    try:
        arrays = {name: _array(entry, data) for name, entry in header.items()}
        values = json.loads(metadata["values"])
    except (KeyError, TypeError, ValueError) as problem:
        raise FileFormatError(f"{source} is damaged: {problem}") from None
    if not isinstance(values, dict):
        raise FileFormatError(f"{source} is damaged: its values are not a mapping")
    return values, arrays


def _split(blob: bytes, source: str) -> tuple[dict[str, Any], memoryview]:
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise FileFormatError(f"{source} came as {type(blob).__name__}; expected bytes")
    length = int.from_bytes(blob[:8], "little")
    if len(blob) < 8 or length > min(MAX_HEADER, len(blob) - 8):
        raise FileFormatError(f"{source} is truncated or was not written by PairRank")
    try:
        header = json.loads(bytes(blob[8 : 8 + length]))  # databases answer with a memoryview, too
    except ValueError:
        raise FileFormatError(f"{source} is damaged or was not written by PairRank") from None
    if not isinstance(header, dict):
        raise FileFormatError(f"{source} was not written by PairRank")
    return header, memoryview(blob)[8 + length :]


def _array(entry: Mapping[str, Any], data: memoryview) -> NDArray[Any]:
    start, stop = entry["data_offsets"]
    dtype: np.dtype[Any] = _DTYPES[entry["dtype"]]
    flat = np.frombuffer(bytes(data[start:stop]), dtype=dtype)
    array: NDArray[Any] = flat.reshape(entry["shape"])
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def write_atomically(path: str | os.PathLike[str], blob: bytes) -> None:
    """Write ``blob`` so that ``path`` holds either what it held before or all of ``blob``, even after a power cut."""
    file = _file(path)
    try:
        target = Path(os.path.realpath(file))  # what a link leads to
    except OSError as problem:  # the working folder is gone
        raise StorageError(f"cannot write {path}: {problem.strerror}") from problem
    # A name of its own for every writer, so that two writing the same file cannot mix.
    partial = target.with_name(f".{target.name[:64]}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        if Path(path).exists() and not target.is_file():  # a device, a pipe: it takes what comes and stays what it is
            Path(path).write_bytes(blob)
            return
        with open(partial, "xb") as opened:
            opened.write(blob)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(partial, target)
    except OSError as problem:
        raise StorageError(f"cannot write {path}: {problem.strerror or problem}") from problem
    finally:
        with suppress(OSError):  # after Ctrl-C, too; mostly it is gone
            partial.unlink()
    _sync_folder(target.parent)


def _file(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not Path(path).name or "\0" in str(path):
        raise OptionError(f"the path is {path!r}; expected the name of a file")
    return Path(path)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some systems do not open folders; the rename is atomic all the same
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make the folder ``path`` where it is not there yet; where that cannot be, a `StorageError` in one sentence."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StorageError(f"cannot make the folder {path}: {problem.strerror or problem}") from problem


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of ``path``; a file that cannot be read is a `StorageError` in one sentence."""
    file = _file(path)
    try:
        return file.read_bytes()
    except OSError as problem:
        raise StorageError(f"cannot read {path}: {problem.strerror or problem}") from problem
