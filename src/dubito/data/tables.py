"""Tables as such, whatever their columns mean: how many rows, which values, some of the rows."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dubito.data import parsing
from dubito.data.sources import BaseSource, named_if_broken, open_source
from dubito.data.sources.locations import is_url

MOST_VALUES = 1000  # different ones, of which more are of no use to anyone
CHUNK = 1 << 24


def distinct_values(source: Any, column: str) -> list[str]:
    """Return the different values of a column as text, sorted; gaps are none.

    It stops reading above 1,000 of them.

    >>> distinct_values(pa.table({"y": ["ok", "fraud", "ok", None]}), "y")
    ['fraud', 'ok']
    """
    opened = open_source(source)
    gaps = frozenset() if opened.has_types else parsing.GAPS
    found: set[str] = set()
    with named_if_broken(opened.name):
        for batch in opened.batches([column], [column], n_rows=1 << 16):
            values = pc.unique(batch.column(column)).drop_null().to_pylist()
            found |= {str(value) for value in values} - gaps
            if len(found) > MOST_VALUES:
                break
    return sorted(found)


def row_count(source: Any) -> int | None:
    """Return about how many rows a table has, where that is quick to tell: for showing progress.

    Parquet says it in its footers, those of a folder or pattern added up; lines of text are counted
    on this machine alone.
    """
    opened = open_source(source)
    with named_if_broken(opened.name):
        spans = opened.spans(sys.maxsize)
        counts = [
            _line_count(span.source) if span.n_rows is None else span.n_rows for span in spans
        ]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _line_count(source: BaseSource) -> int | None:
    """Return how many lines a text file of this machine has below its first, None of others."""
    is_text = source.name.lower().endswith((".csv", ".tsv"))
    if not is_text or is_url(source.name):
        return None
    n_lines = 0
    with open(source.name, "rb") as opened:
        while chunk := opened.read(CHUNK):
            n_lines += chunk.count(b"\n")
    return max(n_lines - 1, 0)


def rows_where(source: Any, column: str, value: str) -> dict[str, NDArray[Any]]:
    """Return the rows of a table where a column holds a value, column by column.

    What stands in a text file is text.

    >>> rows_where(pa.table({"id": [1, 2], "action": ["go", "ask"]}), "action", "ask")["id"]
    array([2])
    """
    opened = open_source(source)
    names = opened.schema.names
    parts = []
    with named_if_broken(opened.name):
        for batch in opened.batches(names, names, n_rows=1 << 16):
            table = pa.Table.from_batches([batch])
            parts.append(table.filter(pc.equal(table[column].cast(pa.string()), value)))
        whole = pa.concat_tables(parts) if parts else opened.schema.empty_table()
    return {name: np.asarray(whole[name].to_numpy(zero_copy_only=False)) for name in names}
