"""Rows, classes and groups to inspect, and how the report was computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dubito.arrays import IntArray
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.formatting import ABSENT, percent, points
from dubito.measure import Audit
from dubito.report.content import Block, Code, Facts, Row, Section, Table, Text
from dubito.report.sample import class_names
from dubito.report.summary import Summary

N_ROWS = 15
MAX_LINES = 50


def provenance_section(facts: Sequence[tuple[str, str]], command: str | None) -> Section:
    """Return how the report was computed."""
    blocks: list[Block] = [Facts(tuple(facts))]
    if command is not None:
        blocks += [Text("To reproduce this report:"), Code(command)]
    return Section("provenance", "How it was computed", tuple(blocks))


def inspection_section(summary: Summary) -> Section:
    """Return tables of rows, confused classes, classes and groups."""
    uncertainty, is_wrong = summary.after.rows.least_confidence, summary.after.rows.correct < 0.5
    confident = np.argsort(uncertainty, kind="stable")
    least = np.argsort(-uncertainty, kind="stable")
    uncertain = _rows_table("The most uncertain rows", summary, least)
    caption = "The most confident errors: check their labels"
    wrong = _rows_table(caption, summary, confident[is_wrong[confident]])
    tables = [_confusion_table(summary.after), _class_table(summary), _group_table(summary)]
    if summary.thresholds is not None:  # otherwise it is part of the decisions
        tables.insert(0, predictions_table(summary.after))
    blocks: list[Block] = [Row((uncertain, wrong)), *(table for table in tables if table.rows)]
    return Section("rows", "Rows, classes and groups to inspect", tuple(blocks))


def _rows_table(caption: str, summary: Summary, order: IntArray) -> Block:
    """Return a table of the first of some rows, before and after calibration."""
    if not order.size:
        return Text(f"{caption.split(':')[0]}: none.")
    ids, (before, after) = summary.before.ids, (summary.before.rows, summary.after.rows)
    names, labels, predicted = class_names(summary.after), summary.after.labels, after.predicted

    def label(row: int) -> str:
        if isinstance(labels, Labels) and labels.probabilities is None and names:
            return names[int(labels.codes[row])]
        correct = float(after.correct[row])
        return {1.0: "right", 0.0: "wrong"}.get(
            correct, f"right with probability {percent(correct, 0)}"
        )

    return Table.of(
        caption,
        order[:N_ROWS].tolist(),
        ("id", lambda row: f"row {row:,}" if ids is None else str(ids[row])),
        ("predicted as", lambda row: "the answer" if predicted is None else names[predicted[row]]),
        ("label", label),
        ("confidence before", lambda row: percent(before.confidence[row], 2)),
        ("after", lambda row: percent(after.confidence[row], 2)),
        texts=(0, 1, 2),
    )


def _true_and_predicted(batch: Batch) -> tuple[IntArray, IntArray]:
    """Return the true and the predicted class of each row, nothing if either is unknown."""
    truth, predicted = batch.labels, batch.rows.predicted
    if not isinstance(truth, Labels) or truth.probabilities is not None or predicted is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return truth.codes, predicted.astype(np.int64)


def _confusion_table(batch: Batch) -> Table:
    """Return which classes are predicted as which others, the most frequent first."""
    names, (true, predicted) = class_names(batch), _true_and_predicted(batch)
    sizes = np.bincount(true, minlength=len(names))
    wrong = np.flatnonzero(true != predicted)
    pairs, place, counts = np.unique(
        np.stack([true[wrong], predicted[wrong]]), axis=1, return_inverse=True, return_counts=True
    )
    confidence = np.bincount(place.ravel(), batch.rows.confidence[wrong], counts.size) / counts
    return Table.of(
        "The most frequent confusions, after calibration",
        np.argsort(-counts, kind="stable")[:N_ROWS].tolist(),
        ("class", lambda k: names[pairs[0, k]]),
        ("predicted as", lambda k: names[pairs[1, k]]),
        ("rows", lambda k: f"{counts[k]:,}"),
        ("fraction of the class", lambda k: percent(counts[k] / sizes[pairs[0, k]])),
        ("mean confidence", lambda k: percent(confidence[k])),
        texts=(0, 1),
    )


def percent_of(part: float, whole: float, digits: int = 1) -> str:
    """Return a part of a whole in percent, or a dash for a part of nothing."""
    return percent(part / whole if whole else None, digits)


def predictions_table(batch: Batch) -> Table:
    """Return precision, recall, and what each class is most often mistaken for."""
    names, (true, predicted) = class_names(batch), _true_and_predicted(batch)
    weight, n = batch.labeled_weight[: true.size], len(names)
    is_hit = true == predicted
    n_true, n_predicted = (np.bincount(codes, weight, n) for codes in (true, predicted))
    hits = np.bincount(true[is_hit], weight[is_hit], n)
    pairs, place = np.unique(n * true[~is_hit] + predicted[~is_hit], return_inverse=True)
    counts = np.bincount(place, weight[~is_hit], pairs.size)
    mistaken = {}  # the most frequent pair of each class remains
    for k in np.argsort(counts, kind="stable").tolist():
        mistaken[pairs[k] // n] = (names[pairs[k] % n], counts[k])

    def other(k: int) -> str:
        name, count = mistaken.get(k, (ABSENT, 0.0))
        return f"{name} ({percent_of(count, n_true[k])})" if count else ABSENT

    shown = np.argsort(-n_true, kind="stable")[:MAX_LINES].tolist() if true.size else []
    return Table.of(
        f"The most probable class of each row, after calibration{_first_lines(len(names))}",
        sorted(shown),
        ("class", lambda k: names[k]),
        ("rows", lambda k: f"{n_true[k]:,.0f}"),
        ("precision", lambda k: percent_of(hits[k], n_predicted[k])),
        ("recall", lambda k: percent_of(hits[k], n_true[k])),
        ("otherwise most often predicted as", other),
        texts=(0, 4),
    )


def _class_table(summary: Summary) -> Table:
    """Return a table of classes, the largest calibration error first."""
    after = {one.name: one for one in summary.audit_after.classes}
    ranked = sorted(summary.audit_before.classes, key=lambda one: -one.calibration_error)
    return Table.of(
        f"Classes, the largest calibration error first{_first_lines(len(ranked))}; "
        f"{summary.audit_before.n_bins} bins of equal width",
        ranked[:MAX_LINES],
        ("class", lambda one: str(one.name)),
        ("observed frequency", lambda one: percent(one.frequency)),
        ("mean probability before", lambda one: percent(one.probability)),
        ("after", lambda one: percent(after[one.name].probability)),
        ("ECE before", lambda one: percent(one.calibration_error, 2)),
        ("after", lambda one: percent(after[one.name].calibration_error, 2)),
    )


def _group_table(summary: Summary) -> Table:
    """Return a table of groups, the largest gap first."""
    before, after = summary.audit_before.groups, summary.audit_after.groups
    ranked = sorted(before, key=lambda name: -abs(before[name].gap))
    return Table.of(
        f"Groups, the largest gap (confidence - accuracy) first{_first_lines(len(ranked))}; "
        "95 % intervals in parentheses",
        ranked[:MAX_LINES],
        ("group", str),
        ("rows", lambda name: f"{before[name].n_rows:,}"),
        ("confidence", lambda name: percent(before[name].confidence)),
        ("accuracy", lambda name: percent(before[name].accuracy)),
        ("gap before, points", lambda name: _gap(before[name])),
        ("gap after", lambda name: _gap(after[name])),
        ("ECE before", lambda name: percent(before[name].expected_calibration_error)),
        ("after", lambda name: percent(after[name].expected_calibration_error)),
        ("expected if calibrated", lambda name: percent(after[name].expected_if_calibrated)),
    )


def _first_lines(n_lines: int) -> str:
    """Return a note on lines that are left out."""
    return f" (the first {MAX_LINES} of {n_lines})" if n_lines > MAX_LINES else ""


def _gap(audit: Audit) -> str:
    """Return the gap in points, with its interval."""
    interval = audit.intervals.get("gap")
    ends = f" ({points(interval.low)} to {points(interval.high)})" if interval else ""
    return f"{points(audit.gap)}{ends}"
