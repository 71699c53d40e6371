"""Reliability bins, and the calibration errors read off them."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, Self, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, freeze
from dubito.data.batch import Batch
from dubito.errors import BadValueError, EmptyStateError
from dubito.kernels.bins import reliability_sums
from dubito.measure.binning import quantile_edges, uniform_edges
from dubito.measure.labeled import labeled_batch
from dubito.measure.state import from_plain, pooled, to_plain

__all__ = [
    "ReliabilityCurve",
    "ReliabilityState",
    "debiased_calibration_error",
    "expected_calibration_error",
    "maximum_calibration_error",
    "reliability_curve",
]

Strategy = Literal["uniform", "quantile"]
Norm = Literal["l1", "l2", "max"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityCurve:
    """Stated confidence against how often it was right, bin by bin; empty bins are left out.

    `bins` says which bins those are: bin k lies between edges k and k + 1. `low` and `high` bound
    the accuracy that a calibrated model would show in the bin, 19 times in 20.
    """

    edges: FloatArray
    bins: IntArray
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
    squared_weight: FloatArray
    confidence: FloatArray
    correct: FloatArray
    variance: FloatArray
    count: FloatArray

    @classmethod
    def of(cls, batch: Batch, edges: FloatArray | None = None) -> Self:
        edges = uniform_edges(15) if edges is None else edges
        rows = batch.rows
        sums = np.zeros((6, edges.size - 1))
        columns = (rows.confidence, rows.doubt, rows.correct, batch.labeled_weight, edges)
        reliability_sums(*(freeze(column) for column in columns), sums)
        return cls(edges, *sums)

    def __add__(self, other: Self) -> Self:
        return pooled(self, other, shared="edges")

    @property
    def value(self) -> ReliabilityCurve:
        used = self.used
        weight = self.weight[used]
        confidence, accuracy = self.confidence[used] / weight, self.correct[used] / weight
        margin = NormalDist().inv_cdf(0.975) * np.sqrt(self.variance[used]) / weight
        return ReliabilityCurve(
            edges=self.edges,
            bins=np.flatnonzero(used),
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
        """Return the mean (L1), root mean square (L2) or largest gap over the bins."""
        # Sums, not means: each gap already carries its bin's weight.
        gaps = np.abs(self.confidence - self.correct)[self.used]
        weight = self.weight[self.used]
        if norm == "l1":
            return float(gaps.sum() / weight.sum())
        if norm == "l2":
            return float(np.sqrt((gaps**2 / weight).sum() / weight.sum()))
        if norm == "max":
            return float((gaps / weight).max())
        caller, rule = "expected_calibration_error", "'l1', 'l2' or 'max'"
        raise BadValueError("norm", caller, rule, repr(norm), "norm='l1'")

    @property
    def debiased(self) -> float:
        """The L2 error less what the chance of each bin's accuracy adds to it, 0 at least."""
        weight, correct = self.weight[self.used], self.correct[self.used]
        gaps = (self.confidence[self.used] - correct) / weight
        accuracy = correct / weight
        n_effective = weight**2 / self.squared_weight[self.used]
        # A bin of one row tells nothing of its own chance: all of its gap may be chance.
        is_several = n_effective > 1 + 1e-9
        chance = accuracy * (1 - accuracy) / np.where(is_several, n_effective - 1, 1.0)
        squares = np.where(is_several, gaps**2 - chance, 0.0)
        return float(np.sqrt(max((weight @ squares) / weight.sum(), 0.0)))

    @property
    def expected_if_calibrated(self) -> float:
        """The L1 error a perfectly calibrated model of this size would show on average."""
        # The mean of |x| is sqrt(2 / pi) standard deviations where x is normal around 0, and twice
        # the mean where it counts rare errors: the less of both comes close to either.
        variance = self.variance[self.used]
        row_weight = self.squared_weight[self.used] / self.weight[self.used]
        mean = np.minimum(np.sqrt(2 / np.pi * variance), 2 * variance / row_weight)
        return float(mean.sum() / self.weight.sum())

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return from_plain(cls, values)


def reliability_of(
    batch: Batch, n_bins: int = 15, strategy: str = "uniform", caller: str = "reliability"
) -> ReliabilityState:
    """Return the reliability bins of rows in memory."""
    if strategy == "uniform":
        return ReliabilityState.of(batch, uniform_edges(n_bins, caller))
    if strategy == "quantile":
        confidence, weight = batch.rows.confidence, batch.labeled_weight
        return ReliabilityState.of(batch, quantile_edges(confidence, weight, n_bins, caller))
    fix = "strategy='uniform'"
    raise BadValueError("strategy", caller, "'uniform' or 'quantile'", repr(strategy), fix)


def reliability_state(
    y_true: Any, outputs: Any, n_bins: int, strategy: str, sample_weight: Any, caller: str
) -> ReliabilityState:
    """Return the reliability bins of a metric's arguments."""
    batch = labeled_batch(y_true, outputs, sample_weight, caller)
    return reliability_of(batch, n_bins, strategy, caller)


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
    return reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).expected(
        norm
    )


def debiased_calibration_error(
    y_true: Any,
    outputs: Any,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
) -> float:
    """Return the L2 calibration error without the part that chance adds on few rows.

    Near 0 for a calibrated model, where the plain error is not; a bin of a single row tells nothing
    of its own chance and counts as 0.
    Kumar, Liang and Ma, "Verified uncertainty calibration", 2019.

    >>> debiased_calibration_error([0, 1], [[0.5, 0.5], [0.5, 0.5]])
    0.0
    """
    caller = "debiased_calibration_error"
    return reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).debiased


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
    return reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).expected(
        "max"
    )


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
