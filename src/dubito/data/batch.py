"""A batch: outputs of a model, with all that is known about the same rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, final

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
    require_everywhere,
    require_rows,
)
from dubito.data.rows import Rows, rows_of
from dubito.data.truth import Labels, Targets
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import BaseClassOutputs, BaseOutputs, TopLabel, as_outputs

__all__ = ["Batch", "as_column", "as_weights"]

MOST_SHARED = 1 << 20  # weights of 1 that are kept for the next batch of the same size: 8 MB


@final
@dataclass(frozen=True, eq=False)
class Batch:
    """Outputs, and of the same rows: truth, weights, features, ids, groups, amounts.

    Made by `Batch.of`, which checks everything once; `take` gives a range of rows without a copy.
    `first_row` is where its first row stands in the whole that it is a part of. `amounts` are what
    costs may grow with, such as prices.

    >>> batch = Batch.of([1, 0], [[0.2, 0.8], [0.4, 0.6]])
    >>> batch.rows.correct.tolist()
    [1.0, 0.0]
    """

    outputs: BaseOutputs
    truth: Labels | Targets | None
    weight: FloatArray
    features: FloatArray | None = None
    ids: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    first_row: int = 0
    amounts: FloatArray | None = None

    @classmethod
    def of(
        cls,
        y_true: Any,
        outputs: Any,
        *,
        sample_weight: Any = None,
        features: Any = None,
        ids: Any = None,
        groups: Any = None,
        amounts: Any = None,
        first_row: int = 0,
        caller: str = "Batch",
        argument: str = "y_true",
    ) -> Batch:
        """Check and align what is known about some rows.

        `y_true` may be None: for `TopLabel`, which knows what was right, and for rows without
        truth. `argument` is what the caller calls it.
        """
        wrapped = as_outputs(outputs, "outputs", caller)
        n_rows = wrapped.n_rows
        return cls(
            outputs=wrapped,
            truth=as_truth(y_true, wrapped, argument, caller),
            weight=as_weights(sample_weight, n_rows, caller),
            features=as_features(features, n_rows, caller),
            ids=as_column(ids, n_rows, "ids", caller),
            groups=as_column(groups, n_rows, "groups", caller),
            amounts=as_amounts(amounts, n_rows, caller),
            first_row=first_row,
        )

    def __len__(self) -> int:
        return self.outputs.n_rows

    @cached_property
    def rows(self) -> Rows:
        """The numbers a row that one pass over the matrix leaves; the pass is made once."""
        return rows_of(self.outputs, self.truth if isinstance(self.truth, Labels) else None)

    @property
    def n_missing(self) -> int:
        """How many rows have no truth."""
        return 0 if self.truth is None else self.truth.n_missing

    def require_truth(self, caller: str) -> None:
        """Raise unless it is known what happened, or at least what was right."""
        if self.truth is None and not isinstance(self.outputs, TopLabel):
            fix = "the true labels, or TopLabel(confidence, correct)"
            raise BadTypeError("y_true", caller, "the labels", "None", fix)

    @cached_property
    def labeled_weight(self) -> FloatArray:
        """The weights, 0 where the truth is missing: what every sum over rows is taken with."""
        self.require_truth("a metric")
        if self.n_missing == 0 or self.truth is None:
            return self.weight
        return np.where(self.truth.is_missing, 0.0, self.weight)

    def take(self, rows: slice | IntArray) -> Batch:
        """Return a range of rows as views, or the rows of some numbers as copies."""
        return Batch(
            outputs=self.outputs.take(rows),
            truth=None if self.truth is None else self.truth.take(rows),
            weight=self.weight[rows],
            features=None if self.features is None else self.features[rows],
            ids=None if self.ids is None else self.ids[rows],
            groups=None if self.groups is None else self.groups[rows],
            amounts=None if self.amounts is None else self.amounts[rows],
            first_row=self.first_row
            + (range(len(self))[rows].start if isinstance(rows, slice) else 0),
        )

    def reweighted(self, weight: FloatArray) -> Batch:
        """Return the same rows with other weights; the pass over the matrix is not made again."""
        twin = replace(self, weight=weight)
        if isinstance(self.outputs, BaseClassOutputs | TopLabel):
            twin.__dict__["rows"] = self.rows
        return twin


def as_truth(y: Any, outputs: BaseOutputs, argument: str, caller: str) -> Labels | Targets | None:
    """Read truth as what the outputs speak of: labels of classes, or targets."""
    if isinstance(outputs, TopLabel) and y is not None:
        fix = f"`{argument}=None`: TopLabel knows what was right"
        raise BadValueError(argument, caller, "None beside TopLabel", type(y).__name__, fix)
    if y is None:
        return None
    if isinstance(y, Labels):
        require_rows(y.codes, outputs.n_rows, argument, caller)
        n_classes = getattr(outputs, "n_classes", 0)
        if y.codes.max(initial=-1) >= n_classes or y.codes.min(initial=-1) < -1:
            rule, fix = f"labels of {n_classes} classes", "Labels.of(y, outputs)"
            got = f"codes from {y.codes.min()} to {y.codes.max()}"
            raise BadValueError(argument, caller, rule, got, fix)
        return y
    if isinstance(outputs, BaseClassOutputs):
        return Labels.of(y, outputs, argument, caller)
    return Targets.of(y, outputs.n_rows, argument, caller)


def as_weights(weight: Any, n_rows: int, caller: str) -> FloatArray:
    """Return weights as float64, 1 where none were given."""
    if weight is None:
        return ones(n_rows) if n_rows <= MOST_SHARED else freeze(np.ones(n_rows))
    array = as_floats(weight, "sample_weight", caller).astype(np.float64)
    require_dimensions(array, (1,), "sample_weight", caller, "one number a row")
    require_rows(array, n_rows, "sample_weight", caller)
    as_finite(array, "sample_weight", caller)
    fix = "leaving the row out with a weight of 0"
    require_everywhere(array >= 0, array, "sample_weight", caller, "0 or above", fix)
    # Sums of squares of weights must neither overflow nor vanish.
    is_usable = (array == 0) | ((array > 1e-100) & (array < 1e100))
    rule, fix = "0, or between 1e-100 and 1e100", "dividing all weights by their mean"
    require_everywhere(is_usable, array, "sample_weight", caller, rule, fix)
    return freeze(array)


@lru_cache(maxsize=8)
def ones(n_rows: int) -> FloatArray:
    """Return a weight of 1 a row: blocks of the same size share it, as nobody can write to it."""
    return freeze(np.ones(n_rows))


def as_features(features: Any, n_rows: int, caller: str) -> FloatArray | None:
    """Return rows x dimensions of finite floats, or None."""
    if features is None:
        return None
    array = as_floats(features, "features", caller)
    require_dimensions(array, (2,), "features", caller, "rows x dimensions")
    require_rows(array, n_rows, "features", caller)
    return freeze(as_finite(array, "features", caller))


def as_amounts(amounts: Any, n_rows: int, caller: str) -> FloatArray | None:
    """Return one amount a row as float64, or None."""
    if amounts is None:
        return None
    array = as_finite(as_floats(amounts, "amounts", caller), "amounts", caller)
    require_dimensions(array, (1,), "amounts", caller, "one number a row")
    require_rows(array, n_rows, "amounts", caller)
    fix = "a rate below 0 for a gain"
    require_everywhere(array >= 0, array, "amounts", caller, "0 or above", fix)
    return freeze(array.astype(np.float64))


def as_column(values: Any, n_rows: int, argument: str, caller: str) -> NDArray[Any] | None:
    """Return one value a row of any type, or None."""
    if values is None:
        return None
    array = as_array(values, argument, caller)
    require_dimensions(array, (1,), argument, caller, "one value a row")
    require_rows(array, n_rows, argument, caller)
    return freeze(array)
