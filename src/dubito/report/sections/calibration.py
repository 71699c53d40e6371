"""Calibration sections: reliability diagrams, metrics with intervals, calibrators and groups."""

from __future__ import annotations

from typing import Any

from dubito.charts import Span, SpanRow
from dubito.formatting import decimal, p_value, percent, plain, points, quantity, short_percent
from dubito.measure import Audit, ReliabilityCurve
from dubito.measure.groups import AREAS, MIN_ROWS, TITLES, GroupComparison
from dubito.measure.text import figure_texts, prediction_rule, reliability_chart
from dubito.report.chart_builders import RANGE, confidence_histogram, span_chart
from dubito.report.content import (
    Block,
    Card,
    Cards,
    Choice,
    Figure,
    Row,
    Section,
    Table,
    Text,
    between,
)
from dubito.report.summary import Summary, View

NEAR_ZERO = (
    "An ECE near 0 is mostly noise: a calibrated model may show as much. Its interval then starts "
    "at 0, and the debiased ECE is the better estimate."
)
Z_95 = 1.96  # standard errors on each side of a 95 % interval


def reliability_section(summary: Summary) -> Section:
    """Return reliability diagrams before and after, of all rows or of a subset."""
    options = tuple((view.name, _diagrams(view)) for view in summary.views)
    intro = (
        "On the dashed line, confidence equals accuracy. Below it the model is over-confident, "
        "above it under-confident. Each point is one confidence bin: hover over it for counts. "
        "Gray boxes show where the accuracy of a calibrated model would lie with 95 % "
        "probability."
    )
    diagrams = Choice("Show", options) if len(options) > 1 else options[0][1]
    cards = _cards(summary.audit_before, summary.audit_after)
    title = "Is the confidence calibrated?"
    return Section("reliability", title, (cards, Text(intro), diagrams))


def _cards(before: Audit, after: Audit) -> Cards:
    """Return the key metrics."""
    ends = between(before.intervals.get("gap"), points)
    cards = [
        Card("Mean confidence", percent(before.confidence), f"after: {percent(after.confidence)}"),
        Card("Accuracy", percent(before.accuracy), f"after: {percent(after.accuracy)}"),
        Card("Confidence - accuracy", f"{points(before.gap)} points", ends),
    ]
    for when, one in (("before", before), ("after calibration", after)):
        expected = f"expected if calibrated: {percent(one.expected_if_calibrated)}"
        cards.append(Card(f"ECE {when}", percent(one.expected_calibration_error), expected))
    return Cards(tuple(cards))


def _diagrams(view: View) -> Row:
    """Return the diagrams before and after."""
    before = reliability_figure("Before calibration", view.before, view.name, "before")
    return Row((before, reliability_figure("After calibration", view.after, view.name, "after")))


def reliability_figure(title: str, curve: ReliabilityCurve, subset: str, style: str) -> Figure:
    """Return a reliability diagram with its histogram."""
    name = f"{title}, {subset}"
    charts = (
        reliability_chart(curve, f"Reliability diagram: {name}", style),
        confidence_histogram(curve, f"Histogram of the confidence: {name}", style),
    )
    left, right = curve.edges[curve.bins], curve.edges[curve.bins + 1]
    table = Table.of(
        f"{name}: {curve.edges.size - 1} bins of equal width",
        range(curve.count.size),
        ("confidence bin", lambda k: f"{left[k]:.3f} to {right[k]:.3f}"),
        ("rows", lambda k: f"{curve.count[k]:,.0f}"),
        ("confidence", lambda k: percent(curve.confidence[k])),
        ("accuracy", lambda k: percent(curve.accuracy[k])),
        (RANGE, lambda k: f"{percent(curve.low[k])} to {percent(curve.high[k])}"),
    )
    return Figure(title, charts, _caption(curve, subset), table)


def _caption(curve: ReliabilityCurve, subset: str) -> str:
    """Return which bins deviate from calibration by more than chance."""
    n_rows = quantity(round(curve.count.sum()))
    subject = f"{subset[0].upper()}{subset[1:]} ({n_rows})"
    n_over = int((curve.accuracy < curve.low).sum())
    n_under = int((curve.accuracy > curve.high).sum())
    if not n_over + n_under:
        return f"{subject}: every bin is within the range of a calibrated model."
    bins = quantity(curve.count.size, "bin")
    parts = [f"{n_over} of {bins} over-confident"] * bool(n_over)
    parts += [f"{n_under} of {bins} under-confident"] * bool(n_under)
    return f"{subject}: {' and '.join(parts)}, beyond chance."


def metrics_section(summary: Summary) -> Section:
    """Return the metrics before and after, and the calibration errors of a calibrated model."""
    before, after = summary.audit_before, summary.audit_after
    lines = (
        ("accuracy", "accuracy", ""),
        ("mean confidence", "confidence", ""),
        ("confidence - accuracy", "gap", "0"),
        ("log loss", "log_loss", ""),
        ("Brier score", "brier_score", ""),
        ("ECE", "expected_calibration_error", decimal(after.expected_if_calibrated)),
        ("debiased ECE", "debiased_calibration_error", "0"),
        ("smooth calibration error", "smooth_calibration_error", ""),
        ("classwise calibration error", "classwise_calibration_error", ""),
        ("maximum calibration error", "maximum_calibration_error", ""),
        ("AURC", "area_under_risk_coverage", ""),
        ("AUGRC", "area_under_generalized_risk_coverage", ""),
        ("error detection AUROC: errors less confident (0.5: chance)", "error_detection_auroc", ""),
    )
    rows = [
        (name, _cell(before, key), _cell(after, key), ideal)
        for name, key, ideal in lines
        if getattr(before, key) is not None
    ]
    tests = (p_value(before.calibration_p_value), p_value(after.calibration_p_value))
    rows.append(("p-value of calibration", *tests, "> 0.05 with 95 % probability"))
    columns = ("metric", "before", "after, out of sample", "expected if calibrated")
    caption = (
        f"{before.n_rows:,} rows; 95 % bootstrap intervals in parentheses; calibration errors "
        f"with {before.n_bins} bins of equal width"
    )
    notes = [Text(summary.recalibration.method)]
    if any(
        "expected_calibration_error" in one.intervals
        and one.expected_calibration_error < 2 * one.expected_if_calibrated
        for one in (before, after)
    ):
        notes.append(Text(NEAR_ZERO))
    if before.n_missing:
        notes.append(Text(f"{quantity(before.n_missing)} without a label left out."))
    if summary.whole.n_rows != before.n_rows:
        based = f"The verdict is based on all {summary.whole.n_rows:,} rows, everything else on a "
        notes.append(Text(f"{based}random sample of {before.n_rows:,} of them."))
    return Section("metrics", "Metrics", (*notes, Table(caption, columns, tuple(rows))))


def _cell(audit: Audit, key: str) -> str:
    """Return a metric with its interval, or the reason of an infinite log loss."""
    if key == "log_loss" and audit.n_impossible:
        return f"infinite: {quantity(audit.n_impossible)} with probability 0"
    interval = audit.intervals.get(key)
    return decimal(getattr(audit, key)) if interval is None else f"{interval}"


def calibrators_section(summary: Summary) -> Section:
    """Return the cross-fitted log loss of each calibrator."""
    recalibration = summary.recalibration
    if not recalibration.leaderboard:
        return Section("calibrators", "Calibrators", (Text(recalibration.method),))

    def weight(line: dict[str, Any]) -> str:
        if line["dropped"]:
            return "dropped early"
        return "the mixture" if line["weight"] is None else percent(line["weight"])

    def interval(line: dict[str, Any]) -> str:
        center, reach = line["log_loss"], Z_95 * line["standard_error"]
        return f"{decimal(center - reach)} to {decimal(center + reach)}"

    text = (
        f"Selected: {recalibration.chosen}. Lower log loss is better; IdentityCalibrator() leaves "
        "the outputs unchanged and is the baseline."
    )
    if any(line["dropped"] for line in recalibration.leaderboard):
        text += " One that was dropped early was fitted in two folds: its log loss is an estimate."
    table = Table.of(
        "Best first; every log loss is out of sample",
        recalibration.leaderboard,
        ("calibrator", lambda line: str(line["name"])),
        ("log loss, cross-fitted", lambda line: decimal(line["log_loss"])),
        ("95 % interval", interval),
        ("weight in the mixture", weight),
    )
    return Section("calibrators", "Calibrators", (Text(text), table), is_collapsed=True)


MAX_GROUPS = 20
MAX_NAME = 24


def groups_section(summary: Summary) -> Section | None:
    """Return the metrics of all groups, if groups were given: of a policy's decisions, if any.

    Without a policy, they are about the model before calibration.
    """
    whole, whose = summary.whole, "the uncalibrated model"
    if summary.policy is not None:
        whole, whose = summary.audit_after, "the policy, with calibrated probabilities"
    comparison = whole.group_comparison
    if comparison is None or not comparison.metrics:
        return None
    shown = sorted(comparison.metrics, key=lambda name: -whole.groups[name].n_effective)
    left_out, shown = len(shown[MAX_GROUPS:]), shown[:MAX_GROUPS]
    intro = f"Figures of {whose}. "
    if whole.positive is not None:
        intro = f"Figures of {whose}, {prediction_rule(whole.positive)}. "
    if summary.has_other_rejects:
        intro += "What the OOD gate or the risk bound reject is decided like the others here. "
    intro += (
        "All 95 % intervals of one metric hold at once, for "
        f"{quantity(len(comparison.metrics), 'group')}; differences hold for all pairs of groups."
    )
    if left_out:
        intro += f" {quantity(left_out, 'smaller group')} not shown."
    if comparison.too_few_rows:
        few = ", ".join(sorted(comparison.too_few_rows)[:MAX_GROUPS])
        intro += f" Groups with fewer than {MIN_ROWS} rows, not compared: {few}."
    figures = [_figure(comparison, one, shown) for one in TITLES if one in comparison.disparities]
    blocks: list[Block] = [Row(tuple(figures)), _figure_table(whole, comparison, shown)]
    if comparison.disparities:
        blocks.insert(0, _disparity_table(comparison))
    return Section("groups", "Do groups differ?", (Text(intro), *blocks))


def _disparity_table(comparison: GroupComparison) -> Table:
    """Return the largest difference of each metric."""
    return Table.of(
        "Largest differences between two groups",
        comparison.disparities.items(),
        ("metric", lambda one: TITLES[one[0]]),
        ("difference", lambda one: figure_texts(one[1].interval, one[0], "points")[0]),
        ("95 % interval", lambda one: figure_texts(one[1].interval, one[0])[1]),
        ("highest", lambda one: one[1].highest),
        ("lowest", lambda one: one[1].lowest),
        ("", lambda one: "beyond chance" if one[1].interval.low > 0 else ""),
        texts=(0, 3, 4, 5),
    )


def _figure(comparison: GroupComparison, name: str, groups: list[str]) -> Figure:
    """Return a metric of all groups as dots with whiskers."""
    rows = []
    for group in groups:
        one = comparison.metrics[group].get(name)
        if one is not None:
            title = group if len(group) <= MAX_NAME else f"{group[: MAX_NAME - 1]}…"
            rows.append(SpanRow(title, (Span("neutral", one.low, one.value, one.high),)))
    title = TITLES[name][0].upper() + TITLES[name][1:]
    formatter = plain if name in (*AREAS, "mean_cost") else short_percent
    chart = span_chart(title, rows, "Intervals that hold for all groups at once", formatter)
    return Figure(title, (chart,), "")


def _figure_table(audit: Audit, comparison: GroupComparison, groups: list[str]) -> Table:
    """Return all metrics with their intervals."""

    def cell(group: str, name: str) -> str:
        one = comparison.metrics[group].get(name)
        return "-" if one is None else "{} ({})".format(*figure_texts(one, name))

    return Table.of(
        "Figures per group, with simultaneous 95 % intervals in parentheses",
        groups,
        ("group", str),
        ("rows", lambda group: f"{audit.groups[group].n_rows:,}"),
        *(
            (TITLES[name], lambda group, name=name: cell(group, name))
            for name in TITLES
            if any(name in one for one in comparison.metrics.values())
        ),
    )
