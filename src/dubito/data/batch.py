"""A batch: model outputs with everything known about the same rows, and the row statistics of one pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_array,
    as_finite,
    as_floats,
    contiguous,
    freeze,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.data.labels import MISSING, Labels, Targets
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels import rows as fused
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.rows import soft_losses
from dubito.outputs import (
    BaseClassOutputs,
    BaseOutputs,
    Logits,
    Members,
    Probabilities,
    TopLabel,
    as_outputs,
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The order of rows by a score: where each run of equal scores starts, and its score."""

    order: IntArray
    starts: IntArray
    values: FloatArray

    @classmethod
    def of(cls, scores: FloatArray) -> Self:
        """Sort once; weights are summed over the runs as often as needed."""
        order = np.argsort(scores, kind="stable")
        ranked = scores[order]
        is_start = np.ones(ranked.size, dtype=bool)
        is_start[1:] = ranked[1:] != ranked[:-1]
        starts = np.flatnonzero(is_start)
        return cls(order, starts, ranked[starts])

    def sums(self, weight: FloatArray) -> FloatArray:
        """Return the weight of each run."""
        if not self.starts.size:
            return np.zeros(0)
        return np.add.reduceat(weight[self.order], self.starts)


@final
@dataclass(frozen=True, eq=False)
class RowStatistics:
    """Numbers a row. RowStatistics without a label have 0 in `correct`, `log_loss` and `brier_score`.

    `varentropy` is the variance of log p under p itself, `sum_of_squares` the sum of squared
    probabilities. `log_loss` is infinite where a class of probability 0 happened. Whatever needs
    more than the top label is None where only that is known.
    """

    confidence: FloatArray
    least_confidence: FloatArray
    correct: FloatArray
    predicted: IntArray | None = None
    entropy: FloatArray | None = None
    varentropy: FloatArray | None = None
    sum_of_squares: FloatArray | None = None
    logsumexp: FloatArray | None = None
    log_loss: FloatArray | None = None
    brier_score: FloatArray | None = None

    @cached_property
    def ranks(self) -> Ranks:
        """The rows in the order of their doubt, sorted once."""
        return Ranks.of(self.least_confidence)


def row_statistics(outputs: BaseOutputs, labels: Labels | None) -> RowStatistics:
    """Return the numbers a row, in one pass over the matrix, over threads."""
    if isinstance(outputs, TopLabel):
        return RowStatistics(outputs.confidence, 1 - outputs.confidence, outputs.correct)
    if isinstance(outputs, Members):
        outputs = outputs.mean
    if not isinstance(outputs, Logits | Probabilities):
        raise BadTypeError(
            "outputs",
            "a classification metric",
            "Logits, Probabilities, Members, TopLabel or an array of probabilities",
            type(outputs).__name__,
            "one of those, or a regression metric",
        )
    n_rows, n_classes = outputs.array.shape
    is_logits = isinstance(outputs, Logits)
    has_codes = labels is not None and labels.probabilities is None
    codes = freeze(labels.codes if labels is not None and has_codes else np.full(n_rows, MISSING))
    predicted = np.empty(n_rows, dtype=np.int32)
    # One column too many, so that any range of columns has the one layout kernels are compiled for.
    numbers = np.empty((fused.N_NUMBERS, n_rows + 1))[:, :n_rows]
    pass_over = fused.narrow_rows if n_classes <= fused.NARROW else fused.wide_rows
    array = outputs.array

    def fill(rows: slice) -> None:
        pass_over(
            contiguous(array[rows]), codes[rows], is_logits, predicted[rows], numbers[:, rows]
        )

    for _ in map_in_order(fill, row_blocks(n_rows, n_classes)):
        pass
    if labels is not None and labels.probabilities is not None:
        correct = _fill_soft_losses(outputs, labels, predicted, numbers)
    else:
        correct = (predicted == codes).astype(np.float64)
    return RowStatistics(
        confidence=numbers[fused.CONFIDENCE],
        least_confidence=numbers[fused.DOUBT],
        correct=correct,
        predicted=predicted,
        entropy=numbers[fused.ENTROPY],
        varentropy=numbers[fused.VARIANCE],
        sum_of_squares=numbers[fused.SQUARES],
        logsumexp=numbers[fused.LOG_SUM],
        log_loss=numbers[fused.LOSS],
        brier_score=numbers[fused.BRIER],
    )


def _fill_soft_losses(
    outputs: Logits | Probabilities, labels: Labels, predicted: IntArray, numbers: FloatArray
) -> FloatArray:
    """Write the losses against label probabilities, and return the probability of being right."""
    soft = labels.probabilities
    assert soft is not None
    is_logits = isinstance(outputs, Logits)

    def fill(rows: slice) -> None:
        array, losses = contiguous(outputs.array[rows]), numbers[fused.LOSS : fused.BRIER + 1, rows]
        soft_losses(array, contiguous(soft[rows]), is_logits, numbers[fused.LOG_SUM, rows], losses)

    for _ in map_in_order(fill, row_blocks(*soft.shape)):
        pass
    is_missing = labels.is_missing
    numbers[fused.LOSS : fused.BRIER + 1, is_missing] = 0.0
    return np.where(is_missing, 0.0, soft[np.arange(len(predicted)), predicted])


MOST_SHARED = 1 << 20  # weights of 1 that are kept for the next batch of the same size: 8 MB


@final
@dataclass(frozen=True, eq=False)
class Batch:
    """Outputs, and of the same rows: truth, weights, features, ids, groups, row costs.

    Made by `Batch.of`, which checks everything once; `take` gives a range of rows without a copy.
    `first_row` is where its first row stands in the whole that it is a part of. `row_costs` are what
    costs may grow with, such as prices.

    >>> batch = Batch.of([1, 0], [[0.2, 0.8], [0.4, 0.6]])
    >>> batch.rows.correct.tolist()
    [1.0, 0.0]
    """

    outputs: BaseOutputs
    labels: Labels | Targets | None
    weight: FloatArray
    features: FloatArray | None = None
    ids: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    first_row: int = 0
    row_costs: FloatArray | None = None

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
        row_costs: Any = None,
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
            labels=_as_labels(y_true, wrapped, argument, caller),
            weight=as_weights(sample_weight, n_rows, caller),
            features=_as_features(features, n_rows, caller),
            ids=as_column(ids, n_rows, "ids", caller),
            groups=as_column(groups, n_rows, "groups", caller),
            row_costs=_as_row_costs(row_costs, n_rows, caller),
            first_row=first_row,
        )

    def __len__(self) -> int:
        return self.outputs.n_rows

    @property
    def n_columns(self) -> int:
        """How many columns a row of the outputs has, by which blocks are sized."""
        return self.outputs.n_classes if isinstance(self.outputs, BaseClassOutputs) else 1

    @cached_property
    def rows(self) -> RowStatistics:
        """The numbers a row that one pass over the matrix leaves; the pass is made once."""
        return row_statistics(
            self.outputs, self.labels if isinstance(self.labels, Labels) else None
        )

    @property
    def n_missing(self) -> int:
        """How many rows have no truth."""
        return 0 if self.labels is None else self.labels.n_missing

    def require_labels(self, caller: str) -> None:
        """Raise unless it is known what happened, or at least what was right."""
        if self.labels is None and not isinstance(self.outputs, TopLabel):
            fix = "the true labels, or TopLabel(confidence, correct)"
            raise BadTypeError("y_true", caller, "the labels", "None", fix)

    @cached_property
    def labeled_weight(self) -> FloatArray:
        """The weights, 0 where the truth is missing: what every sum over rows is taken with."""
        self.require_labels("a metric")
        if self.n_missing == 0 or self.labels is None:
            return self.weight
        return np.where(self.labels.is_missing, 0.0, self.weight)

    def take(self, rows: slice | IntArray) -> Batch:
        """Return a range of rows as views, or the rows of some numbers as copies."""
        return Batch(
            outputs=self.outputs.take(rows),
            labels=None if self.labels is None else self.labels.take(rows),
            weight=self.weight[rows],
            features=None if self.features is None else self.features[rows],
            ids=None if self.ids is None else self.ids[rows],
            groups=None if self.groups is None else self.groups[rows],
            row_costs=None if self.row_costs is None else self.row_costs[rows],
            first_row=self.first_row
            + (range(len(self))[rows].start if isinstance(rows, slice) else 0),
        )

    def reweighted(self, weight: FloatArray) -> Batch:
        """Return the same rows with other weights; the pass over the matrix is not made again."""
        twin = replace(self, weight=weight)
        if isinstance(self.outputs, BaseClassOutputs | TopLabel):
            twin.__dict__["rows"] = self.rows
        return twin


def _as_labels(y: Any, outputs: BaseOutputs, argument: str, caller: str) -> Labels | Targets | None:
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
        return _ones(n_rows) if n_rows <= MOST_SHARED else freeze(np.ones(n_rows))
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
def _ones(n_rows: int) -> FloatArray:
    """Return a weight of 1 a row: blocks of the same size share it, as nobody can write to it."""
    return freeze(np.ones(n_rows))


def _as_features(features: Any, n_rows: int, caller: str) -> FloatArray | None:
    """Return rows x dimensions of finite floats, or None."""
    if features is None:
        return None
    array = as_floats(features, "features", caller)
    require_dimensions(array, (2,), "features", caller, "rows x dimensions")
    require_rows(array, n_rows, "features", caller)
    return freeze(as_finite(array, "features", caller))


def _as_row_costs(row_costs: Any, n_rows: int, caller: str) -> FloatArray | None:
    """Return one amount a row as float64, or None."""
    if row_costs is None:
        return None
    array = as_finite(as_floats(row_costs, "row_costs", caller), "row_costs", caller)
    require_dimensions(array, (1,), "row_costs", caller, "one number a row")
    require_rows(array, n_rows, "row_costs", caller)
    fix = "a rate below 0 for a gain"
    require_everywhere(array >= 0, array, "row_costs", caller, "0 or above", fix)
    return freeze(array.astype(np.float64))


def as_column(values: Any, n_rows: int, argument: str, caller: str) -> NDArray[Any] | None:
    """Return one value a row of any type, or None."""
    if values is None:
        return None
    array = as_array(values, argument, caller)
    require_dimensions(array, (1,), argument, caller, "one value a row")
    require_rows(array, n_rows, argument, caller)
    return freeze(array)
