"""A page about the intervals of forecasts over time."""

from __future__ import annotations

import numpy as np

from dubito import __version__
from dubito.charts import Axis, Chart, Line
from dubito.formatting import percent, short_percent
from dubito.monitor.forecasts import WINDOW, CoverageRow, ForecastCoverage
from dubito.report.charts.builders import Curve, quantile_chart
from dubito.report.content import Figure, Row, Section, Table, Verdict
from dubito.report.page import render
from dubito.report.reports import Report
from dubito.report.sections.inspection import provenance_section

TOLERANCE = 0.02  # of the coverage, below which the verdict is good


def forecast_report(
    found: ForecastCoverage, *, title: str = "Forecast intervals", command: str | None = None
) -> Report:
    """Return an HTML page about the coverage and width of intervals over time.

    Parameters
    ----------
    found : ForecastCoverage
        The result of `dubito.monitor.forecast_coverage`.
    title : str, default "Forecast intervals"
        The title of the page.
    command : str, optional
        The command that reproduces the page.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.monitor import forecast_coverage
    >>> bounds, names = (np.zeros(4), np.full(4, 2.0)), ["a"] * 4
    >>> page = forecast_report(forecast_coverage(np.ones(4), None, bounds, level=0.9,
    ...     series=names, horizon=[0] * 4, month=names))
    >>> page.title
    'Forecast intervals'
    """
    is_good = found.total.corrected >= found.level - TOLERANCE
    headline = f"Coverage {percent(found.total.corrected)} of {percent(found.level)}"
    verdict = Verdict(headline, (found.verdict,), "good" if is_good else "bad")
    blocks = (
        _coverage_row(found),
        Row((_width_figure(found), _reliability_figure(found))),
        _table("By month", found.by_month),
        _table("By horizon", found.by_horizon),
        _table("Series with the lowest coverage", found.worst_series),
    )
    facts = (
        ("Truths", f"{found.total.n_rows:,}"),
        ("Forecasts without a truth yet", f"{found.n_future:,}"),
        ("Truths before the first interval", f"{found.n_warm_up:,}"),
        ("dubito", __version__),
    )
    sections = [Section("time", "Over time", blocks), provenance_section(facts, command)]
    return Report(title, found.verdict, render(title, verdict, sections, kicker="Forecasts"))


def _coverage_row(found: ForecastCoverage) -> Row:
    months = "The fraction of truths inside, by month."
    figures = [_coverage_figure(found, found.by_month, "Coverage by month", months)]
    if found.lowest_rolling is not None:
        note = (
            f"The fraction inside of the last {WINDOW} truths, by the month of the last; the lowest"
            f" after correction is {percent(found.lowest_rolling)}."
        )
        figures.insert(0, _coverage_figure(found, found.rolling, "Rolling coverage", note))
    return Row(tuple(figures))


def _coverage_figure(
    found: ForecastCoverage, rows: tuple[CoverageRow, ...], title: str, note: str
) -> Figure:
    x = list(range(len(rows)))
    marks = [Line([0, max(len(rows) - 1, 1)], [found.level] * 2, "reference", "nominal")]
    if all(one.raw is not None for one in rows):
        marks.append(Line(x, [one.raw for one in rows], "before", "as forecast"))
    marks.append(Line(x, [one.corrected for one in rows], "after", "corrected"))
    y = Axis(0, 1, "Coverage", short_percent)
    return Figure(title, (Chart(title, _months(rows), y, tuple(marks)),), note)


def _reliability_figure(found: ForecastCoverage) -> Figure:
    curves = []
    for style, label in (("before", "as forecast"), ("after", "corrected")):
        name = "raw" if style == "before" else "corrected"
        points = [(one.level, getattr(one, name)) for one in found.reliability]
        shown = np.array([one for one in points if one[1] is not None], dtype=np.float64)
        if shown.size:
            curves.append(Curve(style, label, *shown.T))
    title = "Reliability of the quantiles"
    note = (
        "On the dashed line, a quantile has as many truths at or below it as its level says. The "
        "range is that of independent rows; forecasts of one date are alike, and vary more."
    )
    return Figure(title, (quantile_chart(title, found.total.n_rows, curves),), note)


def _width_figure(found: ForecastCoverage) -> Figure:
    rows = found.by_month
    widths = [one.width for one in rows]
    line = Line(list(range(len(rows))), widths, "after", "corrected")
    chart = Chart("Mean width by month", _months(rows), Axis.of(widths, "Mean width"), (line,))
    return Figure("Width over time", (chart,), "The mean width of the intervals issued, by month.")


def _months(rows: tuple[CoverageRow, ...]) -> Axis:
    """Return an axis of months, of which a few are named."""
    last = max(len(rows) - 1, 1)
    step = max(-(-len(rows) // 4), 1)  # more names would touch on a phone
    ticks = tuple(float(k) for k in range(0, len(rows), step))
    return Axis(0, last, "Month", lambda k: rows[min(int(k), len(rows) - 1)].name, ticks)


def _table(caption: str, rows: tuple[CoverageRow, ...]) -> Table:
    return Table.of(
        caption,
        rows,
        ("", lambda one: one.name.replace("-", "\u2011")),  # which breaks no line
        ("truths", lambda one: f"{one.n_rows:,}"),
        ("as forecast", lambda one: "-" if one.raw is None else percent(one.raw)),
        ("corrected", lambda one: percent(one.corrected)),
        ("mean width", lambda one: f"{one.width:.4g}"),
        ("score / raw", lambda one: "-" if one.score_ratio is None else f"{one.score_ratio:.3f}"),
    )
