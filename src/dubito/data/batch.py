"""A batch: model outputs and everything known about the same rows, with their row statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_array,
    as_floats,
    as_numbers,
    column_names_of,
    contiguous,
    freeze,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.data.argument_order import as_any_outputs, convert_in_order
from dubito.data.labels import (
    MISSING,
    LabelMatrix,
    Labels,
    Targets,
    make_label_matrix,
    require_no_labels,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels import row_statistics as fused
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.row_statistics import soft_losses
from dubito.outputs import (
    BaseClassOutputs,
    BaseOutputs,
    Logits,
    Members,
    MultiLabel,
    Probabilities,
    TopLabel,
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The rows sorted by a score, with runs of ties.

    Parameters
    ----------
    order : array of int
        Row numbers by increasing score.
    starts, values : array
        The position in `order` where each run of equal scores starts, and its score.
    """

    order: IntArray
    starts: IntArray
    values: FloatArray

    @classmethod
    def of(cls, scores: FloatArray) -> Self:
        """Sort scores."""
        order = np.argsort(scores, kind="stable")
        ranked = scores[order]
        is_start = np.ones(ranked.size, dtype=bool)
        is_start[1:] = ranked[1:] != ranked[:-1]
        starts = np.flatnonzero(is_start)
        return cls(order, starts, ranked[starts])

    def sums(self, weight: FloatArray) -> FloatArray:
        """Return the total weight of each run of ties."""
        if not self.starts.size:
            return np.zeros(0)
        return np.add.reduceat(weight[self.order], self.starts)


@final
@dataclass(frozen=True, eq=False)
class RowStatistics:
    """Statistics of each row, from one pass over the matrix.

    Rows without a label have 0 in `correct`, `log_loss` and `brier_score`. Statistics that need
    more than the top label are None for `TopLabel`.

    Attributes
    ----------
    confidence, least_confidence : array
        The largest probability (MSP), and 1 minus it, computed without cancellation.
    correct : array
        1 if the predicted class is the label, else 0; for label probabilities, that of the class.
    predicted : array of int
        The column of the largest probability.
    entropy, varentropy : array
        The mean and the variance of -log p under p.
    sum_of_squares : array
        The sum of squared probabilities.
    logsumexp : array
        The log partition function of logits.
    log_loss, brier_score : array
        Losses; log loss is infinite where a class of probability 0 occurred.
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

    def __repr__(self) -> str:
        return f"RowStatistics({len(self.confidence)} rows)"

    @cached_property
    def ranks(self) -> Ranks:
        """The rows sorted by `least_confidence`; computed once."""
        return Ranks.of(self.least_confidence)


def row_statistics(outputs: BaseOutputs, labels: Labels | None) -> RowStatistics:
    """Return the statistics of each row, in one pass over the matrix, using threads."""
    if isinstance(outputs, TopLabel):
        return RowStatistics(outputs.confidence, 1 - outputs.confidence, outputs.correct)
    if isinstance(outputs, Members):
        outputs = outputs.mean
    if not isinstance(outputs, Logits | Probabilities):
        rule = "needs Logits, Probabilities, Members, TopLabel or an array of probabilities"
        fix = outputs.remedy or "Pass one of these, or use a regression metric"
        raise BadTypeError("", "A classification metric", rule, type(outputs).__name__, fix)
    n_rows, n_classes = outputs.array.shape
    is_logits = isinstance(outputs, Logits)
    has_codes = labels is not None and labels.probabilities is None
    codes = freeze(labels.codes if labels is not None and has_codes else np.full(n_rows, MISSING))
    predicted = np.empty(n_rows, dtype=np.int32)
    # With a spare column, every range of columns has the layout that kernels are compiled for.
    numbers = np.empty((fused.N_NUMBERS, n_rows + 1))[:, :n_rows]
    pass_over = fused.narrow_rows if n_classes <= fused.NARROW else fused.wide_rows
    array = outputs.array

    def fill(rows: slice) -> None:
        pass_over(
            contiguous(array[rows]), codes[rows], is_logits, predicted[rows], numbers[:, rows]
        )

    run_in_order(fill, row_blocks(n_rows, n_classes))
    if labels is not None and labels.probabilities is not None:
        correct = _fill_soft_losses(outputs, labels, predicted, numbers)
    else:
        correct = (predicted == codes).astype(np.float64)
    return RowStatistics(
        confidence=numbers[fused.CONFIDENCE],
        least_confidence=numbers[fused.UNCERTAINTY],
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
    """Write the losses for label probabilities, and return the probability of being correct."""
    soft = labels.probabilities
    assert soft is not None
    is_logits = isinstance(outputs, Logits)

    def fill(rows: slice) -> None:
        array, losses = contiguous(outputs.array[rows]), numbers[fused.LOSS : fused.BRIER + 1, rows]
        soft_losses(array, contiguous(soft[rows]), is_logits, numbers[fused.LOG_SUM, rows], losses)

    run_in_order(fill, row_blocks(*soft.shape))
    is_missing = labels.is_missing
    numbers[fused.LOSS : fused.BRIER + 1, is_missing] = 0.0
    return np.where(is_missing, 0.0, soft[np.arange(len(predicted)), predicted])


# Arrays of a batch, by row.
COLUMNS = ("weight", "features", "ids", "groups", "row_costs", "current_actions")
MAX_SHARED = 1 << 20  # unit weights that batches of one size share: 8 MB


@final
@dataclass(frozen=True, eq=False)
class Batch:
    """Model outputs and everything known about the same rows.

    Made by `Batch.of`, which validates everything once; `take` gives a range of rows as views.

    Attributes
    ----------
    outputs : BaseOutputs
        The outputs.
    labels : Labels, LabelMatrix, Targets or None
        Labels for classifiers, of one class or of several labels; targets for regressors.
    weight : array of float
        Frequency weights.
    features : array of shape (n_rows, n_features) or None
        Inputs or activations, for out-of-distribution scores.
    ids, groups : array or None
        Identifiers, and groups for metrics by group.
    row_costs : array or None
        What costs depend on: a structured array with a field per column, or one number per row; or
        the costs themselves, rows x actions x classes.
    current_actions : array or None
        The name of the action that was taken for each row, to compare a policy with.
    kept : pyarrow.Table or None
        Further columns of a file, as they are, to be written beside results.
    first_row : int
        The number of the first row within the whole data set.
    drawn_from : array of float or None
        The weights before `reweighted`, i.e. of the rows that a resample was drawn from.

    Examples
    --------
    >>> from dubito.data import Batch
    >>> batch = Batch.of([1, 0], [[0.2, 0.8], [0.4, 0.6]])
    >>> batch.rows.correct.tolist()
    [1.0, 0.0]
    """

    outputs: BaseOutputs
    labels: Labels | Targets | LabelMatrix | None
    weight: FloatArray
    features: FloatArray | None = None
    ids: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    first_row: int = 0
    row_costs: NDArray[Any] | None = None
    current_actions: NDArray[Any] | None = None
    kept: pa.Table | None = None
    drawn_from: FloatArray | None = None

    @classmethod
    def of(
        cls,
        y_true: Any,
        outputs: Any = None,
        *,
        sample_weight: Any = None,
        features: Any = None,
        ids: Any = None,
        groups: Any = None,
        row_costs: Any = None,
        current_actions: Any = None,
    ) -> Batch:
        """Return a validated batch.

        Parameters
        ----------
        y_true : array or None
            Labels or targets; None for rows without labels. `TopLabel` outputs, which hold whether
            they are correct, may stand here alone.
        outputs : BaseOutputs or array
            Model outputs; a plain array is probabilities.
        sample_weight, features, ids, groups, current_actions : array, optional
            Further columns of the same rows.
        row_costs : dict, data frame or array, optional
            The columns that costs depend on, by name; one number per row if they depend on one; or
            the costs themselves, rows x actions x classes.

        Returns
        -------
        Batch
            The rows, with frequency weights of 1 unless given.
        """
        others = {"ids": ids, "groups": groups, "current_actions": current_actions}
        columns = {"features": features, "row_costs": row_costs, **others}
        return make_batch(y_true, outputs, caller="Batch", sample_weight=sample_weight, **columns)

    def __len__(self) -> int:
        return self.outputs.n_rows

    def __repr__(self) -> str:
        held = [name for name in ("labels", *COLUMNS[1:]) if getattr(self, name) is not None]
        return f"Batch({', '.join([repr(self.outputs), *held])})"

    @property
    def n_columns(self) -> int:
        """The number of columns of the outputs, which determines the size of blocks."""
        if isinstance(self.outputs, MultiLabel):
            return self.outputs.n_labels
        return self.outputs.n_classes if isinstance(self.outputs, BaseClassOutputs) else 1

    @cached_property
    def rows(self) -> RowStatistics:
        """The statistics of each row; computed once."""
        labels = self.labels if isinstance(self.labels, Labels) else None
        return row_statistics(self.outputs, labels)

    def beside(self, source: str | None) -> dict[str, Any]:
        """Return what is written beside results: the file, the id of each row, kept columns.

        Rows without a kept column `id` are named by their ids, or by their numbers in the file.

        Parameters
        ----------
        source : str or None
            The file that the rows come from, written in a column `file`; None leaves the column
            out.

        Returns
        -------
        dict of str to array
            Columns by name, in the order in which they are written.
        """
        kept = {}
        if self.kept is not None:
            kept = dict(zip(self.kept.column_names, self.kept.columns, strict=True))
        numbers = self.first_row + np.arange(len(self)) if self.ids is None else self.ids
        named = {} if source is None else {"file": source}
        return {**named, **kept} if "id" in kept else {**named, "id": numbers, **kept}

    @property
    def class_labels(self) -> Labels:
        """The labels of rows that are known to be labeled by classes."""
        assert isinstance(self.labels, Labels)
        return self.labels

    @property
    def n_missing(self) -> int:
        """The number of rows without a label."""
        return 0 if self.labels is None else self.labels.n_missing

    @cached_property
    def labeled_weight(self) -> FloatArray:
        """The weights, 0 where the label is missing: the weights of every sum over rows."""
        require_labels(self, "A metric")
        if self.n_missing == 0 or self.labels is None:
            return self.weight
        return np.where(self.labels.is_missing, 0.0, self.weight)

    def take(self, rows: slice | IntArray) -> Batch:
        """Return some rows: a slice as views, indices as copies.

        Parameters
        ----------
        rows : slice or array of int
            The rows, counted from 0 within the batch.

        Returns
        -------
        Batch
            These rows of every column; after a slice, `first_row` still counts from the whole.
        """
        first_row, kept = 0, self.kept
        if isinstance(rows, slice):
            first_row = range(len(self))[rows].start
        if kept is not None:
            kept = kept[rows] if isinstance(rows, slice) else kept.take(rows)
        held: dict[str, Any] = {name: getattr(self, name) for name in COLUMNS}
        return Batch(
            outputs=self.outputs.take(rows),
            labels=None if self.labels is None else self.labels.take(rows),
            first_row=self.first_row + first_row,
            kept=kept,
            **{name: column[rows] for name, column in held.items() if column is not None},
        )

    def reweighted(self, weight: FloatArray) -> Batch:
        """Return the same rows with other weights; row statistics are not computed again.

        Parameters
        ----------
        weight : array of shape (n_rows,)
            The new frequency weights.

        Returns
        -------
        Batch
            A batch that shares all other columns; `drawn_from` holds the weights before.
        """
        twin = replace(self, weight=weight, drawn_from=self.weight)
        if isinstance(self.outputs, BaseClassOutputs | TopLabel):
            twin.__dict__["rows"] = self.rows
        return twin


def make_batch(
    y_true: Any,
    outputs: Any = None,
    *,
    caller: str,
    argument: str = "y_true",
    sample_weight: Any = None,
    features: Any = None,
    row_costs: Any = None,
    **columns: Any,
) -> Batch:
    """Return a batch, as `Batch.of`; errors name the caller and its argument for `y_true`."""
    if outputs is None and isinstance(y_true, TopLabel):
        y_true, outputs = None, y_true
    if outputs is None and isinstance(y_true, BaseOutputs):
        got, fix = f"{type(y_true).__name__} alone", f"Pass {argument} first, then the outputs"
        raise BadTypeError("", caller, "needs labels and outputs", got, fix)
    wrapped = convert_in_order(y_true, outputs, as_any_outputs, caller, argument)
    n_rows, matrix = wrapped.n_rows, None
    values: dict[str, Any] = {
        name: as_column(one, n_rows, name, caller) for name, one in columns.items()
    }
    if features is not None:
        shape = "rows x features"
        matrix = freeze(
            as_numbers(features, "features", caller, n_rows, shape=shape, dimensions=(2,))
        )
    return Batch(
        outputs=wrapped,
        labels=_as_labels(y_true, wrapped, argument, caller),
        weight=as_weights(sample_weight, n_rows, caller),
        features=matrix,
        row_costs=None if row_costs is None else as_row_costs(row_costs, n_rows, caller),
        **values,
    )


def require_labels(batch: Batch, caller: str) -> None:
    """Raise unless a batch has labels, or at least the correctness of top labels."""
    if batch.labels is None and not isinstance(batch.outputs, TopLabel):
        fix = "Pass the labels, or TopLabel(confidence, correct) as outputs"
        raise BadTypeError("y_true", caller, "must be the labels", "None", fix)


def _as_labels(
    y: Any, outputs: BaseOutputs, argument: str, caller: str
) -> Labels | Targets | LabelMatrix | None:
    """Return labels for outputs over classes, targets for those of a regression."""
    require_no_labels(y, outputs, argument, caller)
    if y is None:
        return None
    if isinstance(y, Labels):
        require_rows(y.codes, outputs.n_rows, argument, caller)
        n_classes = getattr(outputs, "n_classes", 0)
        if y.codes.max(initial=-1) >= n_classes or y.codes.min(initial=-1) < -1:
            rule, fix = f"must be labels of {n_classes} classes", "Use Labels.of(y, outputs)"
            got = f"codes from {y.codes.min()} to {y.codes.max()}"
            raise BadValueError(argument, caller, rule, got, fix)
        return y
    if isinstance(outputs, MultiLabel):
        is_known = isinstance(y, LabelMatrix) and y.values.shape == outputs.array.shape
        return y if is_known else make_label_matrix(y, outputs, argument, caller)
    if isinstance(outputs, BaseClassOutputs):
        return Labels.of(y, outputs, argument, caller)
    return Targets.of(y, outputs.n_rows, argument, caller)


def as_weights(weight: Any, n_rows: int, caller: str) -> FloatArray:
    """Return weights as float64, by default 1."""
    if weight is None:
        return _ones(n_rows) if n_rows <= MAX_SHARED else freeze(np.ones(n_rows))
    array = as_numbers(weight, "sample_weight", caller, n_rows).astype(np.float64)
    fix = "Use a weight of 0 to ignore a row"
    require_everywhere(array >= 0, array, "sample_weight", caller, "must not be negative", fix)
    # Sums of squares of weights must neither overflow nor vanish.
    is_usable = (array == 0) | ((array > 1e-100) & (array < 1e100))
    rule, fix = "must be 0, or between 1e-100 and 1e100", "Divide all weights by their mean"
    require_everywhere(is_usable, array, "sample_weight", caller, rule, fix)
    return freeze(array)


def as_row_costs(row_costs: Any, n_rows: int, caller: str) -> NDArray[Any]:
    """Return columns as a structured array, and numbers or whole cost tables of rows as floats.

    Columns of a data frame that are no numbers are left out.
    """
    names = column_names_of(row_costs)
    if names is None:
        shape = "one number per row or rows x actions x classes"
        array = as_numbers(row_costs, "row_costs", caller, n_rows, shape=shape, dimensions=(1, 3))
        return freeze(array.astype(np.float64))
    columns: dict[str, FloatArray] = {}
    for name in names:
        try:
            column = as_floats(row_costs[name], f"row_costs[{name!r}]", caller)
        except BadTypeError:
            if isinstance(row_costs, Mapping):
                raise
            continue
        require_dimensions(column, (1,), f"row_costs[{name!r}]", caller, "one number per row")
        require_rows(column, n_rows, f"row_costs[{name!r}]", caller)
        columns[name] = column
    table = np.empty(n_rows, [(name, np.float64) for name in columns])
    for name, column in columns.items():
        table[name] = column
    return freeze(table)


@lru_cache(maxsize=8)
def _ones(n_rows: int) -> FloatArray:
    """Return unit weights, read-only and shared by blocks of the same size."""
    return freeze(np.ones(n_rows))


def as_column(values: Any, n_rows: int, argument: str, caller: str) -> NDArray[Any] | None:
    """Return one value of any type per row, or None."""
    if values is None:
        return None
    array = as_array(values, argument, caller)
    require_dimensions(array, (1,), argument, caller, "one value per row")
    require_rows(array, n_rows, argument, caller)
    return freeze(array)
