"""Rows and classes worth a look: the most doubtful, the most confidently wrong, the confused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import IntArray
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.outputs import BaseClassOutputs


@final
@dataclass(frozen=True, slots=True)
class NotableRow:
    """A row, what it was taken for, what it was, and how sure the model was before and after."""

    id: str
    predicted: str
    truth: str
    before: float
    after: float


@final
@dataclass(frozen=True, slots=True)
class Confusion:
    """A class taken for another: how often, as a share of the class, and how surely."""

    truth: str
    predicted: str
    count: int
    share: float
    confidence: float


@final
@dataclass(frozen=True, slots=True)
class ClassLine:
    """A class: how often it occurs and is predicted, and how much of either is right."""

    name: str
    count: int
    predicted: int
    precision: float | None
    recall: float | None


def notable_rows(
    before: Batch, after: Batch, n_rows: int
) -> tuple[tuple[NotableRow, ...], tuple[NotableRow, ...]]:
    """Return the rows of most doubt, and the wrong rows of least doubt, after calibration."""
    doubt, is_wrong = after.rows.least_confidence, after.rows.correct < 0.5
    order = np.argsort(-doubt, kind="stable")
    surest = np.argsort(doubt, kind="stable")
    surest = surest[is_wrong[surest]]
    return _told(before, after, order[:n_rows]), _told(before, after, surest[:n_rows])


def _told(before: Batch, after: Batch, chosen: IntArray) -> tuple[NotableRow, ...]:
    """Return some rows as they are told."""
    predicted, truth = after.rows.predicted, after.labels
    names = class_names(after)
    lines = []
    for row in chosen.tolist():
        is_plain = isinstance(truth, Labels) and truth.probabilities is None and names
        was = (
            names[truth.codes[row]]
            if is_plain and isinstance(truth, Labels)
            else _outcome(after, row)
        )
        lines.append(
            NotableRow(
                id=str(before.ids[row]) if before.ids is not None else f"row {row:,}",
                predicted=names[predicted[row]]
                if names and predicted is not None
                else "its answer",
                truth=was,
                before=float(before.rows.confidence[row]),
                after=float(after.rows.confidence[row]),
            )
        )
    return tuple(lines)


def _outcome(batch: Batch, row: int) -> str:
    """Return whether a row was right, where that is all that is known."""
    right = float(batch.rows.correct[row])
    return "right" if right == 1 else "wrong" if right == 0 else f"right with chance {right:.0%}"


def class_names(batch: Batch) -> tuple[str, ...]:
    """Return the names of the classes, none where only top labels are known."""
    outputs = batch.outputs
    if not isinstance(outputs, BaseClassOutputs):
        return ()
    return tuple(str(name) for name in names_of(outputs))


def _pairs_of(batch: Batch) -> tuple[IntArray, IntArray] | None:
    """Return the true and the predicted class of each row, None where either is unknown."""
    truth, predicted = batch.labels, batch.rows.predicted
    if not isinstance(truth, Labels) or truth.probabilities is not None or predicted is None:
        return None
    return truth.codes, predicted.astype(np.int64)


def confusions(batch: Batch, most: int) -> tuple[Confusion, ...]:
    """Return which classes are taken for which others, the most frequent first."""
    pairs = _pairs_of(batch)
    if pairs is None:
        return ()
    names, (true, predicted) = class_names(batch), pairs
    sizes = np.bincount(true, minlength=len(names))
    wrong = np.flatnonzero(true != predicted)
    flat, place, counts = np.unique(
        true[wrong] * len(names) + predicted[wrong], return_inverse=True, return_counts=True
    )
    sure = np.bincount(place, batch.rows.confidence[wrong], minlength=flat.size)
    lines = []
    for k in np.argsort(-counts, kind="stable")[:most]:
        t, p, count = int(flat[k] // len(names)), int(flat[k] % len(names)), int(counts[k])
        lines.append(
            Confusion(names[t], names[p], count, count / int(sizes[t]), float(sure[k] / count))
        )
    return tuple(lines)


def by_class(batch: Batch) -> tuple[ClassLine, ...]:
    """Return a line a class, in rows rather than weights."""
    pairs = _pairs_of(batch)
    if pairs is None:
        return ()
    names, (true, predicted) = class_names(batch), pairs
    counts = np.bincount(true, minlength=len(names))
    given = np.bincount(predicted, minlength=len(names))
    hits = np.bincount(true[true == predicted], minlength=len(names))
    return tuple(
        ClassLine(
            name,
            int(counts[k]),
            int(given[k]),
            float(hits[k] / given[k]) if given[k] else None,
            float(hits[k] / counts[k]) if counts[k] else None,
        )
        for k, name in enumerate(names)
    )
