"""Columns of files that travel with their rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dubito.data import BadRows, Columns, read, scan
from dubito.data.table_queries import _number_types, common_columns, kept_types, nested_columns
from dubito.errors import BadValueError


def test_kept_columns_travel_with_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "64")
    p = np.random.default_rng(0).random(500)
    names = [f"n{k // 100}" for k in range(500)]  # other categories in each row group
    table = pa.table({"p": p, "name": pa.array(names).dictionary_encode(), "k": range(500)})
    parquet.write_table(table, tmp_path / "f.parquet", row_group_size=100)
    columns = Columns(probabilities="p", keep={"name": pa.string(), "k": None, "p": None})
    batches = list(scan(tmp_path / "f.parquet", columns).batches())
    assert len(batches) > 5
    for batch in batches:
        assert batch.kept is not None
        assert batch.kept["p"].to_pylist() == p[batch.kept["k"].to_numpy()].tolist()
    whole = read(tmp_path / "f.parquet", columns)
    assert whole.kept is not None
    assert whole.kept.to_pydict() == {"name": names, "k": [*range(500)], "p": p.tolist()}
    some = np.array([3, 499, 7])
    parts = whole.take(slice(90, 95)).kept, whole.take(some).kept
    for kept, expected in zip(parts, [[*range(90, 95)], some.tolist()], strict=True):
        assert kept is not None
        assert kept["k"].to_pylist() == expected


def test_bad_rows_take_their_kept_cells_with_them(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("p,note,n\n0.5,a,1\noops,b,2\n0.25,,3\n")
    columns = Columns(probabilities="p", keep={"p": None, "note": None, "n": pa.int64()})
    batch = read(tmp_path / "f.csv", columns, bad_rows=BadRows())
    assert batch.kept is not None
    assert batch.kept.to_pydict() == {"p": [0.5, 0.25], "note": ["a", ""], "n": [1, 3]}
    assert list(batch.beside("f.csv")) == ["file", "id", "p", "note", "n"]
    assert batch.beside(None)["id"].tolist() == [0, 2]


def test_a_column_to_keep_must_exist() -> None:
    with pytest.raises(BadValueError, match=r"has no column 'notes' \(keep\)\. Pass keep='note'"):
        scan(pa.table({"p": [0.5], "note": [1]}), Columns(probabilities="p", keep={"notes": None}))


def test_types_are_those_that_hold_all_values() -> None:
    tables = [
        {"a": pa.array([1]), "b": pa.array(["x"]), "c": pa.array([[1]]), "d": pa.nulls(1)},
        {"b": pa.array([2]), "a": pa.array([0.5]), "c": pa.array([[2]]), "d": pa.array([True])},
    ]
    shards = [
        scan(pa.table({"p": [0.5], **columns}), Columns(probabilities="p")) for columns in tables
    ]
    assert common_columns(shards) == ["p", "a", "b", "c", "d"]
    assert nested_columns(shards, "abcd") == {"c"}
    types = kept_types(shards, ["a", "b", "d"], has_numbers=True)
    assert types == {"a": pa.float64(), "b": pa.string(), "d": pa.bool_()}


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-20", "NA"], pa.int64()),
        (["1", "2.", ".5", "-1e-3"], pa.float64()),
        (["123456789012345"], pa.int64()),
        (["1234567890123456"], None),
        (["01", "2"], None),
        (["1", "x"], None),
        (["e5"], None),
        (["", "nan"], None),
    ],
)
def test_numbers_of_text_files_are_distinguished_from_identifiers(
    tmp_path: Path, cells: list[str], kind: pa.DataType | None
) -> None:
    (tmp_path / "f.csv").write_text("\n".join(["x,y", *(f"{cell},0" for cell in cells)]))
    found = _number_types(tmp_path / "f.csv", ["x"], ".")
    assert found == ({} if kind is None else {"x": kind})
