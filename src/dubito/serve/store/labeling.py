"""Truth that arrives: in any order, before or after its decision, repeated safely, corrected."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from sqlalchemy import Connection, bindparam, insert, select, update

from dubito.serve.refusals import CONFLICT, RefusedError
from dubito.serve.store.inserting import insert_rows
from dubito.serve.store.tables import corrections, labels, reviews

MOST_IDS = 500  # a query
BY_IDS = select(labels).where(labels.c.decision_id.in_(bindparam("ids", expanding=True)))
CLOSE = (
    update(reviews)
    .where(reviews.c.decision_id.in_(bindparam("ids", expanding=True)))
    .values(is_open=False)
)


@final
@dataclass(frozen=True, slots=True)
class NewLabels:
    """How many labels were not known yet, and how many took the place of another."""

    n_new: int
    n_corrected: int


@final
@dataclass(frozen=True, slots=True)
class Correction:
    """A label that does not count any more: when it came, when it was corrected, and by whom.

    `reader` settled it in review; None for what was sent.
    """

    label: int
    reader: str | None
    created: float
    corrected: float
    corrected_by: str


def add_labels(
    connection: Connection,
    ids: Sequence[str],
    codes: Sequence[int],
    reader: str | None = None,
    corrected_by: str | None = None,
) -> NewLabels:
    """Keep labels, and take their rows out of review.

    A label that is there already must be the same, unless someone corrects it: then the last one
    counts, and what was there before is kept beside it.
    """
    now = time.time()
    columns: dict[str, list[Any]] = {
        "decision_id": list(ids),
        "label": list(codes),
        "reader": [reader] * len(ids),
        "created": [now] * len(ids),
    }
    n_new, n_corrected = insert_rows(connection, labels, columns), 0
    if n_new < len(ids):
        n_corrected = _correct(connection, dict(zip(ids, codes, strict=True)), corrected_by, now)
    for some in _in_parts(ids):
        connection.execute(CLOSE, {"ids": some})
    return NewLabels(n_new, n_corrected)


def _correct(
    connection: Connection, codes: dict[str, int], corrected_by: str | None, now: float
) -> int:
    """Put labels in the place of others; return how many there were."""
    before = [
        row
        for some in _in_parts(list(codes))
        for row in connection.execute(BY_IDS.with_for_update(), {"ids": some}).mappings()
        if row["label"] != codes[row["decision_id"]]
    ]
    if not before:
        return 0
    if corrected_by is None:
        problem = f"Id {before[0]['decision_id']!r} has another label already"
        raise RefusedError(CONFLICT, problem, "the label as it was sent first, or ?correct=true")
    told = {"corrected": now, "corrected_by": corrected_by}
    connection.execute(insert(corrections), [{**row, **told} for row in before])
    change = (
        update(labels)
        .where(labels.c.decision_id == bindparam("name"))
        .values(label=bindparam("code"), reader=None, created=now)
    )
    names = [row["decision_id"] for row in before]
    connection.execute(change, [{"name": name, "code": codes[name]} for name in names])
    return len(before)


def labels_of(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the labels of some ids, by id."""
    return {
        row["decision_id"]: row["label"]
        for some in _in_parts(ids)
        for row in connection.execute(BY_IDS, {"ids": some}).mappings()
    }


def corrections_of(connection: Connection, decision_id: str) -> list[Correction]:
    """Return the labels that a decision had before its last one, oldest first."""
    names = ("label", "reader", "created", "corrected", "corrected_by")
    wanted = (
        select(*(corrections.c[name] for name in names))
        .where(corrections.c.decision_id == decision_id)
        .order_by(corrections.c.id)
    )
    return [Correction(*row) for row in connection.execute(wanted)]


def _in_parts(ids: Sequence[str]) -> Iterator[list[Any]]:
    """Yield ids in parts that fit into a query."""
    for at in range(0, len(ids), MOST_IDS):
        yield list(ids[at : at + MOST_IDS])
