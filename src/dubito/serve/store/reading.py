"""Decisions out of the store: as columns for figures, and what is to be forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, bindparam, delete, select

from dubito.serve.store.records import StoredRows
from dubito.serve.store.tables import (
    corrections,
    decisions,
    labels,
    requests,
    review_events,
    reviews,
)

__all__ = ["features_of", "forget", "rows_since"]

MOST_IDS = 500  # a query
FEATURES = select(decisions.c.id, decisions.c.features).where(
    decisions.c.id.in_(bindparam("ids", expanding=True))
)
NUMBERS = {
    "policy_id": np.int64, "created": np.float64, "is_logits": np.bool_, "action": np.int64,
    "class_": np.int64, "propensity": np.float64, "is_audit": np.bool_,
    "amount": np.float64,
}  # fmt: skip


def rows_since(connection: Connection, since: float) -> StoredRows:
    """Return all decisions made at or after a time, with what is known of their truth."""
    names = ["id", "outputs", "probabilities", *NUMBERS]
    query = (
        select(
            *(decisions.c[name] for name in names),
            labels.c.label,
            labels.c.reader,
            labels.c.created.label("labelled"),
        )
        .outerjoin(labels, labels.c.decision_id == decisions.c.id)
        .where(decisions.c.created >= since)
        .order_by(decisions.c.created, decisions.c.id)
    )
    rows = connection.execute(query).all()
    names += ["label", "reader", "labelled"]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return StoredRows(
        id=np.array(columns["id"], dtype=np.str_),
        outputs=matrix(columns["outputs"]),
        probabilities=matrix(columns["probabilities"]),
        **{name: np.array(columns[name], dtype=kind) for name, kind in NUMBERS.items()},
        label=np.array([-1 if code is None else code for code in columns["label"]], np.int64),
        labelled=np.array(columns["labelled"], np.float64),
        is_reviewed=np.array([who is not None for who in columns["reader"]], np.bool_),
    )


def matrix(rows: list[bytes]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return rows of bytes as a matrix of float32."""
    whole = np.frombuffer(b"".join(rows), "<f4")
    return whole.reshape(len(rows), -1) if rows else whole.reshape(0, 0)


def features_of(
    connection: Connection, ids: Sequence[str]
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]] | None:
    """Return the features of some decisions, None where one of them came without or with fewer."""
    found: dict[str, bytes | None] = {}
    for at in range(0, len(ids), MOST_IDS):
        rows = connection.execute(FEATURES, {"ids": list(ids[at : at + MOST_IDS])})
        found.update((name, features) for name, features in rows)
    kept = [features for name in ids if (features := found.get(name)) is not None]
    is_whole = len(kept) == len(ids) and len({len(features) for features in kept}) == 1
    return matrix(kept) if is_whole else None


def forget(connection: Connection, before: float) -> int:
    """Delete all decisions made before a time, and all about them; return how many."""
    old = select(decisions.c.id).where(decisions.c.created < before)
    connection.execute(delete(review_events).where(review_events.c.decision_id.in_(old)))
    connection.execute(delete(reviews).where(reviews.c.decision_id.in_(old)))
    connection.execute(delete(corrections).where(corrections.c.decision_id.in_(old)))
    connection.execute(delete(corrections).where(corrections.c.corrected < before))
    connection.execute(delete(labels).where(labels.c.decision_id.in_(old)))
    connection.execute(delete(labels).where(labels.c.created < before))
    connection.execute(delete(requests).where(requests.c.created < before))
    return int(connection.execute(delete(decisions).where(decisions.c.created < before)).rowcount)
