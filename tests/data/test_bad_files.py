"""Errors in a file are reported in one line: its name, the column, the first bad row."""

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from dubito.data import Columns, read, scan
from dubito.errors import BadFileError, BadValueError, DubitoError

Write = Callable[[str, pa.Table], Any]

N_ROWS, BAD_ROW = 40, 29  # so that it stands in a later piece and row group
ANIMALS = ["cat", "dog", "fox"]
PROBABILITIES = np.random.default_rng(0).dirichlet([1, 1, 1], N_ROWS)

NAMED = Columns(label="y", probabilities="p_*", weight="w", features="f_*", id="id")
NUMBERED = Columns(label="code", probabilities="q_*")
LISTS = Columns(label="code", probabilities="lists")
TOP = Columns(confidence="q_0", correct="hit")
NORMAL = Columns(label="w", mean="f_1", std="q_0")

WITH_GAPS = ["csv", "csv.gz", "tsv", "arrow", "arrow stream", "feather", "parquet", "pandas"]
WITH_GAPS += ["polars", "table"]
WITH_LISTS = ["arrow", "arrow stream", "feather", "parquet", "pandas", "polars", "table"]
FORMATS = [*WITH_GAPS, "npy", "npz"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "64")


def good_columns() -> dict[str, list[Any]]:
    numbers = [float(i) for i in range(N_ROWS)]
    return {
        **{f"p_{name}": p.tolist() for name, p in zip(ANIMALS, PROBABILITIES.T, strict=True)},
        **{f"q_{k}": p.tolist() for k, p in enumerate(PROBABILITIES.T)},
        "y": [ANIMALS[i % 3] for i in range(N_ROWS)],
        "code": [i % 3 for i in range(N_ROWS)],
        "hit": [i % 2 for i in range(N_ROWS)],
        "w": numbers,
        "f_1": numbers,
        "f_2": numbers,
        "id": [f"row {i}" for i in range(N_ROWS)],
    }


def name_of(source: Any) -> str:
    if isinstance(source, Path):
        return str(source)
    return "the table" if isinstance(source, pa.Table) else "the frame"


def error_of(source: Any, columns: Columns) -> str:
    """Return the error that reading and streaming raise alike."""
    with pytest.raises(DubitoError) as streamed:
        scan(source, columns).sum(len)
    with pytest.raises(DubitoError) as whole:
        read(source, columns)
    assert str(whole.value) == str(streamed.value)
    assert "\n" not in str(whole.value)
    return str(whole.value)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("columns", [NAMED, NUMBERED, TOP, NORMAL])
def test_a_good_file_is_read(write: Write, form: str, columns: Columns) -> None:
    assert len(read(write(form, pa.table(good_columns())), columns)) == N_ROWS


class Fault(NamedTuple):
    """A value that a column must not have, words of the error, and the formats that can hold it."""

    columns: Columns
    column: str
    value: Any
    words: str
    forms: list[str] = FORMATS


FAULTS = {
    "NaN": Fault(NAMED, "f_1", np.nan, "must "),
    "infinity": Fault(NAMED, "f_2", np.inf, "must be finite, got inf"),
    "gap": Fault(NAMED, "p_dog", None, "must not have missing values", WITH_GAPS),
    "gap among weights": Fault(NAMED, "w", None, "must not have missing values", WITH_GAPS),
    "text": Fault(NAMED, "p_fox", "oops", "must be numbers, got 'oops'"),
    "negative weight": Fault(NAMED, "w", -1.0, "must not be negative, got -1.0"),
    "negative probability": Fault(NAMED, "p_cat", -0.5, "non-negative, got -0.5"),
    "wrong sum": Fault(NAMED, "p_cat", 7.5, "must have rows that sum to 1"),
    "unknown class": Fault(NAMED, "y", "wolf", "classes ('cat', 'dog', 'fox'), got 'wolf'"),
    "label too large": Fault(NUMBERED, "code", 3, "class indices from 0 to 2, got 3"),
    "label below 0": Fault(NUMBERED, "code", -1, "class indices from 0 to 2, got -1"),
    "label between classes": Fault(NUMBERED, "code", 0.5, "class indices from 0 to 2, got 0.5"),
    "label in words": Fault(NUMBERED, "code", "two", "class indices from 0 to 2, got 'two'"),
    "percentage": Fault(TOP, "q_0", 85.0, "must be between 0 and 1, got 85.0"),
    "neither right nor wrong": Fault(TOP, "hit", "maybe", "numbers, true or false, got 'maybe'"),
    "no spread": Fault(NORMAL, "q_0", 0.0, "must be positive, got 0.0"),
    "infinite target": Fault(NORMAL, "w", -np.inf, "must be finite, got -inf"),
}
CASES = [(name, form) for name, fault in FAULTS.items() for form in fault.forms]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_bad_value_is_found_in_its_row(write: Write, name: str, form: str) -> None:
    fault, columns = FAULTS[name], good_columns()
    is_text = isinstance(fault.value, str)
    cells = [str(cell) if is_text else cell for cell in columns[fault.column]]
    columns[fault.column] = [*cells[:BAD_ROW], fault.value, *cells[BAD_ROW + 1 :]]
    source = write(form, pa.table(columns))

    message = error_of(source, fault.columns)
    assert f"{name_of(source)}: `" in message
    assert fault.column in message.split("`")[1]
    assert fault.words in message
    assert f" in row {BAD_ROW}. " in message


@pytest.mark.parametrize("form", WITH_LISTS)
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ([0.5, 0.5], "must be lists of length 3, got length 2 in row 29."),
        ([], "must be lists of length 3, got length 0 in row 29."),
        (None, "must not have missing values, got null or NaN in row 29."),
        ([0.5, None, 0.5], "must not have missing values, got null or NaN in row 29."),
        ([1.5, -0.5, 0.0], "must be non-negative, got -0.5 in row 29, column 1."),
    ],
    ids=["short", "empty", "gap", "gap inside", "negative"],
)
def test_a_bad_list_is_found_in_its_row(
    write: Write, form: str, cell: list[float] | None, words: str
) -> None:
    lists: list[Any] = PROBABILITIES.tolist()
    lists[BAD_ROW] = cell
    table = pa.table({"lists": lists, "code": good_columns()["code"]})
    source = write(form, table)
    assert f"{name_of(source)}: `lists` {words}" in error_of(source, LISTS)


@pytest.mark.parametrize("form", FORMATS)
def test_the_error_for_a_missing_column_lists_the_existing_ones(write: Write, form: str) -> None:
    source = write(form, pa.table({"p_cat": [0.5], "p_dog": [0.5], "label": ["cat"]}))
    message = error_of(source, Columns(label="labels", probabilities="p_*"))
    assert f"{name_of(source)} has no column 'labels' (label). " in message
    assert "p_cat, p_dog" in message
    assert "Pass label='label', or another of its columns: " in message


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_without_rows_says_so(write: Write, form: str) -> None:
    source = write(form, pa.table(good_columns())[:0])
    assert error_of(source, NAMED).endswith("it has no rows. Pass a file with at least one row.")


GOOD_CSV = "y,q_0,q_1\n" + "0,0.25,0.75\n1,0.5,0.5\n" * 100
SMALL = Columns(label="y", probabilities="q_*")


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(good_columns()), sink)
    return bytes(sink.getvalue().to_pybytes())


def arrow_bytes(new: Callable[..., Any]) -> bytes:
    sink, table = pa.BufferOutputStream(), pa.table(good_columns())
    with new(sink, table.schema) as file:
        file.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def damaged(whole: bytes) -> bytes:
    return whole[: len(whole) // 2] + b"\xff" * 500 + whole[len(whole) // 2 + 500 :]


PARQUET, ARROW, STREAM = parquet_bytes(), arrow_bytes(ipc.new_file), arrow_bytes(ipc.new_stream)
PACKED = gzip.compress(GOOD_CSV.encode())
CUT_OFF = "it may be truncated or damaged"
BROKEN: dict[str, tuple[bytes | str, str]] = {
    "empty.csv": (b"", "it is empty"),
    "empty.parquet": (b"", "it is empty"),
    "empty.arrow": (b"", "it is empty"),
    "empty.npz": (b"", "it is empty"),
    "lines.csv": (b"\n\n", "it has no header"),
    "header.csv": (b"y,q_0,q_1\n", "it has no rows"),
    "half_header.csv": (b"y,q_0,q_1", "it has no rows"),
    "few_cells.csv": (GOOD_CSV + "1,0.5\n", "row 200 has 2 cells, the header has 3"),
    "many_cells.csv": (GOOD_CSV + "1,0.5,0.5,1\n", "row 200 has 4 cells, the header has 3"),
    "utf16.csv": (GOOD_CSV.encode("utf-16"), "its text is not UTF-8"),
    "latin1.csv": ((GOOD_CSV + "caf\xe9,0.5,0.5\n").encode("latin-1"), "its text is not UTF-8"),
    "cut.csv.gz": (PACKED[:-20], CUT_OFF),
    "plain.csv.gz": (GOOD_CSV, CUT_OFF),
    "cut.parquet": (PARQUET[:-100], CUT_OFF),
    "damaged.parquet": (damaged(PARQUET), CUT_OFF),
    "text.parquet": (GOOD_CSV, CUT_OFF),
    "cut.arrow": (ARROW[:-100], CUT_OFF),
    "cut_stream.arrow": (STREAM[:-1000], CUT_OFF),
    "text.feather": (GOOD_CSV, CUT_OFF),
    "text.npz": (GOOD_CSV, CUT_OFF),
    "text.npy": (GOOD_CSV, CUT_OFF),
    "pickle.npz": (pickle.dumps({"y": [1]}), CUT_OFF),
    "table.xlsx": (b"PK", "its extension is none of .arrow, .csv"),
    "table": (GOOD_CSV, "its extension is none of .arrow, .csv"),
    "packed.parquet.gz": (PARQUET, "only .csv and .tsv can be compressed as .gz"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named(tmp_path: Path, name: str) -> None:
    content, words = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    columns = NAMED if name in ("damaged.parquet", "cut_stream.arrow") else SMALL
    with pytest.raises(BadFileError) as caught:
        scan(path, columns).sum(len)
    message = str(caught.value)
    assert message.startswith(f"{path} cannot be read: ")
    assert words in message
    assert message.isprintable()
    with pytest.raises(BadFileError, match="cannot be read"):
        read(path, columns)


def test_a_missing_file_and_a_directory_without_tables_raise_different_errors(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadFileError, match="there is no such file"):
        scan(tmp_path / "nothing.csv", SMALL)
    with pytest.raises(BadFileError, match=r"it contains no tables"):
        scan(tmp_path, SMALL)


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "table"])
def test_a_duplicate_column_name_raises_only_if_the_column_is_used(write: Write, form: str) -> None:
    table = pa.table([[0.5], [0.5], [0.5], [1]], names=["p_a", "p_a", "p_b", "y"])
    source = write(form, table)
    with pytest.raises(BadValueError, match=r"has two columns named 'p_a'\. Rename one"):
        scan(source, Columns(probabilities="p_*"))
    assert len(read(source, Columns(label="y", probabilities="p_b"))) == 1
