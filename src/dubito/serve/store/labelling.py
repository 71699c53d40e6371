"""Truth that arrives: in any order, before or after its decision, repeated safely."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, select, update

from dubito.serve.refusals import CONFLICT, RefusedError
from dubito.serve.store.inserting import insert_rows
from dubito.serve.store.tables import labels, reviews

__all__ = ["add_labels", "labels_of"]

MOST_IDS = 500  # a query
BY_IDS = select(labels.c.decision_id, labels.c.label).where(
    labels.c.decision_id.in_(bindparam("ids", expanding=True))
)
CLOSE = (
    update(reviews)
    .where(reviews.c.decision_id.in_(bindparam("ids", expanding=True)))
    .values(is_open=False)
)


def add_labels(
    connection: Connection, ids: Sequence[str], codes: Sequence[int], reader: str | None = None
) -> int:
    """Keep labels, and take their rows out of review; return how many were not known yet.

    A label that is there already must be the same.
    """
    n_new = insert_rows(
        connection,
        labels,
        {
            "decision_id": list(ids),
            "label": list(codes),
            "reader": [reader] * len(ids),
            "created": [time.time()] * len(ids),
        },
    )
    if n_new < len(ids):
        known = labels_of(connection, ids)
        for name, code in zip(ids, codes, strict=True):
            if known[name] != code:
                problem = f"Id {name!r} has another label already"
                raise RefusedError(CONFLICT, problem, "the label as it was sent first")
    for at in range(0, len(ids), MOST_IDS):
        connection.execute(CLOSE, {"ids": list(ids[at : at + MOST_IDS])})
    return n_new


def labels_of(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the labels of some ids, by id."""
    found: dict[str, int] = {}
    for at in range(0, len(ids), MOST_IDS):
        rows = connection.execute(BY_IDS, {"ids": list(ids[at : at + MOST_IDS])})
        found.update((name, code) for name, code in rows)
    return found
