"""Frames and tables in memory, with all the habits of the libraries that made them."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dubito import Probabilities
from dubito.data import Batch, Columns, read, scan
from dubito.data.labels import Labels
from dubito.errors import BadTypeError, BadValueError

COLUMNS = Columns(label="y", probabilities="p")


def codes_of(batch: Batch) -> list[int]:
    assert isinstance(batch.labels, Labels)
    return [int(code) for code in batch.labels.codes]


@pytest.mark.parametrize(
    "y",
    [
        [1.0, np.nan, 0.0],
        pd.array([1, None, 0], dtype="Int64"),
        pd.array([True, None, False], dtype="boolean"),
        pd.Series([1, None, 0], dtype=object),
        pd.Series([1.0, None, 0.0], dtype="float32[pyarrow]"),
        pd.Series(["1", None, "0"], dtype="str"),
        pd.Categorical([1, None, 0]),
        pd.Series([1, None, "0"], dtype=object),
    ],
    ids=["NaN", "Int64", "boolean", "objects", "pyarrow", "text", "categories", "mixed"],
)
def test_gaps_of_pandas(y: Any) -> None:
    frame = pd.DataFrame({"p": [0.5, 0.25, 0.75], "y": y})
    assert codes_of(read(frame, COLUMNS)) == [1, -1, 0]


@pytest.mark.parametrize(
    ("y", "dtype"),
    [
        ([1.0, None, 0.0], pl.Float32),
        ([1.0, float("nan"), 0.0], pl.Float64),
        ([1, None, 0], pl.UInt8),
        ([True, None, False], pl.Boolean),
        (["1", None, "0"], pl.String),
        (["1", None, "0"], pl.Categorical),
        (["1", None, "0"], pl.Enum(["0", "1"])),
        ([1, None, 0], pl.Decimal(10, 2)),
    ],
    ids=str,
)
def test_gaps_of_polars(y: list[Any], dtype: Any) -> None:
    frame = pl.DataFrame({"p": [0.5, 0.25, 0.75], "y": pl.Series(y, dtype=dtype)})
    assert codes_of(read(frame, COLUMNS)) == [1, -1, 0]


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([[0.25, 0.75]], dtype=pl.List(pl.Float32)),
        pl.Series([[0.25, 0.75]], dtype=pl.Array(pl.Float64, 2)),
    ],
    ids=["list", "array"],
)
def test_lists_of_polars(column: pl.Series) -> None:
    outputs = read(pl.DataFrame({"p": column}), Columns(probabilities="p")).outputs
    assert isinstance(outputs, Probabilities)
    assert outputs.array.tolist() == [[0.25, 0.75]]


def test_arrays_in_cells_of_pandas_are_lists() -> None:
    frame = pd.DataFrame({"p": [np.array([0.25, 0.75]), np.array([0.5, 0.5])]})
    outputs = read(frame, Columns(probabilities="p")).outputs
    assert isinstance(outputs, Probabilities)
    assert outputs.array.tolist() == [[0.25, 0.75], [0.5, 0.5]]


def test_names_that_are_numbers_are_texts() -> None:
    frame = pd.DataFrame([[0.25, 0.75]], columns=[0, 1])
    outputs = read(frame, Columns(probabilities=["0", "1"])).outputs
    assert isinstance(outputs, Probabilities)
    assert outputs.classes == (0, 1)


def test_the_index_of_pandas_is_no_column() -> None:
    frame = pd.DataFrame({"a": [0.25], "b": [0.75]}, index=["x"])
    outputs = read(frame, Columns(probabilities="*")).outputs
    assert isinstance(outputs, Probabilities)
    assert outputs.classes == ("a", "b")


def test_frames_are_left_unchanged() -> None:
    frame = pd.DataFrame({"p": [0.5, 0.25], "y": ["1", None]})
    before = frame.copy()
    read(frame, COLUMNS)
    pd.testing.assert_frame_equal(frame, before)


def test_mixed_values_are_no_numbers() -> None:
    frame = pd.DataFrame({"p": [0.5, "oops"], "y": [0, 1]})
    with pytest.raises(BadValueError, match=r"the frame: `p` must be numbers, got 'oops' in row 1"):
        read(frame, COLUMNS)


def test_a_duplicate_column_name_raises() -> None:
    frame = pd.DataFrame([[0.5, 0.5]], columns=["p", "p"])
    with pytest.raises(BadValueError, match=r"must have distinct names, got 'p' 2 times"):
        scan(frame, COLUMNS)


@pytest.mark.parametrize(
    "source",
    [pl.DataFrame({"p": [0.5]}).lazy(), pd.Series([0.5]), np.zeros((2, 2)), {"p": [0.5]}, 3, None],
    ids=["lazy", "series", "array", "dict", "number", "none"],
)
def test_sources_that_are_no_table_raise(source: Any) -> None:
    with pytest.raises(BadTypeError, match="must be a path, a pandas or polars frame, or an Arrow"):
        scan(source, COLUMNS)


def test_chunks_of_a_table_need_not_match() -> None:
    table = pa.table(
        {
            "p": pa.chunked_array([[0.5], [0.25, 0.75]]),
            "y": pa.chunked_array([[1, 0], [1]]),
        }
    )
    assert codes_of(read(table, COLUMNS)) == [1, 0, 1]
