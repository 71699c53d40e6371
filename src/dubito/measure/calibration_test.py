"""A calibration test with a p-value, by scores instead of bins."""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, exp, sqrt
from typing import Any, Self, final

import numpy as np

from dubito.arrays import FloatArray, freeze
from dubito.data.batch import Batch, RowStatistics
from dubito.errors import EmptyStateError
from dubito.kernels.sums import N_SURPRISES, surprise_sums
from dubito.measure.state import State, labeled_batch

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
@dataclass(frozen=True, slots=True)
class CalibrationTestState(State):
    """Sums of both scores, and of their variances and covariance under calibration.

    `n_impossible` counts rows whose true class had probability 0: a calibrated model has none.
    """

    n_impossible: int
    weight: float
    surprise: float
    overconfidence: float
    variance_surprise: float
    variance_overconfidence: float
    covariance: float
    errors: float
    expected_errors: float

    @classmethod
    def of(cls, batch: Batch) -> Self:
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
        """Return the sums for top labels: how the gap varies with the log odds."""
        confidence, doubt = rows.confidence, rows.least_confidence
        gap, variance = confidence - rows.correct, confidence * doubt
        odds = np.log(np.maximum(confidence, 1e-300)) - np.log(np.maximum(doubt, 1e-300))
        return cls(
            n_impossible=0,
            weight=float(weight.sum()),
            surprise=float(weight @ (gap * odds)),
            overconfidence=float(weight @ gap),
            variance_surprise=float(weight @ (variance * odds**2)),
            variance_overconfidence=float(weight @ variance),
            covariance=float(weight @ (variance * odds)),
            errors=float(weight @ (1 - rows.correct)),
            expected_errors=float(weight @ doubt),
        )

    @property
    def value(self) -> CalibrationTest:
        if not self.weight > 0:
            raise EmptyStateError("A calibration test")
        statistic, n_scores = self.chi_squared
        if self.n_impossible:
            statistic = np.inf
        tail = erfc(sqrt(statistic / 2)) if n_scores == 1 else exp(-statistic / 2)
        if not self.n_impossible and self.expected_errors < FEW_ERRORS:
            tail = _poisson_p_value(self.errors, self.expected_errors)
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
    >>> calibration_test([0] * 99 + [1], [[0.6, 0.4]] * 100).p_value < 1e-9
    True
    """
    batch = labeled_batch(y_true, outputs, sample_weight, "calibration_test")
    return CalibrationTestState.of(batch).value
