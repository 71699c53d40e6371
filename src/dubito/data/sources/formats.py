"""Sources, tables read piece by piece: Parquet, Arrow, CSV and TSV (also compressed), NPZ, NPY.

Types of text files are never inferred: columns are numbers or text. Of NumPy files each array is a
column, a matrix one of lists.
"""

from __future__ import annotations

import csv
import errno
import io
import math
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv
from pyarrow import ipc, parquet

from dubito.data import parsing
from dubito.data.cells import Cells
from dubito.data.labels import is_absent
from dubito.data.sources.locations import END, KeptFile, is_url, open_file, open_stream, size_of
from dubito.errors import BadFileError, BadTypeError, BadValueError, DubitoError
from dubito.kernels import blocks

if TYPE_CHECKING:
    import narwhals as nw


Names = Sequence[str]
RecordBatches = Iterator[pa.RecordBatch]

# What readers raise for a file that is damaged or of another format.
BROKEN = (
    pa.ArrowException,
    OSError,
    EOFError,
    ValueError,
    csv.Error,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, slots=True, eq=False)
class BaseSource(ABC):
    """Columns by name, and a stream of their rows.

    `name` is the path of a file, or the name of a table in error messages. A type of null in
    `schema` means that the type is not known yet. A file that is `kept` is opened once, and stays
    open until the source is closed; others are opened anew in each pass.
    """

    name: str
    schema: pa.Schema
    kept: KeptFile | None = field(default=None, kw_only=True)

    @property
    def separator(self) -> str | None:
        """The character between the cells of a text file; None for files that have types."""
        return None

    @property
    def has_types(self) -> bool:
        """Whether nulls are nulls; if not, text such as NA denotes a missing value."""
        return self.separator is None

    def close(self) -> None:
        """Close the file if it was kept open; it can still be read."""
        if self.kept is not None:
            self.kept.close()

    @abstractmethod
    def batches(self, columns: Names, texts: Names, n_rows: int) -> RecordBatches:
        """Yield these columns of all rows, in order.

        The columns in `texts` are read as text if the file has no types. `n_rows` is the number of
        rows to decode at once, where that can be chosen.
        """

    def columns_like(self, column: str) -> list[str]:
        """Return the columns with one value for each row of a column."""
        return list(self.schema.names)

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row that was read, and its number in the file."""
        return self.name, row

    def spans(self, n_rows: int) -> list[Span]:
        """Return parts of about `n_rows` rows, in order, if rows can be read independently.

        No part spans two files.
        """
        return [Span(self)]


class Span(NamedTuple):
    """A part of a file as a source, with its first row and, if known, its number of rows."""

    source: BaseSource
    first_row: int = 0
    n_rows: int | None = None


@contextmanager
def file_errors(name: str) -> Iterator[None]:
    """Convert what readers raise for a broken file into a BadFileError that names it."""
    try:
        yield
    except DubitoError:
        raise
    except UnicodeDecodeError as error:
        raise _not_utf8(name) from error
    except MemoryError as error:
        fix = "Check that it is what it should be, or convert it to Parquet"
        raise BadFileError(name, "reading it takes more memory than there is", fix) from error
    except BROKEN as error:
        if "invalid UTF8" in str(error):
            raise _not_utf8(name) from error
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise BadFileError(name, "its symbolic links form a loop", "Fix the link") from error
        text = str(error).strip().partition("\n")[0].rstrip(".")
        problem = "".join(filter(str.isprintable, text)) or "it is broken"
        fix = "Write the file again: it may be truncated or damaged"
        raise BadFileError(name, problem, fix) from error


def _not_utf8(name: str) -> BadFileError:
    """Return the error for a file in another encoding."""
    return BadFileError(name, "its text is not UTF-8", "Save it as UTF-8")


@final
@dataclass(frozen=True, slots=True, eq=False)
class TableSource(BaseSource):
    """A table in memory."""

    table: pa.Table

    def batches(self, columns: Names, texts: Names, n_rows: int) -> RecordBatches:
        yield from self.table.select(list(columns)).to_batches(max_chunksize=n_rows)


def open_table(source: Any) -> TableSource:
    """Open an Arrow table, or a frame of any library that narwhals knows."""
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return TableSource("the table", source.schema, source)
    table = _table_of(_frame_of(source))
    return TableSource("the frame", table.schema, table)


def _frame_of(source: Any) -> nw.DataFrame[Any]:
    """Return a frame with distinct column names, or raise."""
    import narwhals as nw
    from narwhals.exceptions import DuplicateError

    try:
        frame: nw.DataFrame[Any] = nw.from_native(source, eager_only=True)
    except DuplicateError as error:
        twice = " ".join(str(error).split()[-3:])
        rule, fix = "must have distinct names", "Rename one of them"
        raise BadValueError("columns", "the frame", rule, twice, fix) from error
    except TypeError as error:
        rule = "must be a path, a pandas or polars frame, or an Arrow table"
        fix = "Use `.collect()` for a lazy frame, or dubito.audit(y_true, outputs) for arrays"
        raise BadTypeError("source", "scan", rule, type(source).__name__, fix) from error
    return frame


def _table_of(frame: nw.DataFrame[Any]) -> pa.Table:
    """Return a frame as an Arrow table; a column of mixed values becomes text."""
    try:
        table = frame.to_arrow()
    except (pa.ArrowException, TypeError):
        return pa.table({str(name): _array_of(frame[name].to_list()) for name in frame.columns})
    return table.select(range(len(frame.columns)))  # without the index of pandas


def _array_of(values: list[Any]) -> pa.Array:
    """Return values as an Arrow array, as text if their types differ."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError):
        return pa.array([None if is_absent(value) else str(value) for value in values])


GROUP_BLOCKS = 16  # of 4 MB: a row group of no more is decoded as a whole
COLUMN_GROUP_BLOCKS = 4  # likewise, if there are enough columns to decode them in threads
BLOCKS_AHEAD = 64  # of all row groups that are decoded before they are used
MAGIC = b"ARROW1"  # how an Arrow file begins, and a stream does not


@final
@dataclass(frozen=True, slots=True, eq=False)
class ParquetSource(BaseSource):
    """A Parquet file, or some of its row groups; pages are decoded as they are needed."""

    groups: tuple[int, ...] | None = None

    def batches(self, columns: Names, texts: Names, n_rows: int) -> RecordBatches:
        metadata, wanted = self.metadata(), list(columns)
        groups = range(metadata.num_row_groups) if self.groups is None else self.groups
        n_entries, limit = _most_entries(metadata, groups, wanted), blocks.block_entries()
        n_blocks = COLUMN_GROUP_BLOCKS if len(wanted) > blocks.n_threads() else GROUP_BLOCKS
        if is_url(self.name):
            for group in groups:
                yield from self.streamed([group], wanted, n_rows, metadata)
        elif n_entries > n_blocks * limit:
            yield from self.streamed(list(groups), wanted, n_rows, metadata)
        else:
            runs = _runs_of(metadata, groups, n_rows)
            n_ahead = BLOCKS_AHEAD * limit // max(n_entries, limit)
            whole = partial(self.whole, columns=wanted, metadata=metadata)
            for table in blocks.map_in_order(whole, runs, n_ahead):
                yield from table.to_batches(n_rows)

    def metadata(self) -> parquet.FileMetaData:
        """Return what the file says of its row groups."""
        with open_file(self.name, self.kept) as opened:
            return parquet.read_metadata(opened)

    def streamed(
        self, groups: list[int], columns: list[str], n_rows: int, metadata: parquet.FileMetaData
    ) -> Iterator[pa.RecordBatch]:
        """Yield row groups that are too large to be held, or far, so many rows at a time."""
        # Near, all of a file would be kept in memory; far, a request a page would take too long.
        is_far = is_url(self.name)
        buffers = {"pre_buffer": is_far, "buffer_size": 0 if is_far else 1 << 16}
        with open_file(self.name, self.kept) as opened:
            file = parquet.ParquetFile(opened, metadata=metadata, **buffers)
            is_shared = blocks.n_threads() > 1
            yield from file.iter_batches(n_rows, groups, columns=columns, use_threads=is_shared)

    def whole(
        self, groups: list[int], columns: list[str], metadata: parquet.FileMetaData
    ) -> pa.Table:
        """Return some row groups; several threads may ask at once."""
        with open_file(self.name, self.kept) as opened:
            file = parquet.ParquetFile(opened, metadata=metadata, pre_buffer=False)
            return file.read_row_groups(groups, columns=columns, use_threads=False)

    def spans(self, n_rows: int) -> list[Span]:
        metadata = self.metadata()
        runs = _runs_of(metadata, range(metadata.num_row_groups), n_rows)
        lengths = [sum(metadata.row_group(k).num_rows for k in run) for run in runs]
        firsts = [0, *accumulate(lengths)]
        return [
            Span(replace(self, groups=tuple(run)), first_row, length)
            for run, first_row, length in zip(runs, firsts, lengths, strict=False)
        ]


def _runs_of(metadata: parquet.FileMetaData, groups: Sequence[int], n_rows: int) -> list[list[int]]:
    """Return row groups in runs of `n_rows` rows at most, or of one group."""
    runs: list[list[int]] = [[]]
    length = 0
    for group in groups:
        size = metadata.row_group(group).num_rows
        if runs[-1] and length + size > n_rows:
            runs.append([])
            length = 0
        runs[-1].append(group)
        length += size
    return runs


def _most_entries(metadata: parquet.FileMetaData, groups: Sequence[int], columns: list[str]) -> int:
    """Return how many entries some columns have in the row group of most rows."""
    if not groups:
        return 0
    largest = max((metadata.row_group(group) for group in groups), key=lambda one: one.num_rows)
    chunks = (largest.column(number) for number in range(largest.num_columns))
    wanted = set(columns)
    return sum(
        chunk.num_values
        for chunk in chunks
        if wanted.intersection(accumulate(chunk.path_in_schema.split("."), "{}.{}".format))
    )


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArrowSource(BaseSource):
    """An Arrow file or stream, read a record batch at a time.

    It is not memory-mapped: a file that another program truncates would end this process.
    """

    def batches(self, columns: Names, texts: Names, n_rows: int) -> RecordBatches:
        fields = [self.schema.get_field_index(name) for name in columns]
        options = ipc.IpcReadOptions(included_fields=fields)
        size = size_of(self.name)
        with open_file(self.name, self.kept) as opened:
            reader = _open_ipc(opened, options)
            if isinstance(reader, ipc.RecordBatchStreamReader):
                yield from reader
            else:
                yield from map(reader.get_batch, range(reader.num_record_batches))
        if size_of(self.name) != size:  # a stream has no end that could be missing
            raise BadFileError(self.name, "it was changed while it was read", "Read it again")


def open_parquet(name: str, kept: KeptFile | None = None) -> ParquetSource:
    """Open a Parquet file."""
    with open_file(name, kept) as opened:
        return ParquetSource(name, parquet.read_schema(opened), kept=kept)


def open_arrow(name: str, kept: KeptFile | None = None) -> ArrowSource:
    """Open an Arrow file or stream."""
    with open_file(name, kept) as opened:
        return ArrowSource(name, _open_ipc(opened).schema, kept=kept)


def _open_ipc(
    opened: pa.NativeFile, options: ipc.IpcReadOptions | None = None
) -> ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader:
    """Open what is inside, by how it begins."""
    if opened.read_at(len(MAGIC), 0) == MAGIC:
        return ipc.open_file(opened, options=options)
    return ipc.open_stream(opened.get_stream(0, END), options=options)


COMPRESSIONS = {".bz2": "bz2", ".gz": "gzip", ".zst": "zstd"}
SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
ENTRY_BYTES = 8  # of text; a row must fit into a block: about half a million numbers do
MIN_BLOCK_BYTES = 256  # whatever the setting, so that a header fits


@final
@dataclass(frozen=True, slots=True, eq=False)
class TextSource(BaseSource):
    """A text file with one row per line; quoted text may contain line breaks."""

    delimiter: str

    @property
    def separator(self) -> str:
        return self.delimiter

    def batches(self, columns: Names, texts: Names, n_rows: int) -> RecordBatches:
        try:
            with self.reader(columns, texts) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):  # a header without a line break
                return
            if "straddl" in str(error):  # two blocks
                raise _too_long(self.name, "a row") from error
            self.raise_at_first_bad_row(columns, texts)
            raise

    @contextmanager
    def reader(
        self, columns: Names, texts: Names, on_bad_row: Callable[[Any], str] | None = None
    ) -> Iterator[arrow_csv.CSVStreamingReader]:
        """Open the file. The number of a bad row is known only with a single thread."""
        reading = arrow_csv.ReadOptions(block_size=_block_bytes(), use_threads=on_bad_row is None)
        parse_options = arrow_csv.ParseOptions(
            delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=on_bad_row
        )
        types = {name: pa.string() if name in texts else pa.float64() for name in columns}
        converting = arrow_csv.ConvertOptions(
            column_types=types, include_columns=list(columns), null_values=list(parsing.GAPS)
        )
        with (
            _byte_stream(self.name, self.kept) as stream,
            arrow_csv.open_csv(stream, reading, parse_options, converting) as reader,
        ):
            yield reader

    def raise_at_first_bad_row(self, columns: Names, texts: Names) -> None:
        """Read the file again as text, to find the first bad row."""
        bad_rows: list[arrow_csv.InvalidRow] = []

        def note(row: arrow_csv.InvalidRow) -> str:
            bad_rows.append(row)
            return "error"

        first_row = 0
        try:
            with self.reader(columns, columns, note) as reader:
                for batch in reader:
                    for name in (name for name in columns if name not in texts):
                        Cells(batch.column(name), name, self.name).parsed_numbers(first_row)
                    first_row += batch.num_rows
        except pa.ArrowInvalid as error:
            if not bad_rows:
                raise
            bad = bad_rows[0]
            found = f"row {bad.number - 2} has {bad.actual_columns} cells"
            problem = f"{found}, the header has {bad.expected_columns}"
            fix = "Complete the row, or quote text that contains the separator"
            raise BadFileError(self.name, problem, fix) from error


def open_text(name: str, kept: KeptFile | None = None, *, separator: str) -> TextSource:
    """Open a text file; its header shows whether a character other than `separator` is used."""
    with _byte_stream(name, kept) as stream:
        read = io.TextIOWrapper(stream, "utf-8-sig", newline="")
        lines: list[str] = []
        _first_cells(_noted(read, lines, name), separator)
    separator = separator_of(lines, separator)
    names = _first_cells(lines, separator)
    if not names:
        raise BadFileError(name, "it has no header", "Name the columns in the first line")
    schema = pa.schema([(column, pa.null()) for column in names])
    return TextSource(name, schema, separator, kept=kept)


def separator_of(lines: Sequence[str], expected: str = ",") -> str:
    """Return the character between the cells of a header: another than expected if that has none.

    >>> separator_of(["label;p_cat;p_dog", "cat;0,75;0,25"])
    ';'
    """
    if len(_first_cells(lines, expected)) > 1:
        return expected
    return max((expected, *SEPARATORS), key=lambda other: len(_first_cells(lines, other)))


def _first_cells(lines: Iterable[str], separator: str) -> list[str]:
    """Return the cells of the first line that is not blank, none if there is no such line."""
    return next((cells for cells in csv.reader(lines, delimiter=separator) if cells), [])


def _noted(read: io.TextIOWrapper, lines: list[str], name: str) -> Iterator[str]:
    """Yield lines and note them, up to a block: a compressed line may expand without end."""
    n_left = _block_bytes()
    while line := read.readline(n_left):
        n_left -= len(line)
        if n_left <= 0:
            raise _too_long(name, "its header")
        lines.append(line)
        yield line


def _block_bytes() -> int:
    """Return how many bytes of text are read at once."""
    return max(ENTRY_BYTES * blocks.block_entries(), MIN_BLOCK_BYTES)


def _too_long(name: str, what: str) -> BadFileError:
    """Return the error for a line that does not fit into a block."""
    problem = f"{what} has more than {_block_bytes() >> 20} MB"
    return BadFileError(name, problem, "Check that it is a table with one row per line")


def _byte_stream(name: str, kept: KeptFile | None) -> pa.NativeFile:
    """Open a file, decompressed by its extension."""
    return open_stream(name, COMPRESSIONS.get(Path(name).suffix.lower()), kept)


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

    def batches(self, columns: Names, texts: Names, n_rows: int) -> RecordBatches:
        for column in columns:
            self.require_column(column, columns[0])
        n_all = self.headers[columns[0]].shape[0]
        with ExitStack() as opened:
            arrays = [self.rows_of(column, opened) for column in columns]
            for low in range(0, n_all, n_rows):
                pieces = [arrow_of(read(slice(low, min(low + n_rows, n_all)))) for read in arrays]
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
