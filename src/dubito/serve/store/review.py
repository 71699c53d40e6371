"""The review queue in the database: claims with a lease, labels, escalations, undo; teams."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, NamedTuple, final

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection, select, update

from dubito.formatting import duration, quantity
from dubito.serve.http_errors import CONFLICT, NOT_FOUND, HTTPError
from dubito.serve.store.decisions import Label, label_columns, label_of, rows_by_id
from dubito.serve.store.labels import add_labels
from dubito.serve.store.stages import SentAnswer, find_model_answers
from dubito.serve.store.tables import decisions, labels, review_events, reviews, team_members
from dubito.serve.store.writer import insert_rows

LEASE_SECONDS = 600.0
IS_KEPT = ~review_events.c.is_undone
HAS_LABEL = sa.exists().where(labels.c.decision_id == reviews.c.decision_id)
IS_WAITING = sa.and_(reviews.c.is_open, ~HAS_LABEL)
MAX_ESCALATIONS = 2  # after so many, a row leaves the queue without a label


@final
@dataclass(frozen=True, slots=True, eq=False)
class ReviewItem:
    """A row that a reviewer holds until `lease_until`.

    `n_escalations` counts the reviewers who escalated it before, `n_answers` those of a team who
    answered. `value_with_reviewer` is what the answer of this member of a team is expected to save.
    """

    id: str
    reviewer: str
    lease_until: float
    policy_id: int
    created: float
    action: int
    predicted_class: int
    probability: float
    probabilities: NDArray[np.float32]
    reason: int
    review_value: float
    is_audit: bool
    row_costs: str | None
    link: str | None
    label_actions: bytes | None
    n_escalations: int
    n_answers: int = 0
    value_with_reviewer: float | None = None

    def facts(self, *names: str) -> dict[str, Any]:
        """Return some of the fields by name."""
        return {name: getattr(self, name) for name in names}


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
    _change(connection, item_id, is_open=True, reviewer=reviewer, lease_until=until)
    row = connection.execute(select(decisions).where(decisions.c.id == item_id)).mappings().one()
    names = [one.name for one in fields(ReviewItem) if one.name in row]
    return ReviewItem(
        **{name: row[name] for name in names if name != "probabilities"},
        reviewer=reviewer,
        lease_until=until,
        probabilities=np.frombuffer(row["probabilities"], "<f4"),
        n_escalations=_n_escalations(connection, item_id),
    )


def _change(connection: Connection, item_id: str, **values: Any) -> None:
    """Change who holds a row, until when, and whether it is open."""
    connection.execute(update(reviews).where(reviews.c.decision_id == item_id).values(**values))


def _available(reviewer: str, now: float, item_id: str | None) -> sa.Select[Any]:
    """Return the query for the rows that a reviewer may claim, in order, or for one of them."""
    is_here = review_events.c.decision_id == reviews.c.decision_id
    was_answered = sa.exists().where(is_here, review_events.c.reviewer == reviewer, IS_KEPT)
    is_free = (reviews.c.lease_until <= now) | (reviews.c.reviewer == reviewer)
    query = select(reviews.c.decision_id).where(IS_WAITING, is_free, ~was_answered)
    return _in_order(query, item_id)


def _in_order(query: sa.Select[Any], item_id: str | None) -> sa.Select[Any]:
    """Return a query for rows of the queue in its order, or for one of them."""
    query = query.order_by(reviews.c.is_audit.desc(), reviews.c.priority.desc())
    return query if item_id is None else query.where(reviews.c.decision_id == item_id)


def _count(connection: Connection, *conditions: sa.ColumnElement[bool]) -> int:
    """Return how many rows of a table meet all conditions."""
    return int(connection.execute(select(sa.func.count()).where(*conditions)).scalar_one())


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
    return _count(connection, IS_WAITING)


def _n_escalations(connection: Connection, item_id: str) -> int:
    """Return how many reviewers escalated a row."""
    is_this = review_events.c.decision_id == item_id
    return _count(connection, is_this, review_events.c.kind == "escalate", IS_KEPT)


def label_review(
    connection: Connection,
    item_id: str,
    reviewer: str,
    label: Label,
    resolve: Callable[[Connection], Label | None] | None = None,
) -> None:
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
    resolve : callable or None
        What returns the label of the row from all answers so far, or None if another reviewer is
        to be asked: then the row waits without a label.
    """
    if not _record(connection, item_id, reviewer, "label", label):
        return
    final = label if resolve is None else resolve(connection)
    if final is None:
        _change(connection, item_id, reviewer=None, lease_until=0.0)
    else:
        add_labels(connection, [item_id], [final], reviewer=reviewer)


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
    _change(connection, item_id, is_open=is_open, reviewer=None, lease_until=0.0)


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
    is_this = labels.c.decision_id == item_id
    label = connection.execute(select(labels.c.reviewer).where(is_this)).first()
    if last["kind"] == "label" and label is not None and label.reviewer is None:
        problem = f"The label of id {item_id!r} has been corrected"
        raise HTTPError(CONFLICT, problem, "Correct it with POST /v1/labels?correct=true")
    if last["kind"] == "label" and label is not None and label.reviewer == reviewer:
        connection.execute(sa.delete(labels).where(is_this))
    else:
        is_claimed = state["lease_until"] > now and state["reviewer"] != reviewer
        if is_claimed or label is not None:
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
    query = select(review_events).where(review_events.c.reviewer == reviewer, IS_KEPT)
    if item_id is not None:
        query = query.where(review_events.c.decision_id == item_id)
    query = query.order_by(review_events.c.id.desc()).limit(1)
    return connection.execute(query).mappings().first()


def answers_of(connection: Connection, item_id: str) -> list[tuple[str, int, float]]:
    """Return the answers to a row in order: the reviewer, the class, and when.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    item_id : str
        The row, of a policy of one class per row.
    """
    event = review_events.c
    query = select(event.reviewer, event.label, event.created).order_by(event.id)
    is_answer = (event.decision_id == item_id, event.kind == "label", IS_KEPT)
    return [(*row,) for row in connection.execute(query.where(*is_answer))]


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
    left = state["lease_until"] - time.time()
    if not state["is_open"] or state["reviewer"] != reviewer:
        problem = f"Id {item_id!r} is not claimed by {reviewer!r}"
        raise HTTPError(CONFLICT, problem, "Claim it first")
    if left <= 0:
        problem = f"The claim of id {item_id!r} by {reviewer!r} expired {duration(-left)} ago"
        raise HTTPError(CONFLICT, problem, "Claim it again")
    connection.execute(
        sa.insert(review_events).values(
            decision_id=item_id,
            reviewer=reviewer,
            kind=kind,
            **({} if label is None else {k: v for k, [v] in label_columns([label]).items()}),
            created=time.time(),
            is_undone=False,
        )
    )
    return True


TOO_MANY = 429
MAX_CLAIMS = 100  # rows that are tried before the queue is looked at again


class Period(NamedTuple):
    """An hour or a day, in seconds since 1970, and how many rows a reviewer may review in it."""

    name: str
    start: float
    end: float
    capacity: int

    @property
    def words(self) -> str:
        """The name in a sentence."""
        return "today" if self.name == "day" else f"this {self.name}"


def periods(now: float, per_hour: int | None, per_day: int) -> list[Period]:
    """Return the hour and the day of a time, by the clock of this machine.

    >>> [one.name for one in periods(0.0, None, 40)]
    ['day']
    """
    at = datetime.fromtimestamp(now).astimezone().replace(minute=0, second=0, microsecond=0)
    today = datetime(at.year, at.month, at.day)
    tomorrow = today + timedelta(days=1)
    found = [Period("day", today.timestamp(), tomorrow.timestamp(), per_day)]
    if per_hour is None:
        return found
    return [Period("hour", at.timestamp(), at.timestamp() + 3600, per_hour), *found]


@final
@dataclass(slots=True)
class WaitingRow:
    """A row that waits for a label, with what reviewers did about it.

    `answers` are pairs of a reviewer and a class, in order, and `model_answers` those of models
    that the policy asked; `passed` escalated or skipped it, and `holder` has claimed it.
    """

    id: str
    policy_id: int
    probabilities: bytes
    reason: int
    is_audit: bool
    row_costs: str | None
    created: float
    holder: str | None = None
    answers: list[tuple[str, int]] = field(default_factory=list)
    model_answers: Sequence[SentAnswer] = ()
    passed: set[str] = field(default_factory=set)

    @property
    def seen_by(self) -> set[str]:
        """Who is not asked (again)."""
        return self.passed | {name for name, _ in self.answers}


COLUMNS = (
    decisions.c.id, decisions.c.policy_id, decisions.c.probabilities, decisions.c.reason,
    reviews.c.is_audit, decisions.c.row_costs, reviews.c.created,
)  # fmt: skip


def waiting_rows(
    connection: Connection, now: float, limit: int, item_id: str | None = None
) -> list[WaitingRow]:
    """Return the rows that wait for a label, audited ones first, then by review value.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    now : float
        Leases that end before have expired.
    limit : int
        The maximum number of rows.
    item_id : str or None
        Only this row.
    """
    query = (
        select(*COLUMNS, reviews.c.reviewer, reviews.c.lease_until)
        .join(decisions, decisions.c.id == reviews.c.decision_id)
        .where(IS_WAITING)
        .limit(limit)
    )
    found: dict[str, WaitingRow] = {}
    for *values, holder, until in connection.execute(_in_order(query, item_id)):
        row = WaitingRow(*values)
        row.holder = holder if until > now else None
        found[row.id] = row
    events = select(review_events).where(IS_KEPT).order_by(review_events.c.id)
    for event in rows_by_id(connection, events, review_events.c.decision_id, list(found)):
        row = found[event["decision_id"]]
        if event["kind"] == "label":
            row.answers.append((event["reviewer"], event["label"]))
        else:
            row.passed.add(event["reviewer"])
    return _with_model_answers(connection, found)


def _with_model_answers(connection: Connection, found: dict[str, WaitingRow]) -> list[WaitingRow]:
    """Return rows with what models that the policy asked answered."""
    for name, given in find_model_answers(connection, list(found)).items():
        found[name].model_answers = [one.sent for one in given]
    return list(found.values())


def arrived_rows(
    connection: Connection, start: float, end: float, limit: int
) -> tuple[list[WaitingRow], int]:
    """Return rejected rows that arrived from one time to another, and how many there are in all.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    start, end : float
        Seconds since 1970.
    limit : int
        The maximum number of rows; ids decide which, not values or times.
    """
    is_between = (reviews.c.created >= start, reviews.c.created < end, ~reviews.c.is_audit)
    query = select(*COLUMNS).join(reviews, decisions.c.id == reviews.c.decision_id)
    rows = connection.execute(query.where(*is_between).order_by(decisions.c.id).limit(limit))
    found = {row.id: WaitingRow(*row) for row in rows}
    return _with_model_answers(connection, found), _count(connection, *is_between)


def used_capacity(connection: Connection, since: float) -> dict[str, int]:
    """Return how many rows each reviewer labeled or passed on since a time."""
    who = review_events.c.reviewer
    query = select(who, sa.func.count()).where(review_events.c.created >= since, IS_KEPT)
    return {name: int(n) for name, n in connection.execute(query.group_by(who))}


def _held(connection: Connection, reviewer: str, now: float) -> list[str]:
    """Return the rows that a reviewer holds."""
    is_own = (reviews.c.reviewer == reviewer, reviews.c.lease_until > now)
    query = select(reviews.c.decision_id).where(IS_WAITING, *is_own)
    return list(connection.execute(query).scalars())


def join_team(connection: Connection, names: Sequence[str], now: float) -> None:
    """Add the reviewers that are new to the table of team members."""
    n = len(names)
    columns: dict[str, list[Any]] = {"name": [*names], "shadow_price": [0.0] * n, "seen": [now] * n}
    insert_rows(connection, team_members, columns)


def team_members_of(connection: Connection) -> dict[str, tuple[float, float]]:
    """Return the shadow price of each reviewer, and when it last claimed a row."""
    return {
        row.name: (row.shadow_price, row.seen) for row in connection.execute(select(team_members))
    }


def save_prices(connection: Connection, prices: Mapping[str, float]) -> None:
    """Store the shadow price of each reviewer."""
    for name, price in sorted(prices.items()):  # in one order, so that processes do not deadlock
        change = update(team_members).where(team_members.c.name == name)
        connection.execute(change.values(shadow_price=price))


def claim_within(
    connection: Connection,
    reviewer: str,
    ids: Sequence[str],
    limits: Sequence[Period],
    *,
    lease_seconds: float,
    now: float,
    keep_held: bool = True,
) -> ReviewItem | None:
    """Claim the first of some rows that is available, if the reviewer has capacity left.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    reviewer : str
        A member of the team.
    ids : sequence of str
        The rows, in order.
    limits : sequence of Period
        How many rows the reviewer may review in this hour and on this day.
    lease_seconds : float
        How long the reviewer holds the row.
    now : float
        The current time.
    keep_held : bool, default True
        Whether a row that the reviewer holds comes before any other.

    Returns
    -------
    ReviewItem or None
        None if no row is available.
    """
    _lock(connection, reviewer, now)
    held = _held(connection, reviewer, now) if keep_held else []
    if not held:
        _require_capacity(connection, reviewer, limits, now, n_more=1)
    for item_id in (*held, *ids[:MAX_CLAIMS]):
        item = claim_review(connection, reviewer, item_id, lease_seconds=lease_seconds, now=now)
        if item is not None:
            _require_capacity(connection, reviewer, limits, now)
            return item
    return None


def undo_within(
    connection: Connection,
    item_id: str,
    reviewer: str,
    limits: Sequence[Period],
    *,
    lease_seconds: float,
    now: float,
) -> ReviewItem:
    """Undo the last answer of a team member for a row, and claim it again within capacity.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    item_id, reviewer : str
        The row, and who answered.
    limits, lease_seconds, now
        As for `claim_within`.
    """
    _lock(connection, reviewer, now)
    item = undo_review(connection, item_id, reviewer, lease_seconds=lease_seconds)
    _require_capacity(connection, reviewer, limits, now)
    return item


def _lock(connection: Connection, reviewer: str, now: float) -> None:
    """Note that a reviewer is there, and let no other process claim for it until the commit."""
    change = update(team_members).where(team_members.c.name == reviewer)
    connection.execute(change.values(seen=now))


def _require_capacity(
    connection: Connection, reviewer: str, limits: Sequence[Period], now: float, n_more: int = 0
) -> None:
    """Raise if a reviewer answered, passed on and holds more rows than it can review."""
    n_held = len(_held(connection, reviewer, now))
    for one in reversed(limits):  # the day first: who has used it need not come back next hour
        n_used = used_capacity(connection, one.start).get(reviewer, 0)
        if n_used + n_held + n_more > one.capacity:
            again = datetime.fromtimestamp(one.end).astimezone()
            at = f"{'tomorrow ' if one.name == 'day' else ''}at {again:%H:%M %Z}"
            limit = quantity(one.capacity, "review")
            problem = f"{reviewer} has reached the limit of {limit} {one.words}"
            raise HTTPError(TOO_MANY, problem, f"Come back {at}", max(int(one.end - now) + 1, 1))


def label_by_answers(
    connection: Connection, item_id: str, n_answers: int, label: int, now: float
) -> bool:
    """Label a row by the answers so far, unless it changed; return whether it was labeled.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    item_id : str
        A row with answers, but without a label.
    n_answers : int
        How many answers it has.
    label : int
        The class that they lead to.
    now : float
        The current time.
    """
    lock = select(reviews).where(reviews.c.decision_id == item_id).with_for_update()
    connection.execute(lock).all()
    found = waiting_rows(connection, now, 1, item_id)
    if not found or found[0].holder is not None or len(found[0].answers) != n_answers:
        return False
    add_labels(connection, [item_id], [label], reviewer=found[0].answers[-1][0])
    return True


@final
@dataclass(frozen=True, slots=True)
class AnsweredRow:
    """The last answer of each reviewer to a row, and the truth if it is known."""

    answers: tuple[tuple[str, int], ...]
    truth: int | None

    @property
    def confirmed(self) -> int | None:
        """The truth, or else the class that two people gave, and more than any other."""
        if self.truth is not None:
            return self.truth
        (code, n_first), *others = Counter(code for _, code in self.answers).most_common(2)
        is_clear = n_first >= 2 and all(n < n_first for _, n in others)
        return code if is_clear else None


def answered_rows(connection: Connection) -> list[AnsweredRow]:
    """Return the answers to each row; labels that a program sent are the truth."""
    is_truth = labels.c.reviewer.is_(None) & labels.c.answers.is_(None)
    event = review_events.c
    query = (
        select(event.decision_id, event.reviewer, event.label, labels.c.label.label("truth"))
        .outerjoin(labels, (labels.c.decision_id == event.decision_id) & is_truth)
        .where(event.kind == "label", IS_KEPT)
        .order_by(event.id)
    )
    given: dict[str, dict[str, int]] = defaultdict(dict)
    truths: dict[str, int | None] = {}
    for item_id, name, code, truth in connection.execute(query):
        given[item_id][name] = code
        truths[item_id] = truth
    return [AnsweredRow(tuple(one.items()), truths[key]) for key, one in given.items()]
