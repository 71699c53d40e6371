"""Selective prediction: the risk that remains when the most uncertain rows are rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray, as_fraction, as_numbers, dot
from dubito.measure.detection import RankingState
from dubito.measure.state import labeled_batch


@final
@dataclass(frozen=True, slots=True, eq=False)
class RiskCoverageCurve:
    """Selective risk at each coverage.

    Accepting all rows with a score up to `uncertainty` covers the fraction `coverage` of the rows,
    and the fraction `risk` of these is wrong. There is one step for each distinct score.

    Attributes
    ----------
    uncertainty, coverage, risk : ndarray
        Threshold, coverage and selective risk of each step, from the most certain rows to all rows.
    """

    uncertainty: FloatArray
    coverage: FloatArray
    risk: FloatArray

    @classmethod
    def of(cls, state: RankingState) -> RiskCoverageCurve:
        """Return the curve of a ranking.

        Parameters
        ----------
        state : RankingState
            Rows by uncertainty, and the errors among them.

        Returns
        -------
        RiskCoverageCurve
            One point per distinct score.
        """
        kept = np.cumsum(state.value.weight)
        return cls(state.score, kept / kept[-1], np.cumsum(state.positive) / kept)

    @property
    def area(self) -> float:
        """The mean selective risk over ranks, with a tie as one step (AURC)."""
        return dot(np.diff(self.coverage, prepend=0.0), self.risk)

    @property
    def generalized_area(self) -> float:
        """The mean over coverages of the fraction of rows accepted and wrong (AUGRC)."""
        coverage = np.concatenate([[0.0], self.coverage])
        joint = np.concatenate([[0.0], self.risk * self.coverage])
        return float(np.trapezoid(joint, coverage))

    @property
    def excess_area(self) -> float:
        """AURC minus that of the best ranking at this error rate (E-AURC)."""
        error = float(self.risk[-1])
        best = error + (1 - error) * np.log1p(-error) if error < 1 else 1.0
        return float(self.area - best)

    def coverage_at(self, risk: float) -> float:
        """Return the largest coverage with at most this risk; 0 if there is none.

        Parameters
        ----------
        risk : float
            The largest acceptable error rate among the rows that are kept.

        Returns
        -------
        float
            Between 0 and 1.
        """
        risk = as_fraction(risk, "risk", "coverage_at_risk")
        return float(self.coverage[self.risk <= risk].max(initial=0.0))


def area_bounds(state: RankingState) -> tuple[float, float]:
    """Return the range of AURC over all orders of rows that share a step of the ranking.

    On the streamed grid these bound the exact value: within a step, the risk is lowest with all
    correct rows first, and highest with all wrong rows first.
    """
    kept, wrong = np.cumsum(state.value.weight), np.cumsum(state.positive)
    kept_before, wrong_before = kept - state.weight, wrong - state.positive
    tiny = np.finfo(np.float64).tiny  # nothing before the first step: its risk is 0, not 0 / 0
    least = wrong_before / np.maximum(kept - state.positive, tiny)
    most = wrong / np.maximum(kept_before + state.positive, tiny)
    total = float(kept[-1])
    return dot(state.weight, least) / total, dot(state.weight, most) / total


def _curve_of(
    y_true: Any, outputs: Any, uncertainty: Any, sample_weight: Any, caller: str
) -> RiskCoverageCurve:
    """Return the curve of rows ranked by least confidence, or by another uncertainty score."""
    batch = labeled_batch(y_true, outputs, sample_weight, caller, stacklevel=5)
    if uncertainty is None:
        return RiskCoverageCurve.of(RankingState.of(batch))
    scores = as_numbers(uncertainty, "uncertainty", caller, len(batch))
    wrong, weight = 1 - batch.rows.correct, batch.labeled_weight
    return RiskCoverageCurve.of(RankingState.of_scores(wrong, scores, weight))


def risk_coverage_curve(
    y_true: Any, outputs: Any = None, *, uncertainty: Any = None, sample_weight: Any = None
) -> RiskCoverageCurve:
    """Return the selective risk (error rate of the accepted rows) at each coverage.

    Rows with the highest uncertainty are rejected first. Tied rows are rejected together, so that
    the order of rows does not matter.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    uncertainty : array-like of shape (n_samples,), optional
        Uncertainty score per row, higher is more uncertain. Default: least confidence, 1 - MSP.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    RiskCoverageCurve

    References
    ----------
    El-Yaniv and Wiener, "On the foundations of noise-free selective classification", JMLR 2010.

    Examples
    --------
    >>> from dubito.measure import risk_coverage_curve
    >>> risk_coverage_curve([0, 0], [[0.9, 0.1], [0.4, 0.6]]).risk.tolist()
    [0.0, 0.5]
    """
    return _curve_of(y_true, outputs, uncertainty, sample_weight, "risk_coverage_curve")


def area_under_risk_coverage(
    y_true: Any, outputs: Any = None, *, uncertainty: Any = None, sample_weight: Any = None
) -> float:
    """Return the area under the risk-coverage curve (AURC).

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    uncertainty : array-like of shape (n_samples,), optional
        Uncertainty score per row, higher is more uncertain. Default: least confidence, 1 - MSP.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Mean selective risk over ranks, with a tie as one step; lower is better.

    References
    ----------
    Geifman, Uziel and El-Yaniv, "Bias-reduced uncertainty estimation for deep neural classifiers",
    ICLR 2019.

    Examples
    --------
    >>> from dubito.measure import area_under_risk_coverage
    >>> area_under_risk_coverage([0, 0], [[0.9, 0.1], [0.4, 0.6]])
    0.25
    """
    return _curve_of(y_true, outputs, uncertainty, sample_weight, "area_under_risk_coverage").area


def excess_area_under_risk_coverage(
    y_true: Any, outputs: Any = None, *, uncertainty: Any = None, sample_weight: Any = None
) -> float:
    """Return AURC minus that of the best ranking at this error rate (E-AURC).

    With error rate r, the area of the best ranking is r + (1 - r) log(1 - r).

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    uncertainty : array-like of shape (n_samples,), optional
        Uncertainty score per row, higher is more uncertain. Default: least confidence, 1 - MSP.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        0 is best.

    References
    ----------
    Geifman, Uziel and El-Yaniv, "Bias-reduced uncertainty estimation for deep neural classifiers",
    ICLR 2019.

    Examples
    --------
    >>> from dubito.measure import excess_area_under_risk_coverage
    >>> round(excess_area_under_risk_coverage([0, 0], [[0.9, 0.1], [0.4, 0.6]]), 4)
    0.0966
    """
    caller = "excess_area_under_risk_coverage"
    return _curve_of(y_true, outputs, uncertainty, sample_weight, caller).excess_area


def area_under_generalized_risk_coverage(
    y_true: Any, outputs: Any = None, *, uncertainty: Any = None, sample_weight: Any = None
) -> float:
    """Return the area under the generalized risk-coverage curve (AUGRC).

    The mean over coverages of the fraction of all rows that are accepted and wrong. It equals
    (1 - AUROC of error detection) x accuracy x error rate + error rate^2 / 2.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    uncertainty : array-like of shape (n_samples,), optional
        Uncertainty score per row, higher is more uncertain. Default: least confidence, 1 - MSP.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Lower is better.

    References
    ----------
    Traub et al., "Overcoming common flaws in the evaluation of selective classification systems",
    NeurIPS 2024.

    Examples
    --------
    >>> from dubito.measure import area_under_generalized_risk_coverage
    >>> area_under_generalized_risk_coverage([0, 0], [[0.9, 0.1], [0.4, 0.6]])
    0.125
    """
    caller = "area_under_generalized_risk_coverage"
    return _curve_of(y_true, outputs, uncertainty, sample_weight, caller).generalized_area


def coverage_at_risk(
    y_true: Any,
    outputs: Any = None,
    *,
    risk: float,
    uncertainty: Any = None,
    sample_weight: Any = None,
) -> float:
    """Return the largest coverage whose selective risk is at most `risk`.

    Measured on these rows, without a guarantee for new ones: for that, use a risk bound of a
    policy.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    risk : float
        Highest accepted error rate.
    uncertainty : array-like of shape (n_samples,), optional
        Uncertainty score per row, higher is more uncertain. Default: least confidence, 1 - MSP.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Between 0 and 1; 0 if no coverage has so low a risk.

    Examples
    --------
    >>> from dubito.measure import coverage_at_risk
    >>> coverage_at_risk([0, 0], [[0.9, 0.1], [0.4, 0.6]], risk=0.1)
    0.5
    """
    curve = _curve_of(y_true, outputs, uncertainty, sample_weight, "coverage_at_risk")
    return curve.coverage_at(risk)
