"""How sure is the measure itself? Bootstrap intervals, on row numbers and never on the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, final

import numpy as np

from dubito.arrays import FloatArray, as_share, freeze
from dubito.data.batch import Batch, as_weights
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.blocks import map_in_order
from dubito.kernels.sums import poisson_weights
from dubito.measure.scorers import CATALOG, Metric
from dubito.measure.state import labeled_batch

Result = TypeVar("Result")


@final
@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate, and the range that holds the truth as often as was asked for."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


def confidence_interval(
    metric: Callable[..., float] | str,
    y_true: Any,
    outputs: Any,
    *,
    level: float = 0.95,
    seed: int = 0,
    n_resamples: int = 1000,
    sample_weight: Any = None,
) -> Interval:
    """Return a metric with the interval that holds its true value in `level` of all cases.

    `metric` is a function of `dubito.measure`, its name, or a `functools.partial` of one with its
    settings; any other function of (y_true, outputs, sample_weight=), such as `auroc` or a metric
    of your own, works too, more slowly. The class-wise error is resampled bin by bin.
    Poisson bootstrap, percentiles; the same seed gives the same interval. The interval of a binned
    calibration error lies too high where the error is near 0: prefer the debiased one there.

    >>> from dubito.measure import accuracy
    >>> print(confidence_interval(accuracy, [0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8]] * 2))
    0.5000 (0.0000 to 1.0000)
    """
    caller = "confidence_interval"
    n_resamples = as_n_resamples(n_resamples, caller)
    known, settings = _in_catalog(metric, caller)
    if known is None:
        of_weight, weight = _plain_metric(metric, y_true, outputs, sample_weight, settings, caller)
        values = _over_weights(of_weight, weight, seed, n_resamples)
        return interval_of(of_weight(weight), values, level, caller)
    batch = labeled_batch(y_true, outputs, sample_weight, caller)
    value_of = partial(known.of_batch, **settings)
    if known.resampled is not None:  # from sums that are smaller than the rows
        values = known.resampled(batch, seed, n_resamples, **settings)
    else:
        values = _resampled_values(batch, value_of, seed, n_resamples)
    return interval_of(value_of(batch), values, level, caller)


def paired_difference(
    metric: Callable[..., float] | str,
    y_true: Any,
    outputs_a: Any,
    outputs_b: Any,
    *,
    level: float = 0.95,
    seed: int = 0,
    n_resamples: int = 1000,
    sample_weight: Any = None,
) -> Interval:
    """Return the metric of A less that of B on the same rows, with its interval.

    Both see the same resamples, so that what the rows share cancels: far narrower than two
    intervals.

    >>> a, b = [[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.4, 0.6]]
    >>> paired_difference("log_loss", [0, 1], a, b).value < 0
    True
    """
    caller = "paired_difference"
    n_resamples = as_n_resamples(n_resamples, caller)
    known, settings = _in_catalog(metric, caller)
    values, estimates = [], []
    for outputs in (outputs_a, outputs_b):
        if known is None:
            of_weight, weight = _plain_metric(
                metric, y_true, outputs, sample_weight, settings, caller
            )
            estimates.append(of_weight(weight))
            values.append(_over_weights(of_weight, weight, seed, n_resamples))
        else:
            batch = labeled_batch(y_true, outputs, sample_weight, caller)
            value_of = partial(known.of_batch, **settings)
            estimates.append(value_of(batch))
            values.append(_resampled_values(batch, value_of, seed, n_resamples))
    if values[0].shape != values[1].shape:
        rule, fix = "of the same rows as outputs_a", "both models' outputs of the same rows"
        raise BadValueError("outputs_b", caller, rule, "other rows", fix)
    if not np.isfinite(estimates).all():
        got, fix = f"{estimates[0]} and {estimates[1]}", "brier_score, or outputs that are never 0"
        raise BadValueError("metric", caller, "finite for both", got, fix)
    return interval_of(estimates[0] - estimates[1], values[0] - values[1], level, caller)


def _resampled_values(
    batch: Batch, value_of: Callable[[Batch], float], seed: int, n_resamples: int
) -> FloatArray:
    """Return a metric of each resample; one that draws no row at all has no value."""

    def value_if_any(resample: Batch) -> float | None:
        return value_of(resample) if resample.labeled_weight.any() else None

    values = over_resamples(batch, value_if_any, seed, n_resamples)
    return np.array([value for value in values if value is not None])


def over_resamples(
    batch: Batch, function: Callable[[Batch], Result], seed: int, n_resamples: int
) -> Iterable[Result]:
    """Yield a function of each Poisson bootstrap resample of a batch, over threads."""
    _ = batch.rows.ranks  # made once here, shared by all
    return map_in_order(lambda k: function(_resampled(batch, seed, k)), range(n_resamples))


def _resampled(batch: Batch, seed: int, resample: int) -> Batch:
    """Return the same rows, weighted by how often each is drawn.

    A row's draw depends on the seed and on its number in the whole, so that shards resample as one.
    """
    return batch.reweighted(_redrawn(batch.weight, seed, resample, batch.first_row))


def _redrawn(weight: FloatArray, seed: int, resample: int, first_row: int = 0) -> FloatArray:
    """Return weights times how often each row is drawn in a resample."""
    drawn = np.empty(weight.size)
    key = np.random.SeedSequence([_as_seed(seed), resample]).generate_state(1, np.uint64)[0]
    poisson_weights(freeze(weight), key, first_row, drawn)
    return drawn


def _over_weights(
    of_weight: Callable[[FloatArray], float], weight: FloatArray, seed: int, n_resamples: int
) -> FloatArray:
    """Return a metric of each resample that has a value: one without outliers has no AUROC."""

    def value_if_any(resample: int) -> float:
        try:
            return of_weight(_redrawn(weight, seed, resample))
        except (EmptyStateError, BadValueError):
            return np.nan

    values = np.array(list(map_in_order(value_if_any, range(n_resamples))))
    return np.asarray(values[~np.isnan(values)])


def interval_of(
    value: float, values: Iterable[float] | FloatArray, level: float, caller: str
) -> Interval:
    """Return the percentile interval of resampled values around an estimate."""
    tail = (1 - as_share(level, "level", caller, is_open=True)) / 2
    # The nearest value, as between infinite ones there is none.
    low, high = np.quantile(np.asarray(values), [tail, 1 - tail], method="nearest")
    return Interval(value, float(low), float(high))


def _in_catalog(metric: Any, caller: str) -> tuple[Metric | None, dict[str, Any]]:
    """Return the metric as we know it, or None for any other function, and its settings."""
    settings: dict[str, Any] = {}
    if isinstance(metric, partial):
        metric, settings = metric.func, metric.keywords
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
    known = CATALOG.get(name)
    if known is not None and (isinstance(metric, str) or metric is known.function):
        known.require_settings(settings, caller)
        return known, settings
    if not callable(metric):
        fix = f"one of {', '.join(sorted(CATALOG))}"
        raise BadTypeError("metric", caller, "a metric or its name", repr(metric), fix)
    return None, settings


def _plain_metric(
    metric: Any,
    y_true: Any,
    outputs: Any,
    sample_weight: Any,
    settings: dict[str, Any],
    caller: str,
) -> tuple[Callable[[FloatArray], float], FloatArray]:
    """Return any function of (y_true, outputs, sample_weight=) as one of weights alone."""
    function = metric.func if isinstance(metric, partial) else metric
    n_rows = len(outputs if y_true is None else y_true)
    weight = as_weights(sample_weight, n_rows, caller)

    def of_weight(weight: FloatArray) -> float:
        return float(function(y_true, outputs, sample_weight=weight, **settings))

    return of_weight, weight


def as_n_resamples(n_resamples: Any, caller: str) -> int:
    """Return a number of resamples that percentiles can be taken of."""
    if not _is_whole(n_resamples) or n_resamples < 40:
        rule = "a whole number from 40 up"
        raise BadValueError("n_resamples", caller, rule, repr(n_resamples), "n_resamples=1000")
    return int(n_resamples)


def _as_seed(seed: Any) -> int:
    """Return a seed that is a whole number from 0 up."""
    if not _is_whole(seed) or seed < 0:
        rule = "a whole number from 0 up"
        raise BadValueError("seed", "a bootstrap", rule, repr(seed), "seed=0")
    return int(seed)


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
