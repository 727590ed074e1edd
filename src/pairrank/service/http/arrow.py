"""The Arrow stream that nearly every client sends, read at a fraction of the work of a library for all streams.

That is one batch, not compressed, without nulls, of ``id: string`` and ``features: fixed_size_list<float or double>``,
in either order. Whatever is not exactly this is left to pyarrow, which also says what is wrong with it. What comes
before the buffers of a batch says where they lie, and clients send the same again and again: pyarrow is asked once.
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, NamedTuple

import numpy as np

from pairrank.types import AnyArray

_PREFIX = Struct("<Ii")  # a mark, and how many bytes of metadata follow
_U16, _U32, _I32, _I64, _BUFFER = map(Struct, ("<H", "<I", "<i", "<q", "<qq"))
_MARK = 0xFFFFFFFF
_ENDS = (b"", b"\xff\xff\xff\xff\x00\x00\x00\x00")
_MAX_METADATA = 4096
_MAX_LAYOUTS = 1024


class Layout(NamedTuple):
    """What a batch holds, and where its buffers lie, in bytes from the beginning of the stream."""

    n_docs: int
    n_features: int
    dtype: str
    offsets: int
    letters: int
    n_letters: int
    values: int
    end: int


class Columns(NamedTuple):
    """The two columns; features as they came, (n_docs, n_features)."""

    ids: list[str]
    features: AnyArray


_layouts: dict[bytes, Layout | None] = {}


def read(body: bytes) -> Columns | None:
    """The columns of a stream of the usual kind, or None for pyarrow to look at it."""
    try:
        head = _head(body)
        if head not in _layouts:
            if len(_layouts) >= _MAX_LAYOUTS:
                _layouts.clear()
            _layouts[head] = _layout(body)
        layout = _layouts[head]
        if layout is None or layout.end > len(body) or body[layout.end :] not in _ENDS:
            return None
        values = np.frombuffer(body, layout.dtype, layout.n_docs * layout.n_features, layout.values)
        if not values.flags.aligned:
            return None
        return Columns(_texts(body, layout), values.reshape(layout.n_docs, layout.n_features))
    except (StructError, ValueError):  # not what it seemed to be; UnicodeDecodeError is a ValueError
        return None


def check_inflated(stream: bytes, most: int) -> None:
    """`ValueError` for compressed buffers that become more than ``most`` bytes, by the number that each begins with.

    pyarrow tells only when it has made them, and few bytes can become very many.
    """
    import pyarrow as pa

    total = 0
    for message in pa.ipc.MessageReader.open_stream(stream):
        for place in _compressed(message):
            total += max(0, *_I64.unpack_from(memoryview(message.body), place))  # -1: this one is as it is
    if total > most:
        raise ValueError(f"decompressed it has {total} bytes, and at most {most} are allowed")


def _compressed(message: Any) -> list[int]:
    """Where in its body the compressed buffers of a message begin.

    So says its metadata, a flatbuffer that pyarrow has verified.
    https://github.com/apache/arrow/blob/main/format/Message.fbs
    """
    flat = message.metadata.to_pybytes()
    batch = _table(flat, _field(flat, _table(flat, 0), 2))
    if message.type == "dictionary":
        batch = _table(flat, _field(flat, batch, 1))
    if message.type not in ("record batch", "dictionary") or not _field(flat, batch, 3):
        return []
    buffers = _table(flat, _field(flat, batch, 2))
    end = buffers + 4 + _BUFFER.size * _U32.unpack_from(flat, buffers)[0]
    return [place for place, size in _BUFFER.iter_unpack(flat[buffers + 4 : end]) if size]


def _table(flat: bytes, place: int) -> int:
    """Where the table or vector lies to which a place points."""
    return place + int(_U32.unpack_from(flat, place)[0])


def _field(flat: bytes, table: int, number: int) -> int:
    """Where a field of a table lies, 0 for one that is left out."""
    fields = table - _I32.unpack_from(flat, table)[0]
    known = 4 + 2 * number < _U16.unpack_from(flat, fields)[0]
    offset = _U16.unpack_from(flat, fields + 4 + 2 * number)[0] if known else 0
    return table + offset if offset else 0


def _head(body: bytes) -> bytes:
    """The metadata of schema and batch: all that comes before the buffers."""
    end = 0
    for _ in range(2):
        mark, size = _PREFIX.unpack_from(body, end)
        if mark != _MARK or not 0 < size <= _MAX_METADATA:
            raise ValueError("no message")
        end += _PREFIX.size + size
    return body[:end]


def _layout(body: bytes) -> Layout | None:
    """Where pyarrow finds the buffers of a stream of the usual kind; None for another kind."""
    import pyarrow as pa

    try:
        messages = pa.ipc.MessageReader.open_stream(body)
        first, message = messages.read_next_message(), messages.read_next_message()
        if first.type != "schema":  # pyarrow takes any message for one, and the process ends
            return None
        schema = pa.ipc.read_schema(first)
        if message.type != "record batch" or sorted(schema.names) != ["features", "id"] or _compressed(message):
            return None
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate()  # that no buffer is too short
    except (pa.ArrowException, OSError, StopIteration) as problem:
        raise ValueError(str(problem)) from None
    ids, features = batch.column("id"), batch.column("features")
    kinds = {pa.float32(): "<f4", pa.float64(): "<f8"}
    if ids.type != pa.string() or not pa.types.is_fixed_size_list(features.type) or not batch.num_rows:
        return None
    if features.type.value_type not in kinds or ids.null_count or features.null_count or features.values.null_count:
        return None
    start, end = pa.py_buffer(body).address, message.body.address + message.body.size
    buffers = (ids.buffers()[1], ids.buffers()[2], features.values.buffers()[1])
    if not all(message.body.address <= buffer.address <= buffer.address + buffer.size <= end for buffer in buffers):
        return None  # turned round: pyarrow has made others of them
    offsets, letters, values = (buffer.address - start for buffer in buffers)
    shape = (batch.num_rows, features.type.list_size, kinds[features.type.value_type])
    return Layout(*shape, offsets, letters, buffers[1].size, values, end - start)


def _texts(body: bytes, layout: Layout) -> list[str]:
    ends = np.frombuffer(body, "<i4", layout.n_docs + 1, layout.offsets).tolist()
    if ends[0] < 0 or ends[-1] > layout.n_letters:
        raise ValueError("texts outside of their buffer")
    text = body[layout.letters : layout.letters + ends[-1]]
    if text.isascii():
        whole = text.decode("ascii")
        texts = [whole[a:b] for a, b in pairwise(ends)]
    else:
        texts = [text[a:b].decode() for a, b in pairwise(ends)]
    # Where no text is empty every end lies after the one before it, and so within the letters.
    if not all(texts):
        raise ValueError("an empty text")
    return texts
