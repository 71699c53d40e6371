"""How sure is the measure itself? Bootstrap intervals, on row numbers and never on the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, final

import numpy as np

from dubito.arrays import FloatArray, as_shares, freeze
from dubito.data.batch import Batch
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import map_in_order
from dubito.kernels.resample import poisson_weights
from dubito.measure.catalog import CATALOG
from dubito.measure.labelled import labelled_batch

__all__ = ["Interval", "confidence_interval", "interval_of", "over_resamples", "paired_difference"]

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
    settings; any other function of (y_true, outputs, sample_weight=) works too, more slowly.
    Poisson bootstrap, percentiles; the same seed gives the same interval. The interval of a binned
    calibration error lies too high where the error is near 0: prefer the debiased one there.

    >>> from dubito.measure import accuracy
    >>> print(confidence_interval(accuracy, [0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8]] * 2))
    0.5000 (0.0000 to 1.0000)
    """
    caller = "confidence_interval"
    batch = labelled_batch(y_true, outputs, sample_weight, caller)
    value_of = batch_metric(metric, y_true, outputs, caller)
    values = resampled_values(batch, value_of, seed, as_n_resamples(n_resamples, caller))
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
    batches = [labelled_batch(y_true, o, sample_weight, caller) for o in (outputs_a, outputs_b)]
    if len(batches[0]) != len(batches[1]):
        rule, got = f"of the same rows as outputs_a ({len(batches[0])})", f"{len(batches[1])} rows"
        raise BadValueError("outputs_b", caller, rule, got, "both models' outputs of the same rows")
    n_resamples = as_n_resamples(n_resamples, caller)
    values, estimates = [], []
    for batch, outputs in zip(batches, (outputs_a, outputs_b), strict=True):
        value_of = batch_metric(metric, y_true, outputs, caller)
        estimates.append(value_of(batch))
        values.append(resampled_values(batch, value_of, seed, n_resamples))
    if not np.isfinite(estimates).all():
        got, fix = f"{estimates[0]} and {estimates[1]}", "brier_score, or outputs that are never 0"
        raise BadValueError("metric", caller, "finite for both", got, fix)
    return interval_of(estimates[0] - estimates[1], values[0] - values[1], level, caller)


def resampled_values(
    batch: Batch, value_of: Callable[[Batch], float], seed: int, n_resamples: int
) -> FloatArray:
    """Return a metric of each resample; one that draws no row at all has no value."""

    def value_if_any(resample: Batch) -> float | None:
        return value_of(resample) if resample.labelled_weight.any() else None

    values = over_resamples(batch, value_if_any, seed, n_resamples)
    return np.array([value for value in values if value is not None])


def over_resamples(
    batch: Batch, function: Callable[[Batch], Result], seed: int, n_resamples: int
) -> Iterable[Result]:
    """Yield a function of each Poisson bootstrap resample of a batch, over threads."""
    _ = batch.rows.ranks  # made once here, shared by all
    return map_in_order(lambda k: function(resampled(batch, seed, k)), range(n_resamples))


def resampled(batch: Batch, seed: int, resample: int) -> Batch:
    """Return the same rows, weighted by how often each is drawn.

    A row's draw depends on the seed and on its number in the whole, so that shards resample as one.
    """
    weight = np.empty(len(batch))
    key = np.random.SeedSequence([seed, resample]).generate_state(1, np.uint64)[0]
    poisson_weights(freeze(batch.weight), key, batch.first_row, weight)
    return batch.reweighted(weight)


def interval_of(
    value: float, values: Iterable[float] | FloatArray, level: float, caller: str
) -> Interval:
    """Return the percentile interval of resampled values around an estimate."""
    share = float(as_shares([level], "level", caller)[0])
    tail = (1 - share) / 2
    # The nearest value, as between infinite ones there is none.
    low, high = np.quantile(np.asarray(values), [tail, 1 - tail], method="nearest")
    return Interval(value, float(low), float(high))


def batch_metric(metric: Any, y_true: Any, outputs: Any, caller: str) -> Callable[[Batch], float]:
    """Return how to compute a metric of a batch: by its rows if we know it, else by calling it."""
    settings: dict[str, Any] = {}
    if isinstance(metric, partial):
        metric, settings = metric.func, metric.keywords
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
    known = CATALOG.get(name)
    if known is not None and (isinstance(metric, str) or metric is known.function):
        return partial(known.of_batch, **settings)
    if not callable(metric):
        fix = f"one of {', '.join(sorted(CATALOG))}"
        raise BadTypeError("metric", caller, "a metric or its name", repr(metric), fix)
    return lambda batch: float(metric(y_true, outputs, sample_weight=batch.weight, **settings))


def as_n_resamples(n_resamples: Any, caller: str) -> int:
    """Return a number of resamples that percentiles can be taken of."""
    if isinstance(n_resamples, bool) or not isinstance(n_resamples, int) or n_resamples < 40:
        rule = "a whole number from 40 up"
        raise BadValueError("n_resamples", caller, rule, repr(n_resamples), "n_resamples=1000")
    return n_resamples
