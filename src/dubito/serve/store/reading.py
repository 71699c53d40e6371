"""Decisions out of the store: as columns for figures, and what is to be forgotten."""

from __future__ import annotations

import numpy as np
from sqlalchemy import Connection, delete, select

from dubito.serve.store.records import StoredRows
from dubito.serve.store.tables import decisions, labels, requests, review_events, reviews

__all__ = ["forget", "rows_since"]

NUMBERS = {
    "policy_id": np.int64, "created": np.float64, "is_logits": np.bool_, "action": np.int64,
    "class_": np.int64, "propensity": np.float64, "is_audit": np.bool_,
}  # fmt: skip


def rows_since(connection: Connection, since: float) -> StoredRows:
    """Return all decisions made at or after a time, with what is known of their truth."""
    names = ["id", "outputs", "probabilities", *NUMBERS]
    query = (
        select(*(decisions.c[name] for name in names), labels.c.label, labels.c.reader)
        .outerjoin(labels, labels.c.decision_id == decisions.c.id)
        .where(decisions.c.created >= since)
        .order_by(decisions.c.created, decisions.c.id)
    )
    rows = connection.execute(query).all()
    names += ["label", "reader"]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return StoredRows(
        id=np.array(columns["id"], dtype=np.str_),
        outputs=matrix(columns["outputs"]),
        probabilities=matrix(columns["probabilities"]),
        **{name: np.array(columns[name], dtype=kind) for name, kind in NUMBERS.items()},
        label=np.array([-1 if code is None else code for code in columns["label"]], np.int64),
        is_reviewed=np.array([who is not None for who in columns["reader"]], np.bool_),
    )


def matrix(rows: list[bytes]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return rows of bytes as a matrix of float32."""
    whole = np.frombuffer(b"".join(rows), "<f4")
    return whole.reshape(len(rows), -1) if rows else whole.reshape(0, 0)


def forget(connection: Connection, before: float) -> int:
    """Delete all decisions made before a time, and all about them; return how many."""
    old = select(decisions.c.id).where(decisions.c.created < before)
    connection.execute(delete(review_events).where(review_events.c.decision_id.in_(old)))
    connection.execute(delete(reviews).where(reviews.c.decision_id.in_(old)))
    connection.execute(delete(labels).where(labels.c.decision_id.in_(old)))
    connection.execute(delete(labels).where(labels.c.created < before))
    connection.execute(delete(requests).where(requests.c.created < before))
    return int(connection.execute(delete(decisions).where(decisions.c.created < before)).rowcount)
