"""Reliability bins, and the calibration errors read off them."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, Self, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.errors import BadValueError, EmptyStateError, StateMismatchError
from dubito.measure.binning import assign, quantile_edges, sum_by_bin, uniform_edges
from dubito.measure.proper_scores import labelled_batch

__all__ = [
    "ReliabilityCurve",
    "ReliabilityState",
    "expected_calibration_error",
    "maximum_calibration_error",
    "reliability_curve",
]

Strategy = Literal["uniform", "quantile"]
Norm = Literal["l1", "l2"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityCurve:
    """Stated confidence against how often it was right, bin by bin; empty bins are left out.

    `low` and `high` bound the accuracy a calibrated model would show in the bin, 19 times in 20.
    """

    edges: FloatArray
    count: FloatArray
    confidence: FloatArray
    accuracy: FloatArray
    low: FloatArray
    high: FloatArray


@final
@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityState:
    """Sums a bin that determine the reliability curve and the calibration errors.

    `variance` is the variance the sum of `correct` would have if every confidence were true.
    """

    edges: FloatArray
    weight: FloatArray
    confidence: FloatArray
    correct: FloatArray
    variance: FloatArray
    count: FloatArray

    @classmethod
    def of(cls, batch: Batch, edges: FloatArray | None = None) -> Self:
        edges = uniform_edges(15) if edges is None else edges
        rows, weight = batch.rows, batch.labelled_weight
        n_bins = edges.size - 1
        spread = weight * rows.confidence * rows.doubt
        is_counted = (weight > 0).astype(np.float64)
        indices = assign(rows.confidence, edges)
        columns = np.stack([np.ones_like(weight), rows.confidence, rows.correct, spread])
        total, confidence, correct, variance = sum_by_bin(indices, weight, columns, n_bins)
        counts = sum_by_bin(indices, is_counted, np.ones((1, weight.size)), n_bins)
        return cls(edges, total, confidence, correct, variance, counts[0])

    def __add__(self, other: Self) -> Self:
        if not np.array_equal(self.edges, other.edges):
            raise StateMismatchError("bin edges", self.edges.tolist(), other.edges.tolist())
        return type(self)(
            self.edges,
            self.weight + other.weight,
            self.confidence + other.confidence,
            self.correct + other.correct,
            self.variance + other.variance,
            self.count + other.count,
        )

    @property
    def value(self) -> ReliabilityCurve:
        used = self.used
        weight = self.weight[used]
        confidence, accuracy = self.confidence[used] / weight, self.correct[used] / weight
        margin = NormalDist().inv_cdf(0.975) * np.sqrt(self.variance[used]) / weight
        return ReliabilityCurve(
            edges=self.edges,
            count=self.count[used],
            confidence=confidence,
            accuracy=accuracy,
            low=np.maximum(confidence - margin, 0.0),
            high=np.minimum(confidence + margin, 1.0),
        )

    @property
    def used(self) -> Any:
        """Which bins hold any weight."""
        if not self.weight.any():
            raise EmptyStateError("Calibration error")
        return self.weight > 0

    def expected(self, norm: Norm = "l1") -> float:
        """Return the mean gap between confidence and accuracy over the bins."""
        # Sums, not means: each gap already carries its bin's weight.
        gaps = np.abs(self.confidence - self.correct)[self.used]
        weight = self.weight[self.used]
        if norm == "l1":
            return float(gaps.sum() / weight.sum())
        return float(np.sqrt((gaps**2 / weight).sum() / weight.sum()))

    @property
    def maximum(self) -> float:
        """The largest gap of any bin."""
        used = self.used
        gaps = np.abs(self.confidence - self.correct)[used] / self.weight[used]
        return float(gaps.max())

    @property
    def expected_if_calibrated(self) -> float:
        """The L1 error a perfectly calibrated model of this size would show on average."""
        # The mean of |x| is sqrt(2 / pi) standard deviations where x is normal around 0.
        deviations = np.sqrt(self.variance[self.used])
        return float(np.sqrt(2 / np.pi) * deviations.sum() / self.weight.sum())

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).tolist() for name in self.__slots__}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return cls(**{name: np.array(values[name], dtype=np.float64) for name in cls.__slots__})


def reliability_state(
    y_true: Any, outputs: Any, n_bins: int, strategy: str, sample_weight: Any, caller: str
) -> ReliabilityState:
    """Return the reliability bins of some rows in memory."""
    batch = labelled_batch(y_true, outputs, sample_weight, caller)
    if strategy == "uniform":
        return ReliabilityState.of(batch, uniform_edges(n_bins, caller))
    if strategy == "quantile":
        weight = batch.labelled_weight
        return ReliabilityState.of(
            batch, quantile_edges(batch.rows.confidence, weight, n_bins, caller)
        )
    fix = "strategy='uniform'"
    raise BadValueError("strategy", caller, "'uniform' or 'quantile'", repr(strategy), fix)


def expected_calibration_error(
    y_true: Any,
    outputs: Any,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    sample_weight: Any = None,
) -> float:
    """Return the mean gap between confidence and accuracy over bins of confidence (ECE).

    A calibrated model shows more than 0 on few rows: see `Audit.expected_if_calibrated`. Naeini,
    Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", 2015.

    >>> expected_calibration_error([0, 0], [[0.75, 0.25], [0.75, 0.25]])
    0.25
    """
    caller = "expected_calibration_error"
    if norm not in ("l1", "l2"):
        fix = "norm='l1', or maximum_calibration_error for the largest gap"
        raise BadValueError("norm", caller, "'l1' or 'l2'", repr(norm), fix)
    return reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).expected(
        norm
    )


def maximum_calibration_error(
    y_true: Any,
    outputs: Any,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
) -> float:
    """Return the largest gap between confidence and accuracy of any bin (MCE).

    >>> maximum_calibration_error([0, 1], [[0.75, 0.25], [0.5, 0.5]])
    0.5
    """
    caller = "maximum_calibration_error"
    return reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).maximum


def reliability_curve(
    y_true: Any,
    outputs: Any,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
) -> ReliabilityCurve:
    """Return confidence against accuracy, bin by bin, with the band of a calibrated model.

    >>> reliability_curve([0, 1], [[0.75, 0.25], [0.5, 0.5]]).accuracy.tolist()
    [0.0, 1.0]
    """
    caller = "reliability_curve"
    return reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).value
