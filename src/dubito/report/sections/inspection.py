"""Rows, classes and groups to inspect, and how the report was computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import IntArray
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.measure import Audit
from dubito.report.content import Block, Code, Facts, Row, Section, Table, Text
from dubito.report.formatting import percentage, points
from dubito.report.summary import Provenance, Summary, class_names

N_ROWS = 15
MAX_LINES = 50


@final
@dataclass(frozen=True, slots=True)
class NotableRow:
    """A row, its predicted and true class, and its confidence before and after calibration."""

    id: str
    predicted: str
    truth: str
    before: float
    after: float


@final
@dataclass(frozen=True, slots=True)
class Confusion:
    """A class predicted as another: how often, as a fraction of the class, how confidently."""

    truth: str
    predicted: str
    count: int
    fraction: float
    confidence: float


@final
@dataclass(frozen=True, slots=True)
class ClassCounts:
    """How often a class occurs and is predicted, with precision and recall."""

    name: str
    count: int
    predicted: int
    precision: float | None
    recall: float | None


def provenance_section(provenance: Provenance, facts: tuple[tuple[str, str], ...]) -> Section:
    """Return how the report was computed; `facts` are specific to its kind."""
    versions = ", ".join(f"{name} {number}" for name, number in provenance.versions)
    pairs = (
        *facts,
        ("Data fingerprint", provenance.fingerprint),
        ("Random seed", f"{provenance.seed}"),
        ("Versions", versions),
    )
    blocks: list[Block] = [Facts(pairs)]
    if provenance.command is not None:
        blocks += [Text("To reproduce this report:"), Code(provenance.command)]
    return Section("provenance", "How it was computed", tuple(blocks))


def inspection_section(summary: Summary) -> Section:
    """Return tables of rows, confused classes, classes and groups."""
    uncertain, wrong = _notable_rows(summary.before, summary.after, N_ROWS)
    caption = "The most confident errors: check their labels"
    rows = _rows_table("The most uncertain rows", uncertain), _rows_table(caption, wrong)
    blocks: list[Block] = [Row(rows)]
    confused = _confusions(summary.after, N_ROWS)
    if confused:
        blocks.append(_confusion_table(confused))
    if summary.audit_before.classes:
        blocks.append(_class_table(summary))
    if summary.audit_before.groups:
        blocks.append(_group_table(summary.audit_before.groups, summary.audit_after.groups))
    return Section("rows", "Rows, classes and groups to inspect", tuple(blocks))


def _notable_rows(
    before: Batch, after: Batch, n_rows: int
) -> tuple[tuple[NotableRow, ...], tuple[NotableRow, ...]]:
    """Return the most uncertain rows, and the most confident errors, after calibration."""
    doubt, is_wrong = after.rows.least_confidence, after.rows.correct < 0.5
    order = np.argsort(-doubt, kind="stable")
    confident = np.argsort(doubt, kind="stable")
    confident = confident[is_wrong[confident]]
    return (
        tuple(_notable_row(before, after, row) for row in order[:n_rows].tolist()),
        tuple(_notable_row(before, after, row) for row in confident[:n_rows].tolist()),
    )


def _notable_row(before: Batch, after: Batch, row: int) -> NotableRow:
    """Return one row as text."""
    predicted, labels, names = after.rows.predicted, after.labels, class_names(after)
    correct = float(after.rows.correct[row])
    truth = {1.0: "right", 0.0: "wrong"}.get(correct, f"right with probability {correct:.0%}")
    if isinstance(labels, Labels) and labels.probabilities is None and names:
        truth = names[labels.codes[row]]
    return NotableRow(
        id=str(before.ids[row]) if before.ids is not None else f"row {row:,}",
        predicted=names[predicted[row]] if names and predicted is not None else "the answer",
        truth=truth,
        before=float(before.rows.confidence[row]),
        after=float(after.rows.confidence[row]),
    )


def _true_and_predicted(batch: Batch) -> tuple[IntArray, IntArray] | None:
    """Return the true and the predicted class of each row, None if either is unknown."""
    truth, predicted = batch.labels, batch.rows.predicted
    if not isinstance(truth, Labels) or truth.probabilities is not None or predicted is None:
        return None
    return truth.codes, predicted.astype(np.int64)


def _confusions(batch: Batch, max_lines: int) -> tuple[Confusion, ...]:
    """Return which classes are predicted as which others, the most frequent first."""
    pairs = _true_and_predicted(batch)
    if pairs is None:
        return ()
    names, (true, predicted) = class_names(batch), pairs
    sizes = np.bincount(true, minlength=len(names))
    wrong = np.flatnonzero(true != predicted)
    flat, place, counts = np.unique(
        true[wrong] * len(names) + predicted[wrong], return_inverse=True, return_counts=True
    )
    confidence = np.bincount(place, batch.rows.confidence[wrong], minlength=flat.size) / counts
    lines = []
    for k in np.argsort(-counts, kind="stable")[:max_lines]:
        (t, p), count = divmod(int(flat[k]), len(names)), int(counts[k])
        fraction = count / int(sizes[t])
        lines.append(Confusion(names[t], names[p], count, fraction, float(confidence[k])))
    return tuple(lines)


def _class_counts(batch: Batch) -> tuple[ClassCounts, ...]:
    """Return the counts of each class, unweighted."""
    pairs = _true_and_predicted(batch)
    if pairs is None:
        return ()
    names, (true, predicted) = class_names(batch), pairs
    counts, n_predicted, hits = (
        np.bincount(codes, minlength=len(names)).tolist()
        for codes in (true, predicted, true[true == predicted])
    )
    return tuple(
        ClassCounts(name, n, m, hit / m if m else None, hit / n if n else None)
        for name, n, m, hit in zip(names, counts, n_predicted, hits, strict=True)
    )


def _rows_table(caption: str, rows: Sequence[NotableRow]) -> Block:
    """Return a table of rows."""
    if not rows:
        return Text(f"{caption.split(':')[0]}: none.")
    columns = ("id", "predicted as", "label", "confidence before", "after")
    lines = tuple(
        (one.id, one.predicted, one.truth, percentage(one.before, 2), percentage(one.after, 2))
        for one in rows
    )
    return Table(caption, columns, lines, texts=(0, 1, 2))


def _confusion_table(confused: Sequence[Confusion]) -> Table:
    """Return a table of confused classes."""
    columns = ("class", "predicted as", "rows", "fraction of the class", "mean confidence")
    lines = tuple(
        (
            one.truth,
            one.predicted,
            f"{one.count:,}",
            percentage(one.fraction),
            percentage(one.confidence),
        )
        for one in confused
    )
    return Table("The most frequent confusions, after calibration", columns, lines, texts=(0, 1))


def _class_table(summary: Summary) -> Table:
    """Return a table of classes, the largest calibration error first."""
    counts = {one.name: one for one in _class_counts(summary.after)}
    after = {one.name: one for one in summary.audit_after.classes}
    ranked = sorted(summary.audit_before.classes, key=lambda one: -one.calibration_error)
    lines = []
    for one in ranked[:MAX_LINES]:
        count, now = counts.get(str(one.name)), after[one.name]
        lines.append(
            (
                str(one.name),
                percentage(one.frequency),
                percentage(one.probability),
                percentage(now.probability),
                percentage(one.calibration_error, 2),
                percentage(now.calibration_error, 2),
                percentage(None if count is None else count.precision),
                percentage(None if count is None else count.recall),
            )
        )
    columns = (
        "class",
        "observed frequency",
        "mean probability before",
        "after",
        "ECE before",
        "after",
        "precision",
        "recall",
    )
    bins = f"{summary.audit_before.n_bins} bins of equal width"
    more = _first_lines(len(ranked))
    caption = (
        f"Classes, the largest calibration error first{more}; {bins}, precision and recall after "
        "calibration"
    )
    return Table(caption, columns, tuple(lines))


def _group_table(before: dict[str, Audit], after: dict[str, Audit]) -> Table:
    """Return a table of groups, the largest gap first."""
    ranked = sorted(before, key=lambda name: -abs(before[name].gap))
    lines = tuple(
        (
            name,
            f"{before[name].n_rows:,}",
            percentage(before[name].confidence),
            percentage(before[name].accuracy),
            _gap(before[name]),
            _gap(after[name]),
            percentage(before[name].expected_calibration_error),
            percentage(after[name].expected_calibration_error),
            percentage(after[name].expected_if_calibrated),
        )
        for name in ranked[:MAX_LINES]
    )
    columns = (
        "group",
        "rows",
        "confidence",
        "accuracy",
        "gap before, points",
        "gap after",
        "ECE before",
        "after",
        "expected if calibrated",
    )
    more = _first_lines(len(ranked))
    caption = (
        f"Groups, the largest gap (confidence - accuracy) first{more}; 95\u00a0% intervals in "
        "parentheses"
    )
    return Table(caption, columns, lines)


def _first_lines(n_lines: int) -> str:
    """Return a note on lines that are left out."""
    return f" (the first {MAX_LINES} of {n_lines})" if n_lines > MAX_LINES else ""


def _gap(audit: Audit) -> str:
    """Return the gap in points, with its interval."""
    interval = audit.intervals.get("gap")
    ends = f" ({points(interval.low)} to {points(interval.high)})" if interval else ""
    return f"{points(audit.gap)}{ends}"
