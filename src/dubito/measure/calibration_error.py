"""Reliability diagrams and binned calibration errors."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, Self, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, as_count, freeze, require_choice
from dubito.data.batch import Batch
from dubito.errors import EmptyStateError
from dubito.kernels.bins import bin_indices, reliability_sums
from dubito.measure.state import State, labeled_batch

MAX_BINS = 100_000


def uniform_edges(n_bins: int, caller: str = "uniform_edges") -> FloatArray:
    """Return the edges of bins of equal width over [0, 1].

    >>> uniform_edges(4).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return np.linspace(0.0, 1.0, as_count(n_bins, "n_bins", caller, most=MAX_BINS, example=15) + 1)


def _quantile_edges(
    values: FloatArray, weight: FloatArray, n_bins: int, caller: str = "quantile_edges"
) -> FloatArray:
    """Return the edges of bins of equal weight, as far as ties allow.

    A cut inside a tie moves to its end, and equal cuts are merged: there may be fewer bins than
    asked for, but none is empty.

    >>> _quantile_edges(np.array([0.1, 0.1, 0.1, 0.9]), np.ones(4), 2).tolist()
    [0.0, 0.1, 1.0]
    """
    as_count(n_bins, "n_bins", caller, most=MAX_BINS, example=15)
    order = np.argsort(values, kind="stable")
    ranked = values[order][weight[order] > 0]
    if ranked.size == 0:
        return np.array([0.0, 1.0])
    cumulative = np.cumsum(weight[order][weight[order] > 0])
    wanted = cumulative[-1] * np.arange(1, n_bins) / n_bins
    # Rounding must not push a cut past the row that fills a bin exactly.
    cuts = ranked[np.searchsorted(cumulative, wanted * (1 - 1e-12))]
    inner = np.unique(cuts[(cuts > 0) & (cuts < ranked[-1])])
    return np.concatenate([[0.0], inner, [1.0]])


def assign(values: FloatArray, edges: FloatArray) -> IntArray:
    """Return the bin of each value."""
    indices = np.empty(values.size, dtype=np.int64)
    bin_indices(freeze(values), freeze(edges), indices)
    return indices


Strategy = Literal["uniform", "quantile"]
Norm = Literal["l1", "l2", "max"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityCurve:
    """A reliability diagram: confidence and accuracy per bin, without empty bins.

    Attributes
    ----------
    edges : ndarray of shape (n_bins + 1,)
        Edges of all bins; bin k covers (edges[k], edges[k + 1]].
    bins : ndarray
        Indices of the bins that hold rows.
    count : ndarray
        Rows per bin, by weight.
    confidence, accuracy : ndarray
        Mean confidence and accuracy per bin.
    low, high : ndarray
        95 % range of the accuracy that a calibrated model would show in each bin.
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
class ReliabilityState(State):
    """Sums per bin that determine the reliability diagram and the binned calibration errors.

    `variance` is the variance that the sum of `correct` would have if every confidence were
    calibrated.
    """

    edges: FloatArray
    weight: FloatArray
    noise: FloatArray
    confidence: FloatArray
    correct: FloatArray
    variance: FloatArray
    count: FloatArray
    shared = "edges"

    @classmethod
    def of(cls, batch: Batch, edges: FloatArray | None = None) -> Self:
        edges = uniform_edges(15) if edges is None else edges
        rows, sums = batch.rows, np.zeros((6, edges.size - 1))
        weight = batch.labeled_weight
        given = weight if batch.drawn_from is None else batch.drawn_from
        known = (rows.confidence, rows.least_confidence, rows.correct, weight, given)
        reliability_sums(*map(freeze, (*known, edges)), sums)
        return cls(edges, *sums)

    @property
    def value(self) -> ReliabilityCurve:
        used = self.used
        weight = self.weight[used]
        confidence, accuracy = self.confidence[used] / weight, self.correct[used] / weight
        margin = NormalDist().inv_cdf(0.975) * np.sqrt(self.variance[used]) / weight
        return ReliabilityCurve(
            edges=self.edges,
            bins=np.flatnonzero(used),
            count=weight,
            confidence=confidence,
            accuracy=accuracy,
            low=np.maximum(confidence - margin, 0.0),
            high=np.minimum(confidence + margin, 1.0),
        )

    @property
    def used(self) -> Any:
        """Mask of the bins that hold any weight."""
        if not self.weight.any():
            raise EmptyStateError("Calibration error")
        return self.weight > 0

    def expected(self, norm: Norm = "l1") -> float:
        """Return the mean (L1), root mean square (L2) or maximum gap over the bins."""
        require_choice(norm, ("l1", "l2", "max"), "norm", "expected_calibration_error")
        # Sums, not means: each gap already carries its bin's weight.
        gaps = np.abs(self.confidence - self.correct)[self.used]
        weight = self.weight[self.used]
        if norm == "l1":
            return float(gaps.sum() / weight.sum())
        if norm == "l2":
            return float(np.sqrt((gaps**2 / weight).sum() / weight.sum()))
        return float((gaps / weight).max())

    @property
    def debiased(self) -> float:
        """The L2 error minus the part that sampling noise adds, at least 0."""
        used = self.used
        sums = (self.weight, self.noise, self.confidence, self.correct)
        return float(debiased_error(*(one[used] for one in sums)))

    @property
    def expected_if_calibrated(self) -> float:
        """The mean L1 error of a perfectly calibrated model on so many rows."""
        return float(expected_gaps(self.variance[self.used]).sum() / self.weight.sum())


def debiased_error(
    weight: FloatArray, noise: FloatArray, confidence: FloatArray, correct: FloatArray
) -> FloatArray:
    """Return the debiased L2 error for the sums of bins, along the last axis; bins may be empty."""
    is_used = weight > 0
    held = np.where(is_used, weight, 1.0)
    gaps, accuracy = (confidence - correct) / held, correct / held
    n_rows = weight**2 / np.where(is_used, noise, 1.0)  # the total weight, less in a resample
    # The gap of a bin with one row may be all noise.
    is_several = n_rows > 1 + 1e-9
    chance = accuracy * (1 - accuracy) / np.where(is_several, n_rows - 1, 1.0)
    squares = np.where(is_several, gaps**2 - chance, 0.0)
    mean = (weight * squares).sum(axis=-1) / weight.sum(axis=-1)
    return np.asarray(np.sqrt(np.maximum(mean, 0.0)))


def expected_gaps(variance: FloatArray, row_weight: FloatArray | float = 1.0) -> FloatArray:
    """Return the mean size of sums with mean 0 and these variances, of rows with some weight.

    It is sqrt(2 / pi) standard deviations if the sum is normal, and twice the mean number of errors
    if these are rare: the smaller one approximates either case.
    """
    return np.asarray(np.minimum(np.sqrt(2 / np.pi * variance), 2 * variance / row_weight))


def _reliability_state(
    y_true: Any, outputs: Any, n_bins: int, strategy: str, sample_weight: Any, caller: str
) -> ReliabilityState:
    """Return the reliability bins for the arguments of a metric."""
    batch = labeled_batch(y_true, outputs, sample_weight, caller, stacklevel=5)
    require_choice(strategy, ("uniform", "quantile"), "strategy", caller)
    if strategy == "uniform":
        return ReliabilityState.of(batch, uniform_edges(n_bins, caller))
    confidence, weight = batch.rows.confidence, batch.labeled_weight
    return ReliabilityState.of(batch, _quantile_edges(confidence, weight, n_bins, caller))


def expected_calibration_error(
    y_true: Any,
    outputs: Any = None,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    sample_weight: Any = None,
) -> float:
    """Return the expected calibration error (ECE) of the top label.

    The weighted mean over confidence bins of |confidence - accuracy|. Even a calibrated model has a
    positive ECE on a finite sample: compare with `Audit.expected_if_calibrated`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    n_bins : int, default=15
        Number of confidence bins.
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or of equal weight as far as ties allow.
    norm : {"l1", "l2", "max"}, default="l1"
        Mean, root mean square, or maximum over the bins.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Between 0 and 1; lower is better.

    References
    ----------
    Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning",
    AAAI 2015. Guo et al., "On calibration of modern neural networks", ICML 2017.

    Examples
    --------
    >>> expected_calibration_error([0, 0], [[0.75, 0.25], [0.75, 0.25]])
    0.25
    """
    caller = "expected_calibration_error"
    state = _reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller)
    return state.expected(norm)


def debiased_calibration_error(
    y_true: Any,
    outputs: Any = None,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
) -> float:
    """Return the L2 calibration error without the bias of small samples.

    Near 0 for a calibrated model, where the plain ECE is not. A bin of a single row tells nothing
    about its own variance and counts as 0.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    n_bins : int, default=15
        Number of confidence bins.
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or of equal weight as far as ties allow.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Lower is better.

    References
    ----------
    Kumar, Liang and Ma, "Verified uncertainty calibration", NeurIPS 2019.

    Examples
    --------
    >>> debiased_calibration_error([0, 1], [[0.5, 0.5], [0.5, 0.5]])
    0.0
    """
    caller = "debiased_calibration_error"
    return _reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).debiased


def maximum_calibration_error(
    y_true: Any,
    outputs: Any = None,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
) -> float:
    """Return the largest gap between confidence and accuracy of any bin (MCE).

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    n_bins : int, default=15
        Number of confidence bins.
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or of equal weight as far as ties allow.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Between 0 and 1; lower is better.

    References
    ----------
    Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning",
    AAAI 2015.

    Examples
    --------
    >>> maximum_calibration_error([0, 1], [[0.75, 0.25], [0.5, 0.5]])
    0.5
    """
    caller = "maximum_calibration_error"
    state = _reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller)
    return state.expected("max")


def reliability_curve(
    y_true: Any,
    outputs: Any = None,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
) -> ReliabilityCurve:
    """Return the reliability diagram of the top label: confidence and accuracy per bin.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    n_bins : int, default=15
        Number of confidence bins.
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or of equal weight as far as ties allow.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    ReliabilityCurve
        With the range that a calibrated model would show in each bin.

    References
    ----------
    Niculescu-Mizil and Caruana, "Predicting good probabilities with supervised learning", ICML
    2005.

    Examples
    --------
    >>> reliability_curve([0, 1], [[0.75, 0.25], [0.5, 0.5]]).accuracy.tolist()
    [0.0, 1.0]
    """
    caller = "reliability_curve"
    return _reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).value
