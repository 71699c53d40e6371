"""Many files are one table: the same rows as if they stood in one file, in natural order."""

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from pyarrow import csv, ipc, parquet

from dubito.data import BadRows, Columns, read, scan
from dubito.data.sources import open_source
from dubito.data.sources.opening import _partition_of
from dubito.errors import BadFileError, BadValueError
from dubito.measure import AuditState

COLUMNS = Columns(label="y", probabilities="p")
N_ROWS = 90
rng = np.random.default_rng(0)
WHOLE = pa.table({"p": rng.random(N_ROWS), "y": rng.integers(0, 2, N_ROWS)})


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=7)
    elif path.suffix == ".arrow":
        with ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        csv.write_csv(table, path)


def write_cut(folder: Path, cuts: list[int], ending: str) -> None:
    bounds = [0, *cuts, N_ROWS]
    for k, (low, high) in enumerate(pairwise(bounds)):
        write(folder / f"part_{k}{ending}", WHOLE.slice(low, high - low))


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
@pytest.mark.parametrize("cuts", [[], [40], [0, 0, 3, 50, 50, N_ROWS], list(range(5, 90, 7))])
def test_cut_files_are_the_whole(tmp_path: Path, ending: str, cuts: list[int]) -> None:
    write_cut(tmp_path / "cut", cuts, ending)
    (tmp_path / "cut" / "_SUCCESS").touch()
    (tmp_path / "cut" / "notes.txt").write_text("no table")
    write(tmp_path / f"whole{ending}", WHOLE)
    whole = read(tmp_path / f"whole{ending}", COLUMNS)
    for source in (tmp_path / "cut", f"{tmp_path}/cut/*{ending}"):
        found = read(source, COLUMNS)
        np.testing.assert_array_equal(found.rows.confidence, whole.rows.confidence)
        np.testing.assert_array_equal(found.rows.correct, whole.rows.correct)


@pytest.mark.slow
@given(st.lists(st.integers(0, N_ROWS), max_size=6).map(sorted))
def test_sums_are_the_same_to_the_last_digit_however_files_are_cut(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    write_cut(folder, cuts, ".parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUBITO_BLOCK_ENTRIES", "22")
        sums = [scan(where, COLUMNS).sum(AuditState.of).to_dict() for where in (folder, WHOLE)]
    assert sums[0] == sums[1]


def test_folders_may_spell_columns(tmp_path: Path) -> None:
    for day, shop, low in [("2026-01-10", "1", 0), ("2026-01-09", "12", 30), ("a%2Fb", "3", 60)]:
        write(tmp_path / f"day={day}" / f"shop={shop}" / "p.parquet", WHOLE.slice(low, 30))
    columns = Columns(label="y", probabilities="p", group="day", id="shop")
    batch = read(tmp_path, columns)
    assert batch.groups is not None
    assert batch.ids is not None
    assert batch.groups.tolist() == ["2026-01-09"] * 30 + ["2026-01-10"] * 30 + ["a/b"] * 30
    assert batch.ids.tolist() == [12] * 30 + [1] * 30 + [3] * 30
    assert open_source(tmp_path).schema.names == ["p", "y", "day", "shop"]
    chosen = read(f"{tmp_path}/day=2026-*/**/*.parquet", columns)
    assert len(chosen) == 60


def test_a_spelt_column_alone_has_all_rows(tmp_path: Path) -> None:
    for day in ("1", "__HIVE_DEFAULT_PARTITION__"):
        write(tmp_path / f"day={day}" / "p.csv", WHOLE.slice(0, 3))
    source = open_source(tmp_path)
    values = [
        value for b in source.batches(["day"], [], 2) for value in b.column("day").to_pylist()
    ]
    assert values == [1] * 3 + [None] * 3


def test_what_paths_spell() -> None:
    assert _partition_of("s3://b/data/x=1/y=%20/f.pq", "s3://b/data") == {"x": "1", "y": " "}
    assert _partition_of("data/x=1/f.pq", "data/x=1") == {}


def test_a_dataset_elsewhere(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    for k, ending in enumerate([".parquet", ".parquet", ".csv", ".arrow"]):
        path = tmp_path / f"part_{k}{ending}"
        write(path, WHOLE.slice(30 * (k % 3), 30))
        system.pipe(f"/set{ending}/k={k}/{path.name}", path.read_bytes())
    packed = gzip.compress((tmp_path / "part_2.csv").read_bytes())
    system.pipe("/packed/one.csv.gz", packed)
    for url, low, n_rows in [
        ("memory://set.parquet", 0, 60),
        ("memory://set.parquet/k=*/*.parquet", 0, 60),
        ("memory://set.csv/k=2/part_2.csv", 60, 30),
        ("memory://set.arrow", 0, 30),
        ("memory://packed/one.csv.gz", 60, 30),
    ]:
        batch = read(url, COLUMNS)
        wanted = read(WHOLE.slice(low, n_rows), COLUMNS)
        np.testing.assert_array_equal(batch.rows.confidence, wanted.rows.confidence)
    assert open_source("memory://set.parquet").schema.names == ["p", "y", "k"]
    assert open_source("memory://set.parquet/k=1").schema.names == ["p", "y"]
    with pytest.raises(BadFileError, match=r"\.npz can be read from this machine only"):
        read("memory://set/f.npz", COLUMNS)
    with pytest.raises(BadFileError, match="there is no such file"):
        read("memory://set/nothing.parquet", COLUMNS)


DIFFERENT: list[tuple[Any, str]] = [
    (pa.table({"p": [0.5]}), "it has no column 'y', unlike {first}"),
    (
        pa.table({"p": ["a"], "y": [1]}),
        "its column 'p' has type string, but double in {first}",
    ),
]


@pytest.mark.parametrize(("table", "problem"), DIFFERENT)
def test_a_file_that_differs_is_named(tmp_path: Path, table: pa.Table, problem: str) -> None:
    write_cut(tmp_path, [10, 20], ".parquet")
    write(tmp_path / "part_1.parquet", table)
    with pytest.raises(BadFileError) as caught:
        scan(tmp_path, COLUMNS)
    first = tmp_path / "part_0.parquet"
    assert str(caught.value) == (
        f"{tmp_path / 'part_1.parquet'} cannot be read: {problem.format(first=first)}. Make all "
        f"files like {first}."
    )


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_columns_that_are_not_needed_may_differ(tmp_path: Path, ending: str) -> None:
    more = WHOLE.append_column("z", [[1.0] * N_ROWS])
    texts = WHOLE.append_column("z", [["a"] * N_ROWS])
    for k, table in enumerate([more.slice(0, 30), WHOLE.slice(30, 30), texts.slice(60)]):
        write(tmp_path / f"day={k}" / f"{k}{ending}", table)
    wanted = read(WHOLE, COLUMNS).rows.confidence
    np.testing.assert_array_equal(read(tmp_path, COLUMNS).rows.confidence, wanted)
    parts = [span.shards.sum(len) for span in scan(tmp_path, COLUMNS).spans()]
    assert sum(parts) == N_ROWS


def test_a_file_with_a_column_more_of_a_pattern_is_named(tmp_path: Path) -> None:
    table = pa.table({"p_a": [0.5], "p_b": [0.5]})
    write(tmp_path / "0.parquet", table)
    write(tmp_path / "1.parquet", table.append_column("p_c", [[0.5]]))
    with pytest.raises(BadFileError, match=r"1\.parquet cannot be read: it has a column 'p_c', un"):
        scan(tmp_path, Columns(probabilities="p_*"))


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_columns_of_typed_files_may_stand_in_another_order(tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"a{ending}", WHOLE.slice(0, 40))
    write(tmp_path / f"b{ending}", WHOLE.slice(40).select(["y", "p"]))
    wanted = read(WHOLE, COLUMNS).rows.confidence
    np.testing.assert_array_equal(read(tmp_path, COLUMNS).rows.confidence, wanted)


def test_columns_may_stand_in_another_order(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", WHOLE.slice(0, 40))
    write(tmp_path / "b.csv", WHOLE.slice(40).select(["y", "p"]))
    wanted = read(WHOLE, COLUMNS).rows.confidence
    np.testing.assert_array_equal(read(tmp_path, COLUMNS).rows.confidence, wanted)


def test_directories_with_inconsistent_partition_columns_raise(tmp_path: Path) -> None:
    write(tmp_path / "x=1" / "a.parquet", WHOLE)
    write(tmp_path / "y_=1" / "a.parquet", WHOLE)
    with pytest.raises(BadFileError, match=r"y_=1/a.parquet cannot be read: it has no column 'x'"):
        scan(tmp_path, COLUMNS)
    write(tmp_path / "twice" / "p=1" / "a.parquet", WHOLE)
    with pytest.raises(BadFileError, match="'p' is both a column of its files and a part of their"):
        scan(tmp_path / "twice", COLUMNS)


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
@pytest.mark.parametrize("damage", ["cut off", "other bytes", "no bytes"])
def test_a_corrupt_file_is_named(tmp_path: Path, ending: str, damage: str) -> None:
    write_cut(tmp_path, [30, 60], ending)
    bad = tmp_path / f"part_1{ending}"
    whole = bad.read_bytes()
    bad.write_bytes({"cut off": whole[:-20], "other bytes": b"?" * 900, "no bytes": b""}[damage])
    with pytest.raises(BadFileError, match=rf"part_1\{ending} cannot be read"):
        scan(tmp_path, COLUMNS).sum(len)


def test_a_corrupt_page_raises_when_it_is_read(tmp_path: Path) -> None:
    write_cut(tmp_path, [30, 60], ".parquet")
    bad = tmp_path / "part_1.parquet"
    whole = bytearray(bad.read_bytes())
    whole[4:200] = b"\xff" * 196
    bad.write_bytes(whole)
    shards = scan(tmp_path, COLUMNS)
    with pytest.raises(BadFileError, match=r"part_1\.parquet cannot be read"):
        shards.sum(len)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_bad_row_is_reported_by_its_file_and_its_row_there(tmp_path: Path, ending: str) -> None:
    write_cut(tmp_path, [30, 30, 60], ending)
    values = WHOLE["p"].slice(60).to_numpy().copy()
    values[4] = 7.0
    bad = tmp_path / f"part_3{ending}"
    write(bad, pa.table({"p": values, "y": WHOLE["y"].slice(60)}))
    with pytest.raises(BadValueError) as caught:
        scan(tmp_path, COLUMNS).sum(len)
    assert f"{bad}: `p` must be" in str(caught.value)
    assert caught.value.row == 4
    bad_rows = BadRows()
    batch = read(tmp_path, COLUMNS, bad_rows=bad_rows)
    assert [(one.file, one.row) for one in bad_rows] == [(str(bad), 4)]
    assert len(batch) == N_ROWS - 1


def test_text_files_without_a_byte_have_no_rows(tmp_path: Path) -> None:
    write_cut(tmp_path, [30], ".csv")
    (tmp_path / "part_00.csv").touch()
    assert scan(tmp_path, COLUMNS).sum(len) == N_ROWS
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "a.csv").touch()
    with pytest.raises(BadFileError, match=r"all of its files are empty\. Write"):
        scan(empty, COLUMNS)


def test_a_dataset_without_rows_raises(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", WHOLE.slice(0, 0))
    with pytest.raises(BadFileError, match="it has no rows"):
        scan(tmp_path, COLUMNS).sum(len)


def test_files_of_several_kinds_raise(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", WHOLE)
    write(tmp_path / "b.csv", WHOLE)
    with pytest.raises(BadFileError) as caught:
        scan(tmp_path, COLUMNS)
    assert str(caught.value) == (
        f"{tmp_path} cannot be read: it contains files of several kinds: .csv, .parquet. Use a "
        f"pattern such as {tmp_path}/*.parquet."
    )
    assert scan(f"{tmp_path}/*.csv", COLUMNS).sum(len) == N_ROWS
    with pytest.raises(BadFileError, match="no table matches it"):
        scan(f"{tmp_path}/*.arrow", COLUMNS)


def test_spans_are_the_rows_in_order_and_of_one_file_each(tmp_path: Path) -> None:
    write_cut(tmp_path / "k=5", [30, 30, 60], ".parquet")
    source = open_source(tmp_path)
    spans = source.spans(14)
    assert [(Path(span.source.name).name[5], span.first_row, span.n_rows) for span in spans] == [
        ("0", 0, 14), ("0", 14, 14), ("0", 28, 2), ("1", 0, 0), ("2", 0, 14), ("2", 14, 14),
        ("2", 28, 2), ("3", 0, 14), ("3", 14, 14), ("3", 28, 2),
    ]  # fmt: skip
    tables = [
        pa.Table.from_batches(span.source.batches(["y", "p", "k"], [], 5), pa.schema(
            [("y", pa.int64()), ("p", pa.float64()), ("k", pa.int64())]
        ))
        for span in spans
    ]  # fmt: skip
    found = pa.concat_tables(tables)
    assert found.select(["p", "y"]).equals(WHOLE)
    assert set(found["k"].to_pylist()) == {5}
