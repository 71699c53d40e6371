"""Every metric by name, its scikit-learn scorer, and its bootstrap; intervals of differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from inspect import signature
from typing import Any, TypeVar, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, as_count, as_fraction, draw_seed, freeze
from dubito.data.batch import Batch, as_weights
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.formatting import number_format
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.sums import STEP, poisson_weights, resample_sums
from dubito.measure import calibration_error, proper_scores, selective
from dubito.measure.calibration_error import uniform_edges
from dubito.measure.calibration_test import smooth_calibration_error
from dubito.measure.state import labeled_batch
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
    state = calibration_error.ClasswiseCalibrationState.of(batch, uniform_edges(n_bins))
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
        Metric(
            calibration_error.classwise_calibration_error, resampled=_resampled_classwise_errors
        ),
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
    **settings : any
        Arguments of the metric, e.g. `n_bins=10`.

    Returns
    -------
    callable
        A function of (estimator, X, y, sample_weight=None).

    Examples
    --------
    >>> from dubito.measure import get_scorer
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


Result = TypeVar("Result")

RESAMPLES_AT_ONCE = 50  # in one thread


@final
@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes
    ----------
    value : float
        The estimate.
    low, high : float
        Ends of the interval.

    Examples
    --------
    >>> from dubito.measure import Interval
    >>> print(Interval(0.5, 0.4, 0.6))
    0.5000 (0.4000 to 0.6000)
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return format(self)

    def __format__(self, sign: str) -> str:
        """Return the estimate and its ends with the same decimals, "+" to show all signs.

        >>> f"{Interval(0.02, -0.01, 0.05):+}", f"{Interval(9.9, 9.75, 10.05)}"
        ('+0.0200 (-0.0100 to +0.0500)', '9.90 (9.75 to 10.05)')
        """
        spec = f"{sign}z{number_format(self.value, self.low, self.high)}"
        return f"{self.value:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


def confidence_interval(
    metric: Callable[..., float] | str,
    y_true: Any,
    outputs: Any = None,
    *,
    level: float = 0.95,
    random_state: Any = 0,
    n_resamples: int = 1000,
    sample_weight: Any = None,
) -> Interval:
    """Return a metric with its bootstrap confidence interval.

    Poisson bootstrap with percentiles. The interval of a binned calibration error lies too high
    where the error is near 0: prefer `debiased_calibration_error` there.

    Parameters
    ----------
    metric : callable or str
        A function of `dubito.measure`, its name, or a `functools.partial` of one. Any other
        function of (y_true, outputs, sample_weight=) works as well, but more slowly.
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    level : float, default=0.95
        Confidence level.
    random_state : None, int or RandomState, default=0
        Seed of the resamples; an integer gives the same interval every time.
    n_resamples : int, default=1000
        Number of bootstrap resamples, at least 40.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    Interval

    References
    ----------
    Efron and Tibshirani, "An Introduction to the Bootstrap", 1993.

    Examples
    --------
    >>> from dubito.measure import confidence_interval
    >>> from dubito.measure import accuracy
    >>> print(confidence_interval(accuracy, [0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8]] * 2))
    0.5000 (0.0000 to 1.0000)
    """
    caller = "confidence_interval"
    settings = (draw_seed(random_state, caller), n_resamples, caller)
    estimate, values = _bootstrap(metric, y_true, outputs, sample_weight, *settings)
    return interval_of(estimate, values, level, caller)


def paired_difference(
    metric: Callable[..., float] | str,
    y_true: Any,
    outputs_a: Any,
    outputs_b: Any,
    *,
    level: float = 0.95,
    random_state: Any = 0,
    n_resamples: int = 1000,
    sample_weight: Any = None,
) -> Interval:
    """Return the difference of a metric between two models on the same rows, with its interval.

    Both models see the same resamples, so that what the rows have in common cancels: the interval
    is far narrower than those of the two metrics suggest.

    Parameters
    ----------
    metric : callable or str
        As in `confidence_interval`.
    y_true : array-like of shape (n_samples,)
        True labels.
    outputs_a, outputs_b : array-like or outputs
        Outputs of both models for the same rows.
    level : float, default=0.95
        Confidence level.
    random_state : None, int or RandomState, default=0
        Seed of the resamples; an integer gives the same interval every time.
    n_resamples : int, default=1000
        Number of bootstrap resamples, at least 40.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    Interval
        The metric of A minus that of B.

    Examples
    --------
    >>> from dubito.measure import paired_difference
    >>> a, b = [[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.4, 0.6]]
    >>> paired_difference("log_loss", [0, 1], a, b).value < 0
    True
    """
    caller = "paired_difference"
    settings = (draw_seed(random_state, caller), n_resamples, caller)
    (a, values_a), (b, values_b) = (
        _bootstrap(metric, y_true, one, sample_weight, *settings, is_by_weights=True)
        for one in (outputs_a, outputs_b)
    )
    if values_a.shape != values_b.shape:
        rule, fix = "must have the rows of outputs_a", "Pass outputs of both for the same rows"
        raise BadValueError("outputs_b", caller, rule, "other rows", fix)
    if not np.isfinite([a, b]).all():
        rule, fix = "must be finite for both models", "Use brier_score, or calibrate first"
        raise BadValueError("metric", caller, rule, f"{a} and {b}", fix)
    return interval_of(a - b, values_a - values_b, level, caller)


def _bootstrap(
    metric: Any,
    y_true: Any,
    outputs: Any,
    sample_weight: Any,
    seed: int,
    n_resamples: int,
    caller: str,
    *,
    is_by_weights: bool = False,
) -> tuple[float, FloatArray]:
    """Return a metric, and its value in each Poisson bootstrap resample that has one.

    Without outliers there is no AUROC. `is_by_weights` leaves no choice of a faster bootstrap.
    """
    n_resamples = as_n_resamples(n_resamples, caller)
    known, function, settings = _in_catalog(metric, caller)
    value_of: Callable[[FloatArray], float]
    if known is None:
        weight = as_weights(sample_weight, len(outputs if y_true is None else y_true), caller)

        def value_of(weight: FloatArray) -> float:
            return float(function(y_true, outputs, sample_weight=weight, **settings))

    else:
        batch = labeled_batch(y_true, outputs, sample_weight, caller, stacklevel=5)
        if known.resampled is not None and not is_by_weights:
            values = known.resampled(batch, seed, n_resamples, **settings)
            return function(None, batch, **settings), values
        _ = batch.rows.ranks  # computed once, shared by all resamples
        weight = batch.weight

        def value_of(weight: FloatArray) -> float:
            return function(None, batch.reweighted(weight), **settings)

    def value_if_any(resample: int) -> float:
        try:
            return value_of(_redrawn(weight, seed, resample))
        except (EmptyStateError, BadValueError):
            return np.nan

    estimate = value_of(weight)
    values = np.array(list(map_in_order(value_if_any, range(n_resamples))))
    return estimate, np.asarray(values[~np.isnan(values)])


def over_resamples(
    batch: Batch, function: Callable[[Batch], Result], seed: int, n_resamples: int
) -> Iterable[Result]:
    """Yield a function of each Poisson bootstrap resample of a batch, using threads."""
    _ = batch.rows.ranks  # computed once, shared by all resamples

    def value_of(resample: int) -> Result:
        # A row's draw depends on its number in the whole data set, so that any split into shards
        # gives the same resamples.
        drawn = _redrawn(batch.weight, seed, resample, batch.first_row)
        return function(batch.reweighted(drawn))

    return map_in_order(value_of, range(n_resamples))


def _redrawn(weight: FloatArray, seed: int, resample: int, first_row: int = 0) -> FloatArray:
    """Return how often the rows that a weight stands for are drawn.

    >>> _redrawn(np.ones(4), 0, 1).tolist()
    [1.0, 2.0, 0.0, 3.0]
    """
    drawn = np.empty(weight.size)
    poisson_weights(freeze(weight), _key(seed, resample), first_row, drawn)
    return drawn


@lru_cache(maxsize=10_000)  # each takes 6 microseconds, and most intervals have the same seed
def _key(seed: int, resample: int) -> np.uint64:
    """Return what the draws of a resample are made of."""
    return np.uint64(np.random.SeedSequence([seed, resample]).generate_state(1, np.uint64)[0])


def resampled_sums(
    columns: Sequence[FloatArray],
    weight: FloatArray,
    seed: int,
    n_resamples: int,
    *,
    groups: IntArray | None = None,
    n_groups: int = 1,
    first_row: int = 0,
) -> FloatArray:
    """Return weighted sums over Poisson bootstrap resamples: resamples x sums x groups.

    The sums are the weight, the weight of repeated rows (their number times that of draws), and
    that of each column. Resamples are those of `over_resamples`; rows without weight are left out.

    >>> resampled_sums([np.array([0.0, 1.0, 5.0, 2.0])], np.ones(4), 0, 2)[1, :, 0].tolist()
    [6.0, 14.0, 8.0]
    """
    rows = np.flatnonzero(weight)
    ends = np.array([rows.size])
    if groups is not None:
        rows = rows[np.argsort(groups[rows], kind="stable")]
        ends = np.cumsum(np.bincount(groups[rows], minlength=n_groups))
    numbers = (rows + first_row + 1).astype(np.uint64) * STEP
    values = freeze(np.stack([column[rows] for column in columns]).astype(np.float64, copy=False))
    keys = np.array([_key(seed, k) for k in range(n_resamples)], np.uint64)
    fixed = (values, freeze(weight[rows]), freeze(numbers), freeze(ends))
    sums = np.zeros((n_resamples, 2 + len(columns), ends.size))

    def fill(some: slice) -> None:
        resample_sums(*fixed, freeze(keys[some]), sums[some])

    list(map_in_order(fill, row_blocks(n_resamples, 1, RESAMPLES_AT_ONCE)))
    return sums


def ends_of(intervals: Mapping[str, Interval], prefix: str = "") -> dict[str, float]:
    """Return the ends of intervals by name, in a flat dictionary."""
    return {
        f"{prefix}{name}.{end}": getattr(one, end)
        for name, one in intervals.items()
        for end in ("low", "high")
    }


def interval_of(
    value: float, values: Iterable[float] | FloatArray, level: float, caller: str
) -> Interval:
    """Return the percentile interval of resampled values around an estimate."""
    tail = (1 - as_fraction(level, "level", caller, is_open=True)) / 2
    # The nearest value: infinite values cannot be interpolated.
    low, high = np.quantile(np.asarray(values), [tail, 1 - tail], method="nearest")
    return Interval(value, float(low), float(high))


def _in_catalog(
    metric: Any, caller: str
) -> tuple[Metric | None, Callable[..., float], dict[str, Any]]:
    """Return the catalog entry of a metric (None for any other), its function and settings."""
    settings: dict[str, Any] = {}
    if isinstance(metric, partial):
        metric, settings = metric.func, metric.keywords
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
    known = CATALOG.get(name)
    if known is not None and (isinstance(metric, str) or metric is known.function):
        known.require_settings(settings, caller)
        return known, known.function, settings
    if not callable(metric):
        fix = f"Use one of {', '.join(sorted(CATALOG))}"
        raise BadTypeError("metric", caller, "must be a metric or its name", repr(metric), fix)
    return None, metric, settings


def as_n_resamples(n_resamples: Any, caller: str) -> int:
    """Return a number of resamples that is large enough for percentiles, or raise."""
    return as_count(n_resamples, "n_resamples", caller, least=40, example=1000)
