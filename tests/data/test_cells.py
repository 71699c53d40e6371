"""The cells of a column as arrays, whatever Arrow keeps them in."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from dubito.data.cells import Cells, whole
from dubito.errors import BadTypeError, BadValueError


def cells_of(values: Any, kind: pa.DataType | None = None) -> Cells:
    return Cells.of(pa.table({"c": pa.array(values, kind)}), "c", "f.parquet")


NUMBERS = {
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "int8": pa.int8(),
    "uint8": pa.uint8(),
    "int64": pa.int64(),
}


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_are_kept_as_they_are_stored(dtype: str) -> None:
    numbers = cells_of(np.array([1, 0, 2], dtype), NUMBERS[dtype]).numbers()
    assert numbers.dtype == dtype
    assert numbers.tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False], pa.bool_()),
        ([Decimal("1.0"), Decimal("0.0")], pa.decimal128(5, 1)),
        ([Decimal("1.0"), Decimal("0.0")], pa.decimal256(50, 1)),
        (["1", " 0.0 "], pa.string()),
        (["1", "0"], pa.large_string()),
        (["1", "0"], pa.string_view()),
        (["1", "0"], pa.dictionary(pa.int8(), pa.string())),
        ([1.0, 0.0], pa.dictionary(pa.int8(), pa.float64())),
    ],
    ids=str,
)
def test_what_stands_for_numbers_becomes_floats(values: list[Any], kind: pa.DataType) -> None:
    numbers = cells_of(values, kind).numbers()
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None], pa.int64()),
        ([1.0, None], pa.float32()),
        ([True, None], pa.bool_()),
        (["1", "NA"], pa.string()),
        (["1", None], pa.string()),
    ],
    ids=str,
)
def test_gaps_become_nan_where_they_may_be(values: list[Any], kind: pa.DataType) -> None:
    cells = cells_of(values, kind)
    assert_array_equal(cells.numbers(has_gaps=True), [1.0, np.nan])
    with pytest.raises(
        BadValueError, match=r"f\.parquet: `c` must not have missing values.* in row 1"
    ):
        cells.numbers()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([b"1"], pa.binary()),
        ([datetime(2020, 1, 1)], pa.timestamp("ns")),
        ([{"a": 1}], pa.struct([("a", pa.int64())])),
        ([[1.0]], pa.list_(pa.float64())),
    ],
    ids=str,
)
def test_other_kinds_are_no_numbers(values: list[Any], kind: pa.DataType) -> None:
    with pytest.raises(BadTypeError, match="a column of"):
        cells_of(values, kind).numbers()


def test_the_first_text_that_is_no_number_is_reported_with_its_row() -> None:
    with pytest.raises(BadValueError, match="got 'n/a' in row 2"):
        cells_of(["1", "", "n/a", "x"]).numbers(has_gaps=True)
    with pytest.raises(BadValueError, match="in row 102"):
        cells_of(["1", "", "n/a", "x"]).parsed_numbers(first_row=100)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32(), 2),
        pa.list_(pa.float32()),
        pa.large_list(pa.float32()),
        pa.list_view(pa.float32()),
        pa.fixed_shape_tensor(pa.float32(), [2]).storage_type,
    ],
    ids=str,
)
def test_lists_are_rows_of_a_matrix(kind: pa.DataType) -> None:
    cells = cells_of([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], kind)
    assert cells.is_list
    matrix = cells.matrix(2)
    assert matrix.dtype == np.float32
    assert matrix.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_a_part_of_a_column_of_lists_is_the_part_of_the_matrix() -> None:
    table = pa.table({"c": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2))})
    assert Cells.of(table.slice(1, 1), "c", "f").matrix(2).tolist() == [[3, 4]]


def test_tensors_are_lists() -> None:
    storage = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2]), storage)
    matrix = Cells.of(pa.table({"c": tensors}), "c", "f").matrix(2)
    assert matrix.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_matrix_shares_memory_with_its_column() -> None:
    column = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2))
    flat = column.flatten().to_numpy()
    assert np.shares_memory(Cells(column, "c", "f").matrix(2), flat)


@pytest.mark.parametrize("kind", [pa.list_(pa.float64(), 2), pa.list_(pa.float64())], ids=str)
def test_a_gap_among_lists_is_a_row_of_nan_where_it_may_be(kind: pa.DataType) -> None:
    cells = cells_of([[1.0, 2.0], None, [3.0, None]], kind)
    assert_array_equal(
        cells.matrix(2, has_gaps=True), [[1.0, 2.0], [np.nan, np.nan], [3.0, np.nan]]
    )
    with pytest.raises(BadValueError, match=r"must not have missing values.* in row 1"):
        cells.matrix(2)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[1.0, 2.0], [3.0]], "must be lists of length 2, got length 1 in row 1"),
        ([[1.0, 2.0], [3.0, None]], "must not have missing values.* in row 1"),
        ([["1", "2"], ["3", "x"]], "numbers, got 'x' in row 1"),
    ],
)
def test_a_bad_list_is_reported_with_its_row(values: list[Any], words: str) -> None:
    with pytest.raises(BadValueError, match=words):
        cells_of(values).matrix(2)


@pytest.mark.parametrize(
    ("values", "fractions"),
    [
        ([True, False], [1.0, 0.0]),
        ([1, 0], [1.0, 0.0]),
        ([0.25, 1.0], [0.25, 1.0]),
        (["true", "FALSE"], [1.0, 0.0]),
        (["1", "0.25"], [1.0, 0.25]),
    ],
)
def test_fractions_are_numbers_or_true_or_false(values: list[Any], fractions: list[float]) -> None:
    assert cells_of(values).fractions().tolist() == fractions


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["true", "false", "yes"], "numbers, true or false, got 'yes' in row 2"),
        (["true", None], "must not have missing values.* in row 1"),
        ([True, None], "must not have missing values.* in row 1"),
    ],
)
def test_a_value_that_is_no_fraction_is_reported_with_its_row(
    values: list[Any], words: str
) -> None:
    with pytest.raises(BadValueError, match=words):
        cells_of(values).fractions()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([7, None, 9], pa.int64()),
        (["a", None, "b"], pa.string()),
        (["a", None, "b"], pa.dictionary(pa.int8(), pa.string())),
        ([True, None, False], pa.bool_()),
        ([2**60 + 1, None, 2**60 + 2], pa.int64()),
    ],
    ids=str,
)
def test_gaps_among_values_are_none(values: list[Any], kind: pa.DataType) -> None:
    assert cells_of(values, kind).values().tolist() == values


def test_values_keep_their_kind() -> None:
    moments = np.array(["2020-01-01", "2020-01-02"], "datetime64[ns]")
    assert cells_of([7, 8]).values().dtype == np.int64
    assert_array_equal(cells_of(moments).values(), moments)


@pytest.mark.parametrize(
    ("values", "kind", "different", "positions"),
    [
        (["b", "a", "b"], pa.string(), ["b", "a"], [0, 1, 0]),
        (["b", None, "b"], pa.large_string(), ["b", None], [0, 1, 0]),
        (["b", None, "b"], pa.string_view(), ["b", None], [0, 1, 0]),
        ([3, 1, 3], pa.uint8(), [3, 1], [0, 1, 0]),
        ([2**60 + 1, None], pa.int64(), [2**60 + 1, None], [0, 1]),
        ([True, None], pa.bool_(), [True, None], [0, 1]),
        ([Decimal(3), None], pa.decimal128(5, 1), [3.0, None], [0, 1]),
        ([None, None], pa.null(), [None], [0, 0]),
    ],
    ids=str,
)
def test_different_values_and_who_holds_them(
    values: list[Any], kind: pa.DataType, different: list[Any], positions: list[int]
) -> None:
    found, holders = cells_of(values, kind).distinct()
    assert found == different
    assert holders.tolist() == positions


def test_unused_categories_are_no_values() -> None:
    column = pa.DictionaryArray.from_arrays([0, 0], ["used", "never used"])
    assert Cells.of(pa.table({"c": column}), "c", "f").distinct()[0] == ["used"]


def test_moments_and_records_are_no_labels() -> None:
    for values in ([datetime(2020, 1, 1)], [{"a": 1}]):
        with pytest.raises(BadTypeError, match="text or numbers"):
            cells_of(values).distinct()


def test_a_column_in_one_piece_is_not_copied() -> None:
    one, other = pa.array([1.5, 2.5]), pa.array([3.5])
    assert whole(pa.chunked_array([one])).buffers()[1].address == one.buffers()[1].address
    assert whole(pa.chunked_array([one, other])).to_pylist() == [1.5, 2.5, 3.5]
    assert whole(pa.chunked_array([], pa.float64())).to_pylist() == []


@pytest.mark.parametrize(
    ("values", "is_so"), [([1, 2], True), ([1, None], False), ([1.0], False), (["1"], False)]
)
def test_whole_numbers_have_no_gaps(values: list[Any], is_so: bool) -> None:
    assert cells_of(values).is_whole_numbers == is_so
