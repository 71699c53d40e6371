"""The section on groups: rates, calibration and cost with simultaneous intervals."""

from __future__ import annotations

from dubito.charts import Span, SpanRow
from dubito.formatting import plain, quantity, short_percent
from dubito.measure import Audit
from dubito.measure.groups import AREAS, TITLES, GroupComparison
from dubito.measure.text import decided, figure_texts
from dubito.report.charts.builders import span_chart
from dubito.report.content import Block, Figure, Row, Section, Table, Text
from dubito.report.summary import Summary

MAX_GROUPS = 20
MAX_NAME = 24


def groups_section(summary: Summary) -> Section | None:
    """Return the figures of all groups, if groups were given: of a policy's decisions, if any.

    Without a policy, they are about the model before calibration.
    """
    whole, whose = summary.whole, "the uncalibrated model"
    if summary.policy is not None:
        whole, whose = summary.audit_after, "the policy, with calibrated probabilities"
    comparison = whole.group_comparison
    if comparison is None or not comparison.figures:
        return None
    shown = sorted(comparison.figures, key=lambda name: -whole.groups[name].n_effective)
    left_out, shown = len(shown[MAX_GROUPS:]), shown[:MAX_GROUPS]
    intro = f"Figures of {whose}. "
    if whole.positive is not None:
        intro += f"Rows are {decided(whole.positive)}. "
    if summary.has_other_rejects:
        intro += "What the OOD gate or the risk bound reject is decided like the others here. "
    intro += (
        "All 95 % intervals of one figure hold at once, for "
        f"{quantity(len(comparison.figures), 'group')}; differences hold for all pairs of groups."
    )
    if left_out:
        intro += f" {quantity(left_out, 'smaller group')} not shown."
    if comparison.too_few_rows:
        few = ", ".join(sorted(comparison.too_few_rows)[:MAX_GROUPS])
        intro += f" Too few rows to compare: {few}."
    blocks: list[Block] = [Text(intro)]
    if comparison.disparities:
        blocks.append(_disparity_table(comparison))
    names = [name for name in TITLES if name in comparison.disparities]
    blocks.append(Row(tuple(_figure(comparison, name, shown) for name in names)))
    blocks.append(_figure_table(whole, comparison, shown))
    return Section("groups", "Do groups differ?", tuple(blocks))


def _disparity_table(comparison: GroupComparison) -> Table:
    """Return the largest difference of each figure."""
    return Table.of(
        "Largest differences between two groups",
        comparison.disparities.items(),
        ("figure", lambda one: TITLES[one[0]]),
        ("difference", lambda one: figure_texts(one[1].interval, one[0], "points")[0]),
        ("95 % interval", lambda one: figure_texts(one[1].interval, one[0])[1]),
        ("highest", lambda one: one[1].highest),
        ("lowest", lambda one: one[1].lowest),
        ("", lambda one: "beyond chance" if one[1].interval.low > 0 else ""),
        texts=(0, 3, 4, 5),
    )


def _figure(comparison: GroupComparison, name: str, groups: list[str]) -> Figure:
    """Return a figure of all groups as dots with whiskers."""
    rows = []
    for group in groups:
        one = comparison.figures[group].get(name)
        if one is not None:
            title = group if len(group) <= MAX_NAME else f"{group[: MAX_NAME - 1]}…"
            rows.append(SpanRow(title, (Span("neutral", one.low, one.value, one.high),)))
    title = TITLES[name][0].upper() + TITLES[name][1:]
    formatter = plain if name in (*AREAS, "mean_cost") else short_percent
    return Figure(
        title,
        (span_chart(title, rows, "Intervals that hold for all groups at once", formatter),),
        "",
    )


def _figure_table(audit: Audit, comparison: GroupComparison, groups: list[str]) -> Table:
    """Return all figures with their intervals."""

    def cell(group: str, name: str) -> str:
        one = comparison.figures[group].get(name)
        return "-" if one is None else "{} ({})".format(*figure_texts(one, name))

    return Table.of(
        "Figures per group, with simultaneous 95 % intervals in parentheses",
        groups,
        ("group", str),
        ("rows", lambda group: f"{audit.groups[group].n_rows:,}"),
        *(
            (TITLES[name], lambda group, name=name: cell(group, name))
            for name in TITLES
            if any(name in one for one in comparison.figures.values())
        ),
    )
