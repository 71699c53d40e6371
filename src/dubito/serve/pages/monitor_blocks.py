"""The content of the monitor page: verdict, metrics, charts, shifts, and the comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dubito.charts import Axis, Chart, Line, Mark, Points
from dubito.decide import Policy
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.report import PolicyReport
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.decide.regression.value_report import RegressionPolicyReport
from dubito.formatting import ABSENT, decimal, join_words, percent, plain, quantity, short_percent
from dubito.measure import Interval
from dubito.monitor.sequential import SequentialAlarm
from dubito.monitor.shifts import DistributionShift
from dubito.report.content import Block, Card, Cards, Figure, Row, Table, Text, Verdict
from dubito.report.sections.positive_class import positive_figure
from dubito.serve.monitor import (
    MONITOR_DAYS,
    Estimate,
    LabelMetrics,
    LabelMonitorReport,
    LabelWindow,
    MonitorReport,
    ValueMonitorReport,
    ValueWindow,
    Window,
)
from dubito.serve.refit import PolicyComparison
from dubito.serve.store import StoredPolicy

MAX_CLASSES = 12  # rows of the table of priors
MAX_LABELS, MAX_FIGURES = 50, 12  # rows of the table of labels, and small multiples
WIDTHS = "w / (w + mean width of the fit) of an interval of width w"
ECE = "expected_calibration_error"
WEIGHTED = (
    "Each label is weighted by the inverse of its row's probability of being reviewed. Rejected "
    "rows all count once every one has been reviewed; until then only audited ones. Ranges are "
    "95 % confidence intervals."
)


def verdict(report: MonitorReport) -> Verdict:
    """Return what the alarms say, with their error rate."""
    alarm, uncertainty = report.alarms["calibration"], report.alarms["uncertainty"]
    guarantee = (
        f"Each alarm is false with probability at most {percent(alarm.level, 0)}, "
        "however often it is checked."
    )
    shifted = _shifted(uncertainty)
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


def _shifted(uncertainty: SequentialAlarm) -> list[str]:
    """Return what the alarm that needs no labels says."""
    if not uncertainty.has_alarmed:
        return []
    direction = "increased" if uncertainty.direction == "under" else "decreased"
    return [f"Model uncertainty has {direction} since the first rows (no labels needed)."]


def labels_verdict(report: LabelMonitorReport) -> Verdict:
    """Return what the alarms of several labels say, with their error rate."""
    guarantee = (
        "The probability of any false alarm of a label is at most 5 % in total, however often they "
        "are checked."
    )
    found = []
    for direction, problem in (("over", "too high"), ("under", "too low")):
        names = [one.name for one in report.labels if one.alarm.direction == direction]
        if names:
            which = f"The {'probabilities' if len(names) > 1 else 'probability'} of"
            are = "are" if len(names) > 1 else "is"
            tolerance = f"{100 * report.labels[0].alarm.tolerance:.0f} points"
            found.append(f"{which} {join_words(names)} {are} {problem} by more than {tolerance}.")
    shifted = _shifted(report.alarms["uncertainty"])
    if found:
        return Verdict("Miscalibrated labels.", (*found, *shifted, guarantee), "bad")
    if shifted:
        return Verdict("Inputs have shifted.", (*shifted, guarantee), "bad")
    n_labels = sum(one.alarm.n_labels for one in report.labels)
    if not n_labels:
        return Verdict("Unknown.", ("No audited row has a label yet.",))
    seen = f"No sign of miscalibration in {quantity(n_labels, 'answer')} on audited rows."
    return Verdict("No alarm.", (seen, guarantee), "good")


def label_metric_blocks(report: LabelMonitorReport, policy: MultiLabelPolicy) -> list[Block]:
    """Return the current metrics of several labels, each of them, and charts over time."""
    overall, fitted, windows = report.overall, policy.report, report.windows
    unit = "Cost per row" if policy.f_beta is None else "Wrong labels per row"
    rows, labels = overall.row_review_rate, overall.label_review_rate
    reviewed = f"{percent(rows)} of rows as a whole, {percent(labels)} of labels one by one"
    cards = Cards(
        (
            _card("Log loss (mean over labels)", overall.log_loss, decimal),
            _card(unit, overall.cost, decimal),
            _card("Coverage: rows without review", overall.coverage, percent, reviewed),
        )
    )
    counts = f"{quantity(overall.n_rows)} decided, {quantity(overall.n_labels, 'answer')} used"
    n = len(windows)
    charts = (
        _chart("Log loss", windows, [w.log_loss for w in windows], [fitted.log_loss_after] * n),
        _chart(unit, windows, [w.cost for w in windows], [fitted.cost.value] * n),
        _chart("Coverage", windows, [w.coverage for w in windows], [None] * n, show=percent),
    )
    text = f"Last {MONITOR_DAYS:.0f} days: {counts}. {WEIGHTED}"
    blocks = [cards, Text(text), *_label_table(report.labels), Row(charts)]
    known = [(one.name, one.audit) for one in _worst_first(report.labels) if one.audit]
    if known:
        intro = (
            "Reliability of each label, worst first: observed frequency over probability. Gray "
            "boxes show where the frequency of a calibrated model would lie with 95 % probability."
        )
        figures = tuple(positive_figure(name, one, "after") for name, one in known[:MAX_FIGURES])
        blocks += [Text(intro), Row(figures, is_small=True)]
    return blocks


def _worst_first(labels: Sequence[LabelMetrics]) -> list[LabelMetrics]:
    """Return labels with an alarm first, then by their calibration error."""
    error = [0.0 if one.audit is None else one.audit.expected_calibration_error for one in labels]
    order = sorted(range(len(labels)), key=lambda k: (not labels[k].alarm.has_alarmed, -error[k]))
    return [labels[k] for k in order]


def _label_table(labels: Sequence[LabelMetrics]) -> list[Block]:
    """Return the metrics of each label, and what is missing."""

    def line(one: LabelMetrics) -> tuple[str, ...]:
        found = one.audit
        error = None if found is None else found.intervals.get(ECE)
        return (
            f"{one.name} *" if one.alarm.has_alarmed else one.name,
            f"{one.n_labels:,}",
            percent(one.review_rate),
            ABSENT if found is None else percent(found.base_rate),
            ABSENT if found is None else percent(found.mean_probability),
            ABSENT if found is None else decimal(found.expected_calibration_error),
            ABSENT if error is None else f"{decimal(error.low)} to {decimal(error.high)}",
            ABSENT if one.log_loss is None else decimal(one.log_loss),
            ABSENT if one.cost is None else decimal(one.cost),
        )

    caption = "Labels, worst calibrated first (ECE in 10 equally filled bins). * Alarm."
    heads = (
        "label", "answers used", "reviewed", "frequency", "mean probability", "ECE",
        "95 % interval", "log loss", "cost",
    )  # fmt: skip
    shown = _worst_first(labels)[:MAX_LABELS]
    blocks: list[Block] = [Table(caption, heads, tuple(line(one) for one in shown))]
    missing: dict[str, list[str]] = {}
    for one in labels:
        for note in (one.unavailable, one.note):
            if note:
                missing.setdefault(note, []).append(one.name)
    for note, names in missing.items():
        which = "All labels" if len(names) == len(labels) else join_words(names)
        blocks.append(Text(f"{which}: {note}"))
    return blocks


def values_verdict(report: ValueMonitorReport) -> Verdict:
    """Return what the alarms of a regression policy say, with their error rate."""
    coverage, bias = report.alarms["coverage"], report.alarms["bias"]
    guarantee = (
        f"Each alarm is false with probability at most {percent(coverage.level, 0)}, "
        "however often it is checked."
    )
    after = "found after {} of audited rows".format
    found, shifted = [], _shifted(report.alarms["uncertainty"])
    if coverage.has_alarmed:
        size = "too narrow" if coverage.direction == "over" else "too wide"
        n = quantity(coverage.alarmed_after or 0, "true value")
        found.append(f"Prediction intervals are {size}, {after(n)}.")
    if bias.has_alarmed:
        side = "too high" if bias.direction == "over" else "too low"
        n = quantity(bias.alarmed_after or 0, "true value")
        found.append(f"Predictions are {side}, {after(n)}.")
    if found:
        headline = "Intervals do not hold." if coverage.has_alarmed else "Predictions are biased."
        return Verdict(headline, (*found, *shifted, guarantee), "bad")
    if shifted:
        return Verdict("Inputs have shifted.", (*shifted, guarantee), "bad")
    if not coverage.n_labels:
        return Verdict("Unknown.", ("No audited row has a true value yet.",))
    seen = (
        f"No sign of wrong intervals or of a bias in {quantity(coverage.n_labels, 'true value')} "
        f"of audited rows (anytime-valid p-values {coverage.p_value:.2g} and {bias.p_value:.2g})."
    )
    return Verdict("No alarm.", (seen, guarantee), "good")


def value_metric_blocks(report: ValueMonitorReport, policy: RegressionPolicy) -> list[Block]:
    """Return the current metrics of a regression policy, and charts of them over time."""
    overall, fitted, windows = report.overall, policy.report, report.windows
    name = f"Coverage of {short_percent(fitted.level)} intervals"
    cards = Cards(
        (
            _card(name, overall.coverage, percent),
            _card("Bias of the calibrated mean", overall.bias, decimal),
            _card("Interval score", overall.interval_score, decimal),
            _card("Cost per row", overall.cost, decimal),
            _card("Decided without review", overall.automatic, percent),
        )
    )
    counts = f"{quantity(overall.n_rows)} decided, {quantity(overall.n_labels, 'true value')} used"
    n = len(windows)
    charts = (
        _chart(
            "Coverage", windows, [w.coverage for w in windows], [fitted.level] * n, show=percent,
            dashed="nominal coverage",
        ),
        _chart("Bias", windows, [w.bias for w in windows], [0.0] * n, dashed="no bias"),
        _chart(
            "Interval score", windows, [w.interval_score for w in windows],
            [fitted.interval_score] * n,
        ),
        _chart("Cost per row", windows, [w.cost for w in windows], [fitted.cost.value] * n),
    )  # fmt: skip
    text = f"Last {MONITOR_DAYS:.0f} days: {counts}. {WEIGHTED} {overall.note}".rstrip()
    return [cards, Text(text), Row(charts)]


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
    explanation = f"Last {MONITOR_DAYS:.0f} days: {counts}. {WEIGHTED}"
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
    windows: Sequence[Window | LabelWindow | ValueWindow],
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
    caption = "Oldest rows to newest."
    if any(level is not None for level in references):
        caption = f"Oldest rows to newest; dashed: {dashed}."
    if n_missing := sum(estimate.interval is None for estimate in estimates):
        caption += f" Unknown in {n_missing} of {len(windows)} windows."
    return Figure(name, (chart,), caption)


def shift_blocks(report: MonitorReport, policy: Policy) -> list[Block]:
    """Return the shifts that need no labels: of the uncertainty and of the class priors."""
    uncertainty, prior = uncertainty_block(report.uncertainty), report.prior
    if prior is None:
        missing = "Class priors: unknown, because fewer than 100 rows were decided."
        return [uncertainty, Text(missing)]
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
    return [uncertainty, table]


def uncertainty_block(shift: DistributionShift | None, measure: str = "1 - confidence") -> Text:
    """Return the shift of the uncertainty, and how that is measured."""
    if shift is None or shift.difference is None:
        uncertainty = "Shift of the uncertainty: unknown, because fewer than 200 rows were decided."
    else:
        one = shift.difference
        low, value, high = (f"{100 * end:+.1f}" for end in (one.low, one.value, one.high))
        uncertainty = (
            f"Mean uncertainty ({measure}) was {percent(shift.reference)} in the first "
            f"rows and is {percent(shift.current)} in the last: {value} points "
            f"({low} to {high})."
        )
    return Text(uncertainty)


def comparison_blocks(found: PolicyComparison) -> list[Block]:
    """Return two policies side by side on the same rows, with caveats."""
    caption = f"The active policy and the candidate on {found.rows}; 95 % confidence intervals"
    active, candidate = found.active, found.candidate
    if isinstance(active, PolicyReport) and isinstance(candidate, PolicyReport):
        rows = _class_comparison(active, candidate)
    elif isinstance(active, RegressionPolicyReport):
        rows = _compared(VALUE_FIGURES, active, candidate)
    else:
        rows = _label_comparison(active, candidate)
    table = Table(caption, ("", "active", "candidate"), rows)
    return [table, *(Text(note) for note in found.notes)]


def _label_comparison(active: Any, candidate: Any) -> tuple[tuple[str, str, str], ...]:
    """Return the figures of two policies of several labels per row."""
    names: dict[str, Callable[[Any], str]] = {
        "cost per row": lambda r: f"{r.cost}",
        "expected cost per row": lambda r: decimal(r.expected_cost),
        "rows reviewed as a whole": lambda r: _percentage(r.row_review_rate),
        "labels reviewed one by one": lambda r: percent(r.label_review_rate),
        "score": lambda r: ABSENT if r.score is None else f"{r.score:.4f}",
        "log loss": lambda r: decimal(r.log_loss_after),
        "labeled rows": lambda r: f"{r.n_rows:,}",
        "evidence": lambda r: r.evaluation,
    }
    if active.score is None:
        del names["score"]
    return _compared(names, active, candidate)


def _compared(
    figures: Mapping[str, Callable[[Any], str]], active: Any, candidate: Any
) -> tuple[tuple[str, str, str], ...]:
    """Return figures of two policies side by side."""
    return tuple((name, show(active), show(candidate)) for name, show in figures.items())


def _class_comparison(
    active: PolicyReport, candidate: PolicyReport
) -> tuple[tuple[str, str, str], ...]:
    """Return the figures of two policies of one class per row."""

    def line(name: str, show: Callable[[PolicyReport], str]) -> tuple[str, str, str]:
        return name, show(active), show(candidate)

    return (
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


def _percentage(one: Interval) -> str:
    """Return a proportion with its interval."""
    return f"{percent(one.value)} ({percent(one.low)} to {percent(one.high)})"


VALUE_FIGURES: Mapping[str, Callable[[Any], str]] = {
    "cost per row": lambda r: f"{r.cost}",
    "expected cost per row": lambda r: decimal(r.expected_cost),
    "rows reviewed": lambda r: _percentage(r.review_rate),
    "coverage of intervals": lambda r: _percentage(r.coverage),
    "interval score": lambda r: decimal(r.interval_score),
    "bias": lambda r: f"{r.bias:+}",
    "labeled rows": lambda r: f"{r.n_rows:,}",
    "evidence": lambda r: r.evaluation,
}


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
