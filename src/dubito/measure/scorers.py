"""Every metric by name, with its bootstrap and its scikit-learn scorer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any, final

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.errors import BadTypeError, BadValueError
from dubito.measure import calibration_error as bins
from dubito.measure import classwise, proper_scores, selective
from dubito.measure.calibration_error import uniform_edges
from dubito.outputs import Probabilities


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """A public metric, how to compute it for a batch, and whether higher is better.

    `resampled` is a faster bootstrap than reweighting every row, where there is one.
    """

    function: Callable[..., float]
    of_batch: Callable[..., float]
    is_higher_better: bool = False
    resampled: Callable[..., FloatArray] | None = None

    def require_settings(self, settings: Mapping[str, Any], caller: str) -> None:
        """Raise unless the function accepts these settings."""
        try:
            signature(self.function).bind(None, None, **settings)
        except TypeError as error:
            rule, fix = f"must be arguments of {self.name}", f"See help({self.name})"
            raise BadValueError("settings", caller, rule, f"{error}", fix) from error

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__


def _score(name: str, batch: Batch) -> float:
    """Return one of the proper scores."""
    return proper_scores.ProperScoresState.of(batch).score(name)


def _curve(name: str, batch: Batch, doubt: Any = None) -> float:
    """Return one of the areas of the risk-coverage curve."""
    state = selective.ranked_by(doubt, batch, name)
    return float(getattr(selective.RiskCoverageCurve.of(state), name))


def _coverage_at_risk(batch: Batch, risk: float, doubt: Any = None) -> float:
    """Return the coverage at a risk."""
    state = selective.ranked_by(doubt, batch, "coverage_at_risk")
    return selective.RiskCoverageCurve.of(state).coverage_at(risk)


def _expected(batch: Batch, norm: bins.Norm = "l1", **settings: Any) -> float:
    """Return the expected calibration error."""
    return bins.reliability_of(batch, **settings).expected(norm)


def _maximum(batch: Batch, **settings: Any) -> float:
    """Return the maximum calibration error."""
    return bins.reliability_of(batch, **settings).expected("max")


def _debiased(batch: Batch, **settings: Any) -> float:
    """Return the debiased calibration error."""
    return bins.reliability_of(batch, **settings).debiased


def _classwise_error(batch: Batch, n_bins: int = 15) -> float:
    """Return the classwise calibration error."""
    return classwise.ClasswiseCalibrationState.of(batch, uniform_edges(n_bins)).value


def _resampled_classwise_errors(
    batch: Batch, seed: int, n_resamples: int, n_bins: int = 15
) -> FloatArray:
    """Return resampled classwise errors, from the bins of one pass over the matrix."""
    state = classwise.ClasswiseCalibrationState.of(batch, uniform_edges(n_bins))
    return state.resampled_values(seed, n_resamples)


def _smoothed(batch: Batch) -> float:
    """Return the smooth calibration error."""
    return bins.SmoothCalibrationErrorState.of(batch).value


CATALOG = {
    metric.name: metric
    for metric in (
        Metric(proper_scores.accuracy, partial(_score, "accuracy"), is_higher_better=True),
        Metric(proper_scores.log_loss, partial(_score, "log_loss")),
        Metric(proper_scores.brier_score, partial(_score, "brier_score")),
        Metric(bins.expected_calibration_error, _expected),
        Metric(bins.maximum_calibration_error, _maximum),
        Metric(bins.debiased_calibration_error, _debiased),
        Metric(bins.smooth_calibration_error, _smoothed),
        Metric(
            classwise.classwise_calibration_error,
            _classwise_error,
            resampled=_resampled_classwise_errors,
        ),
        Metric(selective.area_under_risk_coverage, partial(_curve, "area")),
        Metric(selective.excess_area_under_risk_coverage, partial(_curve, "excess_area")),
        Metric(selective.area_under_generalized_risk_coverage, partial(_curve, "generalized_area")),
        Metric(selective.coverage_at_risk, _coverage_at_risk, is_higher_better=True),
    )
}


@final
@dataclass(frozen=True, slots=True)
class _Scorer:
    """A metric of a fitted classifier, higher is better, for `scoring=`."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the metric of the classifier's probabilities, negated if it is a loss."""
        metric = CATALOG[self.name]
        if not hasattr(estimator, "predict_proba"):
            rule, fix = "must have predict_proba", "Wrap it in CalibratedClassifierCV"
            raise BadTypeError("estimator", "get_scorer", rule, type(estimator).__name__, fix)
        outputs = Probabilities(estimator.predict_proba(X), classes=estimator.classes_)
        value = metric.function(y, outputs, sample_weight=sample_weight, **self.settings)
        return value if metric.is_higher_better else -value


def get_scorer(name: str, **settings: Any) -> _Scorer:
    """Return a metric of `dubito.measure` as a scikit-learn scorer.

    Use it as `scoring=` in `cross_val_score` or `GridSearchCV`. Losses are negated, so that higher
    is better. Classes are matched by name with the classifier's `classes_`.

    Parameters
    ----------
    name : str
        Name of the metric, e.g. "log_loss" or "expected_calibration_error".
    **settings
        Arguments of the metric, e.g. `n_bins=10`.

    Returns
    -------
    callable
        A function of (estimator, X, y, sample_weight=None).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> model, (X, y) = LogisticRegression(max_iter=999), load_iris(return_X_y=True)
    >>> bool(cross_val_score(model, X, y, scoring=get_scorer("log_loss")).max() < 0)
    True
    """
    if name not in CATALOG:
        fix = f"Use one of {', '.join(sorted(CATALOG))}"
        raise BadValueError("name", "get_scorer", "must be the name of a metric", repr(name), fix)
    CATALOG[name].require_settings(settings, "get_scorer")
    return _Scorer(name, settings)
