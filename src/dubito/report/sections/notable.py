"""Rows, classes and groups to look at, and how the report was computed."""

from __future__ import annotations

from collections.abc import Sequence

from dubito.measure import Audit
from dubito.report.blocks import Block, Code, Facts, Row, Section, Table, Text
from dubito.report.formatting import points, share
from dubito.report.notable import NotableRow, by_class, confusions, notable_rows
from dubito.report.summary import Provenance, Summary


def computing(provenance: Provenance, facts: tuple[tuple[str, str], ...]) -> Section:
    """Return where the report comes from; `facts` are what this kind of report has to add."""
    versions = ", ".join(f"{name} {number}" for name, number in provenance.versions)
    pairs = (
        *facts,
        ("fingerprint of the rows", provenance.fingerprint),
        ("seed of all that is drawn", f"{provenance.seed}"),
        ("versions", versions),
    )
    blocks: list[Block] = [Facts(pairs)]
    if provenance.command is not None:
        blocks += [Text("To make it again:"), Code(provenance.command)]
    return Section("computing", "How it was computed", tuple(blocks))


N_ROWS = 15
MOST_LINES = 50


def looking(summary: Summary) -> Section:
    """Return tables of rows, of confused classes, of classes and of groups."""
    doubtful, surely_wrong = notable_rows(summary.before, summary.after, N_ROWS)
    blocks: list[Block] = [
        Row(
            (
                _rows_table("The most doubtful rows", doubtful),
                _rows_table(
                    "The most confidently wrong rows: look for false labels here", surely_wrong
                ),
            )
        )
    ]
    confused = confusions(summary.after, N_ROWS)
    if confused:
        blocks.append(_confusion_table(summary))
    if summary.audit_before.classes:
        blocks.append(_class_table(summary))
    if summary.audit_before.groups:
        blocks.append(_group_table(summary.audit_before.groups, summary.audit_after.groups))
    return Section("rows", "Rows, classes and groups to look at", tuple(blocks))


def _rows_table(caption: str, rows: Sequence[NotableRow]) -> Block:
    """Return rows, each by its id."""
    if not rows:
        return Text(f"{caption.split(':')[0]}: there are none.")
    columns = ("id", "taken for", "is", "confidence before", "after")
    lines = tuple(
        (one.id, one.predicted, one.truth, share(one.before, 2), share(one.after, 2))
        for one in rows
    )
    return Table(caption, columns, lines, texts=(0, 1, 2))


def _confusion_table(summary: Summary) -> Table:
    """Return which classes are taken for which."""
    columns = ("class", "taken for", "rows", "of the class", "mean confidence in it")
    lines = tuple(
        (one.truth, one.predicted, f"{one.count:,}", share(one.share), share(one.confidence))
        for one in confusions(summary.after, N_ROWS)
    )
    return Table("The classes most confused, after calibration", columns, lines, texts=(0, 1))


def _class_table(summary: Summary) -> Table:
    """Return a line a class, the worst calibrated first."""
    counts = {one.name: one for one in by_class(summary.after)}
    after = {one.name: one for one in summary.audit_after.classes}
    ranked = sorted(summary.audit_before.classes, key=lambda one: -one.calibration_error)
    lines = []
    for one in ranked[:MOST_LINES]:
        found, now = counts.get(str(one.name)), after[one.name]
        lines.append(
            (
                str(one.name),
                share(one.frequency),
                share(one.probability),
                share(now.probability),
                share(one.calibration_error, 2),
                share(now.calibration_error, 2),
                share(None if found is None else found.precision),
                share(None if found is None else found.recall),
            )
        )
    columns = (
        "class",
        "occurs",
        "said to, before",
        "after",
        "calibration error, before",
        "after",
        "right when said",
        "found when true",
    )
    more = f" (the first {MOST_LINES} of {len(ranked)})" if len(ranked) > MOST_LINES else ""
    bins = f"{summary.audit_before.n_bins} bins of equal width"
    caption = f"Classes, the worst calibrated first{more}; {bins}, the last two after calibration"
    return Table(caption, columns, tuple(lines))


def _group_table(before: dict[str, Audit], after: dict[str, Audit]) -> Table:
    """Return a line a group, the largest gap first."""
    ranked = sorted(before, key=lambda name: -abs(before[name].gap))
    lines = tuple(
        (
            name,
            f"{before[name].n_rows:,}",
            share(before[name].confidence),
            share(before[name].accuracy),
            _gap_of(before[name]),
            _gap_of(after[name]),
            share(before[name].expected_calibration_error),
            share(after[name].expected_calibration_error),
            share(after[name].expected_if_calibrated),
        )
        for name in ranked[:MOST_LINES]
    )
    columns = (
        "group",
        "rows",
        "says",
        "is right",
        "gap before, points",
        "gap after",
        "calibration error before",
        "after",
        "if calibrated",
    )
    more = f" (the first {MOST_LINES} of {len(ranked)})" if len(ranked) > MOST_LINES else ""
    caption = f"Groups, the largest gap first{more}; 95 % intervals in brackets"
    return Table(caption, columns, lines)


def _gap_of(audit: Audit) -> str:
    """Return the gap in points, with its interval."""
    between = audit.intervals.get("gap")
    ends = f" ({points(between.low)} to {points(between.high)})" if between else ""
    return f"{points(audit.gap)}{ends}"
