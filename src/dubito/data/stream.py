"""Tables as Arrow streams: bytes in, columns out, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import ipc

from dubito.data.sink import EncodedLabels
from dubito.data.stream_limits import require_small
from dubito.errors import BadFileError, BadValueError, TooLargeError

__all__ = ["read_stream", "write_stream"]

FIX = "a stream as pyarrow.ipc.new_stream writes it"


def read_stream(
    content: bytes, *, max_samples: int, most_columns: int, most_bytes: int
) -> dict[str, Any]:
    """Return the columns of an Arrow stream: lists of numbers as a matrix, the rest as a list.

    A column of lists must have one length in all rows, and no column a gap except texts. A stream
    may be compressed: `most_bytes` is what it may become.

    >>> stream = write_stream({"id": np.array(["a", "b"]), "cost": np.array([0.5, 2.0])})
    >>> read_stream(stream, max_samples=10, most_columns=10, most_bytes=1000)["id"]
    ['a', 'b']
    """
    try:
        require_small(content, most_bytes)
        table = whole_table(content, max_samples)
        return {
            name: values_of(table.column(name), name, most_columns) for name in table.column_names
        }
    except BadValueError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise BadFileError("The Arrow stream", said, FIX) from error


def whole_table(content: bytes, max_samples: int) -> pa.Table:
    """Return all batches of a stream as one table, of so many rows at most."""
    batches, n_rows = [], 0
    with ipc.open_stream(pa.BufferReader(content)) as reader:
        for batch in reader:
            batch.validate(full=True)
            n_rows += batch.num_rows
            if n_rows > max_samples:
                rule, fix = f"of {max_samples:,} rows at most", "fewer rows a stream"
                raise TooLargeError("rows", "an Arrow stream", rule, f"{n_rows:,} or more", fix)
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema).combine_chunks()


def values_of(column: pa.ChunkedArray, name: str, most_columns: int) -> Any:
    """Return a column as a matrix, an array, or a list of texts."""
    kind = column.type
    if is_list(kind):
        return matrix_of(column, name, most_columns)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        if column.null_count:
            raise BadValueError(name, "an Arrow stream", "without gaps", "null", "a number a row")
        return np.asarray(column.to_numpy())
    if pa.types.is_dictionary(kind) and is_text(kind.value_type):
        return texts_of(column)
    if is_text(kind):
        return column.to_pylist()
    rule = "numbers, texts, or lists of numbers"
    raise BadValueError(name, "an Arrow stream", rule, f"{kind}", "a column of these")


def is_text(kind: pa.DataType) -> bool:
    """Tell columns of texts from all others."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def texts_of(column: pa.ChunkedArray) -> list[str | None]:
    """Return coded texts: rows share each of them, as many rows may name one that is long."""
    found: list[str | None] = []
    for chunk in column.chunks:
        names = [*chunk.dictionary.to_pylist(), None]
        found += [names[-1 if code is None else code] for code in chunk.indices.to_pylist()]
    return found


def is_list(kind: pa.DataType) -> bool:
    """Tell columns of lists from all others."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def matrix_of(column: pa.ChunkedArray, name: str, most_columns: int) -> NDArray[Any]:
    """Return a column of lists of one length as rows x columns."""
    n_rows = len(column)
    lengths = pc.list_value_length(column)
    bounds = pc.min_max(lengths)
    low, high = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
    flat = pc.list_flatten(column)
    if lengths.null_count or flat.null_count or low != high:
        rule, got = "lists of one length without gaps", f"lengths {low} to {high}, or null"
        raise BadValueError(name, "an Arrow stream", rule, got, "one number a class and row")
    if high > most_columns:
        rule, fix = f"lists of {most_columns:,} numbers at most", "fewer columns"
        raise TooLargeError(name, "an Arrow stream", rule, f"{high:,}", fix)
    if not (pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)):
        rule, fix = "lists of numbers", "float32"
        raise BadValueError(name, "an Arrow stream", rule, f"{flat.type}", fix)
    return np.asarray(flat.to_numpy()).reshape(n_rows, high)


def write_stream(columns: Mapping[str, Any]) -> bytes:
    """Return columns of one length as an Arrow stream; a matrix becomes lists of one length."""
    whole = pa.table({name: as_arrow(values) for name, values in columns.items()})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return bytes(sink.getvalue())


def as_arrow(values: Any) -> pa.Array:
    """Return a matrix as an Arrow array of lists, and anything else as it is."""
    if isinstance(values, EncodedLabels):
        return values.array
    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.array(values)
