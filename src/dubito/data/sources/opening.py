"""Opening of sources: a file by its extension, many files as one table, a table by its type."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, final
from urllib.parse import unquote

import pyarrow as pa

from dubito.data.sources import locations
from dubito.data.sources.formats import (
    COMPRESSIONS,
    BaseSource,
    Names,
    RecordBatches,
    Span,
    file_errors,
    open_arrow,
    open_npy,
    open_npz,
    open_parquet,
    open_table,
    open_text,
)
from dubito.data.sources.locations import (
    KeptFile,
    base_of,
    is_there,
    is_url,
    open_file,
    size_of,
)
from dubito.errors import BadFileError
from dubito.kernels.blocks import map_in_order

MANIFEST = "_manifest.jsonl"  # readers of datasets skip names that start with _
FORMAT = 2


class Manifest(NamedTuple):
    """The settings of a directory's parts, and a record of each part by its input."""

    settings: dict[str, Any]
    parts: dict[str, dict[str, Any]]


def text_of(manifest: Manifest) -> str:
    """Return a manifest as text: one line of settings, then one line per part."""
    head = json.dumps({"format": FORMAT, "settings": manifest.settings})
    return head + "".join(map(line_of, manifest.parts.values()))


def line_of(part: Mapping[str, Any]) -> str:
    """Return the line of a part; it starts with a line break, in case the last one was truncated.

    >>> line_of({"key": "a.csv", "n_rows": 3}).strip()
    '{"key": "a.csv", "n_rows": 3}'
    """
    return f"\n{json.dumps(part)}"


def read_manifest(place: str) -> Manifest:
    """Return a manifest, or raise KeyError, ValueError and so on if it is something else.

    A truncated line belongs to a part that does not count yet.
    """
    with open_file(place) as file:
        head, *lines = bytes(file.read()).decode().split("\n")
    known = json.loads(head)
    if known["format"] != FORMAT:
        raise ValueError(known["format"])
    parts = {part["key"]: part for line in lines if (part := _whole_part(line)) is not None}
    return Manifest(dict(known["settings"]), parts)


def _whole_part(line: str) -> dict[str, Any] | None:
    """Return the record of a part, None if the line was truncated."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return None


def _counted_files(files: Sequence[str], folder: str) -> list[str]:
    """Return the files of a directory that its manifest lists, or all if it has no manifest.

    Files of an interrupted run are not in the manifest.
    """
    place = f"{folder.rstrip('/')}/{MANIFEST}"
    if not is_there(place):
        return list(files)
    try:
        listed = {part["file"] for part in read_manifest(place).parts.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return list(files)  # a file of that name with another content
    return [file for file in files if file.rpartition("/")[2] in listed]


GAP = "__HIVE_DEFAULT_PARTITION__"  # how partitioned datasets write a missing value


@final
@dataclass(frozen=True, slots=True, eq=False)
class PartitionSource(BaseSource):
    """A file with the partition columns of its path, such as day=2026-01-01."""

    file: BaseSource
    partition: Mapping[str, pa.Scalar]

    @property
    def separator(self) -> str | None:
        return self.file.separator

    def batches(self, columns: Names, texts: Names, n_rows: int) -> RecordBatches:
        held = [name for name in columns if name not in self.partition]
        # At least one column of the file is read for the number of rows.
        read = held or self.file.schema.names[:1]
        for batch in self.file.batches(read, texts if held else [*texts, *read], n_rows):
            arrays = [
                pa.repeat(self.partition[name], batch.num_rows)
                if name in self.partition
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
class DatasetSource(BaseSource):
    """Consecutive files that agree in the columns needed.

    `schema` is that of the first file. Any of them may be empty.
    """

    files: tuple[BaseSource, ...]
    starts: dict[int, int] = field(default_factory=dict)  # first rows of files read so far

    @property
    def separator(self) -> str | None:
        return self.files[0].separator

    def batches(self, columns: Names, texts: Names, n_rows: int) -> RecordBatches:
        first_row = 0
        for number, file in enumerate(self.files):
            self.starts[number] = first_row
            with file_errors(file.name):
                for batch in file.batches(columns, texts, n_rows):
                    first_row += batch.num_rows
                    yield batch.select(list(columns))  # in one order, whatever the file's

    def place(self, row: int) -> tuple[str, int]:
        starts = [self.starts[number] for number in range(len(self.starts))]
        number = bisect_right(starts, row) - 1
        return self.files[number].name, row - starts[number]

    def require_alike(self, needed_in: Callable[[BaseSource], Sequence[str]]) -> None:
        """Raise unless all files have the columns needed, of the same types."""
        first = self.files[0]
        needed = needed_in(first)
        for file in self.files:
            if file.schema.equals(first.schema):
                continue
            _require_columns(file, first, needed)
            _require_columns(file, first, needed_in(file))  # a pattern may match more columns here

    def spans(self, n_rows: int) -> list[Span]:
        return [span for file in self.files for span in file.spans(n_rows)]


def _dataset_of(name: str, files: Sequence[BaseSource], base: str) -> DatasetSource:
    """Return files as one table, or raise and name one with other partition columns."""
    partition = [_partition_of(file.name, base) for file in files]
    keys = list(partition[0])
    for file, own in zip(files, partition, strict=True):
        if list(own) != keys:
            changed = sorted(set(own) ^ set(keys))
            what = _column_of(changed[0], own) if changed else "other directories"
            raise _unlike(file, files[0], f"it has {what}, unlike {files[0].name}")
        if twice := set(keys) & set(file.schema.names):
            problem = f"{min(twice)!r} is both a column of its files and a part of their paths"
            raise BadFileError(name, problem, "Rename one of them")
    if not keys:
        return DatasetSource(name, files[0].schema, tuple(files))
    types = {key: _type_of([own[key] for own in partition]) for key in keys}
    parts = [
        PartitionSource(
            file.name,
            pa.schema([*file.schema, *types.items()]),
            file,
            {key: pa.scalar(value, pa.string()).cast(types[key]) for key, value in own.items()},
        )
        for file, own in zip(files, partition, strict=True)
    ]
    return DatasetSource(name, parts[0].schema, tuple(parts))


def _require_columns(file: BaseSource, first: BaseSource, needed: Sequence[str]) -> None:
    """Raise unless a file and the first both have columns, of the same types."""
    names, wanted = file.schema.names, first.schema.names
    for name in needed:
        if name not in names or name not in wanted:
            raise _unlike(file, first, f"it has {_column_of(name, names)}, unlike {first.name}")
        kind, before = (one.schema.field(name).type for one in (file, first))
        if kind != before:
            problem = f"its column {name!r} has type {kind}, but {before} in {first.name}"
            raise _unlike(file, first, problem)


def _unlike(file: BaseSource, first: BaseSource, problem: str) -> BadFileError:
    """Return the error for a file that differs from the first."""
    return BadFileError(file.name, problem, f"Make all files like {first.name}")


def _column_of(name: str, names: Collection[str]) -> str:
    """Return "a column ..." or "no column ..."."""
    return f"{'a' if name in names else 'no'} column {name!r}"


def _partition_of(file: str, base: str) -> dict[str, str | None]:
    """Return the partition values in the path of a file below a base, None for a missing one.

    >>> _partition_of("data/day=2026-01-01/part.parquet", "data")
    {'day': '2026-01-01'}
    """
    folders = file[len(base) :].replace("\\", "/").split("/")[:-1]
    pairs = (folder.partition("=") for folder in folders if "=" in folder)
    return {unquote(key): None if value == GAP else unquote(value) for key, _, value in pairs}


def _type_of(values: Sequence[str | None]) -> pa.DataType:
    """Return int64 if all values are integers, otherwise text."""
    known = [value for value in values if value is not None]
    is_whole = all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", value) for value in known)
    return pa.int64() if known and is_whole else pa.string()


Opener = Callable[[str, KeptFile | None], BaseSource]
OPENERS: dict[str, Opener] = {
    ".arrow": open_arrow,
    ".csv": partial(open_text, separator=","),
    ".feather": open_arrow,
    ".ipc": open_arrow,
    ".npy": lambda name, _: open_npy(Path(name)),
    ".npz": lambda name, _: open_npz(Path(name)),
    ".parquet": open_parquet,
    ".pq": open_parquet,
    ".tsv": partial(open_text, separator="\t"),
}
TEXTS = (".csv", ".tsv")
ARRAYS = (".npy", ".npz")  # of which one file or directory is a table by itself


def open_source(source: Any, *, is_kept: bool = False) -> BaseSource:
    """Open a path or a table, by its extension or its type.

    A single file on this machine that `is_kept` stays open until the source is closed, unless it
    holds NumPy arrays.
    """
    if isinstance(source, BaseSource):
        return source
    if not isinstance(source, str | PathLike):
        return open_table(source)
    name = str(Path(source)) if not is_url(os.fspath(source)) else str(source)
    with file_errors(name):
        files = locations.files_under(name)
        if files is None:
            return _open_one(name, is_kept=is_kept and not is_url(name))
        if not is_url(name) and Path(name).is_dir() and any(Path(name).glob("*.npy")):
            return open_npy(Path(name))
        return _open_many(name, files)


def _open_one(name: str, *, is_kept: bool = False) -> BaseSource:
    """Open a file by its extension."""
    opener = _opener_of(name)
    if size_of(name) == 0:
        raise BadFileError(
            name, "it is empty", "Check the program that wrote it, or pass another file"
        )
    with file_errors(name), ExitStack() as on_error:
        kept = on_error.enter_context(closing(KeptFile(name))) if is_kept else None
        source = opener(name, kept)
        on_error.pop_all()
        return source


def _open_many(name: str, files: list[str]) -> BaseSource:
    """Open the tables of a directory or pattern as one; other files are ignored.

    An empty text file is a table without rows, as some writers leave them.
    """
    counted = files if locations.is_pattern(name) else _counted_files(files, base_of(name))
    tables = {file: _extension_of(file) for file in counted if _extension_of(file) in OPENERS}
    kinds = sorted(set(tables.values()) - set(ARRAYS))
    if not kinds:
        fix = (
            "Use a directory or pattern of Parquet, Arrow or CSV files, or a directory of NPY files"
        )
        problem = "no table matches it" if locations.is_pattern(name) else "it contains no tables"
        raise BadFileError(name, problem, fix)
    if len(kinds) > 1:
        fix = f"Use a pattern such as {locations.folder_of(name)}/*{kinds[-1]}"
        raise BadFileError(name, f"it contains files of several kinds: {', '.join(kinds)}", fix)
    wanted = [file for file, kind in tables.items() if kind == kinds[0]]
    is_text = kinds[0] in TEXTS
    filled = [file for file in wanted if not (is_text and size_of(file) == 0)]
    if not filled:
        raise BadFileError(name, "all of its files are empty", "Write the files again")
    return _dataset_of(name, list(map_in_order(_open_one, filled)), base_of(name))


def _extension_of(name: str) -> str:
    """Return the extension of a file, without that of its compression."""
    *_, before, last = ["", "", *(suffix.lower() for suffix in PurePosixPath(name).suffixes)]
    return before if last in COMPRESSIONS else last


def _opener_of(name: str) -> Opener:
    """Return the function that opens a file; text files may be compressed."""
    ending, last = _extension_of(name), PurePosixPath(name).suffix.lower()
    if ending not in OPENERS:
        problem = f"its extension is none of {', '.join(OPENERS)}"
        if not locations.is_there(name):
            raise BadFileError(name, f"{problem}, and there is no such directory", "Check the path")
        raise BadFileError(name, problem, "Convert it to Parquet or CSV")
    if ending != last and ending not in TEXTS:
        problem = f"only .csv and .tsv can be compressed as {last}"
        raise BadFileError(name, problem, "Decompress it first")
    if ending in ARRAYS and is_url(name):
        problem = f"{ending} can be read from this machine only"
        raise BadFileError(name, problem, "Copy it to this machine, or convert it to Parquet")
    return OPENERS[ending]
