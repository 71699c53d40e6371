"""A page about the intervals or sets of forecasts over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dubito import __version__
from dubito.charts import DAY, Axis, Band, Chart, Line, Mark, Points, ticks_between
from dubito.formatting import or_dash, percent, plain, short_percent
from dubito.monitor.forecasts import (
    WINDOW,
    CoverageRow,
    ForecastCoverage,
    ForecastTrace,
    in_percent,
)
from dubito.report.chart_builders import Curve, nominal_chart
from dubito.report.content import Column, Figure, Row, Section, Table, Text, Verdict, render
from dubito.report.reports import Report
from dubito.report.sections.inspection import provenance_section

TOLERANCE = 0.02  # of the coverage, below which the verdict is good
N_DEVIATIONS = 4  # of independent outcomes, by which the lowest rolling coverage may fall short
INTERVALS = (
    "Intervals around coverages are 95 % confidence intervals (Wilson's, for the number of "
    "independent outcomes that vary as much as these, which are alike on one date and from date to "
    "date)."
)
SCORES = ' "score / raw" is the interval score divided by the uncorrected one: lower is better.'


def forecast_report(
    found: ForecastCoverage,
    *,
    title: str | None = None,
    command: str | None = None,
    traces: Sequence[ForecastTrace] = (),
    is_dated: bool = True,
    facts: Sequence[tuple[str, str]] = (),
) -> Report:
    """Return an HTML page about the coverage and width of intervals, or sets, over time.

    Parameters
    ----------
    found : ForecastCoverage
        The result of `dubito.monitor.forecast_coverage`.
    title : str, optional
        The title of the page. Default: "Forecast intervals", or "Forecast sets" of classes.
    command : str, optional
        The command that reproduces the page.
    traces : sequence of ForecastTrace, optional
        Series to draw, from `dubito.monitor.forecasts.forecast_traces`.
    is_dated : bool, default=True
        Whether times are days since 1970, and otherwise numbers.
    facts : sequence of pairs of str, optional
        More about where the results come from: a name and a description each.

    Returns
    -------
    Report

    Examples
    --------
    >>> from dubito.report import forecast_report
    >>> import numpy as np
    >>> from dubito.monitor import forecast_coverage
    >>> bounds, names = (np.zeros(4), np.full(4, 2.0)), ["a"] * 4
    >>> page = forecast_report(forecast_coverage(np.ones(4), None, bounds, level=0.9,
    ...     series=names, horizon=[0] * 4, month=names))
    >>> page.title
    'Forecast intervals'
    """
    title = title or f"Forecast {found.kind}"
    total = found.total
    headline = f"Coverage {percent(total.corrected)}, nominal {short_percent(found.level)}"
    mood = "good" if total.corrected >= found.level - TOLERANCE else "bad"
    sentences = [found.verdict]
    if found.lowest_rolling is not None:
        lowest = percent(found.lowest_rolling)
        sentences.append(f"Of {WINDOW} consecutive outcomes, at least {lowest} were inside.")
        deviation = (found.level * (1 - found.level) / WINDOW) ** 0.5
        if mood == "good" and found.lowest_rolling < found.level - N_DEVIATIONS * deviation:
            headline, mood = f"{headline}, at times much lower", "neutral"
    if not total.n_rows:
        headline, mood = "No outcomes yet", "neutral"
    verdict = Verdict(headline, tuple(sentences), mood)
    figures = [_width_figure(found)]
    if found.reliability:
        figures.append(_reliability_figure(found))
    n_shown = len(found.worst_series)
    some = "" if n_shown == found.n_series else f"{n_shown} of {found.n_series:,}, "
    blocks = (
        _coverage_row(found),
        Row(tuple(figures)),
        _table("By horizon", found.by_horizon, found.kind),
        _table(f"Series: {some}lowest coverage first", found.worst_series, found.kind),
        Text(INTERVALS + SCORES if found.kind == "intervals" else INTERVALS),
    )
    known = (
        *facts,
        ("Outcomes", f"{total.n_rows:,}"),
        ("Forecasts without an outcome yet", f"{found.n_future:,}"),
        ("Outcomes before the first correction", f"{found.n_warm_up:,}"),
        ("dubito", __version__),
    )
    sections = [Section("time", "Over time", blocks), provenance_section(known, command)]
    if traces:
        shown = Row(tuple(_trace_figure(one, found.level, is_dated) for one in traces))
        sections.insert(0, Section("series", "Forecasts and outcomes", (shown,)))
    return Report(title, found.verdict, render(title, verdict, sections, kicker="Forecasts"))


def _trace_figure(trace: ForecastTrace, level: float, is_dated: bool) -> Figure:
    """Return a chart of intervals, forecasts and outcomes of a series over time."""
    x = trace.time * DAY if is_dated else trace.time
    is_known = ~np.isnan(trace.y)
    is_inside = (trace.low <= trace.y) & (trace.y <= trace.high)
    marks: list[Mark] = [Band(x, trace.low, trace.high, label=f"{short_percent(level)} interval")]
    values = [trace.low, trace.high, trace.y[is_known]]
    if trace.center is not None:
        marks.append(Line(x, trace.center, "reference", "forecast"))
        values.append(trace.center)
    for style, label, rows in (
        ("correct", "outcome inside", is_known & is_inside),
        ("wrong", "outcome outside", is_known & ~is_inside),
    ):
        if rows.any():
            marks.append(Points(x[rows], trace.y[rows], style, label, radius=2.5))
    ends = np.concatenate(values)
    ticks = ticks_between(float(ends.min()), float(ends.max()))
    y = Axis(ticks[0], ticks[-1], "Value", plain, ticks)
    places = ticks_between(float(x.min()), float(x.max()))
    horizontal = Axis(float(x.min()), float(x.max()), "Time", plain, places[1:-1])
    if is_dated:
        horizontal = Axis.of_times(x.tolist(), "Time of the forecast")
    title = f"{trace.name} ({trace.why})"
    chart = Chart(title, horizontal, y, tuple(marks))
    note = f"Horizon {trace.horizon}, the last {trace.time.size} forecasts as they were issued."
    return Figure(title, (chart,), note)


def _coverage_row(found: ForecastCoverage) -> Row:
    note = "The fraction of outcomes inside, by month, with its 95 % confidence interval."
    table = _table("By month", found.by_month, found.kind)
    figures = [_coverage_figure(found, found.by_month, "Coverage by month", note, table)]
    if found.lowest_rolling is not None:
        note = (
            f"The fraction inside of the last {WINDOW} outcomes, by the month of the last; the "
            f"lowest after correction is {percent(found.lowest_rolling)}."
        )
        figures.insert(0, _coverage_figure(found, found.rolling, "Rolling coverage", note))
    return Row(tuple(figures))


def _coverage_figure(
    found: ForecastCoverage,
    rows: tuple[CoverageRow, ...],
    title: str,
    note: str,
    table: Table | None = None,
) -> Figure:
    x = range(len(rows))
    low, high = ([one.interval[end] for one in rows] for end in (0, 1))
    marks: list[Mark] = [
        Band(x, low, high, label="95 % interval"),
        Line([0, max(len(rows) - 1, 1)], [found.level] * 2, "reference", "nominal"),
        *_before_and_after([one.raw for one in rows], [one.corrected for one in rows]),
    ]
    y = Axis(0, 1, "Coverage", short_percent)
    return Figure(title, (Chart(title, _months(rows), y, tuple(marks)),), note, table)


def _before_and_after(before: list[float | None], after: list[float]) -> Iterator[Line]:
    """Yield lines of uncorrected values, if known, and of corrected ones."""
    if None not in before:
        yield Line(range(len(after)), before, "before", "uncorrected")
    yield Line(range(len(after)), after, "after", "corrected")


def _reliability_figure(found: ForecastCoverage) -> Figure:
    curves = []
    for style, label, name in (
        ("before", "uncorrected", "raw"),
        ("after", "corrected", "corrected"),
    ):
        points = [(one.level, getattr(one, name)) for one in found.reliability]
        shown = np.array([one for one in points if one[1] is not None], dtype=np.float64)
        if shown.size:
            curves.append(Curve(style, label, *shown.T))
    title = "Reliability of the quantiles"
    note = (
        "On the dashed line, a quantile has as many outcomes at or below it as its level says. The "
        "range is that of independent rows; forecasts of one date are alike, and vary more."
    )
    return Figure(title, (nominal_chart("quantiles", title, found.total.n_rows, curves),), note)


def _width_figure(found: ForecastCoverage) -> Figure:
    rows = found.by_month
    is_set = found.kind == "sets"
    what, title = ("size", "Set size over time") if is_set else ("width", "Width over time")
    widths, before = [one.width for one in rows], [one.raw_width for one in rows]
    y = Axis.of([*widths, *(one for one in before if one is not None)], f"Mean {what}")
    marks = tuple(_before_and_after(before, widths))
    chart = Chart(f"Mean {what} by month", _months(rows), y, marks)
    note = f"The mean {what} of the {found.kind}, by month."
    if is_set:
        level = short_percent(found.level)
        note += f" Uncorrected sets hold the most probable classes, up to a total of {level}."
    return Figure(title, (chart,), note)


def _months(rows: tuple[CoverageRow, ...]) -> Axis:
    """Return an axis of months, of which a few are named."""
    last = max(len(rows) - 1, 1)
    step = max(-(-len(rows) // 4), 1)  # more names would touch on a phone
    ticks = tuple(float(k) for k in range(0, len(rows), step))
    return Axis(0, last, "Month", lambda k: rows[min(int(k), len(rows) - 1)].name, ticks)


def _table(caption: str, rows: tuple[CoverageRow, ...], kind: str) -> Table:
    size = "size" if kind == "sets" else "width"
    columns: list[Column[CoverageRow]] = [
        ("", lambda one: one.name.replace("-", "\u2011")),  # which breaks no line
        ("outcomes", lambda one: f"{one.n_rows:,}"),
        ("uncorrected", lambda one: percent(one.raw)),
        ("corrected", lambda one: percent(one.corrected)),
        ("95 % interval", lambda one: in_percent(one.interval)),
        (f"uncorrected {size}", lambda one: or_dash(one.raw_width and f"{one.raw_width:.4g}")),
        (f"mean {size}", lambda one: f"{one.width:.4g}"),
    ]
    if kind == "intervals":
        ratio = ("score / raw", lambda one: or_dash(one.score_ratio and f"{one.score_ratio:.3f}"))
        columns.append(ratio)
    return Table.of(caption, rows, *columns)
