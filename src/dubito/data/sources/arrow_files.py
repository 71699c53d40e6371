"""Parquet, and Arrow files and streams (Feather is an Arrow file)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import final

import pyarrow as pa
from pyarrow import ipc, parquet

from dubito.data.sources.locations import is_url, open_file, size_of
from dubito.data.sources.source import BaseSource, Span
from dubito.errors import BadFileError
from dubito.kernels import blocks

GROUP_BLOCKS = 16  # of 4 MB: a row group of no more is decoded as a whole
COLUMN_GROUP_BLOCKS = 4  # likewise, if there are enough columns to decode them in threads
BLOCKS_AHEAD = 64  # of all row groups that are decoded before they are used
MAGIC = b"ARROW1"  # how an Arrow file begins, and a stream does not


@final
@dataclass(frozen=True, slots=True, eq=False)
class ParquetSource(BaseSource):
    """A Parquet file, or some of its row groups; pages are decoded as they are needed."""

    groups: tuple[int, ...] | None = None

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        metadata, wanted = self.metadata(), list(columns)
        groups = range(metadata.num_row_groups) if self.groups is None else self.groups
        n_entries = _most_entries(metadata, groups, wanted)
        n_blocks = COLUMN_GROUP_BLOCKS if len(wanted) > blocks.n_threads() else GROUP_BLOCKS
        if is_url(self.name):
            for group in groups:
                yield from self.streamed([group], wanted, n_rows, metadata)
        elif n_entries > n_blocks * blocks.BLOCK_ENTRIES:
            yield from self.streamed(list(groups), wanted, n_rows, metadata)
        else:
            runs = _runs_of(metadata, groups, n_rows)
            n_ahead = BLOCKS_AHEAD * blocks.BLOCK_ENTRIES // max(n_entries, blocks.BLOCK_ENTRIES)
            whole = partial(self.whole, columns=wanted, metadata=metadata)
            for table in blocks.map_in_order(whole, runs, n_ahead):
                yield from table.to_batches(n_rows)

    def metadata(self) -> parquet.FileMetaData:
        """Return what the file says of its row groups."""
        with open_file(self.name) as opened:
            return parquet.read_metadata(opened)

    def streamed(
        self, groups: list[int], columns: list[str], n_rows: int, metadata: parquet.FileMetaData
    ) -> Iterator[pa.RecordBatch]:
        """Yield row groups that are too large to be held, or far, so many rows at a time."""
        # Near, all of a file would be kept in memory; far, a request a page would take too long.
        is_far = is_url(self.name)
        buffer_size = 0 if is_far else 1 << 16
        with open_file(self.name) as opened:
            file = parquet.ParquetFile(
                opened, metadata=metadata, pre_buffer=is_far, buffer_size=buffer_size
            )
            is_shared = blocks.n_threads() > 1
            yield from file.iter_batches(n_rows, groups, columns=columns, use_threads=is_shared)

    def whole(
        self, groups: list[int], columns: list[str], metadata: parquet.FileMetaData
    ) -> pa.Table:
        """Return some row groups; several threads may ask at once."""
        with open_file(self.name) as opened:
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

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        fields = [self.schema.get_field_index(name) for name in columns]
        options = ipc.IpcReadOptions(included_fields=fields)
        size = size_of(self.name)
        with open_file(self.name) as opened:
            reader = _open_ipc(opened, options)
            if isinstance(reader, ipc.RecordBatchStreamReader):
                yield from reader
            else:
                yield from map(reader.get_batch, range(reader.num_record_batches))
        if size_of(self.name) != size:  # a stream has no end that could be missing
            raise BadFileError(self.name, "it was changed while it was read", "Read it again")


def open_parquet(name: str) -> ParquetSource:
    """Open a Parquet file."""
    with open_file(name) as opened:
        return ParquetSource(name, parquet.read_schema(opened))


def open_arrow(name: str) -> ArrowSource:
    """Open an Arrow file or stream."""
    with open_file(name) as opened:
        return ArrowSource(name, _open_ipc(opened).schema)


def _open_ipc(
    opened: pa.NativeFile, options: ipc.IpcReadOptions | None = None
) -> ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader:
    """Open what is inside, by how it begins."""
    is_file = opened.read(len(MAGIC)) == MAGIC
    opened.seek(0)
    return (ipc.open_file if is_file else ipc.open_stream)(opened, options=options)
