"""Coverage, width and interval score of forecasts over time, and of each series and horizon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf, isfinite, nan
from typing import Any, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.decide.value import MeanInterval
from dubito.measure import Interval
from dubito.measure.groups import clopper_pearson
from dubito.measure.regression import interval_scores
from dubito.serve.weighted_estimates import CALLER, LEVEL, N_RESAMPLES, Estimate

MIN_TIMES = 5  # of forecasts with an outcome, below which metrics have no interval
WINDOW_ROWS, MAX_WINDOWS = 50, 12


@final
@dataclass(frozen=True, slots=True)
class ForecastMetrics:
    """Coverage, width and interval score of the forecasts from one time to another.

    The width of a set is its number of classes. `raw_coverage` is that of the intervals as
    forecast; None, as the score, where there are none.
    """

    start: str
    end: str
    n_outcomes: int
    coverage: Estimate
    width: Estimate
    interval_score: Estimate | None
    raw_coverage: float | None


@final
@dataclass(frozen=True, slots=True)
class ForecastCell:
    """Metrics of the forecasts of a series at a horizon, and how wide they are now.

    `current_width` is that of the last forecast, `widening` what it is divided by the width as
    forecast; None where it is infinite or has no width.
    """

    series: str
    horizon: int
    n_forecasts: int
    metrics: ForecastMetrics
    current_width: float | None
    widening: float | None

    @property
    def coverage_or_inf(self) -> float:
        """The coverage, infinite where it is unknown."""
        found = self.metrics.coverage.interval
        return inf if found is None else found.value


@final
@dataclass(frozen=True, slots=True)
class ForecastReport:
    """Everything that is monitored of forecasts.

    Metrics leave out the outcomes of forecasts that were not corrected yet, `n_warm_up`.
    `method_weights` are those of the candidates of the online state.
    """

    kind: str
    level: float
    n_forecasts: int
    n_warm_up: int
    n_waiting: int
    n_dropped: int
    method_weights: dict[str, float]
    overall: ForecastMetrics
    windows: tuple[ForecastMetrics, ...]
    cells: tuple[ForecastCell, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class StoredForecasts:
    """Stored forecasts as columns in order of time, with what is known of their outcome."""

    series: IntArray
    horizon: IntArray
    names: list[str]
    times: Any
    width: FloatArray
    raw_width: FloatArray
    has_outcome: BoolArray
    is_judged: BoolArray
    inside: FloatArray
    raw_inside: FloatArray
    score: FloatArray

    @classmethod
    def of(cls, rows: Sequence[Any], level: float, n_classes: int) -> StoredForecasts:
        """Return rows of the table with their outcomes as columns; numbers have no classes."""
        rows = sorted(
            rows, key=lambda row: (-inf if row.moment is None else row.moment, row.created)
        )
        raw_low, raw_high, low, high = (
            np.array([nan if (x := getattr(row, name)) is None else x for row in rows], np.float64)
            for name in ("raw_low", "raw_high", "low", "high")
        )
        has_outcome = np.array([row.label is not None for row in rows], np.bool_)
        raw_inside = score = np.full(len(rows), nan)
        if n_classes:
            members = np.frombuffer(b"".join(row.members for row in rows), np.uint8)
            contains = members.reshape(len(rows), n_classes) > 0
            codes = np.array([row.label or 0 for row in rows], np.int64)
            width, raw_width = contains.sum(axis=1).astype(np.float64), raw_low
            inside, is_corrected = contains[np.arange(len(rows)), codes], np.isfinite(high)
        else:
            y = np.array([float(row.answers or nan) for row in rows], np.float64)
            width, raw_width = high - low, raw_high - raw_low
            inside = (low <= y) & (y <= high)
            raw_inside = ((raw_low <= y) & (y <= raw_high)).astype(np.float64)
            is_corrected = np.isfinite(width) & ((low != raw_low) | (high != raw_high))
            score = interval_scores(y, low, high, level)
        names, series = np.unique([row.series for row in rows], return_inverse=True)
        return cls(
            series=series,
            horizon=np.array([row.horizon for row in rows], np.int64),
            names=names.tolist(),
            times=np.array([row.time for row in rows], np.object_),
            width=width,
            raw_width=raw_width,
            has_outcome=has_outcome,
            is_judged=has_outcome & is_corrected,
            inside=inside.astype(np.float64),
            raw_inside=raw_inside,
            score=score,
        )

    def take(self, rows: IntArray) -> StoredForecasts:
        """Return some of the forecasts."""
        columns = {one.name: getattr(self, one.name) for one in fields(self)}
        return StoredForecasts(
            **{k: one if k == "names" else one[rows] for k, one in columns.items()}
        )

    def metrics(self) -> ForecastMetrics:
        """Return the metrics of these forecasts, all of which have an outcome and were corrected.

        Forecasts of one time are alike, so times are resampled; the interval of the coverage is no
        narrower than that of independent forecasts.
        """
        n_outcomes = len(self.inside)
        _, codes, counts = np.unique(self.times, return_inverse=True, return_counts=True)
        has_score, has_raw = not np.isnan(self.score).any(), not np.isnan(self.raw_inside).any()
        columns = [self.inside, self.width, *([self.score] if has_score else [])]
        found = [Estimate(None, f"Fewer than {MIN_TIMES} times of forecasts have an outcome.")] * 3
        if counts.size >= MIN_TIMES:
            means = [np.bincount(codes, column) / counts for column in columns]
            mean, importance = MeanInterval.of(LEVEL, 0, N_RESAMPLES, CALLER), counts.astype(float)
            drawn = mean.of_columns(means, np.ones(counts.size), importance)
            # Resamples of what was always covered are all alike: an exact interval is not.
            exact = clopper_pearson(float(self.inside.sum()), n_outcomes, LEVEL)
            ends = min(drawn[0].low, exact.low), max(drawn[0].high, exact.high)
            found = [Estimate(one) for one in (Interval(exact.value, *ends), *drawn[1:])]
        return ForecastMetrics(
            start=str(self.times[0]) if n_outcomes else "",
            end=str(self.times[-1]) if n_outcomes else "",
            n_outcomes=n_outcomes,
            coverage=found[0],
            width=found[1],
            interval_score=found[2] if has_score else None,
            raw_coverage=float(self.raw_inside.mean()) if has_raw and n_outcomes else None,
        )

    def windows(self) -> tuple[ForecastMetrics, ...]:
        """Return the metrics of consecutive times."""
        rows = np.arange(len(self.times))
        is_first = np.append([True], self.times[1:] != self.times[:-1])[: rows.size]
        times = np.split(rows, np.flatnonzero(is_first)[1:])
        n_windows = min(rows.size // WINDOW_ROWS, len(times) // MIN_TIMES, MAX_WINDOWS)
        parts = np.array_split(np.arange(len(times)), max(n_windows, 1))
        return tuple(
            self.take(np.concatenate([times[k] for k in part])).metrics() for part in parts
        )

    def cells(self) -> tuple[ForecastCell, ...]:
        """Return the metrics of each series and horizon, those of the lowest coverage first."""
        result = []
        order = np.lexsort((self.horizon, self.series))  # stable: the last one is the latest
        is_next = (np.diff(self.horizon[order]) != 0) | (np.diff(self.series[order]) != 0)
        for rows in np.split(order, np.flatnonzero(is_next) + 1) if order.size else ():
            last = rows[-1]
            width, raw = float(self.width[last]), float(self.raw_width[last])
            cell = ForecastCell(
                series=self.names[self.series[last]],
                horizon=int(self.horizon[last]),
                n_forecasts=rows.size,
                metrics=self.take(rows[self.is_judged[rows]]).metrics(),
                current_width=width if isfinite(width) else None,
                widening=width / raw if isfinite(width) and raw > 0 else None,
            )
            result.append(cell)
        return tuple(sorted(result, key=lambda one: (one.coverage_or_inf, one.series, one.horizon)))
