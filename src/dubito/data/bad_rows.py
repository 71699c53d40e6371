"""Rows that cannot be read: set aside and reported, so that the others can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dubito.arrays import as_count
from dubito.data.batch import Batch
from dubito.data.columns import BoundColumns
from dubito.errors import BadTypeError, BadValueError

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
    most : int, default=10_000
        More bad rows than this raise an error: then something is wrong with the file.

    Examples
    --------
    >>> from dubito.data import Columns, read
    >>> table, bad_rows = pa.table({"p": [0.5, 1.5, 0.25]}), BadRows()
    >>> read(table, Columns(probabilities="p"), bad_rows=bad_rows).ids.tolist(), len(bad_rows)
    ([0, 2], 1)
    """

    def __init__(self, most: int = 10_000) -> None:
        self.most = as_count(most, "most", "BadRows", least=0, example=10_000)
        self.found: dict[tuple[str, int], BadRow] = {}
        self.lock = Lock()

    def add(self, bad: BadRow) -> None:
        """Add a bad row, or raise if there are too many."""
        with self.lock:
            self.found[bad.file, bad.row] = bad
            n_rows = len(self.found)
        if n_rows > self.most:
            rule, got = f"must have at most {self.most:,} bad rows", f"{n_rows:,}, the last"
            fix = f"Fix `{bad.column}` ({bad.reason}, got {bad.value}), or use BadRows(most=...)"
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


def batch_of_good_rows(
    columns: BoundColumns,
    piece: pa.Table,
    first_row: int,
    bad_rows: BadRows,
    place_of: Callable[[int], tuple[str, int]],
) -> Batch:
    """Return a batch of the rows that can be read, and report the others."""
    is_good = np.ones(piece.num_rows, dtype=bool)
    try:
        batch = columns.batch(piece, first_row)
    except BadValueError as error:
        if error.row is None:
            raise
        for row, fault in _faults(columns, piece):
            is_good[row] = False
            bad_rows.add(BadRow(*place_of(first_row + row), _place(fault), fault.got, fault.rule))
        batch = columns.batch(piece.filter(pa.array(is_good)), first_row)
    if batch.ids is not None:
        return batch
    return replace(batch, ids=first_row + np.flatnonzero(is_good))


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


def _place(error: BadValueError | BadTypeError) -> str:
    """Return the column of an error, with the entry if it is a list."""
    return error.argument if error.column is None else f"{error.argument}[{error.column}]"
