"""Scores fitted on features: the base classes and the rows they are fitted on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar, Generic, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_array,
    as_finite,
    as_floats,
    freeze,
    require_dimensions,
    require_rows,
)
from dubito.data.batch import Batch, as_weights
from dubito.data.labels import MISSING, Labels, is_absent, names_of
from dubito.data.shards import ArrayShards, Result, Shards, Sum
from dubito.errors import BadTypeError, BadValueError, EmptyStateError, StateMismatchError
from dubito.kernels.blocks import kept_threads, map_in_order, row_blocks
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseClassOutputs, ClassName
from dubito.serialization.fields import class_names, declare, integer
from dubito.serialization.objects import Serializable

RULE = "class numbers from 0 up, or names"


def _codes_and_classes(
    y: Any, n_rows: int, caller: str
) -> tuple[IntArray, tuple[ClassName, ...] | None]:
    """Return each row's place among the sorted classes, -1 for a missing label, and the classes.

    >>> _codes_and_classes(["dog", None, "cat"], 3, "example")
    (array([ 1, -1,  0]), ('cat', 'dog'))
    """
    if y is None:
        return np.zeros(n_rows, np.int64), None
    array = as_array(y, "y", caller)
    if array.dtype.kind == "U" and isinstance(y, list | tuple):
        array = np.array(y, dtype=object)  # NumPy made text of numbers and NaN among names
    require_dimensions(array, (1,), "y", caller, "one label per row")
    require_rows(array, n_rows, "y", caller, "the features")
    if array.dtype.kind not in "biuf":
        values: list[Any] = array.tolist()
        present = [value for value in values if not is_absent(value)]
        is_number = [isinstance(v, int | float) and not isinstance(v, bool) for v in present]
        if not all(is_number):
            return _codes_of_names(values, caller)
        array = np.array([np.nan if is_absent(v) else v for v in values], dtype=np.float64)
    return _codes_of_numbers(array, caller)


def _codes_of_numbers(y: NDArray[Any], caller: str) -> tuple[IntArray, tuple[ClassName, ...]]:
    """Return codes and classes of whole numbers; NaN is missing."""
    is_missing = np.isnan(y) if y.dtype.kind == "f" else np.zeros(y.shape, dtype=bool)
    with np.errstate(invalid="ignore"):
        is_fine = is_missing | ((y >= 0) & (y == np.floor(y)) & (y < 2**53))
    if not is_fine.all():
        row = int(np.argmin(is_fine))
        fix = "NaN or None for a missing label" if y[row] < 0 else "one whole number a class"
        raise BadValueError("y", caller, RULE, f"{y[row]}", fix, row)
    values, positions = np.unique(y[~is_missing], return_inverse=True)
    codes = np.full(y.shape, MISSING, np.int64)
    codes[~is_missing] = positions
    plain = values if y.dtype.kind == "b" else values.astype(np.int64)
    return codes, tuple(plain.tolist())


def _codes_of_names(values: list[Any], caller: str) -> tuple[IntArray, tuple[ClassName, ...]]:
    """Return codes and classes of names; None and NaN are missing."""
    for row, value in enumerate(values):
        if not (is_absent(value) or isinstance(value, str | int | float)):
            fix = "a name or a whole number in every row"
            raise BadTypeError("y", caller, RULE, f"a {type(value).__name__}", fix, row)
    names = {value for value in values if not is_absent(value)}
    classes = sorted(names, key=lambda name: (isinstance(name, str), name))
    code_of = {name: code for code, name in enumerate(classes)}
    codes = [MISSING if is_absent(value) else code_of[value] for value in values]
    return np.array(codes, dtype=np.int64), tuple(classes)


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


Read = Callable[[Any], FeatureRows]


@final
@dataclass(frozen=True, eq=False)
class FeatureShards:
    """Rows of features in blocks of bounded size, wherever they are.

    Blocks depend on the data alone and are added in their order: the same rows give the same digits
    with any number of threads. `weights` are those of each class.

    >>> shards = _feature_shards([[1.0], [2.0], [4.0]], ["b", "a", "b"], None, "example")
    >>> shards.sum(lambda rows: rows.features.sum()), shards.classes, shards.weights.tolist()
    (np.float64(7.0), ('a', 'b'), [1.0, 2.0])
    """

    source: HeldRows | Shards
    read: Read  # what makes rows to learn from of what the source holds, where it holds it
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
        """Yield the rows, block by block, in order; those without a row are left out."""
        return (rows for rows in map(self.read, self.source.batches()) if len(rows))

    def map(self, function: Callable[[int, FeatureRows], Result]) -> Iterator[Result]:
        """Yield `function` of each block's number and the block, also of those without a row."""
        read = self.read  # alone: these shards need not travel to where the rows are
        return self.source.apply(lambda number, held: function(number, read(held)))

    def sum(self, function: Callable[[FeatureRows], Sum]) -> Sum:
        """Return the sum of `function` over all blocks with a row or more, over threads."""
        return _sum_of(self.source, self.read, function)

    def mapped(self, function: Callable[[FloatArray], FloatArray]) -> FeatureShards:
        """Return the same rows with their features put through a function of some rows."""
        read = self.read

        def changed(held: Any) -> FeatureRows:
            rows = read(held)
            return replace(rows, features=function(rows.features)) if len(rows) else rows

        return replace(self, read=changed)


@final
@dataclass(frozen=True, slots=True, eq=False)
class HeldRows:
    """Rows in memory, in blocks."""

    whole: FeatureRows

    def batches(self) -> Iterator[FeatureRows]:
        """Yield the rows, block by block. No rows at all are one block."""
        return map(self.whole.take, row_blocks(*self.whole.features.shape) or [slice(0, 0)])

    def apply(self, function: Callable[[int, FeatureRows], Result]) -> Iterator[Result]:
        """Yield `function` of each block's number and the block, over threads."""
        return map_in_order(lambda block: function(*block), enumerate(self.batches()))

    def sum(self, function: Callable[[FeatureRows], Sum]) -> Sum:
        """Return the sum of `function` over all blocks, over threads."""
        return reduce(add, self.apply(lambda _, rows: function(rows)))


def _unlabeled_shards(features: Any, y: Any, sample_weight: Any, caller: str) -> FeatureShards:
    """Return rows to learn from without their labels, whatever those are."""
    return _feature_shards(features, y, sample_weight, caller, is_labeled=False)


def _feature_shards(
    features: Any, y: Any, sample_weight: Any, caller: str, *, is_labeled: bool = True
) -> FeatureShards:
    """Return rows to learn from, after a first pass that checks and counts them."""
    if isinstance(features, Shards):
        _refuse_beside_shards(y, sample_weight, caller)
        source, read, n_features, names = _streamed(features, caller, is_labeled=is_labeled)
    else:
        array = as_feature_matrix(features, caller)
        n_features = array.shape[1]
        codes, names = _codes_and_classes(y if is_labeled else None, array.shape[0], caller)
        whole = FeatureRows(array, codes, as_weights(sample_weight, array.shape[0], caller))
        source, read = HeldRows(whole), _as_held
    n_codes = 1 if names is None else len(names)
    seen = _sum_of(source, read, lambda rows: SeenRows.of(rows, n_codes), caller)
    if not seen.weights.any():
        raise EmptyStateError(caller, is_labeled=names is not None)
    used = np.flatnonzero(seen.weights)
    numbers = np.full(n_codes + 1, MISSING)  # the last one is where a missing label points
    numbers[used] = np.arange(used.size)
    return FeatureShards(
        source=source,
        read=lambda held: _usable(read(held), numbers),
        n_features=n_features,
        n_rows=seen.n_rows,
        n_missing=seen.n_missing,
        classes=None if names is None else tuple(names[k] for k in used),
        weights=freeze(seen.weights[used]),
    )


def as_feature_matrix(features: Any, caller: str) -> FloatArray:
    """Return rows x dimensions of finite floats."""
    array = as_floats(features, "features", caller)
    require_dimensions(array, (2,), "features", caller, "rows x features")
    return freeze(as_finite(array, "features", caller))


def _sum_of(
    source: HeldRows | Shards,
    read: Read,
    function: Callable[[FeatureRows], Sum],
    caller: str = "A sum of rows",
) -> Sum:
    """Return the sum of a function over all blocks that have rows, where these are."""

    def within(held: Any) -> Some[Sum]:
        with np.errstate(over="ignore", invalid="ignore"):
            rows = read(held)
            return Some(function(rows) if len(rows) else None)

    with kept_threads():
        found = source.sum(within).value
    if found is None:
        raise EmptyStateError(caller, is_labeled=False)
    return found


@final
@dataclass(frozen=True, slots=True, eq=False)
class Some(Generic[Sum]):
    """A sum over some rows, None where there are none."""

    value: Sum | None

    def __add__(self, other: Some[Sum]) -> Some[Sum]:
        if self.value is None or other.value is None:
            return other if self.value is None else self
        with np.errstate(over="ignore", invalid="ignore"):
            return Some(self.value + other.value)


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


def _as_held(rows: FeatureRows) -> FeatureRows:
    """Return rows as they are held."""
    return rows


def _usable(rows: FeatureRows, numbers: IntArray) -> FeatureRows:
    """Return rows without those that have no label or no weight, classes numbered anew."""
    is_used = (rows.codes != MISSING) & (rows.weight > 0)
    kept = rows if is_used.all() else rows.take(is_used)
    return replace(kept, codes=numbers[kept.codes])


def _streamed(
    shards: Shards, caller: str, *, is_labeled: bool
) -> tuple[HeldRows | Shards, Read, int, tuple[ClassName, ...] | None]:
    """Return where rows are, what reads them there, how many features they have, and classes."""

    def read(batch: Batch) -> FeatureRows:
        return _rows_of(batch if is_labeled else replace(batch, labels=None), caller)

    def named(batch: Batch) -> tuple[ClassName, ...] | None:
        return _names_in(batch) if is_labeled else None

    if isinstance(shards, ArrayShards):  # its blocks are those of outputs, far narrower than ours
        whole = read(shards.batch)
        return HeldRows(whole), _as_held, whole.features.shape[1], named(shards.batch)
    first = next(shards.batches(), None)
    if first is None:
        raise EmptyStateError(caller, is_labeled=False)
    return shards, read, read(first).features.shape[1], named(first)


def _rows_of(batch: Batch, caller: str) -> FeatureRows:
    """Return the features, labels and weights of a batch."""
    labels = batch.labels
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


def _names_in(batch: Batch) -> tuple[ClassName, ...] | None:
    """Return what the classes of a batch are called, None where it has no labels."""
    outputs = batch.outputs
    if batch.labels is None or not isinstance(outputs, BaseClassOutputs):
        return None
    return names_of(outputs)


def _refuse_beside_shards(y: Any, sample_weight: Any, caller: str) -> None:
    """Raise where labels or weights come beside shards, which hold their own."""
    if y is not None or sample_weight is not None:
        got = "labels" if y is not None else "weights"
        fix = f"{caller}().fit(shards), with labels and weights among the shards' columns"
        raise BadTypeError("features", caller, "arrays beside labels or weights", got, fix)


HIGHEST = float(np.finfo(np.float64).max)  # a doubt too large to be held


class BaseFeatureScore(Serializable):
    """What was fitted on features and gives each row of them a doubt; larger = more doubt."""

    n_features_: int

    fitted_fields = declare(n_features_=integer(1))

    def score(self, features: Any) -> FloatArray:
        """Return the doubt of each row, in float64; what is too large to hold is the largest."""
        known = self._known(features, "score")
        doubt = over_blocks(self._doubt, known, self._n_entries())
        return np.nan_to_num(doubt, nan=HIGHEST, posinf=HIGHEST, neginf=-HIGHEST)

    @abstractmethod
    def _doubt(self, features: FloatArray) -> FloatArray:
        """Return the doubt of a block of checked rows; overflow may leave infinity or NaN."""

    def _n_entries(self) -> int:
        """How many numbers a row takes while it is scored: what the size of blocks hangs on."""
        return max(self.n_features_, len(getattr(self, "classes_", None) or ()))

    def _known(self, features: Any, method: str) -> FloatArray:
        """Return checked features, as many a row as in the fit."""
        self._require_fitted(method)
        caller = f"{type(self).__name__}.{method}"
        array = as_feature_matrix(features, caller)
        if array.shape[1] != self.n_features_:
            rule, fix = f"of {self.n_features_} columns, as in the fit", "the features of the fit"
            raise BadValueError("features", caller, rule, f"{array.shape[1]}", fix)
        return array


class BaseOODScore(BaseFeatureScore):
    """Learns from features and labels of classes which rows are strange.

    It says what it learns of shards (`_learn`) and the doubt of some rows (`_doubt`). Classes are
    those that occur, by the names or numbers that `y` has; `classes_` is None without labels.
    """

    classes_: tuple[ClassName, ...] | None

    fitted_fields = declare(classes_=class_names())

    uses_labels: ClassVar[bool] = True  # where not, labels are not even read

    def fit(self, features: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from rows x dimensions and labels, if any, or from shards that hold both.

        Rows without a label are left out where others have one, unless labels are of no use to it.
        """
        name = type(self).__name__
        reader = _feature_shards if self.uses_labels else _unlabeled_shards
        shards = reader(features, y, sample_weight, name)
        warn_of_missing(shards.n_missing, shards.n_rows, name, stacklevel=3)
        self._forget()
        self.n_features_, self.classes_ = shards.n_features, shards.classes
        try:
            self._check_params()
            self._learn(shards)
        except BaseException:
            self._forget()
            raise
        return self

    @abstractmethod
    def _learn(self, shards: FeatureShards) -> None:
        """Set whatever is learned."""


def over_blocks(
    function: Callable[[FloatArray], FloatArray], features: FloatArray, n_entries: int
) -> FloatArray:
    """Return what a function gives for each row, block by block, over threads."""

    def quietly(rows: slice) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(features[rows])

    blocks = row_blocks(features.shape[0], n_entries) or [slice(0, 0)]
    with kept_threads():
        return np.concatenate(list(map_in_order(quietly, blocks)))
