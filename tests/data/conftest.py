"""One table, written as every kind of file and frame."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import csv, feather, ipc, parquet

Write = Callable[[str, pa.Table], Any]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return what writes a table in a format and returns what to read it from."""

    def write_table(form: str, table: pa.Table) -> Any:
        if form in IN_MEMORY:
            return IN_MEMORY[form](table)
        path = tmp_path / (form if form == "npy" else f"predictions.{form.split()[0]}")
        ON_DISK[form](table, path)
        return path

    return write_table


def write_text(table: pa.Table, path: Path) -> None:
    separator = "\t" if ".tsv" in path.suffixes else ","
    with pa.output_stream(path) as stream:  # packed by its ending
        csv.write_csv(table, stream, csv.WriteOptions(delimiter=separator))


def write_parquet(table: pa.Table, path: Path) -> None:
    parquet.write_table(table, path, row_group_size=7)


def write_arrow(table: pa.Table, path: Path) -> None:
    with ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=7)


def write_stream(table: pa.Table, path: Path) -> None:
    with ipc.new_stream(path, table.schema) as file:
        file.write_table(table, max_chunksize=7)


def write_npz(table: pa.Table, path: Path) -> None:
    np.savez(path, **arrays_of(table))


def write_npy(table: pa.Table, path: Path) -> None:
    path.mkdir(exist_ok=True)
    for name, array in arrays_of(table).items():
        np.save(path / f"{name}.npy", array)


def arrays_of(table: pa.Table) -> dict[str, Any]:
    return {name: array_of(table.column(name).combine_chunks()) for name in table.column_names}


def array_of(column: pa.Array) -> NDArray[Any]:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or hasattr(column.type, "value_type"):
        return np.array(column.to_pylist())
    return np.asarray(column.to_numpy(zero_copy_only=False))


IN_MEMORY: dict[str, Callable[[pa.Table], Any]] = {
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
    "table": lambda table: table,
    "record batch": lambda table: table.combine_chunks().to_batches()[0],
}
ON_DISK: dict[str, Callable[[pa.Table, Path], None]] = {
    "arrow": write_arrow,
    "arrow stream": write_stream,
    "csv": write_text,
    "csv.bz2": write_text,
    "csv.gz": write_text,
    "csv.zst": write_text,
    "feather": feather.write_feather,
    "npy": write_npy,
    "npz": write_npz,
    "parquet": write_parquet,
    "tsv": write_text,
    "tsv.gz": write_text,
}
