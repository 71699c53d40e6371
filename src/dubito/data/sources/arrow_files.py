"""Parquet, and Arrow files and streams (Feather is an Arrow file)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pyarrow as pa
from pyarrow import ipc, parquet

from dubito.data.sources.source import AbstractSource

__all__ = ["ArrowSource", "ParquetSource", "open_arrow", "open_parquet"]

MAGIC = b"ARROW1"  # how an Arrow file begins, and a stream does not


@final
@dataclass(frozen=True, slots=True, eq=False)
class ParquetSource(AbstractSource):
    """A Parquet file, whose pages are decoded as they are needed."""

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        # By default all of the file that will be needed is kept in memory.
        with parquet.ParquetFile(self.name, pre_buffer=False, buffer_size=1 << 16) as file:
            yield from file.iter_batches(batch_size=n_rows, columns=list(columns))


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArrowSource(AbstractSource):
    """An Arrow file or stream, memory-mapped."""

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        fields = [self.schema.get_field_index(name) for name in columns]
        options = ipc.IpcReadOptions(included_fields=fields)
        with pa.memory_map(self.name) as mapped:
            reader = open_ipc(mapped, options)
            if isinstance(reader, ipc.RecordBatchStreamReader):
                yield from reader
            else:
                yield from map(reader.get_batch, range(reader.num_record_batches))


def open_parquet(path: Path) -> ParquetSource:
    """Open a Parquet file."""
    return ParquetSource(str(path), parquet.read_schema(path))


def open_arrow(path: Path) -> ArrowSource:
    """Open an Arrow file or stream."""
    with pa.memory_map(str(path)) as mapped:
        return ArrowSource(str(path), open_ipc(mapped).schema)


def open_ipc(
    mapped: pa.MemoryMappedFile, options: ipc.IpcReadOptions | None = None
) -> ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader:
    """Open what is inside, by how it begins."""
    is_file = mapped.read(len(MAGIC)) == MAGIC
    mapped.seek(0)
    return (ipc.open_file if is_file else ipc.open_stream)(mapped, options=options)
