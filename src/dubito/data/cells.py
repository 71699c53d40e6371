"""The cells of one column as NumPy arrays: numbers, lists and labels, validated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.data import parsing
from dubito.errors import BadTypeError, BadValueError

if TYPE_CHECKING:
    from dubito.data.sources import BaseSource

FIX = "Fix the cell, or drop the row"
OTHER_COLUMN = "Pass another column: this one holds text"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of a column, with the names of the column and of the file for errors."""

    array: pa.Array
    name: str
    where: str
    decimal: str = "."

    @classmethod
    def of(cls, piece: pa.Table, name: str, where: str, decimal: str = ".") -> Cells:
        """Return a column of a table; categories become plain values."""
        array = whole(piece.column(name))
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        return cls(array, name, where, decimal)

    @property
    def is_list(self) -> bool:
        """Whether these are lists."""
        return is_list(self.array.type)

    @property
    def is_whole_numbers(self) -> bool:
        """Whether these are integers without nulls."""
        return bool(types.is_integer(self.array.type)) and self.array.null_count == 0

    @property
    def is_blank(self) -> BoolArray:
        """Which cells have no value: nulls, NaN, and texts such as NA."""
        found = pc.is_null(self.array, nan_is_null=True)
        if is_text(self.array.type):
            texts = pc.utf8_trim_whitespace(self.array.cast(pa.large_string()))
            found = pc.or_(found, pc.is_in(texts, pa.array(parsing.GAPS, pa.large_string())))
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)

    def numbers(self, *, has_gaps: bool = False) -> FloatArray:
        """Return numbers in their stored type; nulls, where allowed, become NaN."""
        array = self.parsed_numbers() if is_text(self.array.type) else self.array
        if _is_cast(array.type):
            array = array.cast(pa.float64())
        if not (types.is_floating(array.type) or types.is_integer(array.type)):
            raise self.wrong_kind("must be numbers", "Use a column of floats")
        if not has_gaps:
            Cells(array, self.name, self.where).require_no_gaps()
        return _as_numpy(array)

    def fractions(self, *, has_gaps: bool = False) -> FloatArray:
        """Return numbers, also from text, with 1 for true and 0 for false; NaN for allowed gaps."""
        if not is_text(self.array.type):
            return self.numbers(has_gaps=has_gaps)
        if not has_gaps:
            self.require_no_gaps()
        parse = parsing.number_or_gap if has_gaps else parsing.number_or_boolean
        fix = "Write 1 or true for correct, 0 or false for wrong"
        return self.parsed(parse, "must be numbers, true or false", fix)

    def marks(self, *, can_be_uncertain: bool) -> FloatArray:
        """Return labels of 0 and 1 or probabilities: NaN where unknown, -1 for a mark such as u."""
        if is_text(self.array.type):
            rule = "must be 0, 1, a probability, u or -1 if uncertain, or blank"
            values = self.parsed(parsing.mark, rule)
        else:
            values = self.numbers(has_gaps=True)
        is_wrong = (values < 0) | (values > 1)
        if can_be_uncertain:
            is_wrong &= values != -1
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            fix = "Write 0, 1 or a probability"
            if values[row] == -1:
                fix = "Pass uncertain='ignore' if it marks an uncertain label"
            fix += ", or leave the cell blank if the label is unknown"
            got = repr(self.array[row].as_py())
            raise self.wrong_value("must be between 0 and 1", got, fix, row)
        return values

    def parsed(self, parse: Callable[[Any], float | None], rule: str, fix: str = FIX) -> FloatArray:
        """Return each text parsed as a number, or raise at the first that cannot be."""
        texts, positions = self.distinct()
        found = [parse(text) for text in texts]
        if None in found:
            first = found.index(None)
            row = int(np.argmax(positions == first))
            raise self.wrong_value(rule, repr(texts[first]), fix, row)
        return np.asarray(np.array(found, dtype=np.float64)[positions])

    def matrix(self, width: int, *, has_gaps: bool = False) -> FloatArray:
        """Return lists of `width` numbers as rows; a null list becomes a row of NaN."""
        if not has_gaps:
            self.require_no_gaps()
        if types.is_fixed_size_list(self.array.type):
            width = self.array.type.list_size
        else:
            self.require_width(width)
        flat = Cells(self.array.flatten(), self.name, self.where)
        try:
            entries = flat.numbers(has_gaps=has_gaps)
        except BadValueError as error:
            row = None if error.row is None else error.row // width
            raise self.wrong_value(error.rule, error.got, error.fix, row) from error
        if self.array.null_count == 0:
            return entries.reshape(-1, width)
        matrix = np.full((len(self.array), width), np.nan)
        matrix[self.array.is_valid().to_numpy(zero_copy_only=False)] = entries.reshape(-1, width)
        return matrix

    def values(self) -> NDArray[Any]:
        """Return the values of any type; a null among integers is None."""
        kind, has_gaps = self.array.type, self.array.null_count > 0
        if is_text(kind) or (types.is_integer(kind) and has_gaps):
            return np.array(self.array.to_pylist(), dtype=object)
        return _as_numpy(self.array)

    def distinct(self) -> tuple[list[Any], IntArray]:
        """Return the distinct values, None for a null, and the position of each row's value."""
        array = self.array
        if _is_cast(array.type) and not types.is_boolean(array.type):
            array = array.cast(pa.float64())
        kinds = (types.is_floating, types.is_integer, types.is_boolean, is_text)
        if not any(is_kind(array.type) for is_kind in kinds):
            fix = "Use a column of class names or numbers"
            raise self.wrong_kind("must be text or numbers", fix)
        encoded = array.dictionary_encode()
        values, positions = encoded.dictionary.to_pylist(), encoded.indices
        if array.null_count:
            values.append(None)
            positions = pc.fill_null(positions, len(values) - 1)
        return values, _as_numpy(positions)

    def require_no_gaps(self) -> None:
        """Raise for the first null."""
        if self.array.null_count:
            row = int(np.argmax(self.array.is_null().to_numpy(zero_copy_only=False)))
            raise self.wrong_value("must not have missing values", "null or NaN", FIX, row)

    def require_width(self, width: int) -> None:
        """Raise for the first list of another length."""
        lengths = pc.fill_null(pc.list_value_length(self.array), width).to_numpy()
        if (lengths != width).any():
            row = int(np.argmax(lengths != width))
            rule, fix = f"must be lists of length {width}", "Use lists of one length in all rows"
            raise self.wrong_value(rule, f"length {lengths[row]}", fix, row)

    def parsed_numbers(self, first_row: int = 0) -> pa.Array:
        """Return text parsed as numbers; raise for the first that is not a number."""
        texts = pc.utf8_trim_whitespace(self.array.cast(pa.large_string()))
        is_gap = pc.is_in(texts, pa.array(parsing.GAPS, pa.large_string()))
        texts = pc.if_else(is_gap, pa.scalar(None, pa.large_string()), texts)
        if self.decimal == ",":  # then a point is no part of a number
            texts = pc.replace_substring(pc.replace_substring(texts, ".", " "), ",", ".")
        try:
            return texts.cast(pa.float64())
        except pa.ArrowInvalid:
            found = enumerate(texts.to_pylist())
            place = next(i for i, t in found if t is not None and parsing.number(t) is None)
            text = self.array[place].as_py().strip()
            known = [one for one in texts.to_pylist() if one is not None]
            is_text_alone = first_row == 0 and len(known) > 1 and not any(map(_is_number, known))
            fix = parsing.remedy(text) or (OTHER_COLUMN if is_text_alone else FIX)
            raise self.wrong_value("must be numbers", repr(text), fix, first_row + place) from None

    def wrong_value(self, rule: str, got: str, fix: str, row: int | None) -> BadValueError:
        """Return an error about a cell."""
        return BadValueError(self.name, self.where, rule, got, fix, row)

    def wrong_kind(self, rule: str, fix: str) -> BadTypeError:
        """Return an error about the whole column."""
        return BadTypeError(self.name, self.where, rule, f"a column of {self.array.type}", fix)


def _is_number(text: str) -> bool:
    """Whether text is a number, also in another notation."""
    return parsing.number(text) is not None or parsing.remedy(text) is not None


def largest(source: BaseSource, names: Sequence[str], above: float) -> float | None:
    """Return the largest number of some columns, or the first one found above a limit.

    None if there is none; cells that are no numbers are skipped.
    """
    found: float | None = None
    for batch in source.batches(list(names), list(names), 1 << 14):
        for column in batch.columns:
            numbers = (parsing.number(f"{one}") for one in column.drop_null().unique().to_pylist())
            found = max((one for one in (found, *numbers) if one is not None), default=None)
        if found is not None and found > above:
            break
    return found


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, copied only if it is chunked."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _as_numpy(numbers: pa.Array) -> NDArray[Any]:
    """Return values as a NumPy array, numbers without a copy unless there are gaps."""
    kind = numbers.type
    if numbers.null_count == 0 and (types.is_integer(kind) or types.is_floating(kind)):
        return np.from_dlpack(numbers)  # `to_numpy` would import pandas first
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is a list type."""
    kinds = (types.is_fixed_size_list, types.is_list, types.is_large_list)
    views = (types.is_list_view, types.is_large_list_view)
    return any(is_kind(kind) for is_kind in kinds + views)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is a text type."""
    kinds = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_kind(kind) for is_kind in kinds)


def plain_type(kind: Any) -> Any:
    """Return the type of the values of categories, extensions and views."""
    kind = getattr(kind, "storage_type", kind)
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return pa.string() if types.is_string_view(kind) else kind


def _is_cast(kind: pa.DataType) -> bool:
    """Whether NumPy can represent a numeric type only as floats."""
    return any(is_kind(kind) for is_kind in (types.is_boolean, types.is_decimal, types.is_null))
