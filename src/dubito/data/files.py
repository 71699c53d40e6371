"""Files and frames as shards: `scan` streams them in bounded memory, `read` takes them whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import pyarrow as pa

from dubito.data.batch import Batch
from dubito.data.columns import BoundColumns, Columns
from dubito.data.shards import Shards
from dubito.data.sources import Source, open_source
from dubito.errors import BadFileError
from dubito.kernels.blocks import BLOCK_ENTRIES

__all__ = ["FileShards", "read", "scan"]


def scan(source: Any, columns: Columns) -> FileShards:
    """Return the rows of a file or frame as shards that are streamed, again for each sum.

    `source` is a path (Parquet, CSV, TSV, Arrow, Feather, NPZ, NPY), a pandas or polars frame, or
    an Arrow table. Of an NPZ, and of the NPY files of a folder, each array is a column, a matrix
    one of lists.
    """
    opened = open_source(source)
    bound = columns.bind(opened.schema.names, opened.name)
    return FileShards(opened, bound, list_widths(opened, bound))


def list_widths(source: Source, columns: BoundColumns) -> dict[str, int]:
    """Return how long the lists of each column of lists are: by its type, or by its first row."""
    types = {name: source.schema.field(name).type for name in columns.needed}
    widths = {name: kind.list_size for name, kind in types.items() if hasattr(kind, "list_size")}
    of_any_length = [
        n for n, kind in types.items() if n not in widths and hasattr(kind, "value_type")
    ]
    if of_any_length:
        for first in source.stream(of_any_length, [], 1):
            widths |= {n: len(first.column(n)[0] or ()) for n in of_any_length if first.num_rows}
            break
    return widths


def read(source: Any, columns: Columns) -> Batch:
    """Return all rows of a file or frame as one batch in memory.

    >>> import pandas
    >>> frame = pandas.DataFrame({"p_cat": [0.75, 0.5], "p_dog": [0.25, 0.5], "y": ["cat", "dog"]})
    >>> read(frame, Columns(label="y", probabilities="p_*")).rows.confidence.tolist()
    [0.75, 0.5]
    """
    shards = scan(source, columns)
    pieces = list(shards.pieces())
    if not pieces:
        raise no_rows(shards.source)
    return shards.columns.batch(pa.Table.from_batches(pieces), shards.widths)


@final
@dataclass(frozen=True, slots=True, eq=False)
class FileShards(Shards):
    """Rows of a file or frame, decoded piece by piece."""

    source: Source
    columns: BoundColumns
    widths: dict[str, int]

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Yield the file's own pieces, each small enough to stay in the processor's caches."""
        needed = self.columns.needed
        n_rows = max(1, BLOCK_ENTRIES // sum(self.widths.get(name, 1) for name in needed))
        for piece in self.source.stream(needed, self.columns.texts, n_rows):
            if piece.num_rows:
                yield piece

    def parts(self) -> Iterator[Callable[[], Batch]]:
        first_row = 0
        for piece in self.pieces():
            yield partial(self.columns.batch, piece, self.widths, first_row)
            first_row += piece.num_rows
        if first_row == 0:
            raise no_rows(self.source)


def no_rows(source: Source) -> BadFileError:
    """Say that a table has columns but no rows."""
    return BadFileError(source.name, "it has no rows", "a file with at least one row")
