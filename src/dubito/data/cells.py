"""Arrow columns as NumPy arrays: numbers, lists, text, and what must not be among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dubito.arrays import FloatArray, IntArray
from dubito.errors import BadTypeError, BadValueError

__all__ = [
    "column_of",
    "different_values",
    "is_list",
    "is_number",
    "is_text",
    "list_matrix",
    "numbers",
    "numbers_or_missing",
    "require_width",
    "whole_number",
]

NO_NUMBER = "a number there, or leaving the row out"


def column_of(piece: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """Return a column as one array, categories as plain values."""
    column = piece.column(name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def is_list(column: pa.Array) -> bool:
    """Whether a column holds lists."""
    kinds = (pa.types.is_fixed_size_list, pa.types.is_list, pa.types.is_large_list)
    return any(is_kind(column.type) for is_kind in kinds)


def is_text(column: pa.Array) -> bool:
    """Whether a column holds text."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(column.type) for is_kind in kinds)


def numbers(column: pa.Array, name: str, where: str, has_missing: bool = False) -> FloatArray:
    """Return a column of numbers; raise at the first text or, unless allowed, the first null."""
    if is_text(column):
        values = column.to_pylist()
        row = next((i for i, v in enumerate(values) if v is not None and not is_number(v)), 0)
        raise BadValueError(name, where, "numbers", repr(values[row]), NO_NUMBER, row)
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise BadTypeError(name, where, "numbers", f"a column of {kind}", "a column of floats")
    if column.null_count and not has_missing:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise BadValueError(name, where, "without gaps", "nothing", NO_NUMBER, row)
    return numbers_or_missing(column)


def numbers_or_missing(column: pa.Array) -> NDArray[Any]:
    """Return a column of numbers as it is stored; with gaps, as floats with NaN there."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.astype(np.float64) if values.dtype.kind == "O" else values


def list_matrix(column: pa.Array, name: str, where: str) -> FloatArray:
    """Return a column of lists of one length as a matrix, without a copy where Arrow allows it."""
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise BadValueError(name, where, "without gaps", "nothing", NO_NUMBER, row)
    width = len(column[0]) if len(column) else 1
    try:
        flat = numbers(column.flatten(), name, where)
    except BadValueError as error:
        place = None if error.row is None else error.row // max(width, 1)
        raise BadValueError(name, where, error.rule, error.got, error.fix, place) from error
    return flat.reshape(len(column), width)


def require_width(column: pa.Array, width: int, name: str, where: str) -> None:
    """Raise at the first list that is not as long as the first of the file."""
    if pa.types.is_fixed_size_list(column.type):
        return
    lengths = pc.fill_null(pc.list_value_length(column), width).to_numpy(zero_copy_only=False)
    if (lengths != width).any():
        row = int(np.argmax(lengths != width))
        rule = f"lists of one length ({width} in the first row)"
        got, fix = f"{lengths[row]} entries", "one entry a class in every row"
        raise BadValueError(name, where, rule, got, fix, row)


def different_values(column: pa.Array) -> tuple[list[Any], IntArray]:
    """Return the different texts of a column, and which of them each row holds.

    A gap is held as one past the last.
    """
    encoded = column.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    positions = pc.fill_null(encoded.indices, len(values)).to_numpy(zero_copy_only=False)
    return values, positions


def whole_number(text: str) -> int | str:
    """Return the whole number that a text spells ("3", "3.0"), or the text itself."""
    return int(float(text)) if is_number(text) and float(text).is_integer() else text


def is_number(text: Any) -> bool:
    """Whether a cell reads as a number."""
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True
