"""Many files as one table: those of a folder or pattern, in natural order."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final
from urllib.parse import unquote

import pyarrow as pa

from dubito.data.sources.source import AbstractSource, Span, named_if_broken
from dubito.errors import BadFileError

__all__ = ["DatasetSource", "PartitionSource", "dataset_of", "partition_of"]

GAP = "__HIVE_DEFAULT_PARTITION__"  # how writers of partitions spell a missing value


@final
@dataclass(frozen=True, slots=True, eq=False)
class PartitionSource(AbstractSource):
    """A file, and the columns that its path spells, such as day=2026-01-01."""

    file: AbstractSource
    spelt: Mapping[str, pa.Scalar]

    @property
    def has_types(self) -> bool:
        return self.file.has_types

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        held = [name for name in columns if name not in self.spelt]
        # Without a column of its own, a file would not say how many rows it has.
        asked = held or self.file.schema.names[:1]
        for batch in self.file.batches(asked, [*texts, *asked] if not held else texts, n_rows):
            arrays = [
                pa.repeat(self.spelt[name], batch.num_rows)
                if name in self.spelt
                else batch.column(name)
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def spans(self, n_rows: int) -> list[Span]:
        return [
            span._replace(source=replace(self, file=span.source))
            for span in self.file.spans(n_rows)
        ]


@final
@dataclass(frozen=True, slots=True, eq=False)
class DatasetSource(AbstractSource):
    """Files with the same columns, one after the other. Any of them may have no rows."""

    files: tuple[AbstractSource, ...]
    starts: dict[int, int] = field(default_factory=dict)  # first rows of files read so far

    @property
    def has_types(self) -> bool:
        return self.files[0].has_types

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        first_row = 0
        for number, file in enumerate(self.files):
            self.starts[number] = first_row
            with named_if_broken(file.name):
                for batch in file.batches(columns, texts, n_rows):
                    first_row += batch.num_rows
                    yield batch

    def place(self, row: int) -> tuple[str, int]:
        starts = [self.starts[number] for number in range(len(self.starts))]
        number = bisect_right(starts, row) - 1
        return self.files[number].name, row - starts[number]

    def spans(self, n_rows: int) -> list[Span]:
        return [span for file in self.files for span in file.spans(n_rows)]


def dataset_of(name: str, files: Sequence[AbstractSource], base: str) -> DatasetSource:
    """Return files as one table, or raise and name the one that is unlike the first."""
    spelt = [partition_of(file.name, base) for file in files]
    keys = list(spelt[0])
    for file, own in zip(files, spelt, strict=True):
        require_alike(file, files[0], list(own), keys)
    if twice := set(keys) & set(files[0].schema.names):
        problem = f"{min(twice)!r} is a column of its files, and a part of their paths"
        raise BadFileError(name, problem, "renaming one of them")
    types = {key: type_of([own[key] for own in spelt]) for key in keys}
    schema = files[0].schema
    for key, kind in types.items():
        schema = schema.append(pa.field(key, kind))
    if not keys:
        return DatasetSource(name, schema, tuple(files))
    parts = [
        PartitionSource(file.name, schema, file, scalars(own, types))
        for file, own in zip(files, spelt, strict=True)
    ]
    return DatasetSource(name, schema, tuple(parts))


def require_alike(
    file: AbstractSource, first: AbstractSource, keys: list[str], first_keys: list[str]
) -> None:
    """Raise unless a file has the columns of the first, of the same types."""
    names, wanted = set(file.schema.names), set(first.schema.names)
    fix = f"files that are all like {first.name}"
    if names != wanted or keys != first_keys:
        changed = sorted((names | set(keys)) ^ (wanted | set(first_keys)))
        has_it = changed and changed[0] in names | set(keys)
        what = f"{'a' if has_it else 'no'} column {changed[0]!r}" if changed else "other folders"
        problem = f"it has {what}, unlike {first.name}"
        raise BadFileError(file.name, problem, fix)
    for column in first.schema:
        kind = file.schema.field(column.name).type
        if kind != column.type:
            problem = f"its column {column.name!r} is of {kind}, in {first.name} of {column.type}"
            raise BadFileError(file.name, problem, fix)


def partition_of(file: str, base: str) -> dict[str, str | None]:
    """Return what the folders between a base and a file spell, None for a gap.

    >>> partition_of("data/day=2026-01-01/part.parquet", "data")
    {'day': '2026-01-01'}
    """
    folders = file[len(base) :].replace("\\", "/").split("/")[:-1]
    pairs = (folder.partition("=") for folder in folders if "=" in folder)
    return {unquote(key): None if value == GAP else unquote(value) for key, _, value in pairs}


def type_of(values: Sequence[str | None]) -> pa.DataType:
    """Return whole numbers where all values are such, else text."""
    known = [value for value in values if value is not None]
    is_whole = all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", value) for value in known)
    return pa.int64() if known and is_whole else pa.string()


def scalars(spelt: Mapping[str, str | None], types: Mapping[str, pa.DataType]) -> dict[str, object]:
    """Return the values that a path spells, of the types that they have in all files."""
    return {
        key: pa.scalar(
            int(value) if value is not None and pa.types.is_integer(types[key]) else value,
            types[key],
        )
        for key, value in spelt.items()
    }
