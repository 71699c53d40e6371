"""Metrics of predictive distributions: likelihood, CRPS, pinball loss, intervals, PIT, sharpness.

An ensemble (`RegressionMembers`) is measured by the normal distribution of its mean and variance.
Vector targets are treated coordinate by coordinate; means are over rows, then over coordinates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from dubito.arrays import BoolArray, FloatArray, as_floats, as_fraction, as_number
from dubito.data.argument_order import require_order
from dubito.data.batch import Batch, make_batch
from dubito.data.labels import Targets
from dubito.data.shards import Shards
from dubito.errors import BadTypeError, BadValueError
from dubito.measure.state import require_weight, warn_of_missing
from dubito.outputs import BaseOutputs, Normal, Quantiles, RegressionMembers, Samples

Regression = Normal | Samples | Quantiles

FAR = 40.0  # standard deviations from the mean, where the density is 0


def negative_log_likelihood(y_true: Any, outputs: Any, *, sample_weight: Any = None) -> float:
    """Return the mean negative log density of the targets under `Normal` outputs, in nats.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values; NaN where missing.
    outputs : Normal
        Predictive distributions.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Lower is better.

    Examples
    --------
    >>> from dubito import Normal
    >>> from dubito.measure import negative_log_likelihood
    >>> round(negative_log_likelihood([0.0], Normal([0.0], [1.0])), 4)
    0.9189
    """
    batch = target_batch(y_true, outputs, sample_weight, "negative_log_likelihood", (Normal,))
    return _weighted_mean(batch, nll_of_rows(batch.outputs, values_of(batch)))


def continuous_ranked_probability_score(
    y_true: Any, outputs: Any, *, sample_weight: Any = None
) -> float:
    """Return the continuous ranked probability score (CRPS), in the unit of the target.

    It equals the absolute error if the prediction is a single point. For `Quantiles` it is twice
    the pinball loss, with each level representing the levels nearest to it.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values; NaN where missing.
    outputs : Normal, Samples or Quantiles
        Predictive distributions.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        At least 0; lower is better.

    References
    ----------
    Gneiting and Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 2007.

    Examples
    --------
    >>> from dubito import Samples
    >>> from dubito.measure import continuous_ranked_probability_score
    >>> continuous_ranked_probability_score([1.0], Samples([[0.0, 0.0]]))
    1.0
    """
    caller = "continuous_ranked_probability_score"
    batch = target_batch(y_true, outputs, sample_weight, caller)
    return _weighted_mean(batch, crps_of_rows(batch.outputs, values_of(batch)))


def pinball_loss(y_true: Any, outputs: Any, *, sample_weight: Any = None) -> float:
    """Return the mean pinball loss of `Quantiles` over their levels.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values; NaN where missing.
    outputs : Quantiles
        Predictive distributions.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        At least 0; lower is better.

    References
    ----------
    Koenker and Bassett, "Regression quantiles", Econometrica 1978.

    Examples
    --------
    >>> from dubito import Quantiles
    >>> from dubito.measure import pinball_loss
    >>> pinball_loss([1.0], Quantiles([[0.0]], levels=[0.9]))
    0.9
    """
    batch = target_batch(y_true, outputs, sample_weight, "pinball_loss", (Quantiles,))
    assert isinstance(batch.outputs, Quantiles)
    return _weighted_mean(batch, pinballs(batch.outputs, values_of(batch)).mean(axis=1))


def minkowski_loss(y_true: Any, y_pred: Any, q: float = 2.0, *, sample_weight: Any = None) -> float:
    """Return the mean |y - prediction|^q of point predictions.

    It is minimized by the mean of the targets at q = 2 (mean squared error), by their median at q =
    1 (mean absolute error) and near their mode as q goes to 0; `dubito.decide.minkowski_estimate`
    returns the best prediction of a predictive distribution.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values; NaN where missing.
    y_pred : array-like of the shape of y_true
        Predictions.
    q : float, default=2.0
        The power, above 0.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        At least 0; lower is better.

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5.5.

    Examples
    --------
    >>> from dubito.measure import minkowski_loss
    >>> minkowski_loss([0.0, 3.0], [1.0, 1.0], q=3)
    4.5
    """
    caller = "minkowski_loss"
    as_number(q, "q", caller, 0, fix="Use q=2 for the mean squared error", is_open=True)
    points = as_floats(y_pred, "y_pred", caller)
    batch = target_batch(y_true, Samples(points[:, np.newaxis]), sample_weight, caller)
    return _weighted_mean(batch, np.abs(values_of(batch) - points) ** q)


def interval_coverage(
    y_true: Any, outputs: Any, *, level: float = 0.9, sample_weight: Any = None
) -> float:
    """Return the fraction of targets inside the central prediction interval.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values; NaN where missing.
    outputs : Normal, Samples or Quantiles
        Predictive distributions.
    level : float, default=0.9
        Nominal coverage of the interval.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Equal to `level` for a calibrated model.

    Examples
    --------
    >>> from dubito import Normal
    >>> from dubito.measure import interval_coverage
    >>> interval_coverage([0.0, 9.0], Normal([0.0, 0.0], [1.0, 1.0]), level=0.9)
    0.5
    """
    batch = target_batch(y_true, outputs, sample_weight, "interval_coverage")
    low, high = central_interval(batch.outputs, level, "interval_coverage")
    y = values_of(batch)
    return _weighted_mean(batch, ((low <= y) & (y <= high)).astype(np.float64))


def interval_score(
    y_true: Any, outputs: Any, *, level: float = 0.9, sample_weight: Any = None
) -> float:
    """Return the interval score (Winkler score) of the central prediction interval.

    It is the mean width, plus 2 / (1 - level) times how far targets lie outside: narrow intervals
    and right coverage both lower it.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values; NaN where missing.
    outputs : Normal, Samples or Quantiles
        Predictive distributions.
    level : float, default=0.9
        Nominal coverage of the interval.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        In the unit of the target; lower is better.

    References
    ----------
    Gneiting and Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 2007.

    Examples
    --------
    >>> from dubito import Quantiles
    >>> from dubito.measure import interval_score
    >>> interval_score([3.0, 0.0], Quantiles([[-1.0, 1.0]] * 2, levels=[0.25, 0.75]), level=0.5)
    6.0
    """
    batch = target_batch(y_true, outputs, sample_weight, "interval_score")
    y, ends = values_of(batch), central_interval(batch.outputs, level, "interval_score")
    return _weighted_mean(batch, interval_scores(y, *ends, level))


def probability_integral_transform(y_true: Any, outputs: Any) -> FloatArray:
    """Return the predicted cumulative probability of each target (PIT).

    Uniform on [0, 1] if the model is calibrated. Among `Samples` a tie counts half; between
    `Quantiles` levels are interpolated, and beyond the outermost the value is halfway to 0 or 1.
    Rows without a target are left out.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values; NaN where missing.
    outputs : Normal, Samples or Quantiles
        Predictive distributions.

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_targets)
        Values between 0 and 1.

    References
    ----------
    Dawid, "Present position and potential developments: the prequential approach", 1984.

    Examples
    --------
    >>> from dubito import Normal
    >>> from dubito.measure import probability_integral_transform
    >>> probability_integral_transform([0.0], Normal([0.0], [1.0])).tolist()
    [0.5]
    """
    batch = target_batch(y_true, outputs, None, "probability_integral_transform")
    return pit_of_rows(batch.outputs, values_of(batch))[batch.labeled_weight > 0]


def sharpness(outputs: Any, *, level: float = 0.9) -> float:
    """Return the mean width of the central prediction interval.

    Narrow intervals are good only if their coverage is right.

    Parameters
    ----------
    outputs : Normal, Samples or Quantiles
        Predictive distributions.
    level : float, default=0.9
        Nominal coverage of the interval.

    Returns
    -------
    float
        In the unit of the target.

    References
    ----------
    Gneiting, Balabdaoui and Raftery, "Probabilistic forecasts, calibration and sharpness", JRSS B
    2007.

    Examples
    --------
    >>> from dubito import Normal
    >>> from dubito.measure import sharpness
    >>> round(sharpness(Normal([0.0], [1.0]), level=0.95), 3)
    3.92
    """
    low, high = central_interval(_require_regression(outputs, "sharpness"), level, "sharpness")
    return float((high - low).mean())


def nll_of_rows(outputs: BaseOutputs, y: FloatArray) -> FloatArray:
    """Return the negative log density of each target."""
    assert isinstance(outputs, Normal)
    std = outputs.std.astype(np.float64)
    with np.errstate(over="ignore"):  # a target that is too far away has an infinite loss
        squares = ((y - outputs.mean) / std) ** 2
    return np.asarray(0.5 * np.log(2 * np.pi) + np.log(std) + 0.5 * squares)


def squared_errors(outputs: BaseOutputs, y: FloatArray) -> FloatArray:
    """Return the squared error of the mean (median of quantiles), infinite if it overflows."""
    with np.errstate(over="ignore"):
        return np.asarray((y - point_of_rows(outputs)) ** 2)


def crps_of_rows(outputs: BaseOutputs, y: FloatArray) -> FloatArray:
    """Return the CRPS of each row: in closed form, over all pairs of draws, or over levels."""
    if isinstance(outputs, Normal):
        std = outputs.std.astype(np.float64)
        z = (y - outputs.mean) / std
        density = np.exp(-0.5 * np.minimum(np.abs(z), FAR) ** 2) / np.sqrt(2 * np.pi)
        from scipy.special import ndtr

        return np.asarray(std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)))
    if isinstance(outputs, Samples):
        draws = np.sort(outputs.array.astype(np.float64), axis=1)
        n_draws = draws.shape[1]
        # Mean |X - X'| over all pairs is a weighted sum of the sorted draws.
        ranks = (2 * np.arange(1, n_draws + 1) - n_draws - 1) / n_draws**2
        spread = np.einsum("ij...,j->i...", draws, ranks)
        return np.asarray(np.abs(draws - y[:, np.newaxis]).mean(axis=1) - spread)
    assert isinstance(outputs, Quantiles)
    middles = (outputs.levels[1:] + outputs.levels[:-1]) / 2
    weights = np.diff(np.concatenate([[0.0], middles, [1.0]]))
    return np.asarray(2 * np.einsum("ij...,j->i...", pinballs(outputs, y), weights))


def crps_title(outputs: BaseOutputs) -> str:
    """Return the name of the CRPS; that of quantiles is a mean over their levels.

    >>> crps_title(Quantiles([[1.0, 2.0]], [0.1, 0.9]))
    'CRPS (from quantiles)'
    """
    return "CRPS (from quantiles)" if isinstance(outputs, Quantiles) else "CRPS"


def pinballs(outputs: Quantiles, y: FloatArray) -> FloatArray:
    """Return the pinball loss of each row at each level."""
    error = y[:, np.newaxis] - outputs.array
    levels = outputs.levels.reshape(-1, *[1] * (error.ndim - 2))
    return np.maximum(levels * error, (levels - 1) * error)


def pit_of_rows(outputs: BaseOutputs, y: FloatArray) -> FloatArray:
    """Return the predicted cumulative probability of each target."""
    if isinstance(outputs, Normal):
        from scipy.special import ndtr

        return np.asarray(ndtr((y - outputs.mean) / outputs.std.astype(np.float64)))
    assert isinstance(outputs, Samples | Quantiles)
    value = y[:, np.newaxis]
    if isinstance(outputs, Samples):
        below, ties = outputs.array < value, outputs.array == value
        return np.asarray(below.mean(axis=1) + ties.mean(axis=1) / 2)
    return _interpolated_levels(outputs, value)


def _interpolated_levels(outputs: Quantiles, value: FloatArray) -> FloatArray:
    """Return the level of each value, linear between quantiles, halfway to 0 or 1 beyond them."""
    levels = np.concatenate(
        [[outputs.levels[0] / 2], outputs.levels, [(1 + outputs.levels[-1]) / 2]]
    )
    n_below = (outputs.array < value).sum(axis=1)
    last = outputs.levels.size
    left = np.clip(n_below - 1, 0, last - 1)[:, np.newaxis]
    right = np.clip(n_below, 0, last - 1)[:, np.newaxis]
    low = np.take_along_axis(outputs.array, left, axis=1)[:, 0].astype(np.float64)
    high = np.take_along_axis(outputs.array, right, axis=1)[:, 0].astype(np.float64)
    gap = np.where(high > low, high - low, 1.0)
    fraction = np.where(high > low, (value[:, 0] - low) / gap, 0.0)
    inside = outputs.levels[left[:, 0]] * (1 - fraction) + outputs.levels[right[:, 0]] * fraction
    is_exact = (n_below == 0) & (value[:, 0] == outputs.array[:, 0])
    outer = np.where(is_exact, outputs.levels[0], levels[np.where(n_below == 0, 0, -1)])
    return np.where((n_below == 0) | (n_below == last), outer, inside)


def central_interval(
    outputs: BaseOutputs, level: float, caller: str
) -> tuple[FloatArray, FloatArray]:
    """Return both ends of the central prediction interval of each row."""
    nominal = as_fraction(level, "level", caller, is_open=True)
    tail = (1 - nominal) / 2
    if isinstance(outputs, Normal):
        from scipy.special import ndtri

        reach = ndtri(1 - tail) * outputs.std.astype(np.float64)
        return outputs.mean - reach, outputs.mean + reach
    if isinstance(outputs, Samples):
        n_draws = outputs.array.shape[1]
        widest = (n_draws - 1) / (n_draws + 1)  # from the smallest to the largest draw
        if nominal > widest + 1e-9:
            rule = f"must be at most {widest:.3g} with {n_draws} draws"
            fix = "Use more draws or a lower level"
            raise BadValueError("level", caller, rule, f"{nominal:g}", fix)
        # Of m draws and the truth, each is as likely to be the k-th: k / (m + 1) lies below.
        low, high = np.quantile(outputs.array, [tail, 1 - tail], axis=1, method="weibull")
        return low, high
    assert isinstance(outputs, Quantiles)
    ends = [np.flatnonzero(np.isclose(outputs.levels, q)) for q in (tail, 1 - tail)]
    if any(end.size == 0 for end in ends):
        have = ", ".join(f"{q:g}" for q in outputs.levels)
        rule = f"{nominal:g} needs the quantiles {tail:g} and {1 - tail:g}"
        pairs = [q for q in outputs.levels if q < 0.5 and np.isclose(outputs.levels, 1 - q).any()]
        fix = " or ".join(f"level={1 - 2 * q:g}" for q in pairs)
        fix = f"Pass {fix}" if pairs else "Pass quantiles on both sides of the median"
        raise BadValueError("level", caller, rule, have, fix)
    return outputs.array[:, ends[0][0]], outputs.array[:, ends[1][0]]


def interval_scores(y: FloatArray, low: FloatArray, high: FloatArray, level: float) -> FloatArray:
    """Return the interval score of each row."""
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return np.asarray((high - low) + 2 / (1 - level) * outside)


def moment_matched(batch: Batch) -> Batch:
    """Return a batch with the members of an ensemble as normal distributions, others unchanged."""
    if isinstance(batch.outputs, RegressionMembers):
        return replace(batch, outputs=batch.outputs.normal)
    return batch


def moment_matched_shards(shards: Shards) -> Shards:
    """Return shards with the members of an ensemble as normal distributions, others unchanged."""
    return shards.convert(moment_matched)


def point_of_rows(outputs: BaseOutputs) -> FloatArray:
    """Return the mean of each distribution; for `Quantiles` the interpolated median."""
    if isinstance(outputs, Normal):
        return outputs.mean
    if isinstance(outputs, Samples):
        return np.asarray(outputs.array.mean(axis=1, dtype=np.float64))
    assert isinstance(outputs, Quantiles)
    right = int(np.clip(np.searchsorted(outputs.levels, 0.5), 1, max(outputs.levels.size - 1, 1)))
    if outputs.levels.size == 1:
        return outputs.array[:, 0]
    low, high = outputs.levels[right - 1], outputs.levels[right]
    fraction = float(np.clip((0.5 - low) / (high - low), 0, 1))
    below, above = outputs.array[:, right - 1], outputs.array[:, right]
    return np.asarray(below * (1 - fraction) + above * fraction)


def has_median(outputs: BaseOutputs) -> bool:
    """Whether the point prediction is known: quantiles on one side of the median have none."""
    return not isinstance(outputs, Quantiles) or bool(
        outputs.levels[0] <= 0.5 <= outputs.levels[-1]
    )


def _require_regression(outputs: Any, caller: str, kinds: tuple[type, ...] = ()) -> Regression:
    """Return predictive distributions of the kinds that a metric supports, or raise."""
    allowed = kinds or (Normal, Samples, Quantiles)
    if not isinstance(outputs, allowed):
        names = ", ".join(kind.__name__ for kind in allowed)
        fix = getattr(outputs, "remedy", "") or "Wrap the predictions, e.g. Normal(mean, std)"
        rule, got = f"must be one of {names}", type(outputs).__name__
        raise BadTypeError("outputs", caller, rule, got, fix)
    return cast(Regression, outputs)


def target_batch(
    y_true: Any, outputs: Any, sample_weight: Any, caller: str, kinds: tuple[type, ...] = ()
) -> Batch:
    """Return a batch of predictive distributions with targets, and warn about missing targets."""
    require_order(y_true, outputs, caller)
    matched = outputs.normal if isinstance(outputs, RegressionMembers) else outputs
    wrapped = _require_regression(matched, caller, kinds)
    batch = make_batch(y_true, wrapped, sample_weight=sample_weight, caller=caller)
    require_targets(batch, caller)
    warn_of_missing(batch.n_missing, len(batch), caller, stacklevel=4)
    return batch


def require_targets(batch: Batch, caller: str, argument: str = "y_true") -> None:
    """Raise unless there are targets of the shape of the predictions."""
    if batch.labels is None:
        raise BadTypeError(argument, caller, "must be given", "None", "Pass one number per row")
    shape = point_of_rows(batch.outputs).shape
    if values_of(batch).shape != shape:
        got = f"shape {values_of(batch).shape}"
        rule = f"must have the shape {shape} of the predictions"
        raise BadValueError(argument, caller, rule, got, "Use .ravel() or .reshape(...)")


def values_of(batch: Batch) -> FloatArray:
    """Return the targets as float64, with 0 where they are missing (their weight is 0)."""
    assert isinstance(batch.labels, Targets)
    return np.nan_to_num(batch.labels.values.astype(np.float64))


def _weighted_mean(batch: Batch, values: FloatArray | BoolArray) -> float:
    """Return the weighted mean over rows of the mean over coordinates."""
    weight = batch.labeled_weight
    require_weight(weight.sum(), "A regression metric")
    rows = values if values.ndim == 1 else values.mean(axis=1)
    return float(np.average(rows, weights=weight))
