"""Dask frames and arrays as rows: what makes the batches of each partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan
from typing import Any, NamedTuple

from dubito.data.columns import Columns
from dubito.data.dask_tasks import Decoded, decoded_arrays, decoded_frame
from dubito.errors import BadTypeError, BadValueError

__all__ = ["Partition", "is_collection", "partitions_of"]


class Partition(NamedTuple):
    """A function and what it is to be called with, where Dask has made that."""

    function: Callable[..., Decoded]
    arguments: tuple[Any, ...]


def is_collection(source: Any) -> bool:
    """Whether a source is a Dask frame, or a dict of Dask arrays; raise for what is nearly so."""
    is_dask = [hasattr(one, "to_delayed") for one in arrays_of(source)]
    if isinstance(source, Mapping) and not all(is_dask):
        other = next(name for name, is_one in zip(source, is_dask, strict=True) if not is_one)
        got, fix = f"{type(source[other]).__name__} as {other!r}", "dask.array.from_array(array)"
        raise BadTypeError("source", "DaskShards", "of Dask arrays alone", got, fix)
    if all(is_dask) and not isinstance(source, Mapping) and not hasattr(source, "columns"):
        rule, fix = "a dict where it is of Dask arrays", "{'logits': array, 'y': labels}"
        raise BadTypeError("source", "DaskShards", rule, f"a bare {type(source).__name__}", fix)
    return bool(is_dask) and all(is_dask)


def arrays_of(source: Any) -> list[Any]:
    """Return the arrays of a dict, or the one thing that a source is."""
    return list(source.values()) if isinstance(source, Mapping) else [source]


def partitions_of(source: Any, columns: Columns, most: int | None) -> list[Partition]:
    """Return, of each partition of a collection, what makes its batches, and of what."""
    if not isinstance(columns, Columns):
        fix = "Columns(label='y', logits='logit_*')"
        raise BadTypeError("columns", "DaskShards", "of type Columns", repr(columns), fix)
    if not isinstance(source, Mapping):
        columns.bind([str(name) for name in source.columns], "the Dask frame")
        parts = source.to_delayed()
        return [Partition(decoded_frame, (part, columns, k, most)) for k, part in enumerate(parts)]
    columns.bind(list(source), "the Dask arrays")
    require_rows(source)
    rows = next(iter(source.values())).chunks[0]
    cut = [array.rechunk({0: rows, 1: -1} if array.ndim == 2 else {0: rows})
           for array in source.values()]  # fmt: skip
    blocks = zip(*(array.to_delayed().ravel() for array in cut), strict=True)
    return [
        Partition(decoded_arrays, (list(source), list(some), columns, k, most))
        for k, some in enumerate(blocks)
    ]


def require_rows(arrays: Mapping[str, Any]) -> None:
    """Raise unless arrays have a row or an entry each for the same rows."""
    where = "the Dask arrays"
    first, n_rows = next((name, array.shape[:1]) for name, array in arrays.items())
    for name, array in arrays.items():
        if array.ndim not in (1, 2):
            rule, fix = "of 1 or 2 dimensions", f"{name}.reshape(len({name}), -1)"
            raise BadValueError(name, where, rule, f"shape {array.shape}", fix)
        if isnan(array.shape[0]):
            rule, fix = "of a length that is known", f"{name}.compute_chunk_sizes()"
            raise BadValueError(name, where, rule, f"shape {array.shape}", fix)
        if array.shape[:1] != n_rows:
            rule = f"as long as `{first}` ({n_rows[0]} rows)"
            raise BadValueError(name, where, rule, f"{array.shape[0]} rows", "one value a row")
