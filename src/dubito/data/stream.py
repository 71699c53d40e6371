"""Tables as Arrow streams: bytes to columns and back, with a limit on the decompressed size."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import ipc

from dubito.data.cells import is_list, is_text
from dubito.data.sink import EncodedLabels
from dubito.data.sources.formats import arrow_of
from dubito.errors import BadFileError, BadValueError, TooLargeError

# Places of fields in the flatbuffers of Arrow's Message.fbs.
HEADER_KIND, HEADER, DICTIONARY_DATA, BUFFERS, COMPRESSION = 1, 2, 1, 2, 3
DICTIONARY, RECORDS = 2, 3  # kinds of headers


def _require_small(content: bytes, max_bytes: int) -> None:
    """Raise if the uncompressed buffers of a stream exceed `max_bytes` in total.

    A few compressed bytes may expand to gigabytes, and many buffers may alias the same bytes. Each
    compressed buffer begins with its length, which readers never exceed.

    >>> sink = pa.BufferOutputStream()
    >>> table = pa.table({"x": np.zeros(1000)})
    >>> small = ipc.IpcWriteOptions(compression="zstd")
    >>> with ipc.new_stream(sink, table.schema, options=small) as s:
    ...     s.write_table(table)
    >>> _require_small(bytes(sink.getvalue()), 8000)
    """
    n_bytes = 0
    for message in ipc.MessageReader.open_stream(pa.BufferReader(content)):
        for size in _buffer_sizes(message.metadata, message.body):
            n_bytes += size
            if n_bytes > max_bytes:
                rule = f"must be at most {max_bytes:,}, uncompressed"
                got, fix = f"{n_bytes:,} or more", "Send fewer rows per stream"
                raise TooLargeError("bytes", "Arrow stream", rule, got, fix)


def _buffer_sizes(metadata: pa.Buffer, body: pa.Buffer | None) -> Iterator[int]:
    """Yield the uncompressed sizes of the buffers of a message."""
    try:
        yield from _sizes_in(memoryview(metadata), memoryview(b"" if body is None else body))
    except (struct.error, ValueError) as error:
        raise pa.ArrowInvalid("A message of the stream is broken.") from error


def _sizes_in(message: memoryview, body: memoryview) -> Iterator[int]:
    """Yield the sizes stated in a message."""
    root = _number("<I", message, 0)
    kind_at, batch = _field(message, root, HEADER_KIND), _field(message, root, HEADER)
    kind = message[kind_at] if kind_at else 0
    if kind not in (DICTIONARY, RECORDS) or not batch:
        return
    batch = _followed(message, batch)
    if kind == DICTIONARY:
        batch = _followed(message, _field(message, batch, DICTIONARY_DATA))
    buffers = _field(message, batch, BUFFERS)
    if not buffers:
        return
    vector = _followed(message, buffers)
    count = _number("<I", message, vector)
    places = np.frombuffer(message, "<i8", 2 * count, vector + 4).reshape(count, 2)
    is_compressed = bool(_field(message, batch, COMPRESSION))
    for start, length in places[places[:, 1] != 0].tolist():
        size = _number("<q", body, start) if is_compressed else length
        # -1 says that a buffer was left as it is, as compression would not have made it smaller.
        yield length if size == -1 else size
        if size < -1:
            raise ValueError("a buffer of negative length")


def _field(message: memoryview, table: int, place: int) -> int:
    """Return where a field of a flatbuffer's table is, 0 where it is left out."""
    schema = table - _number("<i", message, table)
    entry = 4 + 2 * place
    if entry >= _number("<H", message, schema):
        return 0
    offset = _number("<H", message, schema + entry)
    return table + offset if offset else 0


def _followed(message: memoryview, at: int) -> int:
    """Return the target of a reference."""
    return at + _number("<I", message, at)


def _number(kind: str, content: memoryview, at: int) -> int:
    """Return one number; what lies outside is an error, not the other end."""
    if at < 0:
        raise ValueError("a reference out of the message")
    return int(struct.unpack_from(kind, content, at)[0])


FIX = "Write it with pyarrow.ipc.new_stream"


def read_stream(
    content: bytes,
    *,
    max_rows: int,
    max_columns: int,
    max_bytes: int,
    has_gaps: bool = False,
) -> dict[str, Any]:
    """Return the columns of an Arrow stream: lists of numbers as a matrix, the rest as a list.

    A column of lists must have one length in all rows, and no column a gap except texts, and with
    `has_gaps` numbers, which become NaN. A stream may be compressed: `max_bytes` is what it may
    become.

    >>> stream = write_stream({"id": np.array(["a", "b"]), "cost": np.array([0.5, 2.0])})
    >>> read_stream(stream, max_rows=10, max_columns=10, max_bytes=1000)["id"]
    ['a', 'b']
    """
    try:
        _require_small(content, max_bytes)
        table = _whole_table(content, max_rows)
        return {
            name: _values_of(table.column(name), name, max_columns, has_gaps)
            for name in table.column_names
        }
    except BadValueError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        problem = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise BadFileError("The Arrow stream", problem, FIX) from error


def _whole_table(content: bytes, max_rows: int) -> pa.Table:
    """Return all batches of a stream as one table, of so many rows at most."""
    batches, n_rows = [], 0
    with ipc.open_stream(pa.BufferReader(content)) as reader:
        for batch in reader:
            batch.validate(full=True)
            n_rows += batch.num_rows
            if n_rows > max_rows:
                rule, fix = f"must be at most {max_rows:,}", "Send fewer rows per stream"
                raise TooLargeError("rows", "Arrow stream", rule, f"{n_rows:,} or more", fix)
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema).combine_chunks()


def _values_of(column: pa.ChunkedArray, name: str, max_columns: int, has_gaps: bool) -> Any:
    """Return a column as a matrix, an array, a list of texts, or a dict of these."""
    kind = column.type
    if is_list(kind):
        return _matrix_of(column, name, max_columns)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        if column.null_count and not has_gaps:
            rule, fix = "must not have missing values", "Provide a number in every row"
            raise BadValueError(name, "Arrow stream", rule, "null", fix)
        return np.asarray(column.to_numpy())
    if pa.types.is_dictionary(kind) and is_text(kind.value_type):
        return _texts_of(column)
    if is_text(kind):
        return column.to_pylist()
    if pa.types.is_struct(kind) and not any(pa.types.is_nested(field.type) for field in kind):
        parts = zip((field.name for field in kind), column.flatten(), strict=True)
        return {
            one: _values_of(part, f"{name}.{one}", max_columns, has_gaps) for one, part in parts
        }
    rule = "must be numbers, text, lists of numbers, or structs of numbers"
    raise BadValueError(name, "Arrow stream", rule, f"{kind}", "Use a column of these")


def _texts_of(column: pa.ChunkedArray) -> list[str | None]:
    """Return coded texts: rows share each of them, as many rows may name one that is long."""
    found: list[str | None] = []
    for chunk in column.chunks:
        names = [*chunk.dictionary.to_pylist(), None]
        found += [names[-1 if code is None else code] for code in chunk.indices.to_pylist()]
    return found


def _matrix_of(column: pa.ChunkedArray, name: str, max_columns: int) -> NDArray[Any]:
    """Return a column of lists of one length as rows x columns."""
    n_rows = len(column)
    lengths = pc.list_value_length(column)
    bounds = pc.min_max(lengths)
    low, high = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
    flat = pc.list_flatten(column)
    if lengths.null_count or flat.null_count or low != high:
        rule, got = "must be lists of one length without nulls", f"lengths {low} to {high}, or null"
        fix = "Provide one number per class in every row"
        raise BadValueError(name, "Arrow stream", rule, got, fix)
    if high > max_columns:
        rule, fix = f"must be lists of at most {max_columns:,} numbers", "Send fewer columns"
        raise TooLargeError(name, "Arrow stream", rule, f"{high:,}", fix)
    if not (pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)):
        rule, fix = "must be lists of numbers", "Use float32"
        raise BadValueError(name, "Arrow stream", rule, f"{flat.type}", fix)
    return np.asarray(flat.to_numpy()).reshape(n_rows, high)


def write_stream(columns: Mapping[str, Any]) -> bytes:
    """Return columns of one length as an Arrow stream; a matrix becomes lists of one length."""
    whole = pa.table({name: _as_arrow(values) for name, values in columns.items()})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return bytes(sink.getvalue())


def _as_arrow(values: Any) -> pa.Array:
    """Return a column as an Arrow array. Lists of texts need no NumPy, which is slower."""
    if isinstance(values, EncodedLabels):
        return values.array
    if isinstance(values, list) and values and isinstance(values[0], str):
        return pa.array(values)
    return arrow_of(np.asarray(values))
