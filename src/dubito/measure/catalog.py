"""Every metric of rows, by name: what intervals, scorers and audits are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, final

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.errors import BadValueError
from dubito.measure import calibration_error as bins
from dubito.measure import class_wise, proper_scores, selective, smooth
from dubito.measure.binning import uniform_edges

__all__ = ["CATALOG", "Metric"]


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """A public function, how to compute it of a batch, and whether higher is better.

    `resampled` is a shorter way to resample it than by weighing every row anew, where there is one.
    """

    function: Callable[..., float]
    of_batch: Callable[..., float]
    is_higher_better: bool = False
    resampled: Callable[..., FloatArray] | None = None

    def require_settings(self, settings: Mapping[str, Any], caller: str) -> None:
        """Raise unless the function could be called with these settings."""
        try:
            signature(self.function).bind(None, None, **settings)
        except TypeError as error:
            rule, fix = f"what {self.name} takes", f"see help({self.name})"
            raise BadValueError("settings", caller, rule, str(error), fix) from error

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__


def score(name: str, batch: Batch) -> float:
    """Return one of the proper scores."""
    return proper_scores.ProperScoresState.of(batch).score(name)


def curve(name: str, batch: Batch, doubt: Any = None) -> float:
    """Return one of the areas of the risk-coverage curve."""
    state = selective.ranked_by(doubt, batch, name)
    return float(getattr(selective.RiskCoverageCurve.of(state), name))


def coverage_at_risk(batch: Batch, risk: float, doubt: Any = None) -> float:
    """Return the coverage at a risk."""
    state = selective.ranked_by(doubt, batch, "coverage_at_risk")
    return selective.RiskCoverageCurve.of(state).coverage_at(risk)


def expected(batch: Batch, norm: bins.Norm = "l1", **settings: Any) -> float:
    """Return the expected calibration error."""
    return bins.reliability_of(batch, **settings).expected(norm)


def maximum(batch: Batch, **settings: Any) -> float:
    """Return the maximum calibration error."""
    return bins.reliability_of(batch, **settings).expected("max")


def debiased(batch: Batch, **settings: Any) -> float:
    """Return the debiased calibration error."""
    return bins.reliability_of(batch, **settings).debiased


def class_wise_error(batch: Batch, n_bins: int = 15) -> float:
    """Return the class-wise calibration error."""
    return class_wise.ClasswiseCalibrationState.of(batch, uniform_edges(n_bins)).value


def resampled_class_wise_errors(
    batch: Batch, seed: int, n_resamples: int, n_bins: int = 15
) -> FloatArray:
    """Return resampled class-wise errors, from the bins of one pass over the matrix."""
    state = class_wise.ClasswiseCalibrationState.of(batch, uniform_edges(n_bins))
    return state.resampled_values(seed, n_resamples)


def smoothed(batch: Batch) -> float:
    """Return the smooth calibration error."""
    return smooth.SmoothCalibrationErrorState.of(batch).value


CATALOG = {
    metric.name: metric
    for metric in (
        Metric(proper_scores.accuracy, partial(score, "accuracy"), is_higher_better=True),
        Metric(proper_scores.log_loss, partial(score, "log_loss")),
        Metric(proper_scores.brier_score, partial(score, "brier_score")),
        Metric(bins.expected_calibration_error, expected),
        Metric(bins.maximum_calibration_error, maximum),
        Metric(bins.debiased_calibration_error, debiased),
        Metric(smooth.smooth_calibration_error, smoothed),
        Metric(
            class_wise.classwise_calibration_error,
            class_wise_error,
            resampled=resampled_class_wise_errors,
        ),
        Metric(selective.area_under_risk_coverage, partial(curve, "area")),
        Metric(selective.excess_area_under_risk_coverage, partial(curve, "excess_area")),
        Metric(selective.area_under_generalized_risk_coverage, partial(curve, "generalized_area")),
        Metric(selective.coverage_at_risk, coverage_at_risk, is_higher_better=True),
    )
}
