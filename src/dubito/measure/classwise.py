"""Calibration of every class, not only of the predicted one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np

from dubito.arrays import FloatArray, contiguous, freeze
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.errors import BadTypeError, EmptyStateError
from dubito.kernels.bins import narrow_class_sums, wide_class_sums
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.row_statistics import NARROW
from dubito.measure.calibration_error import uniform_edges
from dubito.measure.state import State, labeled_batch
from dubito.outputs import BaseClassOutputs, Logits, Members


@final
@dataclass(frozen=True, slots=True, eq=False)
class ClasswiseCalibrationState(State):
    """Sums per class and bin: weight, predicted probability, and how often the class was true."""

    edges: FloatArray
    weight: FloatArray
    probability: FloatArray
    true: FloatArray
    shared = "edges"

    @classmethod
    def of(cls, batch: Batch, edges: FloatArray | None = None) -> Self:
        edges = uniform_edges(15) if edges is None else edges
        outputs, labels = batch.outputs, batch.labels
        if not isinstance(outputs, BaseClassOutputs) or not isinstance(labels, Labels):
            rule, fix = "must be class probabilities with labels", "Use Logits or Probabilities"
            caller = "classwise_calibration_error"
            raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
        matrix = outputs.mean if isinstance(outputs, Members) else outputs
        rows, is_logits = batch.rows, isinstance(matrix, Logits)
        assert rows.predicted is not None
        predicted, confidence = freeze(rows.predicted), freeze(rows.confidence)
        weight, edges, codes = freeze(batch.labeled_weight), freeze(edges), freeze(labels.codes)
        soft = freeze(np.zeros((0, 0))) if labels.probabilities is None else labels.probabilities

        add = narrow_class_sums if matrix.n_classes <= NARROW else wide_class_sums

        def sums_of(part: slice) -> FloatArray:
            sums = np.zeros((3, matrix.n_classes, edges.size - 1))
            labels = (codes[part], contiguous(soft[part]), weight[part])
            tops = (predicted[part], confidence[part])
            add(contiguous(matrix.array[part]), *labels, *tops, is_logits, edges, sums)
            return sums

        total = np.zeros((3, matrix.n_classes, edges.size - 1))
        for sums in map_in_order(sums_of, row_blocks(*matrix.array.shape)):
            total += sums
        return cls(edges, *total)

    @property
    def by_class(self) -> FloatArray:
        """The calibration error of each class: its mean gap between probability and frequency."""
        total = self.weight.sum(axis=1)
        if not total.any():
            raise EmptyStateError("Classwise calibration error")
        return np.asarray(np.abs(self.probability - self.true).sum(axis=1) / total)

    @property
    def value(self) -> float:
        return float(self.by_class.mean())

    def resampled_values(self, seed: int, n_resamples: int) -> FloatArray:
        """Return the error in Poisson bootstrap resamples of the bins instead of the rows.

        In each bin, the rows of the class and the other rows are resampled; all keep the bin's mean
        probability.
        """
        _ = self.by_class
        held = self.weight > 0
        class_of = np.nonzero(held)[0]
        weight, probability = self.weight[held], self.probability[held]
        true = np.clip(self.true[held], 0.0, weight)
        rng = np.random.default_rng(seed)
        values = np.empty(n_resamples)
        n_classes = self.weight.shape[0]
        for k in range(n_resamples):
            hits, misses = rng.poisson(true), rng.poisson(weight - true)
            drawn = hits + misses
            gaps = np.abs(drawn * probability / weight - hits)
            total = np.bincount(class_of, drawn, minlength=n_classes)
            errors = np.bincount(class_of, gaps, minlength=n_classes) / np.maximum(total, 1.0)
            values[k] = errors.mean()
        return values


def classwise_calibration_error(
    y_true: Any, outputs: Any = None, *, n_bins: int = 15, sample_weight: Any = None
) -> float:
    """Return the classwise calibration error: the ECE of each class, averaged.

    Unlike the ECE of the top label, every predicted probability counts. Bins have equal width.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    n_bins : int, default=15
        Number of bins.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Lower is better.

    References
    ----------
    Kull et al., "Beyond temperature scaling: obtaining well-calibrated multi-class probabilities
    with Dirichlet calibration", NeurIPS 2019.

    Examples
    --------
    >>> classwise_calibration_error([0, 0], [[0.75, 0.25], [0.75, 0.25]])
    0.25
    """
    caller = "classwise_calibration_error"
    batch = labeled_batch(y_true, outputs, sample_weight, caller)
    return ClasswiseCalibrationState.of(batch, uniform_edges(n_bins, caller)).value
