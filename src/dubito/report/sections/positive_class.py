"""The positive class of two: calibration, ranking and gains, and thresholds moved on the page."""

from __future__ import annotations

from functools import partial

import numpy as np
from markupsafe import Markup

from dubito.charts import Axis, Bars, Chart, Line, Points
from dubito.formatting import ABSENT, cost, percent, plain, short_percent
from dubito.measure import BinaryAudit
from dubito.report.chart_builders import RANGE, log_odds, odds_axis, threshold_charts
from dubito.report.content import Card, Cards, Figure, Row, Section, Table, Text, between, fragment
from dubito.report.sample import Thresholds
from dubito.report.sections.abstention import ANCHOR, PER
from dubito.report.summary import Summary
from dubito.report.verdict import decision_lines

RARE = 0.1  # below this frequency, linear axes would show a single corner


def positive_class_section(summary: Summary) -> Section | None:
    """Return what is known of the probability of the positive class, if there is one."""
    whole, after = summary.whole.positive, summary.audit_after.positive
    before = summary.audit_before.positive
    if whole is None or before is None or after is None:
        return None
    name = f"P({whole.pos_label})"
    intro = (
        f"Rows are sorted by {name} into equal-mass bins. On the dashed line, the probability "
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
        found = whole.intervals.get(key)
        if found is None:
            return None
        shown = partial(percent, digits=2) if is_percent else "{:.3f}".format
        return Card(title, shown(found.value), between(found, shown) + note)

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
        Bars(left, right, place(curve.high), "band", RANGE, low=place(curve.low)),
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
        (RANGE, lambda k: f"{percent(curve.low[k], 2)} to {percent(curve.high[k], 2)}"),
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
        ("recall", lambda k: percent(lines[k].recall)),
    )


def thresholds_section(summary: Summary) -> Section:
    """Return the thresholds between actions with their figures, and the curves they move on."""
    rows = summary.thresholds
    assert rows is not None
    name = f"P({rows.classes[1]})"
    found = summary.policy_report or (summary.cost_report if rows.has_given_costs else None)
    lines = [] if found is None else decision_lines(found)[1:]
    notes = [Text(" ".join(lines))] if lines else []
    intro, panel = Text(_intro(summary, rows, name)), _panel(rows, name)
    charts, tables = _figures(rows, name), _tables(rows, name)
    return Section(ANCHOR, "Which threshold?", (intro, panel, charts, tables, *notes))


def _intro(summary: Summary, rows: Thresholds, name: str) -> str:
    """Return what can be moved, on which rows it is computed, and where the costs come from."""
    n_all = len(summary.after)
    which = "all" if rows.n_rows == n_all else f"a random sample of {rows.n_rows:,} of"
    origin = "The costs are those given for this report."
    if not rows.has_given_costs:
        origin = "No costs were given, so that every error costs 1: enter your own."
    elif summary.policy_report is not None:
        origin = "The costs are those of the policy."
        if summary.has_other_rejects:
            origin += " What its OOD gate or risk bound reject is decided by threshold here."
    return (
        f"Drag a threshold, or select it and press the arrow keys: the figures follow, on {which} "
        f"{n_all:,} rows with calibrated {name}, out of sample. {origin}"
    )


def _figures(rows: Thresholds, name: str) -> Row:
    """Return the rows above the thresholds, and the cost of moving one."""
    rates, costs = threshold_charts(rows, name)
    rate_text = (
        f"From left to right, {name} rises on a scale of log odds. A good model keeps the recall "
        "high where few of all rows are left."
    )
    cost_text = (
        "The cost of moving the selected threshold while the others stay. Near the minimum the "
        "line is flat: there the exact threshold matters little."
    )
    return Row(
        (
            Figure("What is at or above the threshold", (rates,), rate_text, anchor="rates-chart"),
            Figure("What the threshold costs", (costs,), cost_text, anchor="threshold-cost-chart"),
        )
    )


def _panel(rows: Thresholds, name: str) -> Markup:
    """Return the figures at the optimal thresholds, and the controls."""
    found = rows.at(rows.optimal)
    first = found.confusions[0]
    action = _names_from(rows, 1)
    cards = (
        ("cost", "Mean cost per row", plain(found.cost)),
        ("total", f"Cost per {PER:,} rows", cost(PER * found.cost)[0]),
        ("precision", f"Precision of “{action}”", percent(first.precision, 2)),
        ("recall", f"Recall of “{action}”", percent(first.recall, 2)),
    )
    return fragment("thresholds.html.j2", cards=cards, name=name, rows=rows, absent=ABSENT)


def _tables(rows: Thresholds, name: str) -> Markup:
    """Return the confusion matrix by action, and the rates at each threshold."""
    found, actions = rows.at(rows.optimal), rows.costs.actions
    unused = [k for k in range(len(actions)) if k not in rows.actions]
    ends = (0.0, *rows.optimal, 1.0)
    paid = (PER * found.table * rows.costs.array[:, [1 - rows.column, rows.column]]).sum(axis=1)
    costs = cost(*paid.tolist())
    lines = []
    for place, k in enumerate([*rows.actions, *unused]):
        negative, positive = (PER * found.table[k]).tolist()
        is_used = place < len(rows.actions)
        between = f"{ends[place]:.3g} to {ends[place + 1]:.3g}" if is_used else ABSENT
        counts = (f"{one:,.0f}" for one in (negative, positive, negative + positive))
        lines.append((k, actions[k], between, *counts, costs[k]))
    rates: list[tuple[str, tuple[str, ...], bool]] = []
    for k, one in enumerate(found.confusions):
        values = (one.precision, one.recall, one.false_positive_rate, one.selection_rate)
        cells = f"{one.threshold:.3g}", *(percent(value, 2) for value in values)
        rates.append((_names_from(rows, k + 1), cells, False))
    rates += [("", ("",) * 5, True)] * (len(actions) - 1 - len(rates))  # for the page's script
    return fragment(
        "threshold_tables.html.j2",
        name=name, classes=rows.classes, lines=lines, rates=rates, per=f"{PER:,}", rows=rows,
    )  # fmt: skip


def _names_from(rows: Thresholds, place: int) -> str:
    """Return the actions from a threshold on, such as 'review or block'."""
    return " or ".join(rows.costs.actions[k] for k in rows.actions[place:])
