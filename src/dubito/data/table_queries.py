"""Queries of tables, independent of column roles: row counts, distinct values, filtered rows."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dubito.data import parsing
from dubito.data.sink import quoted_formula
from dubito.data.sources import BaseSource, file_errors, open_source
from dubito.data.sources.locations import is_url

MOST_VALUES = 1000  # distinct ones; reading stops above
CHUNK = 1 << 24


def distinct_values(source: Any, column: str) -> list[str]:
    """Return the distinct non-missing values of a column as text, sorted.

    Reading stops above 1,000 of them.

    >>> distinct_values(pa.table({"y": ["ok", "fraud", "ok", None]}), "y")
    ['fraud', 'ok']
    """
    opened = open_source(source)
    gaps = frozenset() if opened.has_types else parsing.GAPS
    found: set[str] = set()
    with file_errors(opened.name):
        for batch in opened.batches([column], [column], n_rows=1 << 16):
            values = pc.unique(batch.column(column)).drop_null().to_pylist()
            found |= {str(value) for value in values} - gaps
            if len(found) > MOST_VALUES:
                break
    return sorted(found)


def row_count(source: Any) -> int | None:
    """Return the approximate number of rows of a table for progress bars, None if it is slow.

    Parquet stores it in its footers; lines of text are counted for local files only.
    """
    opened = open_source(source)
    with file_errors(opened.name):
        spans = opened.spans(sys.maxsize)
        counts = [
            _line_count(span.source) if span.n_rows is None else span.n_rows for span in spans
        ]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _line_count(source: BaseSource) -> int | None:
    """Return the number of lines below the header of a local text file, None for others."""
    is_text = source.name.lower().endswith((".csv", ".tsv"))
    if not is_text or is_url(source.name):
        return None
    n_lines = 0
    with open(source.name, "rb") as opened:
        while chunk := opened.read(CHUNK):
            n_lines += chunk.count(b"\n")
    return max(n_lines - 1, 0)


def rows_where(source: Any, column: str, value: str) -> dict[str, NDArray[Any]]:
    """Return the rows of a table where a column equals a value, as columns.

    Values of a text file are text, and the value is compared as a `Sink` writes it there.

    >>> rows_where(pa.table({"id": [1, 2], "action": ["go", "ask"]}), "action", "ask")["id"]
    array([2])
    """
    opened = open_source(source)
    names = opened.schema.names
    value = value if opened.has_types else quoted_formula(value)
    parts = []
    with file_errors(opened.name):
        for batch in opened.batches(names, names, n_rows=1 << 16):
            table = pa.Table.from_batches([batch])
            parts.append(table.filter(pc.equal(table[column].cast(pa.string()), value)))
        whole = pa.concat_tables(parts) if parts else opened.schema.empty_table()
    return {name: np.asarray(whole[name].to_numpy(zero_copy_only=False)) for name in names}
