"""The content of the monitor page: verdict, metrics, charts, shifts, and the comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np

from dubito.charts import Axis, Chart, Line, Mark, Points
from dubito.decide import Policy
from dubito.decide.policy.report import PolicyReport
from dubito.formatting import decimal, percent, plain, quantity
from dubito.measure import Interval
from dubito.report.content import Block, Card, Cards, Figure, Row, Table, Text, Verdict
from dubito.serve.monitor import MONITOR_DAYS, Estimate, MonitorReport, Window
from dubito.serve.refit import PolicyComparison
from dubito.serve.store import StoredPolicy

MAX_CLASSES = 12  # rows of the table of priors


def verdict(report: MonitorReport) -> Verdict:
    """Return what the alarms say, with their error rate."""
    alarm, uncertainty = report.alarms["calibration"], report.alarms["uncertainty"]
    guarantee = (
        f"Each alarm is false with probability at most {percent(alarm.level, 0)}, "
        "however often it is checked."
    )
    shifted = []
    if uncertainty.has_alarmed:
        direction = "increased" if uncertainty.direction == "under" else "decreased"
        shifted = [f"Model uncertainty has {direction} since the first rows (no labels needed)."]
    if alarm.has_alarmed:
        headline = "Over-confident." if alarm.direction == "over" else "Under-confident."
        found = (
            f"Confidence deviates from accuracy by more than {100 * alarm.tolerance:.0f} points, "
            f"found after {quantity(alarm.alarmed_after or 0, 'label')} of audited rows."
        )
        return Verdict(headline, (found, *shifted, guarantee), "bad")
    if shifted:
        return Verdict("Inputs have shifted.", (*shifted, guarantee), "bad")
    if not alarm.n_labels:
        return Verdict("Unknown.", ("No audited row has a label yet.",))
    found = (
        f"No sign of miscalibration in {quantity(alarm.n_labels, 'label')} of audited rows "
        f"(anytime-valid p-value {alarm.p_value:.2g})."
    )
    return Verdict("No alarm.", (found, guarantee), "good")


def metric_blocks(report: MonitorReport, policy: Policy) -> list[Block]:
    """Return the current metrics, and charts of them over time."""
    overall, fitted = report.overall, policy.report
    expected = overall.expected_if_calibrated
    beside = "" if expected is None else f"{decimal(expected)} expected if calibrated"
    cards = Cards(
        (
            _card("ECE (15 uniform bins)", overall.calibration_error, decimal, beside),
            _card("Log loss", overall.log_loss, decimal),
            _card("Cost per row", overall.cost, decimal),
            _card("Coverage: decided without review", overall.coverage, percent),
        )
    )
    counts = f"{quantity(overall.n_rows)} decided, {quantity(overall.n_labels, 'label')} used"
    explanation = (
        f"Last {MONITOR_DAYS:.0f} days: {counts}. Each label is weighted by the inverse of its "
        "row's probability of being reviewed. Rejected rows all count once every one has been "
        "reviewed; until then only audited ones. Ranges are 95 % confidence intervals."
    )
    windows, n = report.windows, len(report.windows)
    errors, coverage = [w.calibration_error for w in windows], [w.coverage for w in windows]
    expected_errors = [w.expected_if_calibrated for w in windows]
    charts = (
        _chart("ECE", windows, errors, expected_errors, dashed="expected if calibrated"),
        _chart("Log loss", windows, [w.log_loss for w in windows], [fitted.log_loss_after] * n),
        _chart("Cost per row", windows, [w.cost for w in windows], [fitted.cost.value] * n),
        _chart("Coverage", windows, coverage, [fitted.coverage.value] * n, show=percent),
    )
    return [cards, Text(f"{explanation} {overall.note}".rstrip()), Row(charts)]


def _card(
    name: str, estimate: Estimate, show: Callable[[float | None], str], beside: str = ""
) -> Card:
    """Return a metric as a card, or the reason why it is unavailable."""
    if estimate.interval is None:
        return Card(name, "unknown", estimate.unavailable)
    one = estimate.interval
    notes = [f"{show(one.low)} to {show(one.high)}", *([beside] if beside else [])]
    return Card(name, show(one.value), "; ".join(notes))


def _chart(
    name: str,
    windows: Sequence[Window],
    estimates: Sequence[Estimate],
    references: Sequence[float | None],
    *,
    show: Callable[[float], str] = plain,
    dashed: str = "estimate at the time of the fit",
) -> Figure:
    """Return a chart of a metric per window, with intervals and a dashed reference.

    >>> _chart("Cost", [], [], []).charts[0].title
    'Cost over time'
    """
    marks: list[Mark] = []
    heights: list[float] = []
    end = 0
    for window, estimate, level in zip(windows, estimates, references, strict=True):
        start, end = end, end + window.n_rows
        middle = (start + end) / 2
        if level is not None:
            heights.append(level)
            marks.append(Line([start, end], [level, level], "reference"))
        if one := estimate.interval:
            heights += one.low, one.high
            text = f"{show(one.value)} ({show(one.low)} to {show(one.high)})"
            hint = f"{text}, {window.n_labels:,} labels"
            marks.append(Line([middle, middle], [one.low, one.high], "after"))
            marks.append(Points([middle], [one.value], "after", hints=(hint,)))
    x, y = Axis.of([end], "rows decided", plain), Axis.of(heights, name, show)
    chart = Chart(f"{name} over time", x, y, tuple(marks), height=220)
    caption = f"Oldest rows to newest; dashed: {dashed}."
    if n_missing := sum(estimate.interval is None for estimate in estimates):
        caption += f" Unknown in {n_missing} of {len(windows)} windows."
    return Figure(name, (chart,), caption)


def shift_blocks(report: MonitorReport, policy: Policy) -> list[Block]:
    """Return the shifts that need no labels: of the uncertainty and of the class priors."""
    shift, prior = report.uncertainty, report.prior
    if shift is None or shift.difference is None:
        uncertainty = "Shift of the uncertainty: unknown, because fewer than 200 rows were decided."
    else:
        one = shift.difference
        low, value, high = (f"{100 * end:+.1f}" for end in (one.low, one.value, one.high))
        uncertainty = (
            f"Mean uncertainty (1 - confidence) was {percent(shift.reference)} in the first "
            f"rows and is {percent(shift.current)} in the last: {value} points "
            f"({low} to {high})."
        )
    if prior is None:
        missing = "Class priors: unknown, because fewer than 100 rows were decided."
        return [Text(uncertainty), Text(missing)]
    order = np.argsort(-np.abs(prior.prior - report.reference_prior), kind="stable")[:MAX_CLASSES]
    lines = tuple(
        (
            str(policy.classes[k]),
            percent(float(report.reference_prior[k])),
            percent(float(prior.prior[k])) if prior.is_identified[k] else "unknown",
            f"{percent(float(prior.low[k]))} to {percent(float(prior.high[k]))}",
        )
        for k in order
    )
    caption = (
        f"Class priors of the last {prior.n_rows:,} rows, estimated from the outputs alone under "
        "label shift"
    )
    table = Table(caption, ("class", "at the fit", "now", "95 % interval"), lines)
    return [Text(uncertainty), table]


def comparison_blocks(found: PolicyComparison) -> list[Block]:
    """Return two policies side by side on the same rows, with caveats."""

    def line(name: str, show: Callable[[PolicyReport], str]) -> tuple[str, str, str]:
        return name, show(found.active), show(found.candidate)

    rows = (
        line("cost per row", lambda r: f"{r.cost}"),
        line("expected cost per row", lambda r: decimal(r.expected_cost)),
        line("coverage", lambda r: _percentage(r.coverage)),
        line(
            "error rate of decided rows",
            lambda r: "none" if r.risk is None else _percentage(r.risk),
        ),
        line("log loss", lambda r: decimal(r.log_loss_after)),
        line("ECE (15 uniform bins)", lambda r: decimal(r.calibration_error_after)),
        line("labels", lambda r: f"{r.n_rows:,}"),
        line("evidence", lambda r: r.evaluation),
    )
    caption = f"The active policy and the candidate on {found.rows}; 95 % confidence intervals"
    table = Table(caption, ("", "active", "candidate"), rows)
    return [table, *(Text(note) for note in found.notes)]


def _percentage(one: Interval) -> str:
    """Return a proportion with its interval."""
    return f"{percent(one.value)} ({percent(one.low)} to {percent(one.high)})"


def policy_table(policies: Sequence[StoredPolicy]) -> Table:
    """Return all policies, newest first."""
    states = {(True, True): "active", (False, True): "was active", (False, False): "never active"}
    lines = tuple(
        (
            f"{one.id}",
            datetime.fromtimestamp(one.created, UTC).strftime("%Y-%m-%d %H:%M"),
            "uploaded" if one.trained_until is None else "refitted",
            states[one.is_active, one.was_active],
        )
        for one in reversed(policies)
    )
    return Table("All policies", ("policy", "stored (UTC)", "origin", "status"), lines)
