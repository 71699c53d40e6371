"""Parquet and Arrow files: distinguished, and read no further than needed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from dubito.data import Columns, read, scan
from dubito.data.labels import Labels
from dubito.data.sources import formats
from dubito.data.sources.formats import open_arrow, open_parquet
from dubito.errors import BadFileError

TABLE = pa.table({"p": [0.25, 0.5, 0.75], "y": [1, 0, 1], "note": ["a", "b", "c"]})


def write_ipc(new: Callable[..., Any], path: Path, batches: list[pa.RecordBatch]) -> None:
    with new(path, batches[0].schema) as file:
        for batch in batches:
            file.write_batch(batch)


each_kind = pytest.mark.parametrize("new", [ipc.new_file, ipc.new_stream])


@each_kind
@pytest.mark.parametrize("name", ["f.arrow", "f.ipc", "f.feather"])
def test_files_and_streams_are_distinguished_by_their_first_bytes(
    tmp_path: Path, new: Callable[..., Any], name: str
) -> None:
    write_ipc(new, tmp_path / name, TABLE.to_batches(max_chunksize=2))
    assert len(read(tmp_path / name, Columns(label="y", probabilities="p"))) == 3


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_may_be_packed(tmp_path: Path, compression: str) -> None:
    feather.write_feather(TABLE, tmp_path / "f.feather", compression=compression)
    assert len(read(tmp_path / "f.feather", Columns(label="y", probabilities="p"))) == 3


@each_kind
def test_only_the_columns_asked_for_are_decoded(tmp_path: Path, new: Callable[..., Any]) -> None:
    write_ipc(new, tmp_path / "f.arrow", TABLE.to_batches())
    parquet.write_table(TABLE, tmp_path / "f.parquet")
    for source in (
        open_arrow(str(tmp_path / "f.arrow")),
        open_parquet(str(tmp_path / "f.parquet")),
    ):
        assert source.schema.names == ["p", "y", "note"]
        batches = list(source.batches(["y"], [], n_rows=10))
        assert [batch.schema.names for batch in batches] == [["y"]]


def test_parquet_is_decoded_so_many_rows_at_a_time(tmp_path: Path) -> None:
    parquet.write_table(TABLE, tmp_path / "f.parquet")
    batches = open_parquet(str(tmp_path / "f.parquet")).batches(["p"], [], n_rows=2)
    assert [batch.num_rows for batch in batches] == [2, 1]


@pytest.mark.parametrize("n_groups_held", [16, 0])
@pytest.mark.parametrize("group_rows", [1, 7, 100])
def test_row_groups_come_in_order_whole_or_streamed(
    tmp_path: Path, group_rows: int, n_groups_held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "GROUP_BLOCKS", n_groups_held)
    monkeypatch.setenv("DUBITO_THREADS", "3")
    table = pa.table({"x": range(100), "z": [[float(i), 0.5] for i in range(100)]})
    parquet.write_table(table, tmp_path / "f.parquet", row_group_size=group_rows)
    source = open_parquet(str(tmp_path / "f.parquet"))
    batches = list(source.batches(["z", "x"], [], n_rows=10))
    assert max(batch.num_rows for batch in batches) <= 10
    assert pa.Table.from_batches(batches).select(["x", "z"]).equals(table)
    spans = source.spans(20)
    assert [span.first_row for span in spans] == [
        0,
        *np.cumsum([span.n_rows for span in spans])[:-1],
    ]
    assert all((span.n_rows or 0) <= max(20, group_rows) for span in spans)
    rows = [batch for span in spans for batch in span.source.batches(["x"], [], n_rows=50)]
    assert pa.Table.from_batches(rows).equals(table.select(["x"]))


def test_entries_are_counted_of_the_columns_asked_for(tmp_path: Path) -> None:
    table = pa.table({"a.b": [1, 2, 3], "lists": [[1.0, 2.0]] * 3, "c": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "f.parquet", row_group_size=2)
    metadata = open_parquet(str(tmp_path / "f.parquet")).metadata()
    for name, n_entries in {"a.b": 2, "lists": 4, "c": 2}.items():
        assert formats._most_entries(metadata, [0, 1], [name]) == n_entries
    assert formats._most_entries(metadata, [1], ["lists", "c"]) == 3
    assert formats._most_entries(metadata, [], ["c"]) == 0


def test_each_batch_of_a_stream_may_have_categories_of_its_own(tmp_path: Path) -> None:
    columns = [
        pa.DictionaryArray.from_arrays(indices, names)
        for indices, names in (([0, 1], ["dog", "cat"]), ([0, None], ["cat", "dog"]))
    ]
    batches = [pa.record_batch({"p": [0.5, 0.5], "y": column}) for column in columns]
    write_ipc(ipc.new_stream, tmp_path / "f.arrow", batches)
    columns_of = Columns(label="y", probabilities="p", classes=["cat", "dog"])
    truth = read(tmp_path / "f.arrow", columns_of).labels
    assert isinstance(truth, Labels)
    assert truth.codes.tolist() == [1, 0, 0, -1]


def test_names_with_dots_are_names(tmp_path: Path) -> None:
    table = pa.table({"p": [0.5], "p.a": [0.25], "p.b": [0.75]})
    parquet.write_table(table, tmp_path / "f.parquet")
    outputs = read(tmp_path / "f.parquet", Columns(probabilities="p.*")).outputs
    assert outputs.array.tolist() == [[0.25, 0.75]]  # type: ignore[attr-defined]


def test_ids_outlive_the_file_they_were_read_from(tmp_path: Path) -> None:
    write_ipc(ipc.new_file, tmp_path / "f.arrow", TABLE.to_batches())
    batch = read(tmp_path / "f.arrow", Columns(probabilities="p", id="y"))
    (tmp_path / "f.arrow").unlink()
    assert batch.ids is not None
    assert batch.ids.tolist() == [1, 0, 1]


@each_kind
def test_a_file_cut_while_it_is_read_is_an_error_and_no_signal(
    tmp_path: Path, new: Callable[..., Any]
) -> None:
    path, table = tmp_path / "f.arrow", pa.table({"p": np.full(3_000_000, 0.5)})
    write_ipc(new, path, table.to_batches(max_chunksize=100_000))
    batches = scan(path, Columns(probabilities="p")).batches()
    next(batches)
    os.truncate(path, 20_000)
    with pytest.raises(BadFileError, match=r"f\.arrow cannot be read"):
        list(batches)
