"""Files and frames as shards: `scan` streams, `read` loads; bad rows are set aside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dubito.arrays import as_count
from dubito.data import parsing
from dubito.data.batch import Batch
from dubito.data.cells import Cells, is_list
from dubito.data.columns import BoundColumns, Columns
from dubito.data.patterns import missing_column
from dubito.data.shards import Shards, joined
from dubito.data.sources import BaseSource, file_errors, open_source
from dubito.data.sources.formats import TableSource
from dubito.data.sources.opening import DatasetSource
from dubito.data.table_queries import row_count
from dubito.errors import BadFileError, BadTypeError, BadValueError
from dubito.kernels import blocks

RUN_ROWS = 512  # read again for each bad row among them


@final
@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read: its position, its value and the reason.

    Attributes
    ----------
    file : str
        The file.
    row : int
        The row number, counted from 0.
    column, value, reason : str
        The first problem of the row.
    """

    file: str
    row: int
    column: str
    value: str
    reason: str


@final
class BadRows:
    """The bad rows of files that were read, each of them once.

    Pass it to `scan` or `read` to set aside numbers that cannot be parsed or are invalid, and
    unknown labels. A CSV line with too many or too few cells still raises an error, as it may have
    shifted what follows.

    Parameters
    ----------
    max_rows : int, default=10_000
        More bad rows than this raise an error: then something is wrong with the file.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from dubito.data import BadRows
    >>> from dubito.data import Columns, read
    >>> table, bad_rows = pa.table({"p": [0.5, 1.5, 0.25]}), BadRows()
    >>> read(table, Columns(probabilities="p"), bad_rows=bad_rows).ids.tolist(), len(bad_rows)
    ([0, 2], 1)
    """

    def __init__(self, max_rows: int = 10_000) -> None:
        self.max_rows = as_count(max_rows, "max_rows", "BadRows", least=0, example=10_000)
        self.found: dict[tuple[str, int], BadRow] = {}
        self.lock = Lock()

    def add(self, bad: BadRow) -> None:
        """Add a bad row, or raise if there are too many.

        Parameters
        ----------
        bad : BadRow
            The file, row and column, the value, and what is wrong with it.
        """
        with self.lock:
            self.found[bad.file, bad.row] = bad
            n_rows = len(self.found)
        if n_rows > self.max_rows:
            rule, got = f"must have at most {self.max_rows:,} bad rows", f"{n_rows:,}, the last"
            fix = (
                f"Fix `{bad.column}` ({bad.reason}, got {bad.value}), or use BadRows(max_rows=...)"
            )
            raise BadValueError("rows", bad.file, rule, got, fix, bad.row)

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[BadRow]:
        return iter([self.found[place] for place in sorted(self.found)])

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The bad rows as columns for a sink, sorted by file and row."""
        rows = list(self)
        texts = {
            name: np.array([getattr(bad, name) for bad in rows], dtype=object)
            for name in ("file", "column", "value", "reason")
        }
        numbers = np.array([bad.row for bad in rows], dtype=np.int64)
        return {"file": texts.pop("file"), "row": numbers, **texts}


def _faults(columns: BoundColumns, piece: pa.Table) -> Iterator[tuple[int, BadValueError]]:
    """Yield the bad rows of a piece: in short runs, so that few rows are checked again."""
    for low in range(0, piece.num_rows, RUN_ROWS):
        run = piece[low : low + RUN_ROWS]
        rows = np.arange(low, low + run.num_rows)
        while (error := _fault_in(columns, run)) is not None:
            assert error.row is not None
            yield int(rows[error.row]), error
            is_left = np.arange(rows.size) != error.row
            run, rows = run.filter(pa.array(is_left)), rows[is_left]


def _fault_in(columns: BoundColumns, run: pa.Table) -> BadValueError | None:
    """Return the error of the first bad row, or None; raise errors that concern all rows."""
    try:
        columns.batch(run)
    except BadValueError as error:
        if error.row is None:
            raise
        return error
    return None


SPAN_BLOCKS = 8  # 32 MB of float32: more than a task's overhead, less than its memory


def scan(source: Any, columns: Columns, *, bad_rows: BadRows | None = None) -> FileShards:
    """Return the rows of a file or frame as shards, streamed anew in every pass.

    Parameters
    ----------
    source : path or table
        A path (Parquet, CSV, TSV, Arrow, Feather, NPZ, NPY), a pandas or polars frame, or an Arrow
        table. A directory, or a pattern such as ``data/*.parquet``, is all of its files in natural
        order, which must agree in the columns needed; directories such as day=2026-01-01 become a
        column. URLs are opened with fsspec. Each array of an NPZ, and each NPY file of a
        directory, is a column; a matrix is a column of lists.
    columns : Columns
        The roles of the columns.
    bad_rows : BadRows, optional
        Collects bad rows, which otherwise raise an error. Rows then have their number in the file
        as id, unless a column holds ids.

    Returns
    -------
    FileShards
        The rows. `read` returns them in memory instead.
    """
    if not isinstance(columns, Columns):
        fix = "Pass Columns(label='y', logits='logit_*')"
        raise BadTypeError("columns", "scan", "must be Columns", repr(columns), fix)
    opened = open_source(source)
    bound = columns.bind(opened.schema.names, opened.name)
    if isinstance(opened, DatasetSource):
        opened.require_alike(lambda file: columns.bind(file.schema.names, file.name).needed)
    with file_errors(opened.name):
        widths = _list_widths(opened, bound.needed)
        texts = set(bound.texts)
        decimal = _decimal_of(opened, [name for name in bound.needed if name not in texts])
    bound = replace(bound, widths=widths, has_types=opened.has_types, decimal=decimal)
    return FileShards(opened, bound, bad_rows)


def _decimal_of(source: BaseSource, numbers: list[str]) -> str:
    """Return the point or comma of numbers; a comma only if other characters separate cells."""
    if source.separator in (None, ","):
        return "."
    first = next(source.batches(numbers, numbers, n_rows=1000), None)
    if first is None or not any(pc.any(pc.match_substring(one, ",")).as_py() for one in first):
        return "."
    return parsing.decimal_separator(first.slice(0, 1000).to_pydict(), source.name)


def read_cells(
    source: Any,
    columns: Collection[str],
    texts: Collection[str],
    roles: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Cells]:
    """Return whole columns of a file; those in `texts` are read as text if the file has no types.

    For files whose columns are no outputs of one model. Columns that the file lacks raise, with the
    flag or argument among `roles` that named them.
    """
    opened = open_source(source)
    for name in columns:
        if name not in opened.schema.names:
            raise missing_column(name, opened.schema.names, roles.get(name, ""), opened.name)
    wanted = list(dict.fromkeys(columns))
    with file_errors(opened.name):
        decimal = _decimal_of(opened, [name for name in wanted if name not in texts])
        as_text = wanted if decimal != "." else [name for name in wanted if name in texts]
        pieces = list(opened.batches(wanted, as_text, SPAN_BLOCKS * blocks.block_entries()))
    if not pieces:
        raise BadFileError(opened.name, "it has no rows", "Check that it is the right file")
    table = pa.Table.from_batches(pieces)
    return {name: Cells.of(table, name, opened.name, decimal) for name in wanted}


def read(source: Any, columns: Columns, *, bad_rows: BadRows | None = None) -> Batch:
    """Return all rows of a file or frame as one batch in memory.

    Parameters
    ----------
    source : str, path or data frame
        A Parquet, CSV, Arrow or NPZ file, directory, glob or URL, or a data frame, as for `scan`.
    columns : Columns
        Which columns hold outputs, labels and so on.
    bad_rows : BadRows, optional
        Collects rows that cannot be read, up to a limit; by default the first one is an error.

    Returns
    -------
    Batch
        All rows.

    Examples
    --------
    >>> from dubito.data import Columns, read
    >>> import pandas
    >>> frame = pandas.DataFrame({"p_cat": [0.75, 0.5], "p_dog": [0.25, 0.5], "y": ["cat", "dog"]})
    >>> read(frame, Columns(label="y", probabilities="p_*")).rows.confidence.tolist()
    [0.75, 0.5]
    """
    shards = scan(source, columns, bad_rows=bad_rows)
    n_rows = row_count(shards.source) if shards.source.has_types else None
    if bad_rows is not None:  # found in order, as too many of them are an error
        return joined(shards.batches(), n_rows)
    return joined(blocks.map_in_order(lambda make: make(), shards.parts()), n_rows)


@final
@dataclass(frozen=True, slots=True, eq=False)
class FileShards(Shards):
    """Rows of one or more files, or of a frame, decoded piece by piece. Made by `scan`.

    For a part of a file (`is_some`), `first_row` is the number of its first row in the file, and
    it may be empty.

    Parameters
    ----------
    source : BaseSource
        The opened file, files or frame.
    columns : BoundColumns
        Which columns hold what.
    bad_rows : BadRows, optional
        Collects rows that cannot be read; by default these are errors.
    first_row : int, default=0
        The number of the first row in its file.
    is_some : bool, default=False
        Whether this is a part of a file, which may have no rows.
    """

    source: BaseSource
    columns: BoundColumns
    bad_rows: BadRows | None = None
    first_row: int = 0
    is_some: bool = False

    def __repr__(self) -> str:
        return f"FileShards({self.source.name!r}, {self.columns.kind})"

    @property
    def progress_name(self) -> str | None:
        return None if isinstance(self.source, TableSource) else self.source.name

    def parts(self) -> Iterator[Callable[[], Batch]]:
        first_row = self.first_row
        for piece in self.pieces():
            yield partial(self._batch, piece, first_row)
            first_row += piece.num_rows

    def _batch(self, piece: pa.Table, first_row: int) -> Batch:
        """Return a batch of a piece, without its bad rows if these are collected."""
        is_good = np.ones(piece.num_rows, dtype=bool)
        try:
            batch = self.columns.batch(piece, first_row)
        except BadValueError as error:
            if error.row is None:
                raise
            if self.bad_rows is None:
                file, row = self.source.place(error.row)
                raise self.columns.of_text(error.moved(caller=file, row=row)) from error
            for row, fault in _faults(self.columns, piece):
                is_good[row] = False
                entry = "" if fault.column is None else f"[{fault.column}]"
                place, name = self.source.place(first_row + row), f"{fault.argument}{entry}"
                self.bad_rows.add(BadRow(*place, name, fault.got, fault.rule.rstrip(":")))
            batch = self.columns.batch(piece.filter(pa.array(is_good)), first_row)
        if self.bad_rows is None or batch.ids is not None:
            return batch
        return replace(batch, ids=first_row + np.flatnonzero(is_good))

    def spans(self) -> list[FileSpan]:
        """Return the same rows in parts that can be read independently: row groups, or files.

        Returns
        -------
        list of FileSpan
            Shards of a part each, with the number of rows where the file states it.
        """
        n_rows = SPAN_BLOCKS * blocks.block_entries() // self.columns.n_entries
        return [
            FileSpan(
                replace(
                    self,
                    source=span.source,
                    columns=replace(self.columns, where=span.source.name),
                    first_row=span.first_row,
                    is_some=True,
                ),
                span.n_rows,
            )
            for span in self.source.spans(max(1, n_rows))
        ]

    def pieces(self) -> Iterator[pa.Table]:
        """Yield the table in pieces that fit the processor's caches; raise if it has no rows.

        Pieces depend on the columns only, not on the chunks of the file: the same rows give
        bit-identical results in every file format.

        Yields
        ------
        pyarrow.Table
            The next rows, with the columns that are needed.
        """
        keep = self.columns.keep
        wanted = list(dict.fromkeys([*self.columns.needed, *keep]))
        # Bad rows are found one by one in text, which a typed reader would refuse as a whole.
        is_typed = self.bad_rows is None and self.columns.decimal == "."
        texts = self.columns.texts if is_typed else wanted
        n_rows = max(1, blocks.block_entries() // self.columns.n_entries)
        # Decoding costs a call per column: a wide table is decoded several pieces at a time.
        n_decoded = max(n_rows, min(8 * n_rows, 1 << 14))
        is_empty = True
        with file_errors(self.source.name):
            batches = self.source.batches(wanted, texts, n_decoded)
            if is_typed or self.source.has_types:
                batches = (_cast(batch, keep) for batch in batches)
            try:
                for piece in _resized(batches, n_rows):
                    is_empty = False
                    yield piece
            except BadValueError as error:
                raise self.columns.of_text(error) from error
        if is_empty and not self.is_some:
            raise without_rows(self.source.name)


def without_rows(name: str) -> BadFileError:
    """Return the error for a file without rows."""
    return BadFileError(name, "it has no rows", "Pass a file with at least one row")


class FileSpan(NamedTuple):
    """A part of a file, and its number of rows if that is known without reading it."""

    shards: FileShards
    n_rows: int | None


def _cast(batch: pa.RecordBatch, keep: Mapping[str, pa.DataType | None]) -> pa.RecordBatch:
    """Return a batch with the columns to keep in their types."""
    schema = pa.schema([(one.name, keep.get(one.name) or one.type) for one in batch.schema])
    return batch if schema.types == batch.schema.types else batch.cast(schema)


def _resized(batches: Iterable[pa.RecordBatch], n_rows: int) -> Iterator[pa.Table]:
    """Yield tables of `n_rows` rows, the last one shorter, whatever the sizes of the batches."""
    waiting: list[pa.RecordBatch] = []
    n_waiting = 0
    for batch in batches:
        low = 0
        while low < batch.num_rows:
            part = batch.slice(low, n_rows - n_waiting)
            low += part.num_rows
            waiting.append(part)
            n_waiting += part.num_rows
            if n_waiting == n_rows:
                yield pa.Table.from_batches(waiting)
                waiting, n_waiting = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _list_widths(source: BaseSource, columns: list[str]) -> dict[str, int]:
    """Return the list length of each list column: by its type, or by its first list."""
    types = {name: source.schema.field(name).type for name in columns}
    stored = {name: getattr(kind, "storage_type", kind) for name, kind in types.items()}
    lists = {name: kind for name, kind in stored.items() if is_list(kind)}
    widths = {name: kind.list_size for name, kind in lists.items() if hasattr(kind, "list_size")}
    return widths | {name: _first_length(source, name) for name in lists if name not in widths}


def _first_length(source: BaseSource, column: str) -> int:
    """Return the length of the first non-empty list, 1 if there is none."""
    for batch in source.batches([column], [], n_rows=64):
        lengths: list[int] = pc.list_value_length(batch.column(column)).drop_null().to_pylist()
        if any(lengths):
            return next(length for length in lengths if length)
    return 1
