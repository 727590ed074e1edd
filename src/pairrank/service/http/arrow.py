"""The Arrow stream that nearly every client sends, read by hand: a fraction of the work of a library for all streams.

That is one batch, not compressed, without nulls, of ``id: string`` and ``features: fixed_size_list<float or double>``,
in either order. Whatever is not exactly this is left to pyarrow, which also says what is wrong with it. The format:
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

import numpy as np

from pairrank.types import AnyArray

_I32, _U16, _I64 = Struct("<i").unpack_from, Struct("<H").unpack_from, Struct("<q").unpack_from
_PREFIX = Struct("<Ii")  # a mark, and how many bytes of metadata follow
_NODES, _BUFFERS = Struct("<6q"), Struct("<12q")  # length and nulls of 3 arrays; offset and length of 6 buffers
_MARK = 0xFFFFFFFF
_ENDS = (b"", b"\xff\xff\xff\xff\x00\x00\x00\x00")
_MAX_METADATA = 4096
_SCHEMA, _BATCH = 1, 3  # kinds of messages


class Plan(NamedTuple):
    """What a stream's schema says: which column is first, how wide the features are, and of what type."""

    ids_first: bool
    n_features: int
    dtype: str


class Layout(NamedTuple):
    """Where a batch's buffers lie, in bytes from its beginning, and how long it is."""

    length: int
    n_docs: int
    offsets: int
    letters: int
    n_letters: int
    values: int


class Columns(NamedTuple):
    """The two columns; features as they came, (n_docs, n_features)."""

    ids: list[str]
    features: AnyArray


def read(body: bytes) -> Columns | None:
    """The columns of a stream of the usual kind, or None for pyarrow to look at it."""
    try:
        schema, start = _metadata(body, 0)
        plan = _plan(schema)
        if plan is None:
            return None
        batch, start = _metadata(body, start)
        layout = _layout(batch, plan)
        end = start + layout.length
        if end > len(body) or body[end:] not in _ENDS:
            return None
        ids = _texts(body, layout.n_docs, start + layout.offsets, start + layout.letters, layout.n_letters)
        values = np.frombuffer(body, plan.dtype, layout.n_docs * plan.n_features, start + layout.values)
        return Columns(ids, values.reshape(layout.n_docs, plan.n_features)) if values.flags.aligned else None
    except (StructError, ValueError, IndexError):  # not what it seemed to be; UnicodeDecodeError is a ValueError
        return None


def _metadata(body: bytes, at: int) -> tuple[bytes, int]:
    """The metadata of the message that begins at ``at``, and where its buffers begin."""
    mark, size = _PREFIX.unpack_from(body, at)
    if mark != _MARK or not 0 < size <= _MAX_METADATA:
        raise ValueError("no message")
    start = at + 8 + size
    return body[at + 8 : start], start


@lru_cache(maxsize=16)
def _plan(metadata: bytes) -> Plan | None:
    """What the metadata of a schema say; clients send the same ones again and again."""
    import pyarrow as pa

    kind, schema, _ = _message(metadata)
    endianness = _field(metadata, schema, 0)
    if kind != _SCHEMA or (endianness and _U16(metadata, endianness)[0]):
        return None
    try:
        found = pa.ipc.read_schema(pa.py_buffer(_PREFIX.pack(_MARK, len(metadata)) + metadata))
    except (pa.ArrowException, OSError):
        return None
    if sorted(found.names) != ["features", "id"] or found.field("id").type != pa.string():
        return None
    features = found.field("features").type
    if not pa.types.is_fixed_size_list(features) or features.value_type not in (pa.float32(), pa.float64()):
        return None
    dtype = "<f4" if features.value_type == pa.float32() else "<f8"
    return Plan(found.names[0] == "id", features.list_size, dtype)


@lru_cache(maxsize=64)
def _layout(metadata: bytes, plan: Plan) -> Layout:
    """What the metadata of a batch say: the same for as many documents with ids of the same length in all."""
    kind, batch, length = _message(metadata)
    rows, nodes, buffers, compression = (_field(metadata, batch, number) for number in range(4))
    if kind != _BATCH or not (rows and nodes and buffers) or compression:
        raise ValueError("no plain batch")
    n_docs = _I64(metadata, rows)[0]
    n_values = n_docs * plan.n_features
    counts = (n_docs, 0, n_docs, 0, n_values, 0) if plan.ids_first else (n_docs, 0, n_values, 0, n_docs, 0)
    if n_docs < 1 or _vector(metadata, nodes, 3, _NODES) != counts:
        raise ValueError("other counts, or nulls")
    found = _vector(metadata, buffers, 6, _BUFFERS)
    places = list(zip(found[::2], found[1::2], strict=True))
    if any(at < 0 or size < 0 or at + size > length for at, size in places):
        raise ValueError("a buffer outside of the batch")
    # The buffers of a text: which are null, offsets, letters; of a list: which are null, and its values' own two.
    offsets, letters, values = (places[n] for n in ((1, 2, 5) if plan.ids_first else (4, 5, 2)))
    if offsets[1] < 4 * (n_docs + 1) or values[1] < int(plan.dtype[2]) * n_values:
        raise ValueError("a buffer that is too short")
    return Layout(length, n_docs, offsets[0], letters[0], letters[1], values[0])


def _texts(body: bytes, count: int, offsets: int, letters: int, size: int) -> list[str]:
    ends = np.frombuffer(body, "<i4", count + 1, offsets).tolist()
    if ends[0] < 0 or ends[-1] > size:
        raise ValueError("texts outside of their buffer")
    text = body[letters : letters + ends[-1]]
    if text.isascii():
        whole = text.decode("ascii")
        texts = [whole[a:b] for a, b in pairwise(ends)]
    else:
        texts = [text[a:b].decode() for a, b in pairwise(ends)]
    # Where no text is empty every end lies after the one before it, and so within the letters.
    if not all(texts):
        raise ValueError("an empty text")
    return texts


# Flatbuffers: a table begins with the distance back to its index, which says where in the table each field is.


def _message(metadata: bytes) -> tuple[int, int, int]:
    """Kind of a message, where its header is, and how long its buffers are."""
    table = _I32(metadata)[0]
    kind, header, length = (_field(metadata, table, number) for number in (1, 2, 3))
    if not (kind and header):
        raise ValueError("a message without a header")
    return metadata[kind], header + _I32(metadata, header)[0], _I64(metadata, length)[0] if length else 0


def _field(buffer: bytes, table: int, number: int) -> int:
    """Where a table's field is, 0 for one that is not there."""
    index, place = table - _I32(buffer, table)[0], 4 + 2 * number
    inside = _U16(buffer, index + place)[0] if place < _U16(buffer, index)[0] else 0
    return table + inside if inside else 0


def _vector(buffer: bytes, field: int, count: int, form: Struct) -> tuple[int, ...]:
    """A vector of ``count`` pairs of numbers."""
    at = field + _I32(buffer, field)[0]
    if _I32(buffer, at)[0] != count:
        raise ValueError("a vector of another length")
    return form.unpack_from(buffer, at + 4)
