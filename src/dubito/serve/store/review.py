"""The review queue in the database: claims with a lease, labels, escalations and undo."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, delete, exists, func, insert, select, update

from dubito.serve.http_errors import CONFLICT, NOT_FOUND, HTTPError
from dubito.serve.store.decisions import Label, label_columns, label_of
from dubito.serve.store.labels import add_labels
from dubito.serve.store.tables import decisions, labels, review_events, reviews

LEASE_SECONDS = 600.0
MAX_ESCALATIONS = 2  # after so many, a row leaves the queue without a label


@final
@dataclass(frozen=True, slots=True, eq=False)
class ReviewItem:
    """A row that a reviewer holds until `lease_until`.

    `n_escalations` counts the reviewers who escalated it before.
    """

    id: str
    reviewer: str
    lease_until: float
    policy_id: int
    created: float
    action: int
    class_: int
    probability: float
    probabilities: NDArray[np.float32]
    reason: int
    review_value: float
    is_audit: bool
    row_costs: str | None
    link: str | None
    label_actions: bytes | None
    n_escalations: int


def claim_review(
    connection: Connection,
    reviewer: str,
    item_id: str | None = None,
    *,
    lease_seconds: float = LEASE_SECONDS,
    now: float | None = None,
) -> ReviewItem | None:
    """Claim the row with the highest review value, or a given one.

    Audited rows come first: they are few, and the metrics rest on them. A reviewer who claims again
    before answering gets the same row.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    reviewer : str
        Who claims the row.
    item_id : str or None
        The row to claim, None for the next one.
    lease_seconds : float
        How long the reviewer holds it.
    now : float or None
        The current time, for tests.

    Returns
    -------
    ReviewItem or None
        None if no row is available.
    """
    at = time.time() if now is None else now
    query = _available(reviewer, at, item_id).limit(1).with_for_update(skip_locked=True, of=reviews)
    held = query.where(reviews.c.reviewer == reviewer, reviews.c.lease_until > at)
    found = connection.execute(held).scalar() or connection.execute(query).scalar()
    return None if found is None else _lease(connection, found, reviewer, at + lease_seconds)


def _lease(connection: Connection, item_id: str, reviewer: str, until: float) -> ReviewItem:
    """Lease a row to a reviewer and return it."""
    hold = update(reviews).where(reviews.c.decision_id == item_id)
    connection.execute(hold.values(is_open=True, reviewer=reviewer, lease_until=until))
    row = connection.execute(select(decisions).where(decisions.c.id == item_id)).mappings().one()
    own = ("reviewer", "lease_until", "probabilities", "n_escalations")
    return ReviewItem(
        **{one.name: row[one.name] for one in fields(ReviewItem) if one.name not in own},
        reviewer=reviewer,
        lease_until=until,
        probabilities=np.frombuffer(row["probabilities"], "<f4"),
        n_escalations=_n_escalations(connection, item_id),
    )


def _available(reviewer: str, now: float, item_id: str | None) -> Select[Any]:
    """Return the query for the rows that a reviewer may claim, in order, or for one of them."""
    was_passed = exists().where(
        review_events.c.decision_id == reviews.c.decision_id,
        review_events.c.reviewer == reviewer,
        review_events.c.kind.in_(["escalate", "skip"]),
        ~review_events.c.is_undone,
    )
    query = (
        select(reviews.c.decision_id)
        .where(
            reviews.c.is_open,
            (reviews.c.lease_until <= now) | (reviews.c.reviewer == reviewer),
            ~was_passed,
            ~exists().where(labels.c.decision_id == reviews.c.decision_id),
        )
        .order_by(reviews.c.is_audit.desc(), reviews.c.priority.desc())
    )
    return query if item_id is None else query.where(reviews.c.decision_id == item_id)


def review_queue(connection: Connection, reviewer: str, limit: int = 50) -> list[str]:
    """Return the ids that a reviewer may claim.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    reviewer : str
        Rows that this reviewer passed on are left out.
    limit : int, default 50
        The maximum number of ids.

    Returns
    -------
    list of str
        In the order of the queue.
    """
    query = _available(reviewer, time.time(), None).limit(limit)
    return list(connection.execute(query).scalars())


def queue_length(connection: Connection) -> int:
    """Return how many rows wait for a label, claimed or not."""
    query = select(func.count()).where(
        reviews.c.is_open, ~exists().where(labels.c.decision_id == reviews.c.decision_id)
    )
    return int(connection.execute(query).scalar_one())


def _n_escalations(connection: Connection, item_id: str) -> int:
    """Return how many reviewers escalated a row."""
    query = select(func.count()).where(
        review_events.c.decision_id == item_id,
        review_events.c.kind == "escalate",
        ~review_events.c.is_undone,
    )
    return int(connection.execute(query).scalar_one())


def label_review(connection: Connection, item_id: str, reviewer: str, label: Label) -> None:
    """Store a reviewer's label; sending the same one again changes nothing.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    item_id : str
        A row that the reviewer has claimed.
    reviewer : str
        Who labels the row.
    label : int or str
        The position of the label among the classes, or the answers of several labels per row.
    """
    if _record(connection, item_id, reviewer, "label", label):
        add_labels(connection, [item_id], [label], reviewer=reviewer)


def pass_review(connection: Connection, item_id: str, reviewer: str, kind: str) -> None:
    """Release a row to other reviewers.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    item_id : str
        A row that the reviewer has claimed.
    reviewer : str
        Who passes the row on.
    kind : {"escalate", "skip"}
        Two reviewers may escalate a row; then it leaves the queue without a label.
    """
    if not _record(connection, item_id, reviewer, kind):
        return
    is_open = kind == "skip" or _n_escalations(connection, item_id) < MAX_ESCALATIONS
    release = update(reviews).where(reviews.c.decision_id == item_id)
    connection.execute(release.values(is_open=is_open, reviewer=None, lease_until=0.0))


def undo_review(
    connection: Connection, item_id: str, reviewer: str, *, lease_seconds: float = LEASE_SECONDS
) -> ReviewItem:
    """Undo a reviewer's last answer for a row, and claim the row for them again.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    item_id : str
        The row.
    reviewer : str
        Who labeled, escalated or skipped it.
    lease_seconds : float
        How long the reviewer holds it.

    Returns
    -------
    ReviewItem
        The claimed row.
    """
    now = time.time()
    state = _locked_state(connection, item_id)
    last = last_review(connection, reviewer, item_id)
    if last is None:
        problem = f"Reviewer {reviewer!r} has nothing to undo for id {item_id!r}"
        raise HTTPError(CONFLICT, problem, "Undo a row that you labeled, escalated or skipped")
    is_own = (labels.c.decision_id == item_id) & (labels.c.reviewer == reviewer)
    if last["kind"] == "label":
        if not connection.execute(delete(labels).where(is_own)).rowcount:
            problem = f"The label of id {item_id!r} has been corrected"
            raise HTTPError(CONFLICT, problem, "Correct it with POST /v1/labels?correct=true")
    else:
        is_labeled = select(exists().where(labels.c.decision_id == item_id))
        is_claimed = state["lease_until"] > now and state["reviewer"] != reviewer
        if is_claimed or connection.execute(is_labeled).scalar():
            problem = f"Id {item_id!r} is with another reviewer now"
            raise HTTPError(CONFLICT, problem, "Leave it to them")
    undone = update(review_events).where(review_events.c.id == last["id"]).values(is_undone=True)
    connection.execute(undone)
    return _lease(connection, item_id, reviewer, now + lease_seconds)


def last_review(connection: Connection, reviewer: str, item_id: str | None = None) -> Any:
    """Return a reviewer's last answer that was not undone.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    reviewer : str
        Who answered.
    item_id : str or None
        Only answers for this row; None for any row.

    Returns
    -------
    mapping or None
        With `decision_id`, `kind`, `label` and `answers`.
    """
    query = select(review_events).where(
        review_events.c.reviewer == reviewer, ~review_events.c.is_undone
    )
    if item_id is not None:
        query = query.where(review_events.c.decision_id == item_id)
    query = query.order_by(review_events.c.id.desc()).limit(1)
    return connection.execute(query).mappings().first()


def _locked_state(connection: Connection, item_id: str) -> Any:
    """Return the review state of a row, locked until the commit."""
    query = select(reviews).where(reviews.c.decision_id == item_id).with_for_update()
    state = connection.execute(query).mappings().first()
    if state is None:
        problem = f"Id {item_id!r} is not in review"
        raise HTTPError(NOT_FOUND, problem, "Use an id from GET /v1/review")
    return state


def _record(
    connection: Connection, item_id: str, reviewer: str, kind: str, label: Label | None = None
) -> bool:
    """Record the answer to a claimed row; return False if it is the reviewer's last one again."""
    last = last_review(connection, reviewer, item_id)
    if last is not None and (last["kind"], label_of(last)) == (kind, label):
        return False
    state = _locked_state(connection, item_id)
    is_held = state["is_open"] and state["lease_until"] > time.time()
    if not is_held or state["reviewer"] != reviewer:
        problem = f"Id {item_id!r} is not claimed by {reviewer!r}"
        raise HTTPError(CONFLICT, problem, "Claim it first; a claim expires after a while")
    connection.execute(
        insert(review_events).values(
            decision_id=item_id,
            reviewer=reviewer,
            kind=kind,
            **({} if label is None else {k: v for k, [v] in label_columns([label]).items()}),
            created=time.time(),
            is_undone=False,
        )
    )
    return True
