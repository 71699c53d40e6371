"""The metrics by which models are compared, and p-values adjusted for multiple comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from scipy.special import ndtr, ndtri

from dubito.arrays import FloatArray, IntArray, dot
from dubito.data.batch import Batch, Ranks
from dubito.errors import BadValueError
from dubito.measure.binary import bin_edges, bins_of, positive_rows, rank_positives
from dubito.measure.calibration_error import ReliabilityState, uniform_edges
from dubito.measure.detection import auroc_of, average_precision_of
from dubito.measure.intervals import Interval, over_resamples
from dubito.measure.proper_scores import ProperScoresState
from dubito.measure.ranking import RankingState
from dubito.measure.regression import (
    central_interval,
    crps_of_rows,
    has_median,
    interval_scores,
    nll_of_rows,
    pinballs,
    point_of_rows,
    require_targets,
    values_of,
)
from dubito.measure.selective import RiskCoverageCurve
from dubito.outputs import BaseOutputs, Normal, Quantiles

N_BINS, N_POSITIVE_BINS = 15, 10
INTERVALS = (90, 80, 95, 50)  # whose score is compared, in percent: the first that models have
MIN_ROWS = 20  # with fewer (in a period), nothing is called significant
TITLES = {
    "cost": "cost per row",
    "log_loss": "log loss",
    "accuracy": "accuracy",
    "brier_score": "Brier score",
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "brier_skill_score": "Brier skill score",
    "positive_expected_calibration_error": f"ECE of P(positive), {N_POSITIVE_BINS} bins",
    "expected_calibration_error": f"ECE ({N_BINS} uniform bins)",
    "debiased_calibration_error": f"debiased ECE ({N_BINS} uniform bins)",
    "area_under_risk_coverage": "AURC",
    "continuous_ranked_probability_score": "CRPS",
    "negative_log_likelihood": "negative log-likelihood",
    "pinball_loss": "pinball loss",
    **{f"interval_score_{level}": f"interval score ({level} %)" for level in INTERVALS},
    "mean_absolute_error": "mean absolute error",
    "mean_squared_error": "mean squared error",
}
HIGHER_IS_BETTER = frozenset({"accuracy", "roc_auc", "average_precision", "brier_skill_score"})


@final
@dataclass(frozen=True, slots=True)
class PositiveRows:
    """The probability of the positive class of two, ranked and binned once for all resamples."""

    probability: FloatArray
    outcome: FloatArray
    ranks: Ranks
    bins: IntArray

    @classmethod
    def of(cls, batch: Batch, column: int) -> Self:
        """Rank and bin the rows of a batch, in equally filled bins."""
        p, y = positive_rows(batch, column)
        edges = bin_edges(rank_positives(batch, column), N_POSITIVE_BINS, "quantile")
        return cls(p, np.where(batch.labeled_weight > 0, y, 0.0), Ranks.of(p), bins_of(p, edges))

    def metrics(self, weight: FloatArray) -> dict[str, float]:
        """Return the metrics of weighted rows; none without both classes."""
        p, y, total = self.probability, self.outcome, float(weight.sum())
        base_rate = dot(weight, y) / total
        if not 0 < base_rate < 1:
            return {}
        ranked = RankingState.of_ranks(self.ranks, weight, weight * y)
        brier = dot(weight, y * (1 - p) ** 2 + (1 - y) * p**2) / total
        gaps = np.bincount(self.bins, weight * (p - y))
        return {
            "roc_auc": auroc_of(ranked),
            "average_precision": average_precision_of(ranked),
            "brier_skill_score": 1 - brier / (base_rate * (1 - base_rate)),
            "positive_expected_calibration_error": float(np.abs(gaps).sum() / total),
        }


def row_metrics(batch: Batch, positive: PositiveRows | None = None) -> dict[str, float]:
    """Return the metrics of a classifier on labeled rows, as far as top labels have them.

    `positive` adds those of the positive class of two.

    >>> row_metrics(Batch.of([0, 1], [[0.75, 0.25], [0.75, 0.25]]))["accuracy"]
    0.5
    """
    scores = ProperScoresState.of(batch).value
    bins = ReliabilityState.of(batch, uniform_edges(N_BINS))
    found = {
        "log_loss": scores.log_loss,
        "accuracy": scores.accuracy,
        "brier_score": scores.brier_score,
        "expected_calibration_error": bins.expected(),
        "debiased_calibration_error": bins.debiased,
        "area_under_risk_coverage": RiskCoverageCurve.of(RankingState.of(batch)).area,
    }
    known = {name: value for name, value in found.items() if value is not None}
    return known if positive is None else {**known, **positive.metrics(batch.labeled_weight)}


def resampled_metrics(
    batch: Batch,
    metrics: Sequence[str],
    seed: int,
    n_resamples: int,
    positive: PositiveRows | None = None,
) -> dict[str, FloatArray]:
    """Return the metrics of each Poisson bootstrap resample that has all of them."""

    def metrics_of(resample: Batch) -> Mapping[str, float] | None:
        found = row_metrics(resample, positive) if resample.labeled_weight.any() else {}
        return found if found.keys() >= set(metrics) else None

    drawn = [one for one in over_resamples(batch, metrics_of, seed, n_resamples) if one is not None]
    return {name: np.array([one[name] for one in drawn]) for name in metrics}


def row_losses(batch: Batch, caller: str) -> dict[str, FloatArray]:
    """Return the losses of a regression model per row, averaged over vector targets."""
    require_targets(batch, caller)
    outputs, y = batch.outputs, values_of(batch)
    losses: dict[str, Any] = {"continuous_ranked_probability_score": crps_of_rows(outputs, y)}
    if isinstance(outputs, Normal):
        losses["negative_log_likelihood"] = nll_of_rows(outputs, y)
    if isinstance(outputs, Quantiles):
        losses["pinball_loss"] = pinballs(outputs, y).mean(axis=1)
    for level in INTERVALS:
        ends = _interval(outputs, level / 100, caller)
        if ends is not None:
            losses[f"interval_score_{level}"] = interval_scores(y, *ends, level / 100)
    if has_median(outputs):
        losses["mean_absolute_error"] = np.abs(y - point_of_rows(outputs))
        losses["mean_squared_error"] = (y - point_of_rows(outputs)) ** 2
    return {
        name: np.asarray(rows if rows.ndim == 1 else rows.mean(axis=1), dtype=np.float64)
        for name, rows in losses.items()
    }


def _interval(
    outputs: BaseOutputs, level: float, caller: str
) -> tuple[FloatArray, FloatArray] | None:
    """Return the central interval of each row; None if the quantiles or draws do not have it."""
    try:
        return central_interval(outputs, level, caller)
    except BadValueError:
        return None


def _holm(p_values: Sequence[float]) -> FloatArray:
    """Return p-values adjusted for multiple tests; valid however the tests depend on each other.

    Holm, "A simple sequentially rejective multiple test procedure", 1979.

    >>> _holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = values[order] * np.arange(values.size, 0, -1)
    adjusted = np.empty(values.size)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def adjusted(p_values: Sequence[float], n_rows: int) -> list[float]:
    """Return p-values adjusted for multiple tests, all 1 with too few rows to call any small."""
    return _holm(p_values).tolist() if n_rows >= MIN_ROWS else [1.0] * len(p_values)


def normal_p_value(interval: Interval, level: float) -> float:
    """Return the two-sided p-value of a true value of 0, from a normal confidence interval.

    >>> round(normal_p_value(Interval(1.96, 0.0, 3.92), 0.95), 3)
    0.05
    """
    error = (interval.high - interval.low) / (2 * ndtri((1 + level) / 2))
    if error == 0:
        return 1.0 if interval.value == 0 else 0.0
    return float(2 * ndtr(-abs(interval.value) / error))
