"""Coverage of the intervals, or sets of classes, of forecasts over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax, stdtrit

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.doubt.conformal.classifier import PredictionSets
from dubito.formatting import HTMLTable, html_view, level_percent, percent
from dubito.measure.regression import interval_scores, pit_of_rows
from dubito.outputs import BaseOutputs, Logits, Probabilities, Quantiles

N_WORST = 5
WINDOW = 100  # outcomes of the rolling coverage
N_WINDOWS = 120  # at most, that are kept
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)  # of distributions that are no quantiles
MIN_DATES = 20  # from which on their dependence is estimated
CONFIDENCE = 0.95  # of the intervals around coverages

Bounds = tuple[FloatArray, FloatArray]


@final
@dataclass(frozen=True, slots=True)
class CoverageRow:
    """Coverage of some forecasts: uncorrected (None without intervals) and corrected.

    `interval` is the 95 % confidence interval of the corrected coverage. Widths are mean widths of
    intervals, or mean sizes of sets.
    """

    name: str
    n_rows: int
    raw: float | None
    corrected: float
    interval: tuple[float, float]
    width: float
    raw_width: float | None
    score_ratio: float | None


@final
@dataclass(frozen=True, slots=True)
class QuantileRow:
    """The fraction of outcomes at or below a quantile, uncorrected and corrected (None without)."""

    level: float
    raw: float | None
    corrected: float | None


@final
@dataclass(frozen=True, slots=True)
class ForecastCoverage:
    """What intervals or sets of forecasts covered, in all and by horizon, month and series.

    Attributes
    ----------
    kind : {"intervals", "sets"}
        What was issued.
    level : float
        The nominal coverage.
    total : CoverageRow
        All forecasts whose outcome is known, after the warm-up.
    by_horizon, by_month, worst_series : tuple of CoverageRow
        Parts of them; the series with the lowest coverage.
    rolling : tuple of CoverageRow
        Windows of 100 outcomes in order of time, evenly spaced and at most 120, named by the month
        in which they end; none if there are fewer outcomes.
    lowest_rolling : float or None
        The lowest coverage of all windows, also of those between.
    reliability : tuple of QuantileRow
        By level: the uncorrected quantiles, and both ends of the corrected intervals. None of sets.
    n_future, n_warm_up : int
        Forecasts without an outcome, and those of the warm-up, before the first correction.
    n_series : int
        Series with an outcome after the warm-up.
    """

    kind: str
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
    n_series: int

    @property
    def verdict(self) -> str:
        """The coverage before and after correction, in a sentence or two."""
        one, nouns = self.total, f"{self.kind.capitalize()} at {percent(self.level)}"
        if not one.n_rows:
            return f"No outcome to evaluate {level_percent(self.level)} {self.kind} on yet."
        ours = f"{percent(one.corrected)} ({in_percent(one.interval)})"
        if one.raw is None:
            return f"{nouns} covered {ours} of {one.n_rows:,} outcomes."
        cost = ""
        if self.kind == "sets" and one.raw_width is not None:
            cost = f", with {one.width:.3g} classes on average instead of {one.raw_width:.3g}"
        elif one.score_ratio is not None:
            change = "lower" if one.score_ratio < 1 else "higher"
            cost = f". The interval score is {percent(abs(1 - one.score_ratio))} {change}"
        return (
            f"{nouns} covered {percent(one.raw)} of {one.n_rows:,} outcomes before correction, and "
            f"{ours} after correction{cost}."
        )

    def _repr_html_(self) -> str:
        heads = ("", "outcomes", "uncorrected", "corrected", "95 % interval")
        tables = [
            HTMLTable(heads, [
                (one.name, f"{one.n_rows:,}", percent(one.raw), percent(one.corrected),
                 in_percent(one.interval))
                for one in rows
            ], title)
            for title, rows in (
                ("", (self.total,)), ("By horizon", self.by_horizon), ("By month", self.by_month),
                ("The series with the lowest coverage", self.worst_series),
            )
            if rows and self.total.n_rows
        ]  # fmt: skip
        return html_view(self.verdict, *tables)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values.

        Returns
        -------
        dict
            All fields by name, and the verdict.
        """
        return {"verdict": self.verdict, **asdict(self)}


def in_percent(interval: tuple[float, float]) -> str:
    """Return an interval of fractions in percent.

    >>> in_percent((0.871, 0.92))
    '87.1 to 92.0 %'
    """
    return f"{100 * interval[0]:.1f} to {percent(interval[1])}"


def forecast_coverage(
    y: FloatArray,
    raw: Bounds | None,
    corrected: Bounds | PredictionSets,
    *,
    level: float,
    series: Sequence[str],
    horizon: Sequence[int],
    month: Sequence[str],
    time: FloatArray | None = None,
    outputs: BaseOutputs | None = None,
) -> ForecastCoverage:
    """Return what intervals, or sets of classes, covered.

    The score is that of Winkler, a geometric mean over series.

    Hits of one date and of following dates are alike. Confidence intervals of coverages are
    therefore Wilson's for the number of independent outcomes that vary as much, with the quantiles
    of Student's t: by the long-run variance of the sums by date (the equal-weighted cosine
    estimator), for less than half of the dates by the variance of all windows of as many,
    and never by less than that of independent outcomes. With fewer than 20 dates in all, the
    outcomes of one date count as one.

    Parameters
    ----------
    y : ndarray of shape (n_rows,)
        The outcomes, or the columns of the true classes; NaN where unknown.
    raw : pair of ndarray, or None
        Bounds of the uncorrected intervals.
    corrected : pair of ndarray, or PredictionSets
        Bounds or sets as they were issued; infinite, with infinite thresholds, or uncorrected
        during the warm-up, which is left out.
    level : float
        The nominal coverage.
    series, horizon, month : sequences
        What each row belongs to.
    time : ndarray of shape (n_rows,), optional
        When each forecast was made. Default: rows are in order of time.
    outputs : Normal, Quantiles, Samples, Probabilities or Logits, optional
        The uncorrected distributions, for their reliability. For classes, the uncorrected sets are
        the most probable classes that add up to the level.

    Returns
    -------
    ForecastCoverage

    References
    ----------
    Lazarus, Lewis, Stock and Watson, "HAR inference: recommendations for practice", 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.monitor import forecast_coverage
    >>> bounds = np.zeros(4), np.full(4, 2.0)
    >>> names = ["a"] * 4
    >>> found = forecast_coverage(np.array([1.0, 1, 3, np.nan]), None, bounds, level=0.9,
    ...     series=names, horizon=[0] * 4, month=names)
    >>> found.verdict, found.n_future
    ('Intervals at 90.0 % covered 66.7 % (20.8 to 93.9 %) of 3 outcomes.', 1)
    """
    is_set = isinstance(corrected, PredictionSets)
    is_known, before = ~np.isnan(y), None
    if isinstance(corrected, PredictionSets):
        limits = corrected.thresholds
        is_corrected = np.ones(len(y), bool) if limits is None else np.isfinite(limits)
        after = _judge_sets(corrected.contains, y)
        if isinstance(outputs, Logits | Probabilities):
            before = _judge_sets(_likely_sets(outputs, level), y)
    else:
        is_corrected = np.isfinite(corrected[1]) & np.isfinite(corrected[0])
        after = _judge(corrected, y, level)
        if raw is not None:
            is_corrected &= (corrected[0] != raw[0]) | (corrected[1] != raw[1])
            before = _judge(raw, y, level)
    names, months, steps = (np.array([str(one) for one in c]) for c in (series, month, horizon))
    times = np.arange(len(y), dtype=np.float64) if time is None else time
    judged = _JudgedRows(after, before, is_known & is_corrected, times, names)
    order = judged.order
    by_series = sorted(judged.parts(names), key=lambda one: (one.corrected, one.name))
    reliability: tuple[QuantileRow, ...] = ()
    if not isinstance(corrected, PredictionSets):
        taken = outputs and outputs.take(order)
        reliability = _reliability(y[order], taken, [b[order] for b in corrected], 1 - level)
    return ForecastCoverage(
        "sets" if is_set else "intervals",
        level,
        judged.row("all", judged.is_judged),
        tuple(sorted(judged.parts(steps), key=lambda one: int(one.name))),
        tuple(judged.parts(months)),
        tuple(by_series[:N_WORST]),
        tuple(judged.windows(months)),
        judged.lowest_rolling,
        reliability,
        int((~is_known).sum()),
        int((is_known & ~is_corrected).sum()),
        len(by_series),
    )


class _Judgment(NamedTuple):
    """Whether forecasts contain the outcome, their width and their score."""

    inside: BoolArray
    width: FloatArray
    score: FloatArray


@final
@dataclass(frozen=True, eq=False)
class _JudgedRows:
    """Forecasts with an outcome, and a correction: what they cover in parts and windows."""

    after: _Judgment
    before: _Judgment | None
    is_judged: BoolArray
    times: FloatArray
    names: NDArray[Any]  # of the series

    @cached_property
    def order(self) -> IntArray:
        """The judged rows in order of time."""
        order = np.argsort(self.times, kind="stable")
        return order[self.is_judged[order]]

    def row(self, name: str, rows: Any) -> CoverageRow:
        """Return the figures of some forecasts."""
        if not self.order.size:
            return CoverageRow(name, 0, None, 0.0, (0.0, 1.0), 0.0, None, None)
        inside, width, score = (one[rows] for one in self.after)
        own = _Hits(inside, self.times[rows])
        ratio = raw_coverage = raw_width = None
        if self.before is not None:
            raw_coverage, raw_width = (float(one[rows].mean()) for one in self.before[:2])
            ratio = _score_ratio(score, self.before.score[rows], self.names[rows])
        ends, mean_width = own.interval(self.every), float(width.mean())
        return CoverageRow(name, own.n, raw_coverage, own.rate, ends, mean_width, raw_width, ratio)

    @cached_property
    def every(self) -> _Hits:
        """All outcomes."""
        return _Hits(self.after.inside[self.is_judged], self.times[self.is_judged])

    def parts(self, of: NDArray[Any]) -> list[CoverageRow]:
        """Return the figures of each part, such as a month."""
        found = np.unique(of[self.is_judged])
        return [self.row(str(one), self.is_judged & (of == one)) for one in found]

    @property
    def lowest_rolling(self) -> float | None:
        """The lowest coverage of all windows, None with too few outcomes."""
        if self.order.size < WINDOW:
            return None
        sums = np.convolve(self.after.inside[self.order], np.ones(WINDOW), "valid")
        return float(sums.min() / WINDOW)

    def windows(self, months: NDArray[Any]) -> Iterator[CoverageRow]:
        """Yield the figures of evenly spaced windows, named by the month of their end."""
        n_windows = self.order.size - WINDOW + 1
        if n_windows > 0:
            for start in np.linspace(0, n_windows - 1, min(n_windows, N_WINDOWS)).astype(int):
                rows = self.order[start : start + WINDOW]
                yield self.row(months[rows[-1]], rows)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ForecastTrace:
    """The last forecasts of a series at a horizon: bounds as issued, and outcomes (NaN without).

    `why` says what is special about the series; `center` is the point forecast, None where there is
    none.
    """

    name: str
    why: str
    horizon: int
    time: FloatArray
    low: FloatArray
    high: FloatArray
    y: FloatArray
    center: FloatArray | None


def forecast_traces(
    found: ForecastCoverage,
    y: FloatArray,
    corrected: Bounds,
    *,
    series: Sequence[str],
    horizon: Sequence[int],
    time: FloatArray,
    center: FloatArray | None = None,
) -> tuple[ForecastTrace, ...]:
    """Return the series of the lowest coverage and that of the largest outcomes, for a chart.

    Parameters
    ----------
    found : ForecastCoverage
        What was covered.
    y, corrected, series, horizon, time
        As for `forecast_coverage`.
    center : ndarray of shape (n_rows,), optional
        Point forecasts.

    Returns
    -------
    tuple of ForecastTrace
        At the smallest horizon, of at most 120 forecasts each.
    """
    names, steps = np.array([str(one) for one in series]), np.asarray(horizon)
    is_shown = np.isfinite(corrected[0]) & np.isfinite(corrected[1])
    if not is_shown.any() or not found.worst_series:
        return ()
    is_shown &= steps == steps[is_shown].min()
    sizes = {
        str(one): float(np.abs(y[here]).mean())
        for one in np.unique(names)
        if (here := is_shown & (names == one) & ~np.isnan(y)).any()
    }
    why = {found.worst_series[0].name: "lowest coverage"}
    if sizes:
        largest = max(sizes, key=lambda one: sizes[one])
        why[largest] = f"{why[largest]}, largest values" if largest in why else "largest values"
    traces = []
    for name, reason in why.items():
        rows = np.flatnonzero(is_shown & (names == name))
        rows = rows[np.argsort(time[rows], kind="stable")][-N_WINDOWS:]
        if rows.size:
            low, high = (np.asarray(end[rows], dtype=np.float64) for end in corrected)
            own = None if center is None else center[rows]
            step = int(steps[rows[0]])
            traces.append(ForecastTrace(name, reason, step, time[rows], low, high, y[rows], own))
    return tuple(traces)


@final
class _Hits:
    """Outcomes inside by date, and how much more their fraction varies than if independent.

    Sums of a date are those of hits less their mean.
    """

    def __init__(self, inside: BoolArray, times: FloatArray) -> None:
        dates, at = np.unique(times, return_inverse=True)
        self.n, self.n_dates, self.rate = inside.size, dates.size, float(inside.mean())
        self.counts = np.bincount(at, minlength=dates.size)
        self.sums = np.bincount(at, inside, dates.size) - self.rate * self.counts

    @property
    def has_variance(self) -> bool:
        """Whether there are enough dates, with hits and misses."""
        return self.n_dates >= MIN_DATES and 0 < self.rate < 1

    def interval(self, every: _Hits) -> tuple[float, float]:
        """Return Wilson's interval of the fraction inside; `every` holds those of all."""
        variance, freedom = self.n / self.n_dates, 1e9  # those of one date count as one
        if self.has_variance and 2 * self.n_dates >= every.n_dates:
            variance, freedom = self._long_run_variance()
        elif every.has_variance:
            variance, freedom = every._window_variance(self.n_dates)
        n, z = self.n / max(variance, 1.0), float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
        center = (self.rate + z**2 / (2 * n)) / (1 + z**2 / n)
        spread = self.rate * (1 - self.rate) / n + z**2 / (4 * n**2)
        margin = z * spread**0.5 / (1 + z**2 / n)
        return max(min(center - margin, self.rate), 0.0), min(max(center + margin, self.rate), 1.0)

    def _long_run_variance(self) -> tuple[float, float]:
        """Return that of the equal-weighted cosine estimator, and its degrees of freedom."""
        freedom = int(0.4 * self.n_dates ** (2 / 3))
        places = (np.arange(self.n_dates) + 0.5) / self.n_dates
        waves = np.cos(np.pi * np.arange(1, freedom + 1)[:, np.newaxis] * places)
        variance = 2 * float(((waves @ self.sums) ** 2).mean())
        return variance / (self.n * self.rate * (1 - self.rate)), freedom

    def _window_variance(self, n_dates: int) -> tuple[float, float]:
        """Return that of overlapping windows of some dates, and its degrees of freedom."""
        sums, counts = (
            np.convolve(one, np.ones(n_dates), "valid") for one in (self.sums, self.counts)
        )
        variance = float((sums**2).sum() / counts.sum()) / (self.rate * (1 - self.rate))
        return variance, max(1.5 * (self.n_dates / n_dates - 1), 1.0)


def _judge(bounds: Bounds, y: FloatArray, level: float) -> _Judgment:
    """Return whether intervals contain the outcome, their width and their interval score."""
    low, high = bounds
    with np.errstate(invalid="ignore"):  # of infinite bounds, which are left out
        scores = interval_scores(y, low, high, level)
        return _Judgment(np.asarray((low <= y) & (y <= high)), high - low, scores)


def _judge_sets(contains: BoolArray, y: FloatArray) -> _Judgment:
    """Return whether sets contain the true class, and their sizes; they have no score."""
    codes = np.where(np.isnan(y), 0, y).astype(np.int64)[:, np.newaxis]
    is_inside = np.take_along_axis(contains, codes, axis=1)[:, 0]
    return _Judgment(is_inside, contains.sum(axis=1).astype(np.float64), np.zeros(len(y)))


def _likely_sets(outputs: Logits | Probabilities, level: float) -> BoolArray:
    """Return the most probable classes of each row that add up to a probability of `level`."""
    p = outputs.array.astype(np.float64)
    p = softmax(p, axis=1) if isinstance(outputs, Logits) else p / p.sum(axis=1, keepdims=True)
    order = np.argsort(-p, axis=1, kind="stable")
    sorted_p = np.take_along_axis(p, order, axis=1)
    is_in = np.cumsum(sorted_p, axis=1) - sorted_p < level  # the mass before the class
    found = np.zeros(p.shape, dtype=bool)
    np.put_along_axis(found, order, is_in, axis=1)
    return found


def _score_ratio(ours: FloatArray, theirs: FloatArray, names: NDArray[Any]) -> float | None:
    """Return the geometric mean over series of the ratio of mean scores."""
    _, codes = np.unique(names, return_inverse=True)
    a, b = np.bincount(codes, ours), np.bincount(codes, theirs)
    is_fine = (a > 0) & (b > 0)
    return float(np.exp(np.mean(np.log(a[is_fine] / b[is_fine])))) if is_fine.any() else None


def _reliability(
    y: FloatArray, outputs: BaseOutputs | None, bounds: Sequence[FloatArray], alpha: float
) -> tuple[QuantileRow, ...]:
    """Return how often outcomes were at or below quantiles and bounds."""
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
