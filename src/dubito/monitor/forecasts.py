"""Coverage of the intervals of forecasts over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.formatting import percent
from dubito.measure.regression import pit_of_rows
from dubito.outputs import BaseOutputs, Quantiles

N_WORST = 5
WINDOW = 100  # truths of the rolling coverage
N_WINDOWS = 120  # at most, that are kept
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)  # of distributions that are no quantiles


@final
@dataclass(frozen=True, slots=True)
class CoverageRow:
    """Coverage of some forecasts: as forecast (None without intervals) and corrected."""

    name: str
    n_rows: int
    raw: float | None
    corrected: float
    width: float
    score_ratio: float | None


@final
@dataclass(frozen=True, slots=True)
class QuantileRow:
    """The fraction of truths at or below a quantile, as forecast and corrected (None without)."""

    level: float
    raw: float | None
    corrected: float | None


@final
@dataclass(frozen=True, slots=True)
class ForecastCoverage:
    """What intervals of forecasts covered, in all and by horizon, month and series.

    Attributes
    ----------
    level : float
        The nominal coverage.
    total : CoverageRow
        All forecasts whose truth is known, after the warm-up.
    by_horizon, by_month, worst_series : tuple of CoverageRow
        Parts of them; the series with the lowest coverage.
    rolling : tuple of CoverageRow
        Windows of 100 truths in order of time, evenly spaced and at most 120, named by the month in
        which they end; none if there are fewer truths.
    lowest_rolling : float or None
        The lowest coverage of all windows, also of those between.
    reliability : tuple of QuantileRow
        By level: the quantiles as forecast, and both ends of the corrected intervals.
    n_future, n_warm_up : int
        Forecasts without a truth, and those of the warm-up, before the first correction.
    """

    level: float
    total: CoverageRow
    by_horizon: tuple[CoverageRow, ...]
    by_month: tuple[CoverageRow, ...]
    worst_series: tuple[CoverageRow, ...]
    rolling: tuple[CoverageRow, ...]
    lowest_rolling: float | None
    reliability: tuple[QuantileRow, ...]
    n_future: int
    n_warm_up: int

    @property
    def verdict(self) -> str:
        """The coverage before and after correction, in a sentence or two."""
        one, level = self.total, percent(self.level)
        if not one.n_rows:
            return f"No truths of intervals at {level} yet."
        if one.raw is None:
            return (
                f"Intervals at {level} covered {percent(one.corrected)} of {one.n_rows:,} truths."
            )
        ratio = (
            "" if one.score_ratio is None else f", with {one.score_ratio:.3f} of the interval score"
        )
        return (
            f"Intervals at {level} covered {percent(one.raw)} of {one.n_rows:,} truths as "
            f"forecast, and {percent(one.corrected)} after correction{ratio}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"verdict": self.verdict, **asdict(self)}


def forecast_coverage(
    y: FloatArray,
    raw: tuple[FloatArray, FloatArray] | None,
    corrected: tuple[FloatArray, FloatArray],
    *,
    level: float,
    series: Sequence[str],
    horizon: Sequence[int],
    month: Sequence[str],
    time: FloatArray | None = None,
    outputs: BaseOutputs | None = None,
) -> ForecastCoverage:
    """Return what intervals covered; the score is that of Winkler, a geometric mean over series.

    Parameters
    ----------
    y : ndarray of shape (n_rows,)
        The truths, NaN where unknown.
    raw : pair of ndarray, or None
        Bounds of the intervals as forecast.
    corrected : pair of ndarray
        Bounds as they were issued; infinite or as forecast during the warm-up, which is left out.
    level : float
        The nominal coverage.
    series, horizon, month : sequences
        What each row belongs to.
    time : ndarray of shape (n_rows,), optional
        When each forecast was made. Default: rows are in order of time.
    outputs : Normal, Quantiles or Samples, optional
        The distributions as forecast, for their reliability.

    Returns
    -------
    ForecastCoverage

    Examples
    --------
    >>> bounds = np.zeros(4), np.full(4, 2.0)
    >>> names = ["a"] * 4
    >>> found = forecast_coverage(np.array([1.0, 1, 3, np.nan]), None, bounds, level=0.9,
    ...     series=names, horizon=[0] * 4, month=names)
    >>> found.verdict, found.n_future
    ('Intervals at 90.0 % covered 66.7 % of 3 truths.', 1)
    """
    is_known = ~np.isnan(y)
    is_corrected = np.isfinite(corrected[1]) & np.isfinite(corrected[0])
    if raw is not None:
        is_corrected &= (corrected[0] != raw[0]) | (corrected[1] != raw[1])
    is_judged = is_known & is_corrected
    names, months, steps = (np.array([str(one) for one in c]) for c in (series, month, horizon))
    alpha = 1 - level

    def scores(bounds: tuple[FloatArray, FloatArray]) -> FloatArray:
        misses = np.maximum(bounds[0] - y, 0) + np.maximum(y - bounds[1], 0)
        return np.asarray(bounds[1] - bounds[0] + 2 / alpha * misses)

    def row(name: str, rows: BoolArray) -> CoverageRow:
        inside = _covers(corrected, y)
        width = float((corrected[1] - corrected[0])[rows].mean()) if rows.any() else 0.0
        before = ratio = None
        if raw is not None and rows.any():
            before = float(_covers(raw, y)[rows].mean())
            logs = []
            ours, theirs = scores(corrected), scores(raw)
            for one in np.unique(names[rows]):
                some = rows & (names == one)
                if ours[some].mean() > 0 and theirs[some].mean() > 0:
                    logs.append(np.log(ours[some].mean() / theirs[some].mean()))
            ratio = float(np.exp(np.mean(logs))) if logs else None
        coverage = float(inside[rows].mean()) if rows.any() else 0.0
        return CoverageRow(name, int(rows.sum()), before, coverage, width, ratio)

    def parts(of: Any) -> list[CoverageRow]:
        found = np.unique(of[is_judged])
        return [row(str(one), is_judged & (of == one)) for one in found]

    order = np.argsort(np.arange(len(y)) if time is None else time, kind="stable")
    order = order[is_judged[order]]
    rolling, lowest = _rolling(order, y, raw, corrected, months)
    worst = sorted(parts(names), key=lambda one: (one.corrected, one.name))[:N_WORST]
    return ForecastCoverage(
        level,
        row("all", is_judged),
        tuple(sorted(parts(steps), key=lambda one: int(one.name))),
        tuple(parts(months)),
        tuple(worst),
        rolling,
        lowest,
        _reliability(
            y[order], outputs and outputs.take(order), [b[order] for b in corrected], alpha
        ),
        int((~is_known).sum()),
        int((is_known & ~is_corrected).sum()),
    )


def _rolling(
    order: IntArray,
    y: FloatArray,
    raw: tuple[FloatArray, FloatArray] | None,
    corrected: tuple[FloatArray, FloatArray],
    months: NDArray[Any],
) -> tuple[tuple[CoverageRow, ...], float | None]:
    """Return coverage and width of windows of rows in order of time, and the lowest coverage."""
    if order.size < WINDOW:
        return (), None

    def means(values: NDArray[Any]) -> FloatArray:
        return np.convolve(values[order], np.ones(WINDOW), "valid") / WINDOW

    inside, width = means(_covers(corrected, y)), means(corrected[1] - corrected[0])
    before = None if raw is None else means(_covers(raw, y))
    windows = np.linspace(0, inside.size - 1, min(inside.size, N_WINDOWS)).astype(int)
    rows = (
        CoverageRow(
            str(months[order[k + WINDOW - 1]]),
            WINDOW,
            None if before is None else float(before[k]),
            float(inside[k]),
            float(width[k]),
            None,
        )
        for k in windows
    )
    return tuple(rows), float(inside.min())


def _covers(bounds: tuple[FloatArray, FloatArray], y: FloatArray) -> BoolArray:
    """Return whether each interval contains its truth."""
    return np.asarray((bounds[0] <= y) & (y <= bounds[1]))


def _reliability(
    y: FloatArray, outputs: BaseOutputs | None, bounds: Sequence[FloatArray], alpha: float
) -> tuple[QuantileRow, ...]:
    """Return how often truths were at or below quantiles and bounds."""
    if not y.size:
        return ()
    raw: dict[float, float] = {}
    if isinstance(outputs, Quantiles):
        held = (y[:, np.newaxis] <= outputs.array).mean(axis=0)
        raw = {round(float(q), 9): float(one) for q, one in zip(outputs.levels, held, strict=True)}
    elif outputs is not None:
        pit = pit_of_rows(outputs, y)
        raw = {level: float((pit <= level).mean()) for level in LEVELS}
    ends = (round(alpha / 2, 9), round(1 - alpha / 2, 9))
    ours = {q: float((y <= bound).mean()) for q, bound in zip(ends, bounds, strict=True)}
    return tuple(QuantileRow(q, raw.get(q), ours.get(q)) for q in sorted(raw.keys() | ours.keys()))
