"""Reliability diagrams and binned calibration errors, of the predicted class and of every class."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, Literal, Self, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, as_count, contiguous, freeze, require_choice
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.errors import BadTypeError
from dubito.kernels.bins import bin_indices, narrow_class_sums, reliability_sums, wide_class_sums
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.row_statistics import NARROW
from dubito.measure.state import State, edges_field, labeled_batch, per_bin, require_weight
from dubito.outputs import BaseClassOutputs, Logits, Members
from dubito.serialization.objects import stores_fields

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
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityState(State):
    """Sums per bin that determine the reliability diagram and the binned calibration errors.

    `variance` is the variance that the sum of `correct` would have if every confidence were
    calibrated.

    Attributes
    ----------
    edges : array of shape (n_bins + 1,)
        Bin edges, from 0 to 1.
    weight : array of shape (n_bins,)
        Total weight of the rows in each bin.
    noise : array of shape (n_bins,)
        The sum of squared weights over given weights, so that weight^2 / noise is the number of
        rows that the bin stands for, less in a bootstrap resample.
    confidence, correct : array of shape (n_bins,)
        Weighted sums of the confidence, and of whether the top label is correct.
    variance : array of shape (n_bins,)
        Variance of `correct` under calibration.
    count : array of shape (n_bins,)
        Number of rows.
    """

    edges: Annotated[FloatArray, edges_field]
    weight: Annotated[FloatArray, per_bin("bins", low=0)]
    noise: Annotated[FloatArray, per_bin("bins", low=0)]
    confidence: Annotated[FloatArray, per_bin("bins", low=0)]
    correct: Annotated[FloatArray, per_bin("bins", low=0)]
    variance: Annotated[FloatArray, per_bin("bins", low=0)]
    count: Annotated[FloatArray, per_bin("bins", low=0)]
    shared = ("edges",)

    @classmethod
    def of(cls, batch: Batch, edges: FloatArray | None = None) -> Self:
        """Return the sums of a batch.

        Parameters
        ----------
        batch : Batch
            Rows with labels.
        edges : array, optional
            Bin edges from 0 to 1; by default of 15 bins of equal width.

        Returns
        -------
        ReliabilityState
            The sums of these rows.
        """
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
        require_weight(self.weight.sum(), "Calibration error")
        return self.weight > 0

    def expected(self, norm: Norm = "l1") -> float:
        """Return the mean (L1), root mean square (L2) or maximum gap over the bins.

        Parameters
        ----------
        norm : {"l1", "l2", "max"}, default="l1"
            How the gaps of the bins are combined; "l1" is the ECE, "max" the MCE.

        Returns
        -------
        float
            The calibration error; lower is better.
        """
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
    >>> from dubito.measure import expected_calibration_error
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
    >>> from dubito.measure import debiased_calibration_error
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
    >>> from dubito.measure import maximum_calibration_error
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
    >>> from dubito.measure import reliability_curve
    >>> reliability_curve([0, 1], [[0.75, 0.25], [0.5, 0.5]]).accuracy.tolist()
    [0.0, 1.0]
    """
    caller = "reliability_curve"
    return _reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).value


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class ClasswiseCalibrationState(State):
    """Sums per class and bin: weight, predicted probability, and how often the class was true.

    Attributes
    ----------
    edges : array of shape (n_bins + 1,)
        Bin edges, from 0 to 1.
    weight : array of shape (n_classes, n_bins)
        Weight of the rows whose probability of the class lies in the bin.
    probability : array of shape (n_classes, n_bins)
        Weighted sum of these probabilities.
    true : array of shape (n_classes, n_bins)
        Weight of the rows that are of the class.
    """

    edges: Annotated[FloatArray, edges_field]
    weight: Annotated[FloatArray, per_bin(None, "bins", low=0)]
    probability: Annotated[FloatArray, per_bin("weight", "bins", low=0)]
    true: Annotated[FloatArray, per_bin("weight", "bins", low=0)]
    shared = ("edges",)

    @classmethod
    def of(cls, batch: Batch, edges: FloatArray | None = None) -> Self:
        """Return the sums of a batch.

        Parameters
        ----------
        batch : Batch
            Rows with class probabilities and labels.
        edges : array, optional
            Bin edges from 0 to 1; by default of 15 bins of equal width.

        Returns
        -------
        ClasswiseCalibrationState
            The sums of these rows.
        """
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
        require_weight(total.sum(), "Classwise calibration error")
        return np.asarray(np.abs(self.probability - self.true).sum(axis=1) / total)

    @property
    def value(self) -> float:
        return float(self.by_class.mean())

    def resampled_values(self, seed: int, n_resamples: int) -> FloatArray:
        """Return the error in Poisson bootstrap resamples of the bins instead of the rows.

        In each bin, the rows of the class and the other rows are resampled; all keep the bin's mean
        probability.

        Parameters
        ----------
        seed : int
            Seed of the resamples.
        n_resamples : int
            Number of resamples.

        Returns
        -------
        array of shape (n_resamples,)
            The classwise calibration error of each resample.
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
    >>> from dubito.measure import classwise_calibration_error
    >>> classwise_calibration_error([0, 0], [[0.75, 0.25], [0.75, 0.25]])
    0.25
    """
    caller = "classwise_calibration_error"
    batch = labeled_batch(y_true, outputs, sample_weight, caller)
    return ClasswiseCalibrationState.of(batch, uniform_edges(n_bins, caller)).value
