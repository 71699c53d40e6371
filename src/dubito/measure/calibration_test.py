"""Calibration without bins: a test with a p-value, and the smooth calibration error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import erfc, exp, sqrt
from typing import Annotated, Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray, freeze
from dubito.data.batch import Batch, RowStatistics
from dubito.kernels.sums import N_SURPRISES, residual_sums, surprise_sums
from dubito.measure.state import WEIGHT, State, labeled_batch, require_weight, sums_field
from dubito.serialization.objects import stores_fields

FEW_ERRORS = 10  # expected; below, the sum of scores is not normal, but their number is Poisson


@final
@dataclass(frozen=True, slots=True)
class CalibrationTest:
    """Result of a calibration test.

    Attributes
    ----------
    statistic : float
        Chi-squared statistic of two scores that have mean 0 for a calibrated model.
    p_value : float
        Probability of a statistic at least as large if the model is calibrated.
    surprise : float
        Log loss minus the model's own entropy, in standard deviations.
    overconfidence : float
        Confidence minus accuracy, in standard deviations.
    """

    statistic: float
    p_value: float
    surprise: float
    overconfidence: float


@final
@stores_fields
@dataclass(frozen=True, slots=True)
class CalibrationTestState(State):
    """Sums of both scores, and of their variances and covariance under calibration.

    `n_impossible` counts rows whose true class had probability 0: a calibrated model has none.

    Attributes
    ----------
    n_impossible : int
        Rows whose true class had probability 0.
    weight : float
        Total weight.
    surprise, overconfidence : float
        Sums of the two scores: log loss minus entropy, and confidence minus correctness. For top
        labels, the first is the gap times the log odds.
    variance_surprise, variance_overconfidence, covariance : float
        Their variances and covariance, if the model is calibrated.
    errors, expected_errors : float
        The weight of errors, and what the confidence says that it is.
    """

    n_impossible: int
    weight: Annotated[float, WEIGHT]
    surprise: float
    overconfidence: float
    variance_surprise: float
    variance_overconfidence: float
    covariance: float
    errors: Annotated[float, WEIGHT]
    expected_errors: Annotated[float, WEIGHT]

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return the sums of a batch.

        Parameters
        ----------
        batch : Batch
            Rows with labels.

        Returns
        -------
        CalibrationTestState
            The sums of these rows.
        """
        rows, weight = batch.rows, freeze(batch.labeled_weight)
        if rows.log_loss is None or rows.entropy is None or rows.varentropy is None:
            return cls.of_top_labels(rows, weight)
        known = (rows.correct, rows.confidence, rows.least_confidence)
        columns = [freeze(column) for column in (*known, rows.entropy, rows.varentropy)]
        sums = np.zeros(N_SURPRISES)
        surprise_sums(weight, *columns, freeze(rows.log_loss), sums)
        return cls(int(sums[0]), *sums[1:].tolist())

    @classmethod
    def of_top_labels(cls, rows: RowStatistics, weight: FloatArray) -> Self:
        """Return the sums for top labels: how the gap varies with the log odds.

        Parameters
        ----------
        rows : RowStatistics
            Confidence and correctness per row.
        weight : array of shape (n_rows,)
            Frequency weights.

        Returns
        -------
        CalibrationTestState
            The sums of these rows.
        """
        confidence, uncertainty = rows.confidence, rows.least_confidence
        gap, variance = confidence - rows.correct, confidence * uncertainty
        odds = np.log(np.maximum(confidence, 1e-300)) - np.log(np.maximum(uncertainty, 1e-300))
        return cls(
            n_impossible=0,
            weight=float(weight.sum()),
            surprise=float(weight @ (gap * odds)),
            overconfidence=float(weight @ gap),
            variance_surprise=float(weight @ (variance * odds**2)),
            variance_overconfidence=float(weight @ variance),
            covariance=float(weight @ (variance * odds)),
            errors=float(weight @ (1 - rows.correct)),
            expected_errors=float(weight @ uncertainty),
        )

    @property
    def value(self) -> CalibrationTest:
        require_weight(self.weight, "A calibration test")
        statistic, n_scores = self.chi_squared
        if self.n_impossible:
            statistic, tail = np.inf, 0.0
        elif self.expected_errors < FEW_ERRORS:
            tail = _poisson_p_value(self.errors, self.expected_errors)
        else:
            tail = erfc(sqrt(statistic / 2)) if n_scores == 1 else exp(-statistic / 2)
        return CalibrationTest(
            statistic=statistic,
            p_value=tail,
            surprise=_standardized(self.surprise, self.variance_surprise),
            overconfidence=_standardized(self.overconfidence, self.variance_overconfidence),
        )

    @property
    def chi_squared(self) -> tuple[float, int]:
        """The chi-squared statistic of both scores, and its degrees of freedom."""
        a, b = self.surprise, self.overconfidence
        v, w, c = self.variance_surprise, self.variance_overconfidence, self.covariance
        determinant = v * w - c * c
        if determinant > 1e-9 * v * w:
            return (w * a * a - 2 * c * a * b + v * b * b) / determinant, 2
        # The scores are collinear, e.g. if every row has the same two probabilities.
        return _standardized(b, w) ** 2, 1


def _poisson_p_value(errors: float, expected: float) -> float:
    """Return the two-sided Poisson p-value of a number of rare errors."""
    from scipy.special import gammainc, gammaincc  # slow to import, and rarely needed

    at_least = float(gammainc(errors, expected)) if errors > 0 else 1.0
    at_most = float(gammaincc(errors + 1, expected))
    return min(1.0, 2 * min(at_least, at_most))


def _standardized(total: float, variance: float) -> float:
    """Return a sum in standard deviations; infinite where it should have been exactly 0."""
    if variance > 0:
        return total / sqrt(variance)
    return 0.0 if abs(total) < 1e-12 else float(np.copysign(np.inf, total))


def calibration_test(
    y_true: Any, outputs: Any = None, *, sample_weight: Any = None
) -> CalibrationTest:
    """Test whether the labels could have been drawn from the predicted probabilities.

    For a calibrated model, log loss equals its entropy and accuracy equals its confidence up to
    sampling noise, whose variance the probabilities themselves determine. A score test without
    bins.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    CalibrationTest
        A small p-value is evidence of miscalibration.

    References
    ----------
    Spiegelhalter, "Probabilistic prediction in patient management and clinical trials", Statistics
    in Medicine 1986.

    Examples
    --------
    >>> from dubito.measure import calibration_test
    >>> calibration_test([0] * 99 + [1], [[0.6, 0.4]] * 100).p_value < 1e-9
    True
    """
    batch = labeled_batch(y_true, outputs, sample_weight, "calibration_test")
    return CalibrationTestState.of(batch).value


N_CELLS = 1 << 14


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class SmoothCalibrationErrorState(State):
    """Residuals (correct minus confidence), summed on a fixed fine grid of confidence.

    Each residual is split between its two nearest grid points so that its mean position is kept:
    the error of the grid is of second order, (1 / (16,384 width))^2 of the value.

    Attributes
    ----------
    residual : array of shape (16384,)
        Weighted sums of the residuals per grid point.
    weight : float
        Total weight.
    """

    residual: Annotated[FloatArray, sums_field(N_CELLS)]
    weight: Annotated[float, WEIGHT]

    @classmethod
    def of(cls, batch: Batch) -> Self:
        # Grid points are the middles of the cells, where the cosine transform takes them to be.
        """Return the sums of a batch.

        Parameters
        ----------
        batch : Batch
            Rows with labels.

        Returns
        -------
        SmoothCalibrationErrorState
            The sums of these rows.
        """
        sums, rows = np.zeros(N_CELLS), batch.rows
        columns = (rows.confidence, rows.correct, batch.labeled_weight)
        return cls(sums, residual_sums(*map(freeze, columns), sums))

    @property
    def value(self) -> float:
        require_weight(self.weight, "Smooth calibration error")
        spectrum = _cosine_transform(self.residual / self.weight)
        return _fixed_point(lambda width: _smoothed_error(spectrum, width))


def _smoothed_error(spectrum: FloatArray, width: float) -> float:
    """Return the integral of the absolute residuals after Gaussian smoothing of this width.

    Reflection at 0 and 1 is what the cosine transform assumes; a Gaussian damps its coefficients.
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
    """Return the width that equals the (decreasing) error at this width.

    By false position, where the excess at an end that stays twice is halved (Illinois).
    """
    low, high, moved = 0.0, 1.0, 0
    above, below = error(low), error(high) - high
    if above <= 0:
        return 0.0
    for _ in range(60):
        width = (low * below - high * above) / (below - above)
        excess = error(width) - width
        if abs(excess) < 1e-10 or high - low < 1e-10:
            return width
        if excess > 0:
            low, above, below = width, excess, below / 2 if moved > 0 else below
        else:
            high, below, above = width, excess, above / 2 if moved < 0 else above
        moved = 1 if excess > 0 else -1
    return (low + high) / 2


def smooth_calibration_error(
    y_true: Any, outputs: Any = None, *, sample_weight: Any = None
) -> float:
    """Return the smooth calibration error of the top label (smECE).

    Residuals are smoothed by a Gaussian kernel whose width equals the resulting error: there are no
    bins to choose.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Lower is better.

    References
    ----------
    Blasiok and Nakkiran, "Smooth ECE: principled reliability diagrams via kernel smoothing", ICLR
    2024.

    Examples
    --------
    >>> from dubito.measure import smooth_calibration_error
    >>> round(smooth_calibration_error([0, 0], [[0.75, 0.25], [0.75, 0.25]]), 3)
    0.25
    """
    batch = labeled_batch(y_true, outputs, sample_weight, "smooth_calibration_error")
    return SmoothCalibrationErrorState.of(batch).value
