"""Forecasts of several series as columns: their kind, bounds, series, horizons, times and steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray, IntArray, as_numbers
from dubito.data.batch import as_column
from dubito.data.times import MONTH
from dubito.doubt.conformal.predictor import class_probabilities
from dubito.errors import BadTypeError, BadValueError
from dubito.measure.regression import central_interval
from dubito.outputs import BaseOutputs, Normal, Quantiles, Samples
from dubito.outputs.classification import as_class_matrix
from dubito.outputs.regression import require_one_target

NOUNS = {
    "points": "point forecasts",
    "spread": "forecasts with a spread",
    "classes": "class probabilities",
}

MAX_SPAN = 1_000_000  # of integers that are counted rather than sorted
MIN_PROBABILITY = 1e-12
ALL = "all"  # the name of the only series where rows have none
DAY = np.timedelta64(1, "D")
MIN_GAPS = 5  # of a series, below which its step is no shorter than that of the others
LONG_GAP = 1.2  # steps; from here on the truth of several steps ahead may be unknown


def read_forecasts(
    outputs: Any, level: float, caller: str
) -> tuple[str, FloatArray, FloatArray, FloatArray, Any]:
    """Return the kind of forecasts, their bounds, the scores of classes and their names."""
    if isinstance(outputs, Normal | Samples | Quantiles):
        require_one_target(outputs, caller, "Use one OnlineConformal per target")
        ends = central_interval(outputs, level, caller)
        low, high = (np.array(end, dtype=np.float64) for end in ends)
        return "spread", low, high, np.zeros((len(low), 0)), None
    if isinstance(outputs, BaseOutputs):
        wrapped = as_class_matrix(outputs, "outputs", caller)
        zeros = np.zeros(wrapped.n_rows)
        p = np.maximum(class_probabilities(wrapped), MIN_PROBABILITY)
        return "classes", zeros, zeros, np.maximum(-np.log(p), 0.0), wrapped.classes
    fix = "Use Probabilities(array) for classes, Quantiles(array, levels) for quantiles"
    points = as_numbers(outputs, "outputs", caller, fix=fix).astype(np.float64)
    return "points", points, points, np.zeros((len(points), 0)), None


def read_horizons(horizon: Any, n: int, caller: str) -> tuple[list[int], IntArray]:
    """Return the distinct horizons, and the index of each row's."""
    steps = np.asarray(horizon)
    if steps.dtype.kind not in "iu" or steps.ndim > 1 or (steps < 0).any():
        rule, fix = "must be 0 or a larger integer", "Count steps ahead from 0"
        got = repr(horizon) if steps.ndim == 0 else f"an array of {steps.dtype}"
        raise BadValueError("horizon", caller, rule, got, fix)
    if steps.ndim == 0:
        return [int(steps)], np.broadcast_to(np.int64(0), n)
    distinct, codes = distinct_keys(np.asarray(as_column(steps, n, "horizon", caller)))
    return [int(one) for one in distinct], codes


def read_series(series: NDArray[Any] | None, n: int) -> tuple[list[str], IntArray]:
    """Return the names of the series in the rows, and the index of each row's."""
    if series is None:
        return [ALL], np.zeros(n, dtype=np.int64)
    keys = series if series.dtype.kind in "iuU" else np.array([str(one) for one in series.tolist()])
    distinct, codes = distinct_keys(keys)
    return [str(one) for one in distinct.tolist()], codes


def distinct_keys(keys: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Return the distinct keys in order, and the index of each; integers need no sorting."""
    if keys.dtype.kind in "iu" and keys.size:
        low, high = int(keys.min()), int(keys.max())
        if high - low < MAX_SPAN:
            places = keys.astype(np.int64) if low == 0 else keys - low
            is_there = np.zeros(high - low + 1, dtype=bool)
            is_there[places] = True
            distinct = np.flatnonzero(is_there) + low
            return distinct, places if is_there.all() else (np.cumsum(is_there) - 1)[places]
    return np.unique(keys, return_inverse=True)


def read_times(value: Any, n: int, argument: str, caller: str) -> FloatArray:
    """Return times as numbers; dates as days."""
    found = np.asarray(value)
    if found.dtype.kind == "M":
        found = (found - np.datetime64(0, "D")) / DAY
    elif found.dtype.kind in "OSU":
        rule, fix = "must be numbers or datetime64", "Convert dates to datetime64, in UTC"
        raise BadTypeError(argument, caller, rule, f"an array of {found.dtype}", fix)
    shape = "one value per row"
    return as_numbers(found, argument, caller, n, shape=shape).astype(np.float64, copy=False)


def time_kind(value: Any) -> str:
    """Return the kind of times, dates or numbers."""
    return "dates" if np.asarray(value).dtype.kind == "M" else "numbers"


def _usual_gap(starts: FloatArray, ends: FloatArray, is_dates: bool) -> float:
    """Return the 80 % quantile of gaps, without the long ones; `MONTH` if all are months."""
    gaps = ends - starts
    median = np.partition(gaps, gaps.size // 2)[gaps.size // 2]
    is_usual = gaps <= LONG_GAP * median
    usual = gaps[is_usual]
    is_like_month = is_dates and usual.min() > 27.5 and 28.5 < usual.max() < 31.5
    if is_like_month and (_months_later(starts, np.ones(gaps.size)) == ends)[is_usual].all():
        return MONTH
    place = usual.size * 4 // 5
    return float(np.partition(usual, place)[place])


def _months_later(days: FloatArray, n_months: FloatArray) -> FloatArray:
    """Return dates on the same day of a later month; its last day stays the last."""
    whole = np.floor(days)
    months = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)

    def first_day(month: IntArray) -> FloatArray:
        found = month.astype("datetime64[M]").astype("datetime64[D]")
        return np.asarray(found.astype(np.int64), dtype=np.float64)

    later = months + n_months.astype(np.int64)
    n_days = first_day(later + 1) - first_day(later)
    day = whole - first_day(months)
    is_last = whole + 1 == first_day(months + 1)
    day = np.where(is_last, n_days - 1, np.minimum(day, n_days - 1))
    return first_day(later) + day + (days - whole)


def times_after(times: FloatArray, n_steps: FloatArray, steps: FloatArray) -> FloatArray:
    """Return the times some steps later; steps of `MONTH` are calendar months."""
    found = times + n_steps * steps
    is_month = steps == MONTH
    if is_month.any():
        found[is_month] = _months_later(times[is_month], n_steps[is_month])
    return found


def is_sorted(values: NDArray[Any]) -> bool:
    """Return whether no value is below the one before it."""
    return bool((values[1:] >= values[:-1]).all())


def _stable_order(codes: IntArray) -> IntArray:
    """Return the order of codes; few of them take linear time."""
    dtype = np.min_scalar_type(int(codes.max())) if codes.size else codes.dtype
    return np.argsort(codes.astype(dtype), kind="stable")


def find_gaps(times: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the ends of all times between two forecasts of a cell, and the cell of each."""
    n_cells = _cells_per_time(times, cells)
    if n_cells:
        moments, distinct = times[::n_cells], np.sort(cells[:n_cells])
        n_gaps = moments.size - 1
        starts, ends = np.tile(moments[:-1], n_cells), np.tile(moments[1:], n_cells)
        return starts, ends, np.repeat(distinct, n_gaps)
    order = _stable_order(cells) if is_sorted(times) else np.lexsort((times, cells))
    times, cells = times[order], cells[order]
    is_gap = (cells[1:] == cells[:-1]) & (times[1:] > times[:-1])
    return times[:-1][is_gap], times[1:][is_gap], cells[1:][is_gap]


def _cells_per_time(times: FloatArray, cells: IntArray) -> int:
    """Return how many cells there are if all have a row at each time, in one order, else 0."""
    n = int(np.argmax(times > times[0])) if times.size else 0
    if not n or times.size % n or np.unique(cells[:n]).size < n:
        return 0
    by_time, by_cell = times.reshape(-1, n), cells.reshape(-1, n)
    moments = by_time[:, 0]
    is_even = (moments[1:] > moments[:-1]).all() and (by_time == by_time[:, :1]).all()
    return n if is_even and (by_cell == by_cell[0]).all() else 0


def find_steps(
    steps: FloatArray, starts: FloatArray, ends: FloatArray, series: IntArray, is_dates: bool
) -> FloatArray:
    """Return the usual gap of each series whose step is not known (NaN) yet."""
    found = steps.copy()
    if not is_sorted(series):
        order = _stable_order(series)
        starts, ends = starts[order], ends[order]
    until = 0
    for one, size in enumerate(np.bincount(series).tolist()):
        part = slice(until, until + size)
        until += size
        if size and np.isnan(found[one]):
            found[one] = _usual_gap(starts[part], ends[part], is_dates)
            if size < MIN_GAPS:
                found[one] = max(found[one], _usual_gap(starts, ends, is_dates))
    return found
