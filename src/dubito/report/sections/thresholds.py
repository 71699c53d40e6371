"""The decision by thresholds of P(positive): costs, precision and recall, moved on the page."""

from __future__ import annotations

from markupsafe import Markup

from dubito.formatting import ABSENT, cost, percent, plain
from dubito.report.charts.builders import threshold_charts
from dubito.report.content import Figure, Row, Section, Text
from dubito.report.operating_points import Thresholds
from dubito.report.page import fragment
from dubito.report.sections.abstention import ANCHOR, PER
from dubito.report.summary import Summary
from dubito.report.verdict import decision_lines


def thresholds_section(summary: Summary) -> Section:
    """Return the thresholds between actions with their figures, and the curves they move on."""
    rows = summary.thresholds
    assert rows is not None
    name = f"P({rows.classes[1]})"
    found = summary.policy_report or (summary.cost_report if rows.has_given_costs else None)
    lines = [] if found is None else decision_lines(found)[1:]
    return Section(
        ANCHOR,
        "Which threshold?",
        (
            Text(_intro(summary, rows, name)),
            _panel(rows, name),
            _figures(rows, name),
            _tables(rows, name),
            *([Text(" ".join(lines))] if lines else []),
        ),
    )


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
    return Row(
        (
            Figure(
                "What is at or above the threshold",
                (rates,),
                f"From left to right, {name} rises on a scale of log odds. A good model keeps the "
                "recall high where few of all rows are left.",
                anchor="rates-chart",
            ),
            Figure(
                "What the threshold costs",
                (costs,),
                "The cost of moving the selected threshold while the others stay. Near the "
                "minimum the line is flat: there the exact threshold matters little.",
                anchor="threshold-cost-chart",
            ),
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
    rates = []
    for k in range(len(actions) - 1):
        one = found.confusions[k] if k < len(found.confusions) else None
        names = _names_from(rows, k + 1)
        cells: tuple[str, ...] = ("",) * 5
        if one is not None:
            values = (one.precision, one.recall, one.false_positive_rate, one.selection_rate)
            cells = (f"{one.threshold:.3g}", *(percent(value, 2) for value in values))
        rates.append((names, cells, one is None))
    return fragment(
        "threshold_tables.html.j2",
        name=name, classes=rows.classes, lines=lines, rates=rates, per=f"{PER:,}", rows=rows,
    )  # fmt: skip


def _names_from(rows: Thresholds, place: int) -> str:
    """Return the actions from a threshold on, such as 'review or block'."""
    return " or ".join(rows.costs.actions[k] for k in rows.actions[place:])
