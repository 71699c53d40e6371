"""Parquet, and Arrow files and streams (Feather is an Arrow file)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import final

import pyarrow as pa
from pyarrow import ipc, parquet

from dubito.data.sources.locations import is_url, open_file
from dubito.data.sources.source import AbstractSource, Span
from dubito.kernels.blocks import n_threads

__all__ = ["ArrowSource", "ParquetSource", "open_arrow", "open_parquet"]

MAGIC = b"ARROW1"  # how an Arrow file begins, and a stream does not


@final
@dataclass(frozen=True, slots=True, eq=False)
class ParquetSource(AbstractSource):
    """A Parquet file, or some of its row groups; pages are decoded as they are needed."""

    groups: tuple[int, ...] | None = None

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        is_far = is_url(self.name)
        # Near, all of a file would be kept in memory; far, a request a page would take too long.
        buffer_size = 0 if is_far else 1 << 16
        with (
            open_file(self.name) as opened,
            parquet.ParquetFile(opened, pre_buffer=is_far, buffer_size=buffer_size) as file,
        ):
            groups = range(file.num_row_groups) if self.groups is None else self.groups
            for some in [[group] for group in groups] if is_far else [list(groups)]:
                yield from file.iter_batches(
                    n_rows, some, columns=list(columns), use_threads=n_threads() > 1
                )

    def spans(self, n_rows: int) -> list[Span]:
        with open_file(self.name) as opened, parquet.ParquetFile(opened) as file:
            sizes = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
        runs: list[list[int]] = [[]]
        for group, size in enumerate(sizes):
            if runs[-1] and sum(sizes[k] for k in runs[-1]) + size > n_rows:
                runs.append([])
            runs[-1].append(group)
        lengths = [sum(sizes[k] for k in run) for run in runs]
        firsts = [0, *accumulate(lengths)]
        return [
            Span(replace(self, groups=tuple(run)), first_row, length)
            for run, first_row, length in zip(runs, firsts, lengths, strict=False)
        ]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArrowSource(AbstractSource):
    """An Arrow file or stream, memory-mapped."""

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        fields = [self.schema.get_field_index(name) for name in columns]
        options = ipc.IpcReadOptions(included_fields=fields)
        with open_file(self.name, is_mapped=True) as mapped:
            reader = open_ipc(mapped, options)
            if isinstance(reader, ipc.RecordBatchStreamReader):
                yield from reader
            else:
                yield from map(reader.get_batch, range(reader.num_record_batches))


def open_parquet(name: str) -> ParquetSource:
    """Open a Parquet file."""
    with open_file(name) as opened:
        return ParquetSource(name, parquet.read_schema(opened))


def open_arrow(name: str) -> ArrowSource:
    """Open an Arrow file or stream."""
    with open_file(name, is_mapped=True) as mapped:
        return ArrowSource(name, open_ipc(mapped).schema)


def open_ipc(
    mapped: pa.NativeFile, options: ipc.IpcReadOptions | None = None
) -> ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader:
    """Open what is inside, by how it begins."""
    is_file = mapped.read(len(MAGIC)) == MAGIC
    mapped.seek(0)
    return (ipc.open_file if is_file else ipc.open_stream)(mapped, options=options)
