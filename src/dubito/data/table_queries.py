"""Queries of tables: row counts, distinct values, filtered rows, columns that all files have."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dubito.data import parsing
from dubito.data.cells import plain_type
from dubito.data.sink import UNQUOTED, quoted_formula
from dubito.data.sources import BaseSource, file_errors, open_source
from dubito.data.sources.formats import RecordBatches
from dubito.data.sources.locations import is_url, open_stream
from dubito.data.sources.opening import TEXTS, DatasetSource

if TYPE_CHECKING:
    from dubito.data.files import FileShards

MAX_VALUES = 1000  # distinct ones; reading stops above
CHUNK = 1 << 24
WHOLE = r"^-?(0|[1-9]\d{0,14})$"
NUMBERS = (str(pa.int64()), str(pa.float64()))  # the types of columns of text files


def distinct_values(source: Any, column: str) -> list[str]:
    """Return the distinct non-missing values of a column as text, sorted.

    Reading stops above 1,000 of them.

    >>> distinct_values(pa.table({"y": ["ok", "fraud", "ok", None]}), "y")
    ['fraud', 'ok']
    """
    opened = open_source(source)
    gaps = frozenset() if opened.has_types else parsing.GAPS
    found: set[str] = set()
    for batch in _batches_of(opened, [column]):
        values = pc.unique(batch.column(column)).drop_null().to_pylist()
        found |= {str(value) for value in values} - gaps
        if len(found) > MAX_VALUES:
            break
    return sorted(found)


def _batches_of(source: BaseSource, columns: Sequence[str]) -> RecordBatches:
    """Yield columns of a table, as text if it has no types; errors name the file."""
    with file_errors(source.name):
        yield from source.batches(columns, columns, n_rows=1 << 16)


def row_count(source: Any) -> int | None:
    """Return the approximate number of rows of a table for progress bars, None if it is slow.

    Parquet stores it in its footers; lines of text are counted for local files only.
    """
    opened = open_source(source)
    with file_errors(opened.name):
        spans = opened.spans(sys.maxsize)
        known = ((span.source, span.n_rows) for span in spans)
        counts = [_line_count(source) if n_rows is None else n_rows for source, n_rows in known]
    return None if None in counts else sum(filter(None, counts))


def _line_count(source: BaseSource) -> int | None:
    """Return the number of lines below the header of a local text file, None for others."""
    if not source.name.lower().endswith(TEXTS) or is_url(source.name):
        return None
    n_lines = 0
    with open_stream(source.name, None, source.kept) as opened:
        while chunk := opened.read(CHUNK):
            n_lines += chunk.count(b"\n")
    return max(n_lines - 1, 0)


def value_counts(sources: Sequence[Any], column: str, values: Sequence[str]) -> dict[str, int]:
    """Return in how many rows of tables a column has each of some values.

    Values of a text file are compared as a `Sink` writes them there.

    >>> value_counts([pa.table({"action": ["go", "ask", "go"]})], "action", ["go", "ask", "stay"])
    {'go': 2, 'ask': 1, 'stay': 0}
    """
    found: Counter[str] = Counter()
    for source in map(open_source, sources):
        names = {value if source.has_types else quoted_formula(value): value for value in values}
        for batch in _batches_of(source, [column]):
            for one in pc.value_counts(batch.column(column).cast(pa.string())).to_pylist():
                found[names[one["values"]]] += one["counts"]
    return {value: found[value] for value in values}


def _number_types(source: Any, columns: Sequence[str], decimal: str) -> dict[str, pa.DataType]:
    """Return the columns of a text file that hold numbers only, or nothing, and their types.

    Numbers with leading zeros or more than 15 digits are treated as identifiers, which stay text.
    """
    opened, left = open_source(source), dict.fromkeys(columns, pa.null())
    gaps = pa.array(parsing.GAPS, pa.string())
    for batch in _batches_of(opened, columns):
        for name in list(left):
            texts = pc.utf8_trim_whitespace(batch.column(name))
            texts = texts.filter(pc.invert(pc.is_in(texts, gaps)))
            if len(texts) and left[name] != pa.float64():
                is_whole = pc.all(pc.match_substring_regex(texts, WHOLE)).as_py()
                left[name] = pa.int64() if is_whole else pa.float64()
            is_number = pc.match_substring_regex(texts, UNQUOTED.replace(".", decimal))
            if left[name] == pa.float64() and not pc.all(is_number).as_py():
                del left[name]
        if not left:
            break
    return {name: kind for name, kind in left.items() if kind != pa.null()}


def rows_where(
    sources: Sequence[Any], column: str, values: Sequence[str], *, by: str
) -> dict[str, Any]:
    """Return the rows of tables where a column has one of some values, sorted, highest first.

    They are sorted by another column. Categories become plain values. Values of a text file are
    text, and compared as a `Sink` writes them there.

    >>> table = pa.table({"id": [1, 2, 3], "action": ["go", "ask", "ask"], "cost": [1.0, 0.5, 2.0]})
    >>> rows_where([table], "action", ["ask"], by="cost")["id"].to_pylist()
    [3, 2]
    """
    parts = []
    for source in map(open_source, sources):
        names, plain_texts = source.schema.names, source.has_types
        wanted = pa.array([one if plain_texts else quoted_formula(one) for one in values])
        for batch in _batches_of(source, names):
            plain = pa.schema([(one.name, plain_type(one.type)) for one in batch.schema])
            table = pa.Table.from_batches([batch]).cast(plain)
            parts.append(table.filter(pc.is_in(table[column], wanted)))
    found = pa.concat_tables(parts)
    order = np.argsort(-np.array(found[by].to_pylist(), dtype=np.float64), kind="stable")
    return {name: found[name].take(order) for name in found.column_names}


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
        numbers |= _number_types(file, others, roles.decimal)
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
