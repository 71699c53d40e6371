"""Labels of every kind give the column numbers that a plain loop gives."""

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given

from dubito import Probabilities
from dubito.data.labels import codes_of, codes_of_values, is_absent
from dubito.errors import BadTypeError, BadValueError

NAMES = ["cat", "dog", "fox"]


def outputs_of(n_rows: int, classes: Sequence[Any] | None = None) -> Probabilities:
    return Probabilities(np.full((n_rows, 3), 1 / 3), classes)


def codes_read(labels: Any, classes: Sequence[Any] | None = None) -> list[int]:
    array = np.asarray(labels)
    return [int(code) for code in codes_of(array, outputs_of(array.size, classes), "y", "test")]


def codes_by_hand(labels: Sequence[Any], classes: Sequence[Any]) -> list[int]:
    return [-1 if label is None else classes.index(label) for label in labels]


def labels(classes: Sequence[Any], *others: None) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from([*classes, *others]), min_size=1, max_size=20)


@pytest.mark.slow
@given(labels(range(3)), st.sampled_from(["int8", "uint8", "int64", "uint64", "float16", ">i4"]))
def test_whole_numbers(y: list[int], dtype: str) -> None:
    assert codes_read(np.array(y, dtype)) == y


@pytest.mark.slow
@given(labels(range(3), None), st.sampled_from(["float32", "float64", ">f8"]))
def test_floats_whose_gaps_are_nan(y: list[int | None], dtype: str) -> None:
    array = np.array([np.nan if label is None else label for label in y], dtype)
    assert codes_read(array) == codes_by_hand(y, range(3))
    assert codes_read(array, classes=[0, 1, 2]) == codes_by_hand(y, range(3))


WAYS_TO_HOLD_NUMBERS: dict[str, Callable[[list[Any]], Any]] = {
    "objects": lambda y: np.array(y, dtype=object),
    "objects of NumPy": lambda y: np.array(
        [np.float32("nan") if v is None else np.int8(v) for v in y], dtype=object
    ),
    "pandas Int64": lambda y: pd.Series(y, dtype="Int64"),
    "pandas objects": lambda y: pd.Series([pd.NA if v is None else v for v in y], dtype=object),
    "polars": lambda y: pl.Series(y, dtype=pl.Int64),
}
WAYS_TO_HOLD_NAMES: dict[str, Callable[[list[Any]], Any]] = {
    "objects": lambda y: np.array(y, dtype=object),
    "objects with NaN": lambda y: np.array([np.nan if v is None else v for v in y], dtype=object),
    "pandas text": lambda y: pd.Series(y, dtype="str"),
    "pandas categories": lambda y: pd.Categorical(y, categories=NAMES),
    "polars": lambda y: pl.Series(y, dtype=pl.String),
    "polars categories": lambda y: pl.Series(y, dtype=pl.Enum(NAMES)),
}


@pytest.mark.parametrize("way", WAYS_TO_HOLD_NUMBERS)
@given(labels(range(3), None))
def test_numbers_with_gaps(way: str, y: list[int | None]) -> None:
    assert codes_read(WAYS_TO_HOLD_NUMBERS[way](y)) == codes_by_hand(y, range(3))


@pytest.mark.parametrize("way", WAYS_TO_HOLD_NAMES)
@given(labels(NAMES, None))
def test_names_with_gaps(way: str, y: list[str | None]) -> None:
    assert codes_read(WAYS_TO_HOLD_NAMES[way](y), NAMES) == codes_by_hand(y, NAMES)


@given(labels(NAMES))
def test_plain_names(y: list[str]) -> None:
    assert codes_read(np.array(y), NAMES) == codes_by_hand(y, NAMES)


@given(labels([3, 1, 2]))
def test_numbers_that_are_names_in_an_order_of_their_own(y: list[int]) -> None:
    assert codes_read(y, classes=[3, 1, 2]) == codes_by_hand(y, [3, 1, 2])


def test_booleans_are_numbers_0_and_1() -> None:
    assert codes_read([True, False, True]) == [1, 0, 1]
    assert codes_read([True, False, True], classes=[False, True, "neither"]) == [1, 0, 1]


def test_labels_are_left_unchanged() -> None:
    for array in (np.array([0.0, np.nan, 2.0]), np.array(["cat", None, "fox"], dtype=object)):
        before = array.copy()
        codes_of(array, outputs_of(3, NAMES if array.dtype == object else None), "y", "test")
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize(
    ("y", "classes", "row", "words"),
    [
        ([0, 1, 3, 9], None, 2, "from 0 to 2, got 3 in row 2. Labels start at 0"),
        ([0, 1, 3, 9], [0, 1, 2], 2, "from 0 to 2, got 3 in row 2. Labels start at 0"),
        ([0, -1], None, 1, "got -1 in row 1. Use NaN or None for a missing label"),
        (
            [0.0, np.nan, 0.5],
            None,
            2,
            "got 0.5 in row 2. Pass integers, or label probabilities as an array of rows x 3",
        ),
        ([0.0, np.inf], None, 1, "got inf in row 1"),
        (np.array([0, 200], "uint8"), None, 1, "got 200 in row 1"),
        (np.array([0, -128], "int8"), None, 1, "got -128 in row 1"),
        ([None, 1, 7], None, 2, "got 7 in row 2"),
        (
            ["cat"],
            None,
            0,
            "in row 0. Pass Probabilities(array, classes=[...]) with the names 'cat', ..., in",
        ),
        (
            ["c", "a", "b"],
            None,
            0,
            "classes=[...]) with the names 'a', 'b' and 'c', in the order of the columns",
        ),
        (["cat", "Dog"], NAMES, 1, "one of the classes ('cat', 'dog', 'fox'), got 'Dog' in row 1"),
        ([0, 1], NAMES, 0, "one of the classes ('cat', 'dog', 'fox'), got 0 in row 0"),
        ([0, 1], NAMES, 0, "Pass Probabilities(array, classes=[0, 1, ...]), or map the labels"),
        (["0"], NAMES, 0, "Pass Probabilities(array, classes=['0', '1', ...]), or map the labels"),
        ([1, 2, 3, 0], [1, 2, 3], 3, "one of the classes (1, 2, 3), got 0 in row 3"),
        ([b"cat"], NAMES, 0, "got b'cat' in row 0"),
    ],
)
def test_a_label_of_no_class_is_reported_at_its_first_row(
    y: Any, classes: Sequence[Any] | None, row: int, words: str
) -> None:
    with pytest.raises(BadValueError) as caught:
        codes_read(y, classes)
    assert words in str(caught.value)
    assert caught.value.row == row


def test_long_lists_of_classes_are_cut_short() -> None:
    outputs = Probabilities(np.full((1, 10), 0.1), [f"class {k}" for k in range(10)])
    with pytest.raises(BadValueError, match=r"'class 4', \.\.\.\)\, got 'x'"):
        codes_of(np.array(["x"]), outputs, "y", "test")


def test_labels_that_are_no_single_values_raise() -> None:
    array = np.empty(2, dtype=object)
    array[:] = [["cat"], ["dog"]]
    with pytest.raises(BadTypeError, match="must have one label per row"):
        codes_read(array, NAMES)


def test_different_values_and_their_positions_are_enough() -> None:
    positions = np.array([1, 1, 0, 2])
    codes = codes_of_values(["fox", "cat", None], positions, outputs_of(4, NAMES), "y", "test")
    assert codes.tolist() == [0, 0, 2, -1]


def test_what_is_absent() -> None:
    absent = [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT]
    assert all(is_absent(value) for value in absent)
    assert not any(is_absent(value) for value in (0, 0.0, "", "nan", False, np.int64(0)))
