"""Rows as the calibration kernels take them: a matrix, labels and weights."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, contiguous, freeze
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.data.shards import ArrayShards, Shards, as_shards
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.kernels.softmax import log_odds_rows, log_softmax_rows
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseOutputs, Logits, Members, Probabilities, as_outputs

A_ROW_OR_SO = 2  # weights of many rows that sum to less were scaled to sum to 1
FLOOR = 1e-12  # no calibrated probability is below, and none is read as lower


@final
@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """The matrix of a batch, its labels and weights; rows without a label weigh nothing.

    `soft` has no rows where labels are plain.
    """

    outputs: Logits | Probabilities
    array: FloatArray
    is_logits: bool
    codes: IntArray
    soft: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, batch: Batch) -> LabelledRows:
        outputs = as_class_outputs(batch.outputs, "a calibrator")
        labels = batch.labels
        assert isinstance(labels, Labels)
        soft = labels.probabilities
        return cls(
            outputs=outputs,
            array=contiguous(outputs.array),
            is_logits=isinstance(outputs, Logits),
            codes=contiguous(labels.codes),
            soft=contiguous(np.empty((0, outputs.n_classes)) if soft is None else soft),
            weight=contiguous(batch.labeled_weight),
        )

    def likelihoods_of(
        self, parts: Sequence[FloatArray]
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return what each part (rows x classes of probabilities) gives labels, weights, and rows.

        An entry a labeled row; where labels are probabilities, one for each class that has some.
        """
        if self.soft.shape[0] == self.codes.size:
            shares = self.weight[:, np.newaxis] * self.soft
            rows, classes = np.nonzero(shares)
            weights: FloatArray = shares[rows, classes]
        else:
            rows = np.flatnonzero(self.weight)
            classes, weights = np.asarray(self.codes[rows]), self.weight[rows]
        return np.stack([part[rows, classes] for part in parts], axis=1), weights, rows


def as_penalty(value: Any, argument: str, caller: str) -> float:
    """Return the weight of a penalty: a finite number from 0 up."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and 0 <= value < np.inf):
        rule, fix = "a finite number from 0 up", f"{argument}=1.0"
        raise BadValueError(argument, caller, rule, repr(value), fix)
    return float(value)


def as_class_outputs(outputs: Any, caller: str) -> Logits | Probabilities:
    """Return outputs as one matrix over classes: members as their mean, an array as it is."""
    wrapped: BaseOutputs = as_outputs(outputs, "outputs", caller)
    if isinstance(wrapped, Members):
        return wrapped.mean
    if not isinstance(wrapped, Logits | Probabilities):
        raise BadTypeError(
            "outputs",
            caller,
            "Logits, Probabilities, Members or an array of probabilities",
            type(wrapped).__name__,
            "the whole distribution over classes, or VarianceScaling for a regression",
        )
    return wrapped


def labeled_outputs(batch: Batch, caller: str) -> Logits | Probabilities:
    """Return the outputs of a batch that must have labels, as one matrix over classes."""
    outputs = as_class_outputs(batch.outputs, caller)
    if batch.labels is None:
        fix = "the true labels; of shards, a column of them"
        raise BadTypeError("y", caller, "the labels", "None", fix)
    return outputs


def labeled_shards(outputs: Any, y: Any, sample_weight: Any, caller: str) -> Shards:
    """Return labeled rows as shards; arrays warn about missing labels and very small weights."""
    shards = as_shards(
        outputs, y, sample_weight=sample_weight, caller=caller, convert=as_class_outputs
    )
    if not isinstance(outputs, Shards) and isinstance(shards, ArrayShards):
        batch = shards.batch
        warn_of_missing(batch.n_missing, len(batch), caller, stacklevel=4)
        if sample_weight is not None:
            _warn_of_light(batch.labeled_weight, caller, stacklevel=4)
    return shards


def _warn_of_light(weight: FloatArray, caller: str, stacklevel: int) -> None:
    """Say that weights count rows, where those of many rows together count as one."""
    n_rows, total = np.count_nonzero(weight), weight.sum()
    if total < min(A_ROW_OR_SO, n_rows / 10):
        text = f"{caller}: the weights of {n_rows:,} rows sum to {total:.3g}, and count as so few"
        warnings.warn(f"{text} rows. Try weights whose mean is 1.", DubitoWarning, stacklevel)


def log_probabilities(
    outputs: Logits | Probabilities, beta: float = 1.0, precision: str = "float64"
) -> FloatArray:
    """Return log probabilities at an inverse temperature."""
    result = np.empty(outputs.array.shape, precision)
    is_logits = isinstance(outputs, Logits)
    log_softmax_rows(contiguous(outputs.array), float(beta), is_logits, FLOOR, result)
    return result


def log_odds(outputs: Logits | Probabilities) -> FloatArray:
    """Return each class's log odds against all others together, in float64."""
    result = np.empty(outputs.array.shape)
    log_odds_rows(contiguous(outputs.array), isinstance(outputs, Logits), FLOOR, result)
    return result


def class_weights(shards: Shards) -> FloatArray:
    """Return the weight of each class among the labels."""

    def weigh(batch: Batch) -> FloatArray:
        rows = LabelledRows.of(batch)
        if rows.soft.shape[0]:
            return rows.weight @ rows.soft
        codes = np.maximum(rows.codes, 0)
        return np.bincount(codes, rows.weight, rows.outputs.n_classes).astype(np.float64)

    return freeze(shards.sum(weigh))
