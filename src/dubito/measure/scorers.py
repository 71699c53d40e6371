"""Every metric by name, with its bootstrap and its scikit-learn scorer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, final

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.errors import BadTypeError, BadValueError
from dubito.measure import calibration_error, classwise, proper_scores, selective
from dubito.measure.calibration_error import uniform_edges
from dubito.measure.smooth_calibration_error import smooth_calibration_error
from dubito.outputs import Probabilities


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """A public metric, and whether higher is better; `function(None, batch)` is that of a batch.

    `resampled` is a faster bootstrap than reweighting every row, where there is one.
    """

    function: Callable[..., float]
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


def _resampled_classwise_errors(
    batch: Batch, seed: int, n_resamples: int, n_bins: int = 15
) -> FloatArray:
    """Return resampled classwise errors, from the bins of one pass over the matrix."""
    state = classwise.ClasswiseCalibrationState.of(batch, uniform_edges(n_bins))
    return state.resampled_values(seed, n_resamples)


CATALOG = {
    metric.name: metric
    for metric in (
        Metric(proper_scores.accuracy, is_higher_better=True),
        Metric(proper_scores.log_loss),
        Metric(proper_scores.brier_score),
        Metric(calibration_error.expected_calibration_error),
        Metric(calibration_error.maximum_calibration_error),
        Metric(calibration_error.debiased_calibration_error),
        Metric(smooth_calibration_error),
        Metric(classwise.classwise_calibration_error, resampled=_resampled_classwise_errors),
        Metric(selective.area_under_risk_coverage),
        Metric(selective.excess_area_under_risk_coverage),
        Metric(selective.area_under_generalized_risk_coverage),
        Metric(selective.coverage_at_risk, is_higher_better=True),
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
