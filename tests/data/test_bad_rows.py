"""Bad rows are left out and reported, each once; everything else is as if they had never been."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyarrow import csv

from dubito.data import BadRow, BadRows, Columns, Sink, read, scan
from dubito.data.shards import joined
from dubito.errors import BadFileError, BadTypeError, BadValueError

Write = Callable[[str, pa.Table], Any]

N = 40
P = np.random.default_rng(0).dirichlet([1, 1, 1], N)
FORMS = ["csv", "csv.gz", "tsv", "arrow", "feather", "parquet", "pandas", "polars", "table"]
NAMED = Columns(label="y", probabilities="p_*", weight="w", row_costs=["1 / (price + 3)"])
FAULTS: dict[int, tuple[str, Any, str]] = {
    0: ("p_cat", 7.5, "must have rows that sum to 1"),
    3: ("w", -1.0, "must not be negative"),
    17: ("price", np.inf, "must be finite"),
    18: ("price", -3.0, "must give a finite cost by `1 / (price + 3)`"),
    29: ("y", "wolf", "must be one of the classes ('cat', 'dog', 'fox')"),
    39: ("p_dog", None, "must not have missing values"),
}
GOOD = [i for i in range(N) if i not in FAULTS]


def table_of(faults: dict[int, tuple[str, Any, str]]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        **{f"p_{name}": p.tolist() for name, p in zip(["cat", "dog", "fox"], P.T, strict=True)},
        "y": ["cat", "dog", "fox", "cat"] * (N // 4),
        "w": [float(i) for i in range(N)],
        "price": [float(i) for i in range(N)],
    }
    for row, (column, value, _) in faults.items():
        columns[column][row] = value
    return pa.table(columns)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "64")


@pytest.mark.parametrize("form", FORMS)
def test_bad_rows_are_left_out_and_reported(write: Write, form: str) -> None:
    source, bad_rows = write(form, table_of(FAULTS)), BadRows()
    shards = scan(source, NAMED, bad_rows=bad_rows)
    batch = joined(list(shards.batches()))
    clean = read(table_of({}), NAMED).take(np.array(GOOD))
    assert batch.ids is not None
    assert batch.ids.tolist() == GOOD
    np.testing.assert_allclose(batch.outputs.array, clean.outputs.array)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(batch.labels.codes, clean.labels.codes)  # type: ignore[union-attr]
    np.testing.assert_array_equal(batch.weight, clean.weight)
    np.testing.assert_array_equal(batch.row_costs, clean.row_costs)

    where = str(source) if isinstance(source, Path) else shards.source.name
    assert {bad.file for bad in bad_rows} == {where}
    assert [bad.row for bad in bad_rows] == list(FAULTS)
    for bad, (column, _, reason) in zip(bad_rows, FAULTS.values(), strict=True):
        assert column in bad.column or bad.column == "p_cat, ..., p_fox"
        gap = "finite"  # a gap is NaN in a frame of pandas
        assert bad.reason == reason or (column == "p_dog" and gap in bad.reason)
    assert shards.sum(len) == len(GOOD)
    assert len(bad_rows) == len(FAULTS)  # read again, each is reported once


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "table"])
@pytest.mark.parametrize("column", ["p_fox", "w", "price"])
def test_text_among_numbers_is_a_bad_row(write: Write, form: str, column: str) -> None:
    table = table_of({})
    cells = [str(cell) for cell in table[column].to_pylist()]
    cells[29] = "oops"
    table = table.set_column(table.column_names.index(column), column, pa.array(cells))
    bad_rows = BadRows()
    batch = read(write(form, table), NAMED, bad_rows=bad_rows)
    (bad,) = bad_rows
    assert (bad.row, bad.column, bad.value, bad.reason) == (29, column, "'oops'", "must be numbers")
    np.testing.assert_allclose(batch.weight, [i for i in range(N) if i != 29])


def test_bad_lists_are_reported_with_their_entry() -> None:
    lists = P.tolist()
    lists[7] = [1.5, -0.5, 0.0]
    bad_rows = BadRows()
    read(pa.table({"p": lists}), Columns(probabilities="p"), bad_rows=bad_rows)
    expected = BadRow("the table", 7, "p[1]", "-0.5", "must be non-negative")
    assert list(bad_rows) == [expected]


def test_ids_of_the_file_are_kept(write: Write) -> None:
    table = table_of(FAULTS).append_column("id", pa.array([f"row {i}" for i in range(N)]))
    columns = Columns(
        label="y", probabilities="p_*", weight="w", row_costs="1 / (price + 3)", id="id"
    )
    batch = read(write("csv", table), columns, bad_rows=BadRows())
    assert batch.ids is not None
    assert batch.ids.tolist() == [f"row {i}" for i in GOOD]


def test_all_rows_may_be_bad() -> None:
    table, bad_rows = pa.table({"p": [2.0, 3.0], "y": [0, 1]}), BadRows()
    assert len(read(table, Columns("y", probabilities="p"), bad_rows=bad_rows)) == 0
    assert len(bad_rows) == 2


@pytest.mark.slow
@settings(max_examples=30)
@given(st.sets(st.integers(0, N - 1)))
def test_any_rows_may_be_bad(rows: set[int]) -> None:
    faults = dict.fromkeys(rows, ("p_cat", np.nan, ""))
    bad_rows = BadRows()
    shards = scan(table_of(faults), NAMED, bad_rows=bad_rows)
    ids = [batch.ids for batch in shards.batches()]
    assert np.concatenate([i for i in ids if i is not None]).tolist() == sorted({*range(N)} - rows)
    assert [bad.row for bad in bad_rows] == sorted(rows)


def test_too_many_bad_rows_stop_the_run() -> None:
    many = dict.fromkeys((3, 9, 17, 29), ("price", -3.0, ""))
    with pytest.raises(BadValueError) as caught:
        read(table_of(many), NAMED, bad_rows=BadRows(max_rows=2))
    assert str(caught.value) == (
        "the table: `rows` must have at most 2 bad rows, got 3, the last in row 17. Fix "
        "`price` (must give a finite cost by `1 / (price + 3)`, got a division by 0), or use "
        "BadRows(max_rows=...)."
    )
    assert len(read(table_of(FAULTS), NAMED, bad_rows=BadRows(max_rows=6))) == len(GOOD)


def test_what_is_wrong_with_a_whole_column_or_file_stops_the_run(tmp_path: Path) -> None:
    dates = pa.table({"p": pa.array([1, 2], pa.date32())})
    with pytest.raises(BadTypeError, match=r"must be numbers, got a column of date32"):
        read(dates, Columns(probabilities="p"), bad_rows=BadRows())
    path = tmp_path / "few.csv"
    path.write_text("p,y\n0.5,1\n0.5\n")
    with pytest.raises(BadFileError, match="row 1 has 1 cells, the header has 2"):
        read(path, Columns("y", probabilities="p"), bad_rows=BadRows())


def test_without_them_a_bad_row_stops_the_run() -> None:
    with pytest.raises(BadValueError, match="in row 0"):
        scan(table_of(FAULTS), NAMED).sum(len)


def test_they_can_be_written_to_a_file(tmp_path: Path) -> None:
    bad_rows = BadRows()
    read(table_of(FAULTS), NAMED, bad_rows=bad_rows)
    with Sink(tmp_path / "errors.csv") as sink:
        sink.write(bad_rows.columns)
    table = csv.read_csv(tmp_path / "errors.csv")
    assert table.column_names == ["file", "row", "column", "value", "reason"]
    assert table["row"].to_pylist() == list(FAULTS)
    with Sink(tmp_path / "none.csv") as sink:
        sink.write(BadRows().columns)
    assert (tmp_path / "none.csv").read_text() == '"file","row","column","value","reason"\n'


@pytest.mark.parametrize("most", [-1, 1.5, True, "many"])
def test_an_invalid_limit_raises(most: Any) -> None:
    with pytest.raises(BadValueError) as caught:
        BadRows(most)
    assert str(caught.value) == (
        f"BadRows: `max_rows` must be an integer of at least 0, got {most!r}. Use max_rows=10000."
    )
