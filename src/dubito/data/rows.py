"""The handful of numbers a row that one pass over the matrix leaves; all else is O(n)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from dubito.arrays import FloatArray, IntArray, contiguous, freeze
from dubito.data.codes import MISSING
from dubito.data.ranks import Ranks
from dubito.data.truth import Labels
from dubito.errors import BadTypeError
from dubito.kernels import rows as fused
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.soft_labels import soft_losses
from dubito.outputs import BaseOutputs, Logits, Members, Probabilities, TopLabel

__all__ = ["Rows", "rows_of"]


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers a row. Rows without a label have 0 in `correct`, `log_loss` and `brier_score`.

    `log_variance` is the variance of log p under p itself, `squares` the sum of squared
    probabilities. `log_loss` is infinite where a class of probability 0 happened. Whatever needs
    more than the top label is None where only that is known.
    """

    confidence: FloatArray
    doubt: FloatArray
    correct: FloatArray
    predicted: IntArray | None = None
    entropy: FloatArray | None = None
    log_variance: FloatArray | None = None
    squares: FloatArray | None = None
    log_sum: FloatArray | None = None
    log_loss: FloatArray | None = None
    brier_score: FloatArray | None = None

    @cached_property
    def ranks(self) -> Ranks:
        """The rows in the order of their doubt, sorted once."""
        return Ranks.of(self.doubt)


def rows_of(outputs: BaseOutputs, labels: Labels | None) -> Rows:
    """Return the numbers a row, in one pass over the matrix, over threads."""
    if isinstance(outputs, TopLabel):
        return Rows(outputs.confidence, 1 - outputs.confidence, outputs.correct)
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
        correct = fill_soft_losses(outputs, labels, predicted, numbers)
    else:
        correct = (predicted == codes).astype(np.float64)
    return Rows(
        confidence=numbers[fused.CONFIDENCE],
        doubt=numbers[fused.DOUBT],
        correct=correct,
        predicted=predicted,
        entropy=numbers[fused.ENTROPY],
        log_variance=numbers[fused.VARIANCE],
        squares=numbers[fused.SQUARES],
        log_sum=numbers[fused.LOG_SUM],
        log_loss=numbers[fused.LOSS],
        brier_score=numbers[fused.BRIER],
    )


def fill_soft_losses(
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
