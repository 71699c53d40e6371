"""How large an Arrow stream becomes when it is read, told before anything of it is uncompressed."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from dubito.errors import TooLargeError

__all__ = ["require_small"]

# Places of fields in the flatbuffers of Arrow's Message.fbs.
HEADER_KIND, HEADER, DICTIONARY_DATA, BUFFERS, COMPRESSION = 1, 2, 1, 2, 3
DICTIONARY, RECORDS = 2, 3  # kinds of headers


def require_small(content: bytes, most_bytes: int) -> None:
    """Raise unless all buffers of a stream together have so many bytes at most, uncompressed.

    A few compressed bytes may stand for gigabytes, and many buffers may be the same few bytes. Each
    compressed buffer begins with its length, which readers never exceed.

    >>> sink = pa.BufferOutputStream()
    >>> table = pa.table({"x": np.zeros(1000)})
    >>> small = ipc.IpcWriteOptions(compression="zstd")
    >>> with ipc.new_stream(sink, table.schema, options=small) as s:
    ...     s.write_table(table)
    >>> require_small(bytes(sink.getvalue()), 8000)
    """
    n_bytes = 0
    for message in ipc.MessageReader.open_stream(pa.BufferReader(content)):
        for size in buffer_sizes(message.metadata, message.body):
            n_bytes += size
            if n_bytes > most_bytes:
                rule = f"{most_bytes:,} at most, uncompressed"
                got, fix = f"{n_bytes:,} or more", "fewer rows a stream"
                raise TooLargeError("bytes", "an Arrow stream", rule, got, fix)


def buffer_sizes(metadata: pa.Buffer, body: pa.Buffer | None) -> Iterator[int]:
    """Yield how many bytes the buffers of a message have when they are read."""
    try:
        yield from sizes_in(memoryview(metadata), memoryview(b"" if body is None else body))
    except (struct.error, ValueError) as error:
        raise pa.ArrowInvalid("A message of the stream is broken.") from error


def sizes_in(message: memoryview, body: memoryview) -> Iterator[int]:
    """Yield the sizes that a message tells."""
    root = number("<I", message, 0)
    kind_at, batch = field(message, root, HEADER_KIND), field(message, root, HEADER)
    kind = message[kind_at] if kind_at else 0
    if kind not in (DICTIONARY, RECORDS) or not batch:
        return
    batch = followed(message, batch)
    if kind == DICTIONARY:
        batch = followed(message, field(message, batch, DICTIONARY_DATA))
    buffers = field(message, batch, BUFFERS)
    if not buffers:
        return
    vector = followed(message, buffers)
    count = number("<I", message, vector)
    places = np.frombuffer(message, "<i8", 2 * count, vector + 4).reshape(count, 2)
    is_compressed = bool(field(message, batch, COMPRESSION))
    for start, length in places[places[:, 1] != 0].tolist():
        size = number("<q", body, start) if is_compressed else length
        # -1 says that a buffer was left as it is, as compression would not have made it smaller.
        yield length if size == -1 else size
        if size < -1:
            raise ValueError("a buffer of negative length")


def field(message: memoryview, table: int, place: int) -> int:
    """Return where a field of a flatbuffer's table is, 0 where it is left out."""
    schema = table - number("<i", message, table)
    entry = 4 + 2 * place
    if entry >= number("<H", message, schema):
        return 0
    offset = number("<H", message, schema + entry)
    return table + offset if offset else 0


def followed(message: memoryview, at: int) -> int:
    """Return where a reference leads."""
    return at + number("<I", message, at)


def number(kind: str, content: memoryview, at: int) -> int:
    """Return one number; what lies outside is an error, not the other end."""
    if at < 0:
        raise ValueError("a reference out of the message")
    return int(struct.unpack_from(kind, content, at)[0])
