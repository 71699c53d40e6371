"""Tables in memory: Arrow tables, pandas and polars frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa

from dubito.data.labels import is_absent
from dubito.data.sources.source import BaseSource
from dubito.errors import BadTypeError, BadValueError

if TYPE_CHECKING:
    import narwhals as nw


@final
@dataclass(frozen=True, slots=True, eq=False)
class TableSource(BaseSource):
    """A table in memory."""

    table: pa.Table

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
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
        columns = {str(name): _array_of(frame[name].to_list()) for name in frame.columns}
        return pa.table(columns)
    return table.select(range(len(frame.columns)))  # without the index of pandas


def _array_of(values: list[Any]) -> pa.Array:
    """Return values as an Arrow array, as text if their types differ."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError):
        return pa.array([None if is_absent(value) else str(value) for value in values])
