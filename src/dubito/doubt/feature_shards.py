"""Rows of features to learn from, wherever they are: in memory, or streamed in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_finite,
    as_floats,
    freeze,
    require_dimensions,
)
from dubito.data.batch import Batch, as_weights
from dubito.data.codes import MISSING, names_of
from dubito.data.shards import ArrayShards, Shards, Sum
from dubito.data.truth import Labels
from dubito.doubt.labels import codes_and_classes
from dubito.errors import BadTypeError, EmptyStateError, StateMismatchError
from dubito.kernels.blocks import kept_threads, map_in_order, row_blocks
from dubito.outputs import AbstractClassOutputs, ClassName

__all__ = [
    "FeatureRows",
    "FeatureShards",
    "as_feature_matrix",
    "feature_shards",
    "unlabelled_shards",
]


@final
@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """Some rows: features, class numbers from 0 up (all 0 without labels), weights above 0."""

    features: FloatArray
    codes: IntArray
    weight: FloatArray

    def __len__(self) -> int:
        return int(self.features.shape[0])

    def take(self, rows: Any) -> FeatureRows:
        """Return a range of rows as views, or rows of some numbers as copies."""
        return FeatureRows(self.features[rows], self.codes[rows], self.weight[rows])


Part = Callable[[], Iterator[FeatureRows]]


@final
@dataclass(frozen=True, eq=False)
class FeatureShards:
    """Rows of features in blocks of bounded size, wherever they are.

    Blocks depend on the data alone and are added in their order: the same rows give the same digits
    with any number of threads. Each has a row or more. `weights` are those of each class.

    >>> shards = feature_shards([[1.0], [2.0], [4.0]], ["b", "a", "b"], None, "example")
    >>> shards.sum(lambda rows: rows.features.sum()), shards.classes, shards.weights.tolist()
    (np.float64(7.0), ('a', 'b'), [1.0, 2.0])
    """

    parts: Callable[[], Iterator[Part]]  # what makes the blocks, called in the thread that uses it
    n_features: int
    n_rows: int
    n_missing: int
    classes: tuple[ClassName, ...] | None
    weights: FloatArray

    @property
    def n_classes(self) -> int:
        """How many classes occur; 1 without labels."""
        return int(self.weights.size)

    def blocks(self) -> Iterator[FeatureRows]:
        """Yield the rows, block by block, in order."""
        return (rows for part in self.parts() for rows in part())

    def sum(self, function: Callable[[FeatureRows], Sum]) -> Sum:
        """Return the sum of `function` over all blocks, over threads."""
        return sum_of(self.parts(), function)

    def mapped(self, function: Callable[[FloatArray], FloatArray]) -> FeatureShards:
        """Return the same rows with their features put through a function of some rows."""

        def changed(part: Part) -> Iterator[FeatureRows]:
            return (replace(rows, features=function(rows.features)) for rows in part())

        return replace(self, parts=lambda: (partial(changed, part) for part in self.parts()))


def unlabelled_shards(features: Any, y: Any, sample_weight: Any, caller: str) -> FeatureShards:
    """Return rows to learn from without their labels, whatever those are."""
    return feature_shards(features, y, sample_weight, caller, is_labelled=False)


def feature_shards(
    features: Any, y: Any, sample_weight: Any, caller: str, *, is_labelled: bool = True
) -> FeatureShards:
    """Return rows to learn from, after a first pass that checks and counts them."""
    if isinstance(features, Shards):
        refuse_beside_shards(y, sample_weight, caller)
        parts, n_features, names = streamed_parts(features, caller, is_labelled=is_labelled)
    else:
        array = as_feature_matrix(features, caller)
        n_features = array.shape[1]
        codes, names = codes_and_classes(y if is_labelled else None, array.shape[0], caller)
        whole = FeatureRows(array, codes, as_weights(sample_weight, array.shape[0], caller))
        parts = partial(parts_in_memory, whole)
    n_codes = 1 if names is None else len(names)
    seen = sum_of(parts(), lambda rows: SeenRows.of(rows, n_codes), caller)
    if not seen.weights.any():
        raise EmptyStateError(caller, is_labelled=names is not None)
    used = np.flatnonzero(seen.weights)
    numbers = np.full(n_codes + 1, MISSING)  # the last one is where a missing label points
    numbers[used] = np.arange(used.size)
    return FeatureShards(
        parts=lambda: (partial(usable, part, numbers) for part in parts()),
        n_features=n_features,
        n_rows=seen.n_rows,
        n_missing=seen.n_missing,
        classes=None if names is None else tuple(names[k] for k in used),
        weights=freeze(seen.weights[used]),
    )


def as_feature_matrix(features: Any, caller: str) -> FloatArray:
    """Return rows x dimensions of finite floats."""
    array = as_floats(features, "features", caller)
    require_dimensions(array, (2,), "features", caller, "rows x dimensions")
    return freeze(as_finite(array, "features", caller))


def sum_of(
    parts: Iterator[Part], function: Callable[[FeatureRows], Sum], caller: str = "A sum of rows"
) -> Sum:
    """Return the sum of a function over all blocks of all parts, over threads."""

    def within(part: Part) -> Sum | None:
        with np.errstate(over="ignore", invalid="ignore"):
            sums = map(function, part())
            first = next(sums, None)
            return None if first is None else reduce(add, sums, first)

    with kept_threads():
        found = (one for one in map_in_order(within, parts) if one is not None)
        first = next(found, None)
        if first is None:
            raise EmptyStateError(caller, is_labelled=False)
        with np.errstate(over="ignore", invalid="ignore"):
            return reduce(add, found, first)


@final
@dataclass(frozen=True, slots=True, eq=False)
class SeenRows:
    """What a first pass over the rows counts."""

    n_features: int
    n_rows: int
    n_missing: int
    weights: FloatArray

    @classmethod
    def of(cls, rows: FeatureRows, n_codes: int) -> SeenRows:
        is_missing = rows.codes == MISSING
        weight = np.where(is_missing, 0.0, rows.weight)
        weights = np.bincount(np.maximum(rows.codes, 0), weight, n_codes).astype(np.float64)
        n_missing = int(np.count_nonzero(is_missing))
        return cls(rows.features.shape[1], len(rows), n_missing, weights)

    def __add__(self, other: SeenRows) -> SeenRows:
        if self.n_features != other.n_features:
            raise StateMismatchError("numbers of features", self.n_features, other.n_features)
        return SeenRows(
            self.n_features,
            self.n_rows + other.n_rows,
            self.n_missing + other.n_missing,
            self.weights + other.weights,
        )


def parts_in_memory(whole: FeatureRows) -> Iterator[Part]:
    """Yield blocks of rows in memory, each a part of its own."""
    blocks = row_blocks(*whole.features.shape)
    return (partial(lambda rows: iter([whole.take(rows)]), rows) for rows in blocks)


def usable(part: Part, numbers: IntArray) -> Iterator[FeatureRows]:
    """Yield blocks without rows that have no label or no weight, classes numbered anew."""
    for rows in part():
        is_used = (rows.codes != MISSING) & (rows.weight > 0)
        kept = rows if is_used.all() else rows.take(is_used)
        if len(kept):
            yield replace(kept, codes=numbers[kept.codes])


def streamed_parts(
    shards: Shards, caller: str, *, is_labelled: bool
) -> tuple[Callable[[], Iterator[Part]], int, tuple[ClassName, ...] | None]:
    """Return what makes the blocks of shards, how many features they have, and their classes."""

    def read(batch: Batch) -> FeatureRows:
        return rows_of(batch if is_labelled else replace(batch, truth=None), caller)

    def named(batch: Batch) -> tuple[ClassName, ...] | None:
        return names_in(batch) if is_labelled else None

    if isinstance(shards, ArrayShards):  # its blocks are those of outputs, far narrower than ours
        whole = read(shards.batch)
        return partial(parts_in_memory, whole), whole.features.shape[1], named(shards.batch)
    first = next(shards.batches(), None)
    if first is None:
        raise EmptyStateError(caller, is_labelled=False)
    n_features, names = read(first).features.shape[1], named(first)

    def blocks_of(make: Callable[[], Batch]) -> Iterator[FeatureRows]:
        whole = read(make())
        return (whole.take(rows) for rows in row_blocks(*whole.features.shape))

    return lambda: (partial(blocks_of, make) for make in shards.parts()), n_features, names


def rows_of(batch: Batch, caller: str) -> FeatureRows:
    """Return the features, labels and weights of a batch."""
    labels = batch.truth
    if batch.features is None:
        fix = "`features=` among the columns of the shards"
        raise BadTypeError("features", caller, "shards that hold features", "none", fix)
    is_plain = labels is None or (isinstance(labels, Labels) and labels.probabilities is None)
    if not is_plain:
        got = "label probabilities" if isinstance(labels, Labels) else "targets of a regression"
        fix = "plain labels, or none at all"
        raise BadTypeError("features", caller, "shards with a class a row", got, fix)
    codes = labels.codes if isinstance(labels, Labels) else np.zeros(len(batch), np.int64)
    return FeatureRows(batch.features, codes, batch.weight)


def names_in(batch: Batch) -> tuple[ClassName, ...] | None:
    """Return what the classes of a batch are called, None where it has no labels."""
    outputs = batch.outputs
    if batch.truth is None or not isinstance(outputs, AbstractClassOutputs):
        return None
    return names_of(outputs)


def refuse_beside_shards(y: Any, sample_weight: Any, caller: str) -> None:
    """Raise where labels or weights come beside shards, which hold their own."""
    if y is not None or sample_weight is not None:
        got = "labels" if y is not None else "weights"
        fix = f"{caller}().fit(shards), with labels and weights among the shards' columns"
        raise BadTypeError("features", caller, "arrays beside labels or weights", got, fix)
