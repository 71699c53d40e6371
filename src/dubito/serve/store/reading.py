"""Decisions out of the store: as columns for figures, and what is to be forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, bindparam, delete, exists, select, true

from dubito.serve.store.records import History, StoredRows
from dubito.serve.store.tables import (
    corrections,
    decisions,
    labels,
    requests,
    review_events,
    reviews,
)

MOST_IDS = 500  # a query
FEATURES = select(decisions.c.id, decisions.c.features).where(
    decisions.c.id.in_(bindparam("ids", expanding=True))
)
NUMBERS = {
    "policy_id": np.int64, "created": np.float64, "is_logits": np.bool_, "action": np.int64,
    "class_": np.int64, "propensity": np.float64, "audit_share": np.float64, "is_audit": np.bool_,
    "amount": np.float64,
}  # fmt: skip
AS_THEY_CAME = (decisions.c.created, decisions.c.place, decisions.c.id)


def rows_since(connection: Connection, since: float) -> StoredRows:
    """Return all decisions made at or after a time, with what is known of their truth."""
    names = ["id", "outputs", "probabilities", *NUMBERS]
    passed = (
        exists()
        .where(
            review_events.c.decision_id == decisions.c.id,
            review_events.c.kind.in_(["unsure", "skip"]),
            ~review_events.c.is_undone,
        )
        .correlate(decisions)
    )
    query = (
        select(
            *(decisions.c[name] for name in names),
            labels.c.label,
            labels.c.created.label("labeled"),
            passed.label("is_passed"),
        )
        .outerjoin(labels, labels.c.decision_id == decisions.c.id)
        .where(decisions.c.created >= since)
        .order_by(*AS_THEY_CAME)
    )
    rows = connection.execute(query).all()
    names += ["label", "labeled", "is_passed"]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    label = np.array([-1 if code is None else code for code in columns["label"]], np.int64)
    return StoredRows(
        id=np.array(columns["id"], dtype=np.str_),
        outputs=_matrix(columns["outputs"]),
        probabilities=_matrix(columns["probabilities"]),
        **{name: np.array(columns[name], dtype=kind) for name, kind in NUMBERS.items()},
        label=label,
        labeled=np.array(columns["labeled"], np.float64),
        is_unsettled=np.array(columns["is_passed"], np.bool_) & (label < 0),
    )


def history_of(connection: Connection, policy_id: int) -> History:
    """Return what alarms look at: the doubt of every row, and the first label of each drawn one."""
    mine = decisions.c.policy_id == policy_id
    every = select(decisions.c.probability).where(mine).order_by(*AS_THEY_CAME)
    top = np.array(connection.execute(every).scalars().all(), np.float64)
    drawn = (
        select(decisions.c.id, decisions.c.created, decisions.c.probability, decisions.c.class_)
        .where(mine, decisions.c.is_audit)
        .order_by(*AS_THEY_CAME)
    )
    first = _first_labels(connection, policy_id)
    known = [row for row in connection.execute(drawn) if row.id in first]
    both = np.array([max(first[row.id][0], row.created) for row in known])
    order = np.argsort(both, kind="stable")
    confidence = np.array([row.probability for row in known], np.float64)
    is_right = np.array([row.class_ == first[row.id][1] for row in known], np.bool_)
    return History(
        doubt=np.clip(1.0 - top, 0.0, 1.0),
        confidence=np.clip(confidence, 0.0, 1.0)[order],
        is_right=is_right[order],
    )


def _first_labels(connection: Connection, policy_id: int) -> dict[str, tuple[float, int]]:
    """Return when each row that chance drew got its first label, and which; by id."""
    undone = (review_events.c.kind == "settle") & review_events.c.is_undone
    found: dict[str, tuple[float, int]] = {}
    for table, is_wanted in ((labels, true()), (corrections, true()), (review_events, undone)):
        said = (
            select(table.c.decision_id, table.c.created, table.c.label)
            .join(decisions, decisions.c.id == table.c.decision_id)
            .where(decisions.c.policy_id == policy_id, decisions.c.is_audit, is_wanted)
        )
        for name, created, label in connection.execute(said):
            found[name] = min(found.get(name, (created, label)), (created, label))
    return found


def _matrix(rows: list[bytes]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
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
    return _matrix(kept) if is_whole else None


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
