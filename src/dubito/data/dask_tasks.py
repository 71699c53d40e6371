"""What a Dask worker does with the rows of one task; nothing here knows about a scheduler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import chain
from math import isnan
from operator import add
from typing import Any, NamedTuple, final

import pyarrow as pa

from dubito.data.bad_rows import BadRow, BadRows
from dubito.data.batch import Batch
from dubito.data.columns import Columns
from dubito.data.directory_sink import WriteLock
from dubito.data.files import FileShards, scan
from dubito.data.shards import Result, Shards, Sum
from dubito.data.sink import Sink
from dubito.data.sources import open_source
from dubito.data.sources.frames import TableSource
from dubito.data.sources.locations import is_url
from dubito.data.sources.numpy_files import arrow_of
from dubito.errors import BadFileError, BadTypeError, BadValueError


class Decoded(NamedTuple):
    """The rows of a task, on a worker, and those that were set aside."""

    batches: list[Batch]
    bad: list[BadRow]


class Counts(NamedTuple):
    """What the client knows of the rows of a task; `n_rows` with those that were set aside."""

    n_batches: int
    n_rows: int
    bad: list[BadRow]


class Numbering(NamedTuple):
    """What is added to the numbers of a task's rows; ids are such numbers where none are named."""

    offset: int
    is_ids: bool

    def of(self, batch: Batch) -> Batch:
        """Return a twin of a batch: what is worked out of its rows is not kept on the worker."""
        ids = batch.ids + self.offset if self.is_ids and batch.ids is not None else batch.ids
        return replace(batch, first_row=batch.first_row + self.offset, ids=ids)


@final
class Elsewhere(Shards):
    """What is left of shards on a worker: their name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def parts(self) -> Iterator[Callable[[], Batch]]:
        rule, got = "cannot be read on a Dask worker", f"those of {self.name} on a worker"
        fix = "Call `shards.sum(...)` outside of the function"
        raise BadTypeError("shards", "DaskShards", rule, got, fix)


def _decoded_frame(frame: Any, columns: Columns, number: int, most: int | None) -> Decoded:
    """Return the batches of a partition of a frame, none if it has no rows."""
    opened = open_source(frame)
    assert isinstance(opened, TableSource)
    named = replace(opened, name=f"partition {number}")
    return decoded(replace(scan(named, columns), is_some=True), most)


def _decoded_arrays(
    names: list[str], arrays: list[Any], columns: Columns, number: int, most: int | None
) -> Decoded:
    """Return the batches of some rows of arrays, none if there are no rows."""
    table = pa.table(dict(zip(names, map(arrow_of, arrays), strict=True)))
    return _decoded_frame(table, columns, number, most)


def decoded(shards: FileShards, most: int | None) -> Decoded:
    """Decode some rows of files; bad ones stop it, or are set aside up to so many."""
    batches, bad = _streamed(shards, most)
    return Decoded(list(batches), bad())


def counted(rows: Decoded) -> Counts:
    """Return how many batches and rows there are, and which rows are bad."""
    n_rows = sum(map(len, rows.batches)) + len(rows.bad)
    return Counts(len(rows.batches), n_rows, rows.bad)


def nth(rows: Decoded, k: int) -> Batch:
    """Return one of the batches of a task."""
    return rows.batches[k]


def results(
    function: Callable[[int, Batch], Result], rows: Decoded, numbering: Numbering, number: int
) -> list[Result]:
    """Return a function of each batch and its number."""
    return [function(number + k, numbering.of(batch)) for k, batch in enumerate(rows.batches)]


def added(function: Callable[[Batch], Sum], rows: Decoded, numbering: Numbering) -> Sum | None:
    """Return the sum of a function over batches, None if there are none."""
    return total(function(numbering.of(batch)) for batch in rows.batches)


def total(sums: Iterable[Sum | None]) -> Sum | None:
    """Return the sum in order, None if there is nothing to add."""
    known = (one for one in sums if one is not None)
    first = next(known, None)
    return None if first is None else reduce(add, known, first)


def _streamed(
    rows: FileShards | Decoded, most: int | None
) -> tuple[Iterator[Batch], Callable[[], list[BadRow]]]:
    """Return the batches of a task one by one, and what tells its bad rows when they are read.

    Raise if the file is there for the client, but not for this worker.
    """
    if isinstance(rows, Decoded):
        return iter(rows.batches), lambda: rows.bad
    name = rows.source.name
    if not (isinstance(rows.source, TableSource) or is_url(name) or os.path.exists(name)):
        fix = "Use a directory that all workers can read, or a URL"
        raise BadFileError(name, "a Dask worker cannot read it", fix)
    bad_rows = None if most is None else BadRows(most)
    return replace(rows, bad_rows=bad_rows).batches(), lambda: list(bad_rows or ())


def columns_of(
    function: Callable[[Batch], Mapping[str, Any] | None],
    rows: FileShards | Decoded,
    numbering: Numbering,
    most: int | None,
) -> tuple[list[Mapping[str, Any] | None], list[BadRow]]:
    """Return the columns of each batch, and the rows that are bad."""
    batches, bad = _streamed(rows, most)
    return [function(numbering.of(batch)) for batch in batches], bad()


def write_part(
    function: Callable[[Batch, str], Mapping[str, Any] | None],
    rows: FileShards | Decoded,
    file: str,
    path: str,
    lock: WriteLock,
    most: int | None,
) -> tuple[int | None, list[BadRow]]:
    """Write a part, whole or not at all; return how many rows it has, None for no part at all.

    It is none if the lock of the run that asked for it is over by then.
    """
    batches, bad = _streamed(rows, most)
    first = next(batches, None)
    if first is None:
        return None, []
    with Sink(path) as sink:
        for batch in chain([first], batches):
            # A twin, as in `Numbering.of`: what is worked out of the rows must not stay with them.
            sink.write(function(replace(batch), file))
        lock.require()
    return sink.n_rows, bad()


def is_collection(source: Any) -> bool:
    """Whether a source is a Dask frame, or a dict of Dask arrays; raise for what is nearly so."""
    arrays = source.values() if isinstance(source, Mapping) else [source]
    is_dask = [hasattr(one, "to_delayed") for one in arrays]
    if isinstance(source, Mapping) and not all(is_dask):
        other = next(name for name, is_one in zip(source, is_dask, strict=True) if not is_one)
        got = f"{type(source[other]).__name__} as {other!r}"
        fix = "Use dask.array.from_array(array)"
        raise BadTypeError("source", "DaskShards", "must hold Dask arrays only", got, fix)
    if all(is_dask) and not isinstance(source, Mapping) and not hasattr(source, "columns"):
        rule, fix = "must be a dict of Dask arrays", "Pass {'logits': array, 'y': labels}"
        raise BadTypeError("source", "DaskShards", rule, f"a bare {type(source).__name__}", fix)
    return bool(is_dask) and all(is_dask)


def partitions_of(
    source: Any, columns: Columns, most: int | None, delayed: Callable[..., Any]
) -> list[Any]:
    """Return what makes the batches of each partition of a collection, `delayed` by Dask."""
    if not isinstance(columns, Columns):
        fix = "Pass Columns(label='y', logits='logit_*')"
        raise BadTypeError("columns", "DaskShards", "must be Columns", repr(columns), fix)
    if not isinstance(source, Mapping):
        columns.bind([str(name) for name in source.columns], "the Dask frame")
        parts, decode = source.to_delayed(), delayed(_decoded_frame)
        return [decode(part, columns, k, most) for k, part in enumerate(parts)]
    columns.bind(list(source), "the Dask arrays")
    _require_rows(source)
    rows = next(iter(source.values())).chunks[0]
    # A matrix is cut by rows only.
    chunks = {1: {0: rows}, 2: {0: rows, 1: -1}}
    cut = [array.rechunk(chunks[array.ndim]) for array in source.values()]
    blocks = zip(*(array.to_delayed().ravel() for array in cut), strict=True)
    names, decode = list(source), delayed(_decoded_arrays)
    return [decode(names, list(some), columns, k, most) for k, some in enumerate(blocks)]


def _require_rows(arrays: Mapping[str, Any]) -> None:
    """Raise unless arrays have a row or an entry each for the same rows."""
    where = "the Dask arrays"
    first, n_rows = next((name, array.shape[:1]) for name, array in arrays.items())
    for name, array in arrays.items():
        if array.ndim not in (1, 2):
            rule, fix = "must have 1 or 2 dimensions", f"Use {name}.reshape(len({name}), -1)"
            raise BadValueError(name, where, rule, f"shape {array.shape}", fix)
        if isnan(array.shape[0]):
            rule, fix = "must have a known length", f"Call {name}.compute_chunk_sizes()"
            raise BadValueError(name, where, rule, f"shape {array.shape}", fix)
        if array.shape[:1] != n_rows:
            rule = f"must be as long as `{first}` ({n_rows[0]} rows)"
            fix = "Provide one value per row"
            raise BadValueError(name, where, rule, f"{array.shape[0]} rows", fix)
