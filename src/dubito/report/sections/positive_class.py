"""The section on the positive class of two: calibration, ranking and gains."""

from __future__ import annotations

import numpy as np

from dubito.charts import Axis, Bars, Chart, Line, Points
from dubito.formatting import percent, short_percent
from dubito.measure import BinaryAudit, Interval
from dubito.report.charts.builders import log_odds, odds_axis
from dubito.report.content import Card, Cards, Figure, Row, Section, Table, Text
from dubito.report.summary import Summary

RARE = 0.1  # below this frequency, linear axes would show a single corner


def positive_class_section(summary: Summary) -> Section | None:
    """Return what is known of the probability of the positive class, if there is one."""
    whole, after = summary.whole.positive, summary.audit_after.positive
    before = summary.audit_before.positive
    if whole is None or before is None or after is None:
        return None
    name = f"P({whole.pos_label})"
    intro = (
        f"Rows are sorted by {name} into equally filled bins. On the dashed line, the probability "
        "equals the observed frequency; gray boxes show where the frequency of a calibrated model "
        "would lie with 95 % probability."
    )
    pairs = (("Before calibration", before, "before"), ("After calibration", after, "after"))
    figures = Row(tuple(positive_figure(*pair) for pair in pairs))
    parts = (_cards(whole, after), Text(intro), figures, _gains(whole))
    return Section("positive", f"Is {name} right?", parts)


def _cards(whole: BinaryAudit, after: BinaryAudit) -> Cards:
    """Return the key metrics with their intervals."""

    def card(title: str, key: str, note: str, is_percent: bool = False) -> Card | None:
        found: Interval | None = whole.intervals.get(key)
        if found is None:
            return None
        values = (found.value, found.low, found.high)
        value, low, high = (percent(v, 2) if is_percent else f"{v:.3f}" for v in values)
        return Card(title, value, f"95 % interval {low} to {high}{note}")

    later = after.intervals.get("calibration_slope")
    slope_note = "; 1 if calibrated" + ("" if later is None else f", {later.value:.2f} after")
    cards = (
        card("Mean probability", "mean_probability", "", True),
        card("Observed frequency", "base_rate", "", True),
        card("Calibration slope", "calibration_slope", slope_note),
        card("ROC-AUC", "roc_auc", ""),
        card("Average precision", "average_precision", f"; {whole.base_rate:.3f} if random"),
    )
    return Cards(tuple(one for one in cards if one is not None))


def positive_figure(title: str, audit: BinaryAudit, style: str) -> Figure:
    """Return the observed frequency over the probability, with a table."""
    curve, name = audit.curve, f"P({audit.pos_label})"
    ends = np.concatenate([curve.confidence, curve.accuracy, curve.high])
    is_rare = min(audit.base_rate, 1 - audit.base_rate) < RARE
    titles = (name, "Observed frequency")
    if is_rare:
        x, y = (odds_axis(ends[ends > 0], f"{one}, %", lambda p: f"{100 * p:g}") for one in titles)
    else:
        x, y = (Axis.of(ends, one, short_percent) for one in titles)
    place = log_odds if is_rare else np.asarray
    left, right = (place(curve.edges[curve.bins + k]).clip(x.low, x.high) for k in (0, 1))
    at, seen_at = place(curve.confidence), place(curve.accuracy)
    is_drawn = (curve.accuracy > 0) | (not is_rare)  # log odds of 0 would be a cliff
    hints = tuple(
        f"{name} {percent(mean, 2)}, observed {percent(seen, 2)} ({count:,.0f} rows)"
        for mean, seen, count in zip(curve.confidence, curve.accuracy, curve.count, strict=True)
    )
    marks = (
        Bars(
            left,
            right,
            place(curve.high),
            "band",
            "95 % range of a calibrated model",
            low=place(curve.low),
        ),
        Line([x.low, x.high], [x.low, x.high], "reference", "calibrated"),
        Line(at[is_drawn], seen_at[is_drawn], style, ""),
        Points(at, seen_at, style, count=curve.count, hints=hints),
    )
    table = Table.of(
        f"{title}: {curve.edges.size - 1} {audit.bin_strategy} bins",
        range(curve.count.size),
        ("rows", lambda k: f"{curve.count[k]:,.0f}"),
        ("probability", lambda k: percent(curve.confidence[k], 2)),
        ("observed frequency", lambda k: percent(curve.accuracy[k], 2)),
        (
            "95 % range of a calibrated model",
            lambda k: f"{percent(curve.low[k], 2)} to {percent(curve.high[k], 2)}",
        ),
    )
    slope = audit.intervals.get("calibration_slope")
    caption = f"ECE {percent(audit.expected_calibration_error, 2)}"
    caption += "." if slope is None else f", calibration slope {slope.value:.2f}."
    if is_rare:
        caption += " Both axes are on a scale of log odds"
        caption += "; frequencies of 0 lie at the bottom." if (curve.low == 0).any() else "."
    return Figure(title, (Chart(f"{title}: {name}", x, y, marks),), caption, table)


def _gains(audit: BinaryAudit) -> Table:
    """Return gains and lift by deciles of the rows."""
    lines = audit.deciles
    return Table.of(
        "Rows from the highest probability down: how many positives they hold",
        range(len(lines)),
        ("rows", lambda k: f"top {percent(lines[k].fraction)}"),
        ("from probability", lambda k: f"{lines[k].threshold:.3g}"),
        ("observed frequency in this decile", lambda k: percent(lines[k].frequency, 2)),
        ("lift", lambda k: f"{lines[k].lift:.2f}"),
        ("positives found (recall)", lambda k: percent(lines[k].recall)),
    )
