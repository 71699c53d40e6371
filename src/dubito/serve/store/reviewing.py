"""The review queue: who looks at what, one person at a time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sqlalchemy import Connection, Select, delete, exists, func, insert, select, update

from dubito.serve.refusals import CONFLICT, MISSING, RefusedError
from dubito.serve.store.labeling import add_labels
from dubito.serve.store.records import ReviewItem
from dubito.serve.store.tables import decisions, labels, review_events, reviews

ENOUGH_UNSURE = 2  # readers, after whom a row is left unsettled


def claim_next(
    connection: Connection, reader: str, now: float, lease_seconds: float, item_id: str | None
) -> ReviewItem | None:
    """Hold for a reader the row where a look is worth most, or None if there is none.

    Rows drawn at random come first: they are few, and honest figures rest on all of them. A reader
    who claims before settling gets the same row again.
    """
    query = _waiting(reader, now, item_id).limit(1).with_for_update(skip_locked=True, of=reviews)
    held = query.where(reviews.c.reader == reader, reviews.c.lease_until > now)
    found = connection.execute(held).scalar() or connection.execute(query).scalar()
    if found is None:
        return None
    lease_until = now + lease_seconds
    connection.execute(
        update(reviews)
        .where(reviews.c.decision_id == found)
        .values(reader=reader, lease_until=lease_until)
    )
    return _item_of(connection, found, reader, lease_until)


def _waiting(reader: str, now: float, item_id: str | None) -> Select[str]:
    """Return the query for the rows that a reader may have, in order, or for one of them."""
    passed = exists().where(
        review_events.c.decision_id == reviews.c.decision_id,
        review_events.c.reader == reader,
        review_events.c.kind.in_(["unsure", "skip"]),
        ~review_events.c.is_undone,
    )
    query = (
        select(reviews.c.decision_id)
        .where(
            reviews.c.is_open,
            (reviews.c.lease_until <= now) | (reviews.c.reader == reader),
            ~passed,
            ~exists().where(labels.c.decision_id == reviews.c.decision_id),
        )
        .order_by(reviews.c.is_audit.desc(), reviews.c.review_value.desc())
    )
    return query if item_id is None else query.where(reviews.c.decision_id == item_id)


def next_ids(connection: Connection, reader: str, now: float, most: int) -> list[str]:
    """Return the rows that a reader may claim, without claiming one."""
    query = _waiting(reader, now, None).limit(most)
    return list(connection.execute(query).scalars())


def _item_of(connection: Connection, item_id: str, reader: str, lease_until: float) -> ReviewItem:
    """Return a row as a reader sees it."""
    row = connection.execute(select(decisions).where(decisions.c.id == item_id)).mappings().one()
    names = (
        "id", "policy_id", "created", "action", "class_", "probability", "reason", "review_value",
        "is_audit", "amount", "link",
    )  # fmt: skip
    return ReviewItem(
        **{name: row[name] for name in names},
        reader=reader,
        lease_until=lease_until,
        probabilities=np.frombuffer(row["probabilities"], "<f4"),
        n_unsure=_n_unsure(connection, item_id),
    )


def _n_unsure(connection: Connection, item_id: str) -> int:
    """Return how many readers were unsure of a row."""
    counted = select(func.count()).where(
        review_events.c.decision_id == item_id,
        review_events.c.kind == "unsure",
        ~review_events.c.is_undone,
    )
    return int(connection.execute(counted).scalar_one())


def settle(connection: Connection, item_id: str, reader: str, label: int) -> None:
    """Keep what a reader says a row is; a repeated answer is the same as one."""
    last = _last_event(connection, item_id, reader)
    if last is not None and last["label"] == label:
        return
    _require_held(connection, item_id, reader)
    _record(connection, item_id, reader, "settle", label)
    add_labels(connection, [item_id], [label], reader)


def pass_on(connection: Connection, item_id: str, reader: str, kind: str) -> None:
    """Hand a row to the next reader, as this one is unsure of it or skips it."""
    last = _last_event(connection, item_id, reader)
    if last is not None and last["kind"] == kind:
        return
    _require_held(connection, item_id, reader)
    _record(connection, item_id, reader, kind, None)
    is_open = kind == "skip" or _n_unsure(connection, item_id) < ENOUGH_UNSURE
    release = update(reviews).where(reviews.c.decision_id == item_id)
    connection.execute(release.values(is_open=is_open, reader=None, lease_until=0.0))


def undo(connection: Connection, item_id: str, reader: str, lease_seconds: float) -> ReviewItem:
    """Take back what a reader did last with a row, and hold it for them again."""
    now = time.time()
    state = _locked(connection, item_id)
    last = _last_event(connection, item_id, reader)
    if last is None:
        problem = f"There is nothing of {reader!r} to undo for id {item_id!r}"
        raise RefusedError(CONFLICT, problem, "undoing what was settled, unsure or skipped")
    if last["kind"] == "settle":
        of_reader = delete(labels).where(labels.c.reader == reader)
        mine = of_reader.where(labels.c.decision_id == item_id)
        if not connection.execute(mine).rowcount:
            problem = f"The label of id {item_id!r} was corrected since"
            raise RefusedError(CONFLICT, problem, "correcting it in turn")
    elif not _undoable(connection, state, reader, now):
        problem = f"Id {item_id!r} is with another reader by now"
        raise RefusedError(CONFLICT, problem, "leaving it to them")
    mark = update(review_events).where(review_events.c.id == last["id"])
    connection.execute(mark.values(is_undone=True))
    hold = update(reviews).where(reviews.c.decision_id == item_id)
    until = now + lease_seconds
    connection.execute(hold.values(is_open=True, reader=reader, lease_until=until))
    return _item_of(connection, item_id, reader, until)


def _undoable(connection: Connection, state: Any, reader: str, now: float) -> bool:
    """Tell whether nobody else holds a row or has settled it."""
    is_labeled = select(exists().where(labels.c.decision_id == state["decision_id"]))
    is_elsewhere = state["lease_until"] > now and state["reader"] != reader
    return not is_elsewhere and not connection.execute(is_labeled).scalar()


def queue_length(connection: Connection) -> int:
    """Return how many rows wait for a reader, held or not."""
    counted = select(func.count()).where(
        reviews.c.is_open, ~exists().where(labels.c.decision_id == reviews.c.decision_id)
    )
    return int(connection.execute(counted).scalar_one())


def _locked(connection: Connection, item_id: str) -> Any:
    """Return the state of a row in review, which nobody else changes until the commit."""
    wanted = select(reviews).where(reviews.c.decision_id == item_id).with_for_update()
    state = connection.execute(wanted).mappings().first()
    if state is None:
        raise RefusedError(MISSING, f"Id {item_id!r} is not in review", "an id of GET /v1/review")
    return state


def _require_held(connection: Connection, item_id: str, reader: str) -> None:
    """Raise unless a row is held for a reader."""
    state = _locked(connection, item_id)
    if not state["is_open"] or state["reader"] != reader or state["lease_until"] <= time.time():
        problem = f"Id {item_id!r} is not held for {reader!r}"
        raise RefusedError(CONFLICT, problem, "claiming it first: a claim ends after a while")


def _last_event(connection: Connection, item_id: str, reader: str) -> Any:
    """Return what a reader did last with a row, or None."""
    wanted = (
        select(review_events)
        .where(
            review_events.c.decision_id == item_id,
            review_events.c.reader == reader,
            ~review_events.c.is_undone,
        )
        .order_by(review_events.c.id.desc())
        .limit(1)
    )
    return connection.execute(wanted).mappings().first()


def _record(
    connection: Connection, item_id: str, reader: str, kind: str, label: int | None
) -> None:
    """Write down what a reader did."""
    connection.execute(
        insert(review_events).values(
            decision_id=item_id,
            reader=reader,
            kind=kind,
            label=label,
            created=time.time(),
            is_undone=False,
        )
    )
