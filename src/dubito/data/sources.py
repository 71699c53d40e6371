"""Anything with columns, opened as Arrow: files by their ending, frames and tables by type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, ipc, parquet

from dubito.data.cells import NO_NUMBER, is_number
from dubito.errors import BadFileError, BadTypeError, BadValueError
from dubito.kernels.blocks import BLOCK_ENTRIES

__all__ = ["Source", "open_source"]

# What stands for a missing value in a CSV.
NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A table that can be read again and again, in pieces.

    `stream(columns, texts, n_rows)` yields record batches of at most about `n_rows` rows; the
    columns in `texts` are read as text where the file itself has no types.
    """

    name: str
    schema: pa.Schema
    stream: Callable[[Sequence[str], Sequence[str], int], Iterator[pa.RecordBatch]]


def open_source(source: Any) -> Source:
    """Open a path or a frame; what its ending or type does not tell is refused."""
    if isinstance(source, str | Path):
        return open_path(Path(source))
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return table_source("the table", source)
    try:
        frame = nw.from_native(source, eager_only=True)
    except TypeError as error:
        raise BadTypeError(
            "source",
            "scan",
            "a path, a pandas or polars frame, or an Arrow table",
            type(source).__name__,
            "dubito.audit(y_true, outputs) for plain arrays",
        ) from error
    return table_source("the frame", arrow_of_frame(frame))


def open_path(path: Path) -> Source:
    """Open a file by its ending."""
    endings = {
        ".parquet": open_parquet,
        ".pq": open_parquet,
        ".csv": open_csv,
        ".tsv": open_csv,
        ".arrow": open_arrow,
        ".feather": open_arrow,
        ".ipc": open_arrow,
        ".npz": open_npz,
        ".npy": open_npy,
    }
    suffixes = [s for s in path.suffixes if s not in (".gz", ".zst", ".bz2")]
    opener = endings.get(suffixes[-1].lower()) if suffixes else None
    if opener is None:
        known = ", ".join(sorted(endings))
        raise BadFileError(str(path), f"its ending is none of {known}", "converting it to Parquet")
    if not path.is_file():
        raise BadFileError(str(path), "there is no such file", "checking the path")
    try:
        return opener(path)
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        if isinstance(error, BadFileError):
            raise
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> BadFileError:
    """Say that a file is broken, in the words of whoever tried to read it."""
    problem = (
        str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else "it is broken"
    )
    return BadFileError(str(path), problem, "writing the file again: it may be cut off or damaged")


def table_source(name: str, table: pa.Table) -> Source:
    """Serve a table that is in memory."""

    def stream(
        columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        yield from table.select(list(columns)).to_batches(max_chunksize=n_rows)

    return Source(name, table.schema, stream)


def guarded(
    path: Path, batches: Callable[[], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yield batches, turning a file that breaks midway into an error that names it."""
    try:
        yield from batches()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def open_parquet(path: Path) -> Source:
    """Open a Parquet file; its pages are decoded piece by piece."""
    schema = parquet.ParquetFile(path).schema_arrow

    def stream(
        columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        def batches() -> Iterator[pa.RecordBatch]:
            with parquet.ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=n_rows, columns=list(columns))

        return guarded(path, batches)

    return Source(str(path), schema, stream)


def open_arrow(path: Path) -> Source:
    """Open an Arrow file or stream, memory-mapped."""

    def batches() -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(path)) as buffer:
            try:
                file = ipc.open_file(buffer)
            except pa.ArrowInvalid:
                buffer.seek(0)
                yield from ipc.open_stream(buffer)
            else:
                yield from (file.get_batch(i) for i in range(file.num_record_batches))

    def stream(
        columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        for batch in guarded(path, batches):
            for low in range(0, batch.num_rows, n_rows):
                yield batch.select(list(columns)).slice(low, n_rows)

    with pa.memory_map(str(path)) as buffer:
        try:
            schema = ipc.open_file(buffer).schema
        except pa.ArrowInvalid:
            buffer.seek(0)
            schema = ipc.open_stream(buffer).schema
    return Source(str(path), schema, stream)


def open_csv(path: Path) -> Source:
    """Open a comma-separated file, or a tab-separated .tsv; plain or compressed."""
    parse = csv.ParseOptions(delimiter="\t" if ".tsv" in path.suffixes else ",")
    with csv.open_csv(path, parse_options=parse) as reader:
        names = reader.schema.names
    # No type is guessed from the first rows: numbers are read as float64, the rest as text.
    schema = pa.schema([(name, pa.float64()) for name in names])

    def stream(
        columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        types = {name: pa.string() if name in texts else pa.float64() for name in columns}
        convert = csv.ConvertOptions(
            column_types=types,
            include_columns=list(columns),
            null_values=NULLS,
            strings_can_be_null=True,
        )
        try:
            with csv.open_csv(path, parse_options=parse, convert_options=convert) as reader:
                for batch in reader:
                    for low in range(0, batch.num_rows, n_rows):
                        yield batch.slice(low, n_rows)
        except pa.ArrowInvalid as error:
            if len(texts) < len(columns):
                everything = partial(stream, columns, columns, n_rows)
                raise_at_first_text(path, set(columns) - set(texts), everything())
            raise unreadable(path, error) from error

    return Source(str(path), schema, stream)


def raise_at_first_text(path: Path, numeric: set[str], batches: Iterator[pa.RecordBatch]) -> None:
    """Raise at the first cell of a numeric column that is no number."""
    n_before = 0
    for batch in batches:
        for name in (name for name in batch.schema.names if name in numeric):
            for i, value in enumerate(batch.column(name).to_pylist()):
                if value is not None and not is_number(value):
                    row = n_before + i
                    raise BadValueError(name, str(path), "numbers", repr(value), NO_NUMBER, row)
        n_before += batch.num_rows


def open_npz(path: Path) -> Source:
    """Open the arrays of an NPZ as columns: a matrix is a column of lists."""
    with np.load(path, allow_pickle=False) as arrays:
        names = arrays.files

    def load(name: str) -> NDArray[Any]:
        with np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays[name])

    return array_source(path, {name: partial(load, name) for name in names})


def open_npy(path: Path) -> Source:
    """Open an NPY and the others of its folder as columns, memory-mapped."""
    load = partial(np.load, mmap_mode="r", allow_pickle=False)
    files = sorted(path.parent.glob("*.npy"))
    load(path)
    return array_source(path, {file.stem: partial(load, file) for file in files})


def array_source(path: Path, loaders: dict[str, Callable[[], NDArray[Any]]]) -> Source:
    """Serve arrays as columns. Types are known only once a column is asked for."""
    schema = pa.schema([(name, pa.null()) for name in loaders])

    def stream(
        columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        arrays = {name: loaders[name]() for name in columns}
        lengths = {name: len(array) for name, array in arrays.items() if array.ndim}
        for name, array in arrays.items():
            if array.ndim not in (1, 2) or len(array) != max(lengths.values()):
                rule = f"one entry a row ({max(lengths.values(), default=0)} rows)"
                fix = f"arrays of the same length; the file has {', '.join(loaders)}"
                raise BadValueError(name, str(path), rule, f"shape {array.shape}", fix)
        width = sum(array[:1].size for array in arrays.values())
        n_rows = min(n_rows, max(1, BLOCK_ENTRIES // width))
        for low in range(0, max(lengths.values()), n_rows):
            pieces = [arrow_of_array(array[low : low + n_rows]) for array in arrays.values()]
            yield pa.RecordBatch.from_arrays(pieces, names=list(arrays))

    return Source(str(path), schema, stream)


def arrow_of_array(array: NDArray[Any]) -> pa.Array:
    """Return an array as an Arrow column; a matrix becomes lists of fixed size."""
    if array.ndim == 1:
        return pa.array(array)
    flat = pa.array(np.ascontiguousarray(array).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])


def arrow_of_frame(frame: nw.DataFrame[Any]) -> pa.Table:
    """Return a pandas or polars frame as an Arrow table; mixed columns become text."""
    try:
        return frame.to_arrow()
    except (pa.ArrowException, TypeError):
        columns = {}
        for name in frame.columns:
            values = frame[name].to_list()
            try:
                columns[name] = pa.array(values)
            except (pa.ArrowException, TypeError):
                columns[name] = pa.array([None if v is None else str(v) for v in values])
        return pa.table(columns)
