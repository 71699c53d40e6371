"""Rows that cannot be read, set aside and told, so that the others can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dubito.data.batch import Batch
from dubito.data.columns import BoundColumns
from dubito.errors import BadTypeError, BadValueError

RUN_ROWS = 512  # read again for each bad row among them


@final
@dataclass(frozen=True, slots=True)
class BadRow:
    """Where a bad row is, counted from 0, what stands there, and the rule that it breaks.

    Of a row that breaks several rules one is told.
    """

    file: str
    row: int
    column: str
    value: str
    reason: str


@final
class BadRows:
    """The bad rows of files that were read, each once however often they are read.

    Bad are numbers that cannot be read or break a rule, and labels of no class; a line of CSV with
    cells too many or too few stops the run, as it may have shifted what follows. More bad rows than
    `most` stop it too: then something is wrong with the file.

    >>> from dubito.data import Columns, read
    >>> table, bad_rows = pa.table({"p": [0.5, 1.5, 0.25]}), BadRows()
    >>> read(table, Columns(probabilities="p"), bad_rows=bad_rows).ids.tolist(), len(bad_rows)
    ([0, 2], 1)
    """

    def __init__(self, most: int = 10_000) -> None:
        is_whole = isinstance(most, int | np.integer) and not isinstance(most, bool)
        if not (is_whole and most >= 0):
            rule = "a whole number from 0 up"
            raise BadValueError("most", "BadRows", rule, repr(most), "most=10_000")
        self.most = int(most)
        self.found: dict[tuple[str, int], BadRow] = {}
        self.lock = Lock()

    def add(self, bad: BadRow) -> None:
        """Keep a bad row, or raise where there are too many."""
        with self.lock:
            self.found[bad.file, bad.row] = bad
            n_rows = len(self.found)
        if n_rows > self.most:
            rule, got = f"good but for at most {self.most:,}", f"{n_rows:,} bad ones"
            fix = f"mending `{bad.column}` ({bad.reason}, got {bad.value}), or BadRows(most=...)"
            raise BadValueError("rows", bad.file, rule, got, fix, bad.row)

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[BadRow]:
        return iter([self.found[place] for place in sorted(self.found)])

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The bad rows as columns that a sink takes, by file and row."""
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
    """Make a batch of the rows that can be read, and tell the others."""
    is_good = np.ones(piece.num_rows, dtype=bool)
    try:
        batch = columns.batch(piece, first_row)
    except BadValueError as error:
        if error.row is None:
            raise
        for row, fault in _faults(columns, piece):
            is_good[row] = False
            reason = fault.rule if fault.rule.startswith("must ") else f"must be {fault.rule}"
            bad_rows.add(BadRow(*place_of(first_row + row), _place(fault), fault.got, reason))
        batch = columns.batch(piece.filter(pa.array(is_good)), first_row)
    if batch.ids is not None:
        return batch
    return replace(batch, ids=first_row + np.flatnonzero(is_good))


def _faults(columns: BoundColumns, piece: pa.Table) -> Iterator[tuple[int, BadValueError]]:
    """Yield the bad rows of a piece: in short runs, so that few rows are looked at again."""
    for low in range(0, piece.num_rows, RUN_ROWS):
        run = piece[low : low + RUN_ROWS]
        rows = np.arange(low, low + run.num_rows)
        while (error := _fault_in(columns, run)) is not None:
            assert error.row is not None
            yield int(rows[error.row]), error
            is_left = np.arange(rows.size) != error.row
            run, rows = run.filter(pa.array(is_left)), rows[is_left]


def _fault_in(columns: BoundColumns, run: pa.Table) -> BadValueError | None:
    """Return what is wrong with a row, or None; raise what is wrong with all of them."""
    try:
        columns.batch(run)
    except BadValueError as error:
        if error.row is None:
            raise
        return error
    return None


def _place(error: BadValueError | BadTypeError) -> str:
    """Return the column of an error, with the entry where it is a list."""
    return error.argument if error.column is None else f"{error.argument}[{error.column}]"
