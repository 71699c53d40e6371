"""Labels in the database: accepted in any order, repeated safely, corrected on request."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, final

from sqlalchemy import Connection, Table, bindparam, insert, select, update

from dubito.serve.http_errors import CONFLICT, HTTPError
from dubito.serve.store.decisions import (
    MAX_IDS,
    Label,
    is_among,
    label_columns,
    label_of,
    rows_by_id,
)
from dubito.serve.store.tables import corrections, labels, reviews
from dubito.serve.store.writer import insert_rows


@final
@dataclass(frozen=True, slots=True)
class LabelCounts:
    """How many labels are new, and how many replaced a different one."""

    n_new: int
    n_corrected: int


@final
@dataclass(frozen=True, slots=True)
class Correction:
    """A label that was replaced: when it arrived, when it was corrected, and by whom.

    `reviewer` is None for labels that were sent to `POST /v1/labels`.
    """

    label: Label
    reviewer: str | None
    created: float
    corrected: float
    corrected_by: str


def add_labels(
    connection: Connection,
    ids: Sequence[str],
    codes: Sequence[Label],
    corrected_by: str | None = None,
    reviewer: str | None = None,
    truth_by: str | None = None,
) -> LabelCounts:
    """Store labels and take their rows out of the review queue.

    A label that exists must be the same, unless `corrected_by` is given: then the new one replaces
    it, and the previous value is recorded. With `truth_by` the same holds for labels of reviewers.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    ids : sequence of str
        Ids of decisions, which may arrive later.
    codes : sequence of int or str
        The positions of the labels among the classes, or the answers of several labels per row.
    corrected_by : str or None
        Who corrects labels that differ; None rejects them.
    reviewer : str or None
        The reviewer who gave the labels, None for labels of a program.
    truth_by : str or None
        Who sends the truth of rows that reviewers may have labeled before.

    Returns
    -------
    LabelCounts
        How many labels are new, and how many were corrected.
    """
    now = time.time()
    columns: dict[str, list[Any]] = {
        "decision_id": list(ids),
        **label_columns(codes),
        "reviewer": [reviewer] * len(ids),
        "created": [now] * len(ids),
    }
    n_new, n_corrected = insert_rows(connection, labels, columns), 0
    if n_new < len(ids):
        given = dict(zip(ids, codes, strict=True))
        n_corrected = _correct(connection, given, corrected_by, truth_by, now)
    _update_by_id(connection, reviews, ids, is_open=False)
    return LabelCounts(n_new, n_corrected)


def _correct(
    connection: Connection,
    codes: dict[str, Label],
    corrected_by: str | None,
    truth_by: str | None,
    now: float,
) -> int:
    """Replace labels that differ; return how many there were."""
    query = select(labels).with_for_update()
    rows = list(rows_by_id(connection, query, labels.c.decision_id, list(codes)))
    replaced = [row for row in rows if label_of(row) != codes[row["decision_id"]]]
    kept = [row for row in replaced if truth_by is None or row["reviewer"] is None]
    if corrected_by is None:
        require_same_labels(codes, {row["decision_id"]: label_of(row) for row in kept})
    if corrected_by or truth_by:  # a label that is confirmed is not that of a reviewer any more
        names = [row["decision_id"] for row in rows if row["reviewer"] is not None]
        _update_by_id(connection, labels, names, reviewer=None)
    if not replaced:
        return 0
    correction = {"corrected": now, "corrected_by": corrected_by or truth_by}
    connection.execute(insert(corrections), [{**row, **correction} for row in replaced])
    change = update(labels).where(labels.c.decision_id == bindparam("name"))
    change = change.values(label=bindparam("new_label"), answers=bindparam("new_answers"))
    names = [row["decision_id"] for row in replaced]
    columns = label_columns([codes[name] for name in names])
    values = zip(names, columns["label"], columns["answers"], strict=True)
    connection.execute(
        change.values(reviewer=None, created=now),
        [{"name": name, "new_label": code, "new_answers": text} for name, code, text in values],
    )
    return len(replaced)


def _update_by_id(connection: Connection, table: Table, ids: Sequence[str], **values: Any) -> None:
    """Set values of the rows of some decisions, a limited number at a time."""
    for start in range(0, len(ids), MAX_IDS):
        is_meant = is_among(connection, table.c.decision_id, ids[start : start + MAX_IDS])
        connection.execute(update(table).where(is_meant).values(**values))


def require_same_labels(codes: Mapping[str, Label], found: Mapping[str, Label]) -> None:
    """Raise if a label that exists differs."""
    for name, label in found.items():
        if label != codes[name]:
            fix = "Send the same label, or add ?correct=true to replace it"
            raise HTTPError(CONFLICT, f"Id {name!r} has a different label", fix)


def find_labels(
    connection: Connection, ids: Sequence[str], *, of_reviewers: bool = True
) -> dict[str, Label]:
    """Return the labels of some ids; unknown ones are left out.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    ids : sequence of str
        Ids of decisions.
    of_reviewers : bool, default True
        Whether labels of reviewers count, besides those of programs.

    Returns
    -------
    dict of str to int or str
        The position of the label among the classes, or the answers of several labels, by id.
    """
    query = select(labels) if of_reviewers else select(labels).where(labels.c.reviewer.is_(None))
    rows = rows_by_id(connection, query, labels.c.decision_id, ids)
    return {row["decision_id"]: label_of(row) for row in rows}


def find_corrections(connection: Connection, decision_id: str) -> list[Correction]:
    """Return the previous labels of a decision.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    decision_id : str
        The id of the decision.

    Returns
    -------
    list of Correction
        Oldest first.
    """
    query = select(corrections).where(corrections.c.decision_id == decision_id)
    rows = connection.execute(query.order_by(corrections.c.id)).mappings()
    names = [one.name for one in fields(Correction)][1:]
    return [Correction(label_of(row), **{name: row[name] for name in names}) for row in rows]
