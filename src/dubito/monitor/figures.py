"""The figures that models are compared by, and how they vary from one set of rows to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.measure.binning import uniform_edges
from dubito.measure.calibration_error import ReliabilityState
from dubito.measure.intervals import over_resamples
from dubito.measure.proper_scores import ProperScoresState
from dubito.measure.ranking import RankingState
from dubito.measure.regression import (
    crps_of_rows,
    nll_of_rows,
    pinballs,
    point_of_rows,
    require_targets,
    values_of,
)
from dubito.measure.selective import RiskCoverageCurve
from dubito.outputs import Normal, Quantiles

__all__ = [
    "HIGHER_IS_BETTER",
    "N_BINS",
    "TITLES",
    "figures_of",
    "losses_of_rows",
    "resampled_figures",
]

N_BINS = 15
TITLES = {
    "cost": "cost a row",
    "log_loss": "log loss",
    "accuracy": "accuracy",
    "brier_score": "Brier score",
    "expected_calibration_error": f"ECE ({N_BINS} uniform bins)",
    "debiased_calibration_error": f"debiased ECE ({N_BINS} uniform bins)",
    "area_under_risk_coverage": "AURC",
    "continuous_ranked_probability_score": "CRPS",
    "negative_log_likelihood": "negative log-likelihood",
    "pinball_loss": "pinball loss",
    "mean_squared_error": "mean squared error",
}
HIGHER_IS_BETTER = frozenset({"accuracy"})


def figures_of(batch: Batch) -> dict[str, float]:
    """Return the figures of a classifier on labeled rows; what top labels cannot tell is absent.

    >>> figures_of(Batch.of([0, 1], [[0.75, 0.25], [0.75, 0.25]]))["accuracy"]
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
    return {name: value for name, value in found.items() if value is not None}


def resampled_figures(
    batch: Batch, metrics: Sequence[str], seed: int, n_resamples: int
) -> dict[str, FloatArray]:
    """Return the figures of each Poisson bootstrap resample; one that draws no row is left out."""

    def figures(resample: Batch) -> Mapping[str, float] | None:
        return figures_of(resample) if resample.labeled_weight.any() else None

    drawn = [one for one in over_resamples(batch, figures, seed, n_resamples) if one is not None]
    return {name: np.array([one[name] for one in drawn]) for name in metrics}


def losses_of_rows(batch: Batch, caller: str) -> dict[str, FloatArray]:
    """Return the losses of a regression, one number a row each; vector targets by their mean."""
    require_targets(batch, caller)
    outputs, y = batch.outputs, values_of(batch)
    losses: dict[str, Any] = {"continuous_ranked_probability_score": crps_of_rows(outputs, y)}
    if isinstance(outputs, Normal):
        losses["negative_log_likelihood"] = nll_of_rows(outputs, y)
    if isinstance(outputs, Quantiles):
        losses["pinball_loss"] = pinballs(outputs, y).mean(axis=1)
    losses["mean_squared_error"] = (y - point_of_rows(outputs)) ** 2
    return {
        name: np.asarray(rows if rows.ndim == 1 else rows.mean(axis=1), dtype=np.float64)
        for name, rows in losses.items()
    }
