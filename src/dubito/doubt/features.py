"""Scores fitted on features: the base classes, and the rows of features they are fitted on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_finite,
    as_floats,
    freeze,
    require_dimensions,
    require_rows,
)
from dubito.data.batch import Batch, as_weights
from dubito.data.labels import MISSING, Labels, as_label_column, distinct, is_absent, names_of
from dubito.data.shards import ArrayShards, Shards, Sum, make_shards
from dubito.errors import BadTypeError, BadValueError, EmptyStateError, StateMismatchError
from dubito.kernels.blocks import kept_threads, map_in_order, row_blocks
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseClassOutputs, ClassName
from dubito.serialization.fields import class_names, fitted, integer
from dubito.serialization.objects import Serializable

MAX_SCORE = float(np.finfo(np.float64).max)  # what a score or a norm that overflows is set to
LABEL_RULE = "must hold integers from 0 up, or class names"


class BaseFeatureEstimator(Serializable):
    """What is fitted on features.

    Attributes
    ----------
    n_features_ : int
        The number of features.
    """

    n_features_: int = fitted(integer(1))

    def _n_entries(self) -> int:
        """Return how many numbers per row scoring needs, which sets the size of blocks."""
        classes = getattr(self, "classes_", None)
        return max(self.n_features_, 0 if classes is None else len(classes))

    def _map(
        self, function: Callable[[FloatArray], FloatArray], features: Any, method: str
    ) -> FloatArray:
        """Return a function of checked rows, computed block by block."""
        return map_rows(function, self._checked_features(features, method), self._n_entries())

    def _checked_features(self, features: Any, method: str) -> FloatArray:
        """Return finite features with the columns of the fit."""
        caller = self._require_fitted(method)
        array = as_feature_matrix(features, caller)
        if array.shape[1] != self.n_features_:
            rule = f"must have {self.n_features_} columns, as during fit"
            fix = "Pass the same features as during fit"
            raise BadValueError("features", caller, rule, f"{array.shape[1]}", fix)
        return array


class BaseFeatureScore(BaseFeatureEstimator):
    """A score that is fitted on features: larger means more uncertain, or further out."""

    def score(self, features: Any) -> FloatArray:
        """Return the score of each row; larger means further out of distribution.

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Features of new rows, in the columns of the fit.

        Returns
        -------
        ndarray of shape (n_rows,)
            Finite scores in float64. A score that overflows is the largest float.
        """
        scores = self._map(self._score_rows, features, "score")
        return np.nan_to_num(scores, nan=MAX_SCORE, posinf=MAX_SCORE, neginf=-MAX_SCORE)

    @abstractmethod
    def _score_rows(self, features: FloatArray) -> FloatArray:
        """Return the scores of a block of checked rows; overflow may leave infinity or NaN."""


class BaseClassEstimator(BaseFeatureEstimator):
    """What is fitted on features, with or without class labels, in `_learn`.

    Classes are those that occur in `y`; `classes_` is None without labels.

    Attributes
    ----------
    classes_ : tuple or None
        The classes that occurred in `y`, sorted.
    """

    classes_: Any = fitted(class_names())  # a tuple or None; an array in classifiers

    uses_labels: ClassVar[bool] = True  # otherwise `y` is not even read

    def fit(self, features: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit on training rows, which are in-distribution.

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features), Batch or Shards
            Features, for example the inputs of a network's last layer. A batch or shards must
            hold features, and hold labels and weights themselves.
        y : array-like of shape (n_rows,), optional
            Class labels. If some are missing (None or NaN), those rows are ignored with a
            warning.
        sample_weight : array-like of shape (n_rows,), optional
            Frequency weights.

        Returns
        -------
        self
            Fitted.
        """
        name = type(self).__name__
        rows = feature_shards(features, y, sample_weight, name, use_labels=self.uses_labels)
        warn_of_missing(rows.n_missing, rows.n_rows, name, stacklevel=3)
        with self._fitting(n_features_=rows.n_features, classes_=rows.classes):
            self._learn(rows)
        return self

    @abstractmethod
    def _learn(self, rows: FeatureShards) -> None:
        """Set the learned attributes."""


class BaseOODScore(BaseClassEstimator, BaseFeatureScore):
    """An out-of-distribution score that is fitted on features, with or without labels.

    A subclass fits in `_learn` and scores rows in `_score_rows`.
    """


def map_rows(
    function: Callable[[FloatArray], FloatArray], features: FloatArray, n_entries: int
) -> FloatArray:
    """Return a function of the rows, computed block by block in threads."""

    def quiet(rows: slice) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(features[rows])

    blocks = row_blocks(features.shape[0], n_entries) or [slice(0, 0)]
    with kept_threads():
        return np.concatenate(list(map_in_order(quiet, blocks)))


def unit_rows_and_norms(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows scaled to unit length in float64 (rows of zeros stay), and their norms."""
    wide = rows.astype(np.float64)
    # Scaled by the largest entry first, so that no square over- or underflows.
    scale = np.abs(wide).max(axis=1, initial=0.0)
    wide /= np.where(scale > 0, scale, 1.0)[:, np.newaxis]
    length = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide /= np.where(scale > 0, length, 1.0)[:, np.newaxis]
    with np.errstate(over="ignore"):
        return wide, np.minimum(scale * length, MAX_SCORE)


def as_feature_matrix(features: Any, caller: str, argument: str = "features") -> FloatArray:
    """Return finite floats of shape (n_rows, n_features)."""
    array = as_floats(features, argument, caller)
    fix = f"Use `.reshape({len(array)}, -1)` for one row per input" if array.ndim > 2 else None
    require_dimensions(array, (2,), argument, caller, "rows x features", fix)
    return freeze(as_finite(array, argument, caller))


@final
@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """Features, class codes (all 0 without labels, -1 if missing) and weights of some rows."""

    features: FloatArray
    codes: IntArray
    weight: FloatArray

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def n_columns(self) -> int:
        """The number of features, which sets the size of blocks."""
        return int(self.features.shape[1])

    def take(self, rows: Any) -> FeatureRows:
        """Return a range of rows as views, or selected rows as copies."""
        return FeatureRows(self.features[rows], self.codes[rows], self.weight[rows])


@final
@dataclass(frozen=True, slots=True, eq=False)
class FeatureShards:
    """Shards of the rows with a label and a weight, and what a first pass counted.

    `classes` are those that occur (None without labels), `weights` their total weights. Rows
    without a label count in `n_rows` and `n_missing` only.

    >>> rows = feature_shards([[1.0], [2.0], [4.0]], ["b", "a", "b"], None, "example")
    >>> rows.sum(lambda rows: rows.features.sum()), rows.classes, rows.weights.tolist()
    (np.float64(7.0), ('a', 'b'), [1.0, 2.0])
    """

    shards: Shards[FeatureRows]
    n_features: int
    n_rows: int
    n_missing: int
    classes: tuple[ClassName, ...] | None
    weights: FloatArray

    @property
    def n_classes(self) -> int:
        """The number of classes that occur; 1 without labels."""
        return int(self.weights.size)

    def sum(self, function: Callable[[FeatureRows], Sum]) -> Sum:
        """Return the sum of `function(rows)` over all blocks; overflow leaves infinity or NaN."""

        def quiet(rows: FeatureRows) -> Sum:
            with np.errstate(over="ignore", invalid="ignore"):
                return function(rows)

        with kept_threads(), np.errstate(over="ignore", invalid="ignore"):
            return self.shards.sum(quiet)

    def pooled(self) -> FeatureShards:
        """Return the same rows as a single class."""

        def as_one(rows: FeatureRows) -> FeatureRows:
            return replace(rows, codes=np.zeros_like(rows.codes))

        weights = self.weights.sum(keepdims=True)
        return replace(self, shards=self.shards.map(as_one), classes=None, weights=weights)

    def map_features(self, function: Callable[[FloatArray], FloatArray]) -> FeatureShards:
        """Return the same rows with a function of their features."""

        def changed(rows: FeatureRows) -> FeatureRows:
            return replace(rows, features=function(rows.features)) if len(rows) else rows

        return replace(self, shards=self.shards.map(changed))


def feature_shards(
    features: Any, y: Any, sample_weight: Any, caller: str, *, use_labels: bool = True
) -> FeatureShards:
    """Return the rows to fit on, after a first pass that checks and counts them."""
    shards, n_features, classes = (
        _sharded_features(features, y, sample_weight, caller, use_labels)
        if isinstance(features, Shards | Batch)
        else _feature_arrays(features, y if use_labels else None, sample_weight, caller)
    )
    n_codes = 1 if classes is None else len(classes)

    def counts(rows: FeatureRows) -> FloatArray:
        if rows.n_columns != n_features:
            raise StateMismatchError("numbers of features", n_features, rows.n_columns)
        is_missing = rows.codes == MISSING
        weight = np.where(is_missing, 0.0, rows.weight)
        weights = np.bincount(np.maximum(rows.codes, 0), weight, n_codes)
        return np.append([len(rows), np.count_nonzero(is_missing)], weights)

    n_rows, n_missing, *weights = shards.sum(counts).tolist()
    if not any(weights):
        raise EmptyStateError(caller, is_labeled=classes is not None)
    used = np.flatnonzero(weights)
    new_codes = np.full(n_codes + 1, MISSING)  # the last entry is where a missing label points
    new_codes[used] = np.arange(used.size)
    return FeatureShards(
        shards=shards.map(lambda rows: _usable_rows(rows, new_codes)),
        n_features=n_features,
        n_rows=int(n_rows),
        n_missing=int(n_missing),
        classes=None if classes is None else tuple(classes[k] for k in used),
        weights=freeze(np.array(weights)[used]),
    )


Source = tuple[Shards[FeatureRows], int, tuple[ClassName, ...] | None]


def _feature_arrays(features: Any, y: Any, sample_weight: Any, caller: str) -> Source:
    """Return shards of arrays, their number of features, and the classes."""
    array = as_feature_matrix(features, caller)
    codes, classes = _encode_labels(y, array.shape[0], caller)
    rows = FeatureRows(array, codes, as_weights(sample_weight, array.shape[0], caller))
    return ArrayShards(rows), rows.n_columns, classes


def _sharded_features(
    features: Any, y: Any, sample_weight: Any, caller: str, use_labels: bool
) -> Source:
    """Return shards of the features in shards, their number of features, and the classes."""
    shards = make_shards(
        features, y, sample_weight=sample_weight, caller=caller, argument="features"
    )

    def read(batch: Batch) -> FeatureRows:
        return _rows_in(batch if use_labels else replace(batch, labels=None), caller)

    # A batch in memory is cut anew: its blocks are sized by outputs, far narrower than features.
    source, first = shards.convert(read), next(shards.batches(), None)
    if first is None:
        raise EmptyStateError(caller, is_labeled=False)
    has_labels = use_labels and first.labels is not None
    outputs = first.outputs
    classes = names_of(outputs) if has_labels and isinstance(outputs, BaseClassOutputs) else None
    return source, read(first).n_columns, classes


def _rows_in(batch: Batch, caller: str) -> FeatureRows:
    """Return the features, labels and weights of a batch."""
    labels = batch.labels
    if batch.features is None:
        rule, fix = "must hold features", "Name the feature columns: Columns(features=...)"
        raise BadTypeError("features", caller, rule, "shards without them", fix)
    if labels is None:
        return FeatureRows(batch.features, np.zeros(len(batch), np.int64), batch.weight)
    if not isinstance(labels, Labels) or labels.probabilities is not None:
        got = "label probabilities" if isinstance(labels, Labels) else "regression targets"
        rule, fix = "must hold one class label per row", "Pass class labels, or no labels"
        raise BadTypeError("features", caller, rule, got, fix)
    return FeatureRows(batch.features, labels.codes, batch.weight)


def _usable_rows(rows: FeatureRows, new_codes: IntArray) -> FeatureRows:
    """Return the rows with a label and a weight, with classes renumbered."""
    is_usable = (rows.codes != MISSING) & (rows.weight > 0)
    usable = rows if is_usable.all() else rows.take(is_usable)
    return replace(usable, codes=new_codes[usable.codes])


def as_label_array(names: tuple[Any, ...]) -> NDArray[Any]:
    """Return class labels as an array, of objects if they are of several types."""
    is_mixed = len({type(name) for name in names}) > 1
    return np.array(names, dtype=object if is_mixed else None)


def _encode_labels(
    y: Any, n_rows: int, caller: str
) -> tuple[IntArray, tuple[ClassName, ...] | None]:
    """Return the index of each row's label among the sorted classes (-1 if missing), and those.

    >>> _encode_labels(["dog", None, "cat"], 3, "example")
    (array([ 1, -1,  0]), ('cat', 'dog'))
    """
    if y is None:
        return np.zeros(n_rows, np.int64), None
    array = as_label_column(y, "y", caller)
    several = "Leave `y` out if a row has several labels, or pass one column of it"
    fix = several if array.ndim == 2 and array.shape[1] > 1 else None
    require_dimensions(array, (1,), "y", caller, "one label per row", fix)
    require_rows(array, n_rows, "y", caller, "the features")
    for row, value in enumerate(array.tolist() if array.dtype.kind not in "biuf" else ()):
        if not (is_absent(value) or isinstance(value, str | int | float)):
            fix = "Use a name or an integer in every row"
            raise BadTypeError("y", caller, LABEL_RULE, f"a {type(value).__name__}", fix, row)
    values, positions = distinct(array)
    present: list[Any] = [value for value in values if not is_absent(value)]
    if not any(isinstance(value, str | bool) for value in present):
        is_whole = [is_absent(v) or (0 <= v < 2**53 and v == int(v)) for v in values]
        is_valid = np.array(is_whole, dtype=bool)[positions]
        if not is_valid.all():
            row = int(np.argmin(is_valid))
            names = "None or NaN for a missing label", "one integer per class"
            fix = f"Use {names[0] if array[row] < 0 else names[1]}"
            raise BadValueError("y", caller, LABEL_RULE, f"{array[row]}", fix, row)
        present = [int(value) for value in present]
    classes = sorted(present, key=lambda name: (isinstance(name, str), name))
    code_of = {name: code for code, name in enumerate(classes)}
    codes = [MISSING if is_absent(value) else code_of[value] for value in values]
    return np.array(codes, dtype=np.int64)[positions], tuple(classes)
