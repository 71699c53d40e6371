"""NPZ files, and the NPY files of a directory: each array is a column, a matrix one of lists."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, final

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from numpy.typing import NDArray

from dubito.data.sources.source import BaseSource, file_errors
from dubito.errors import BadFileError, BadTypeError, BadValueError

KINDS = "biufUSM"  # of NumPy types: numbers, text and dates


class Header(NamedTuple):
    """The shape, order and type of a stored array, and where its entries start."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]
    start: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArraySource(BaseSource):
    """Arrays as columns. Those requested must have one length; others are never loaded.

    An NPZ is loaded into memory, the NPY files of a directory are read block by block. They are not
    memory-mapped: a file that another program truncates would end this process.
    """

    headers: Mapping[str, Header]

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        for column in columns:
            self.require_column(column, columns[0])
        n_all = self.headers[columns[0]].shape[0]
        with ExitStack() as opened:
            arrays = [self.rows_of(column, opened) for column in columns]
            for low in range(0, n_all, n_rows):
                rows = slice(low, min(low + n_rows, n_all))
                pieces = [arrow_of(read(rows)) for read in arrays]
                yield pa.RecordBatch.from_arrays(pieces, names=list(columns))

    def columns_like(self, column: str) -> list[str]:
        n_rows = self.headers[column].shape[:1]
        return [
            name
            for name, (shape, _, dtype, _) in self.headers.items()
            if shape[:1] == n_rows and len(shape) <= 2 and dtype.kind in KINDS
        ]

    def require_column(self, column: str, first: str) -> None:
        """Raise unless an array has one entry per row, of numbers or text."""
        shape, _, dtype, _ = self.headers[column]
        n_rows = self.headers[first].shape[:1]
        if dtype.kind not in KINDS:
            # A pickled array is never loaded: doing so could run code.
            got = "pickled objects" if dtype.hasobject else f"dtype {dtype}"
            fix = "Apply `.astype(float)` or `.astype(str)` before saving it"
            raise BadTypeError(column, self.name, "must be numbers or text", got, fix)
        if len(shape) not in (1, 2):
            rule = "must be rows, or rows x entries"
            fix = "Apply `.reshape(n_rows, -1)` before saving it"
            raise BadValueError(column, self.name, rule, f"shape {shape}", fix)
        if shape[:1] != n_rows:
            rule = f"must be as long as `{first}` ({n_rows[0]} rows)"
            fix = "Save arrays with one entry per row"
            raise BadValueError(column, self.name, rule, f"{shape[0]} rows", fix)

    def rows_of(self, column: str, opened: ExitStack) -> Callable[[slice], NDArray[Any]]:
        """Return a function that reads rows of an array; the stack closes its file."""
        path = Path(self.name)
        if path.is_dir():
            file = opened.enter_context((path / f"{column}.npy").open("rb"))
            return partial(_stored_rows, file, self.headers[column])
        with np.load(path, allow_pickle=False) as arrays:
            loaded: NDArray[Any] = np.asarray(arrays[column])
        return loaded.__getitem__


def _stored_rows(file: IO[bytes], header: Header, rows: slice) -> NDArray[Any]:
    """Read rows of an NPY file."""
    shape, is_fortran, dtype, start = header
    n_all, n_rows, width = shape[0], rows.stop - rows.start, math.prod(shape[1:])

    def entries(first: int, count: int) -> NDArray[Any]:
        file.seek(start + first * dtype.itemsize)
        found = np.fromfile(file, dtype, count)
        if found.size < count:
            problem = f"it ends before row {rows.stop - 1:,} of {n_all:,}"
            fix = "Write the file again: it may be truncated or damaged"
            raise BadFileError(file.name, problem, fix)
        return found

    if is_fortran:
        columns = [entries(k * n_all + rows.start, n_rows) for k in range(width)]
        return np.stack(columns, axis=1).reshape(n_rows, *shape[1:])
    return entries(rows.start * width, n_rows * width).reshape(n_rows, *shape[1:])


def open_npz(path: Path) -> ArraySource:
    """Open an NPZ file."""
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    headers[member.removesuffix(".npy")] = _read_header(file)
    return _source_of(path, headers)


def open_npy(path: Path) -> ArraySource:
    """Open the NPY files of a directory, or of the directory of one of them."""
    folder = path if path.is_dir() else path.parent
    headers = {}
    for path in sorted(folder.glob("*.npy")):
        with file_errors(str(path)), path.open("rb") as file:
            headers[path.stem] = _read_header(file)
    return _source_of(folder, headers)


def _source_of(path: Path, headers: dict[str, Header]) -> ArraySource:
    """Return arrays as a source with the widths of its matrices."""
    types = {
        name: pa.list_(pa.null(), shape[1]) if len(shape) == 2 else pa.null()
        for name, (shape, *_) in headers.items()
    }
    return ArraySource(str(path), pa.schema(types.items()), headers)


def _read_header(file: IO[bytes]) -> Header:
    """Read the header of an array, without its entries."""
    is_long = npy.read_magic(file) != (1, 0)
    read = npy.read_array_header_2_0 if is_long else npy.read_array_header_1_0
    return Header(*read(file), file.tell())


def arrow_of(array: NDArray[Any]) -> pa.Array:
    """Return an array as an Arrow column; a matrix becomes lists of fixed size."""
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.ndim == 1:
        return pa.array(array)
    flat = pa.array(np.ascontiguousarray(array).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
