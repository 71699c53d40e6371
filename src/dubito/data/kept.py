"""Input columns that are written beside results: which all files have, and of which type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dubito.data.cells import plain_type
from dubito.data.files import FileShards
from dubito.data.sources import BaseSource
from dubito.data.sources.datasets import DatasetSource
from dubito.data.table_queries import number_types

NUMBERS = (str(pa.int64()), str(pa.float64()))  # the types of columns of text files


def files_of(source: BaseSource) -> tuple[BaseSource, ...]:
    """Return the files of a directory or glob, or the one file."""
    return source.files if isinstance(source, DatasetSource) else (source,)


def common_columns(shards: Sequence[FileShards]) -> list[str]:
    """Return the columns that all files have, once and with one value per row."""
    files = [file for one in shards for file in files_of(one.source)]
    held = [set(file.columns_like(shards[0].columns.needed[0])) for file in files]
    once = [name for name, n in Counter(files[0].schema.names).items() if n == 1]
    return [name for name in once if all(name in names for names in held)]


def nested_columns(shards: Sequence[FileShards], names: Iterable[str]) -> set[str]:
    """Return the columns that hold lists or structures."""
    files = [file for one in shards for file in files_of(one.source)]
    return {
        name
        for file in files
        for name in names
        if pa.types.is_nested(plain_type(file.schema.field(name).type))
    }


def kept_types(
    shards: Sequence[FileShards],
    names: Sequence[str],
    *,
    has_numbers: bool,
    known: Mapping[str, str] | None = None,
) -> dict[str, pa.DataType | None]:
    """Return one type per column that holds the values of all files, None if it is not known.

    Text files have no types: what is read as a number is one, and if `has_numbers`, so is every
    column in which each cell is a number or a gap. Other cells stay text. Files are read for it,
    unless the types that an earlier run found are `known` by their names.
    """
    if known and set(names) <= set(known):
        numbers = {name: pa.type_for_alias(kind) for name, kind in known.items() if kind in NUMBERS}
        plain = kept_types(shards, names, has_numbers=False)
        return {
            name: numbers.get(name, kind) if kind == pa.string() else kind
            for name, kind in plain.items()
        }
    found = [
        _types_of(one, file, names, has_numbers) for one in shards for file in files_of(one.source)
    ]
    return {name: _common_type([types[name] for types in found]) for name in names}


def _types_of(
    shards: FileShards, file: BaseSource, names: Sequence[str], has_numbers: bool
) -> dict[str, pa.DataType]:
    """Return the types of columns of one file."""
    if file.has_types:
        return {name: plain_type(file.schema.field(name).type) for name in names}
    roles = shards.columns
    numbers = dict.fromkeys({*roles.needed} - {*roles.texts}, pa.float64())
    others = [name for name in names if name not in numbers]
    if has_numbers and others:
        numbers |= number_types(file, others, roles.decimal)
    return {name: numbers.get(name, pa.string()) for name in names}


def _common_type(kinds: Iterable[Any]) -> pa.DataType | None:
    """Return a type that holds the values of several, text if no other does.

    >>> _common_type([pa.int64(), pa.float64()]), _common_type([pa.int64(), pa.date32()])
    (DataType(double), DataType(string))
    """
    known = [pa.schema([("", kind)]) for kind in kinds if not pa.types.is_null(kind)]
    try:
        merged = pa.unify_schemas(known, promote_options="permissive") if known else None
    except pa.ArrowTypeError:
        return pa.string()
    return None if merged is None else merged.field(0).type
