"""Reliability bins and the calibration errors computed from them, and the smooth calibration error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray, IntArray, freeze
from dubito.data.batch import Batch
from dubito.errors import BadValueError, EmptyStateError
from dubito.kernels.bins import bin_indices, reliability_sums
from dubito.kernels.sums import residual_sums
from dubito.measure.state import from_plain, labeled_batch, pooled, to_plain

MOST_BINS = 100_000


def uniform_edges(n_bins: int, caller: str = "uniform_edges") -> FloatArray:
    """Return the edges of bins of equal width over [0, 1].

    >>> uniform_edges(4).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return np.linspace(0.0, 1.0, _as_n_bins(n_bins, caller) + 1)


def _quantile_edges(
    values: FloatArray, weight: FloatArray, n_bins: int, caller: str = "quantile_edges"
) -> FloatArray:
    """Return edges between which bins hold equal weight, as far as ties allow.

    A cut inside a tie moves to the tie's end, and cuts that meet become one: there may be fewer
    bins than asked for, and never an empty one.

    >>> _quantile_edges(np.array([0.1, 0.1, 0.1, 0.9]), np.ones(4), 2).tolist()
    [0.0, 0.1, 1.0]
    """
    n_bins = _as_n_bins(n_bins, caller)
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


def _as_n_bins(n_bins: Any, caller: str) -> int:
    """Return a number of bins that is a whole number from 1 up."""
    is_whole = isinstance(n_bins, int | np.integer) and not isinstance(n_bins, bool)
    if not is_whole or not 1 <= n_bins <= MOST_BINS:
        rule = f"a whole number from 1 to {MOST_BINS:,}"
        raise BadValueError("n_bins", caller, rule, repr(n_bins), "n_bins=15")
    return int(n_bins)


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
        columns = (
            rows.confidence,
            rows.least_confidence,
            rows.correct,
            batch.labeled_weight,
            edges,
        )
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
        return ReliabilityState.of(batch, _quantile_edges(confidence, weight, n_bins, caller))
    fix = "strategy='uniform'"
    raise BadValueError("strategy", caller, "'uniform' or 'quantile'", repr(strategy), fix)


def _reliability_state(
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
    return _reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).expected(
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
    return _reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).debiased


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
    return _reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).expected(
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
    return _reliability_state(y_true, outputs, n_bins, strategy, sample_weight, caller).value


N_CELLS = 1 << 14


@final
@dataclass(frozen=True, slots=True, eq=False)
class SmoothCalibrationErrorState:
    """Residuals (correct less confidence) summed on a fixed fine grid of confidence.

    Each residual is shared between its two nearest grid points in proportion, which keeps the mean
    place of every residual: the error of the grid is of second order, (1 / (16,384 width))^2 of the
    value.
    """

    residual: FloatArray
    weight: float

    @classmethod
    def of(cls, batch: Batch) -> Self:
        # Grid points are the middles of the cells, where the cosine transform takes them to be.
        sums, rows = np.zeros(N_CELLS), batch.rows
        columns = (rows.confidence, rows.correct, batch.labeled_weight)
        return cls(sums, residual_sums(*(freeze(column) for column in columns), sums))

    def __add__(self, other: Self) -> Self:
        return pooled(self, other)

    @property
    def value(self) -> float:
        if not self.weight > 0:
            raise EmptyStateError("Smooth calibration error")
        spectrum = _cosine_transform(self.residual / self.weight)
        return _fixed_point(lambda width: _smoothed_error(spectrum, width))

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return from_plain(cls, values)


def _smoothed_error(spectrum: FloatArray, width: float) -> float:
    """Return the area of |residuals smoothed by a Gaussian of this width, reflected at 0 and 1|.

    Reflection at both ends is what the cosine transform assumes; a Gaussian damps its terms.
    """
    frequencies = np.pi * np.arange(spectrum.size)
    damped = spectrum * np.exp(-0.5 * (width * frequencies) ** 2)
    return float(np.abs(_inverse_cosine_transform(damped)).sum())


def _cosine_transform(values: FloatArray) -> FloatArray:
    """Return the discrete cosine transform (DCT-II) of an even number of values.

    Importing `scipy.fft` takes longer than a whole audit. Makhoul, "A fast cosine transform in one
    and two dimensions", 1980.
    """
    rotated = np.fft.rfft(np.concatenate([values[::2], values[::-2]])) / _phases(values.size)
    return np.concatenate([2 * rotated.real, -2 * rotated.imag[-2:0:-1]])


def _inverse_cosine_transform(spectrum: FloatArray) -> FloatArray:
    """Return the values whose `_cosine_transform` is this spectrum."""
    n = spectrum.size
    half = n // 2 + 1
    mirrored = np.append(0.0, spectrum[: n // 2 - 1 : -1])
    halves = np.fft.irfft(0.5 * (spectrum[:half] - 1j * mirrored) * _phases(n), n)
    values = np.empty(n)
    values[::2], values[::-2] = halves[: n // 2], halves[n // 2 :]
    return values


@lru_cache(maxsize=4)
def _phases(n: int) -> NDArray[np.complex128]:
    """Return the phases by which a Fourier transform of n values becomes a cosine transform."""
    return np.asarray(np.exp(0.5j * np.pi * np.arange(n // 2 + 1) / n))


def _fixed_point(error: Callable[[float], float]) -> float:
    """Return the width at which a falling error equals it, by false position (Illinois)."""
    low, high = 0.0, 1.0
    above, below = error(low), error(high) - high
    if above <= 0:
        return 0.0
    for _ in range(60):
        width = (low * below - high * above) / (below - above)
        excess = error(width) - width
        if abs(excess) < 1e-10 or high - low < 1e-10:
            return width
        if excess > 0:
            low, above, below = width, excess, below / 2
        else:
            high, below, above = width, excess, above / 2
    return (low + high) / 2


def smooth_calibration_error(y_true: Any, outputs: Any, *, sample_weight: Any = None) -> float:
    """Return the calibration error of the top label smoothed at its own scale (smECE).

    The width s of the smoothing is the one at which the error is s: no bins to choose.
    Blasiok and Nakkiran, "Smooth ECE: principled reliability diagrams via kernel smoothing", 2023.

    >>> round(smooth_calibration_error([0, 0], [[0.75, 0.25], [0.75, 0.25]]), 3)
    0.25
    """
    batch = labeled_batch(y_true, outputs, sample_weight, "smooth_calibration_error")
    return SmoothCalibrationErrorState.of(batch).value
