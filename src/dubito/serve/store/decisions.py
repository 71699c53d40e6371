"""Decisions in the database: inserted once per id, read as columns, deleted after retention."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from itertools import chain
from math import inf
from random import random
from typing import Any, Self, final

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.decide import Decisions
from dubito.decide.multilabel.label_decisions import AUTOMATIC, REVIEW, MultiLabelDecisions
from dubito.decide.regression.value_decisions import RegressionDecisions
from dubito.serve.http_errors import CONFLICT, HTTPError
from dubito.serve.store.tables import (
    cascade_stages,
    corrections,
    decisions,
    forecasts,
    idempotency_keys,
    labels,
    review_events,
    reviews,
)
from dubito.serve.store.writer import insert_new_rows, insert_rows
from dubito.serve.value_rows import float_matrix, value_matrix

Label = int | str  # the position of a class, or answers: see `tables`
MAX_IDS = 500  # per query
RESPONSE_COLUMNS = (
    "id", "policy_id", "created", "digest", "action", "predicted_class", "probability",
    "expected_cost", "reason", "review_value", "is_audit", "link", "row_costs", "probabilities",
    "label_actions",
)  # fmt: skip
COLUMN_TYPES = {  # of decisions and their labels
    "id": np.str_, "policy_id": np.int64, "created": np.float64, "is_logits": np.bool_,
    "action": np.int64, "predicted_class": np.int64, "propensity": np.float64,
    "audit_probability": np.float64, "is_audit": np.bool_, "row_costs": np.object_,
    "label_actions": np.object_, "answers": np.object_, "labeled": np.float64,
}  # fmt: skip
ARRIVAL_ORDER = (decisions.c.created, decisions.c.position, decisions.c.id)
# Rows whose labels were all expected when they were decided: certain to be labeled, not drawn.
EXPECTED = (~decisions.c.is_audit, decisions.c.audit_probability >= 1)
MAX_MISSING = 0.02  # fraction of labels that are still to come after the usual delay
MIN_GAP = 0.5  # fraction of labels that are missing where they stopped arriving


@final
@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The idempotency key of a request, the token that sent it, and the digest of the body."""

    text: str
    token_id: int
    digest: bytes

    @property
    def id(self) -> str:
        """What identifies it in the database: the same text is another key for another token."""
        return blake2b(f"{self.token_id} {self.text}".encode(), digest_size=16).hexdigest()


@final
@dataclass(frozen=True, slots=True, eq=False)
class NewDecisions:
    """The decisions of one request as database columns.

    Parameters
    ----------
    columns : dict of str to list
        One list per column of the table `decisions`.
    is_rejected : array of bool
        Rows that the policy sends to review.
    key : IdempotencyKey or None
        The idempotency key of the request.
    """

    columns: dict[str, list[Any]]
    is_rejected: BoolArray
    key: IdempotencyKey | None = None

    @classmethod
    def of(
        cls,
        policy_id: int,
        ids: Sequence[str],
        decided: Decisions | MultiLabelDecisions | RegressionDecisions,
        outputs: FloatArray,
        *,
        confidence: FloatArray | None = None,
        digests: Sequence[bytes],
        is_logits: bool = True,
        is_asked: BoolArray | None = None,
        is_audit: BoolArray | None = None,
        audit_probability: float = 0.0,
        row_costs: NDArray[Any] | None = None,
        links: Sequence[str | None] | None = None,
        features: FloatArray | None = None,
        created: float | None = None,
    ) -> Self:
        """Return the columns of decisions; `is_audit` marks the rows drawn for the audit.

        `digests` identify the inputs of each row: an id that is sent again must have the same one.
        Decided values need the `confidence` of each row. Rows of `is_asked` are rejected, but wait
        for the answer of a model and not for a review.
        """
        n = len(decided)
        audited = np.zeros(n, dtype=bool) if is_audit is None else is_audit
        own, rejected = _own_columns(decided, confidence)
        rejected = rejected if is_asked is None else rejected & ~is_asked
        return cls(
            columns={
                "id": list(ids),
                "policy_id": [policy_id] * n,
                "created": [time.time() if created is None else created] * n,
                "digest": list(digests),
                "is_logits": [is_logits] * n,
                "outputs": _row_bytes(outputs),
                **own,
                "expected_cost": decided.expected_cost.tolist(),
                "review_value": decided.review_value.tolist(),
                "propensity": np.where(rejected, 1.0, audit_probability).tolist(),
                "is_audit": audited.tolist(),
                "row_costs": [None] * n if row_costs is None else _json_rows(row_costs),
                "link": [None] * n if links is None else list(links),
                "features": [None] * n if features is None else _row_bytes(features),
                "audit_probability": [audit_probability] * n,
                "position": list(range(n)),
            },
            is_rejected=rejected,
        )

    def part(self, rows: slice, key: IdempotencyKey | None = None) -> NewDecisions:
        """Return some of the rows as a request with an idempotency key of its own."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return NewDecisions(columns, self.is_rejected[rows], key)

    def require_same(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise if a decision that exists was made from different inputs."""
        for name, digest in zip(self.columns["id"], self.columns["digest"], strict=True):
            if name in found and found[name]["digest"] != digest:
                problem = f"Id {name!r} was decided with a different body"
                raise HTTPError(CONFLICT, problem, "Use another id, or send the same body")

    def __len__(self) -> int:
        return len(self.columns["id"])

    def insert_together(self, connection: sa.Connection, others: Sequence[NewDecisions]) -> bool:
        """Insert the decisions of several requests; return whether every one was new."""
        keys = {new.key: new.columns["created"][0] for new in others if new.key is not None}
        n_keyed = sum(new.key is not None for new in others)
        if n_keyed and _insert_keys(connection, keys) < n_keyed:
            return False
        joined = {
            name: list(chain.from_iterable(new.columns[name] for new in others))
            for name in self.columns
        }
        is_rejected = np.concatenate([new.is_rejected for new in others])
        return insert_new_rows(connection, decisions, joined) and insert_new_rows(
            connection, reviews, _review_columns(joined, is_rejected)
        )

    def insert(self, connection: sa.Connection) -> dict[str, dict[str, Any]]:
        """Insert the decisions that are new; return, by id, those that exist.

        If an existing one was decided from different inputs, nothing is stored.
        """
        if self.key is not None:
            add_key(connection, self.key, self.columns["created"][0])
        ids = self.columns["id"]
        while True:
            found = find_decisions(connection, ids)
            self.require_same(found)
            new = [row for row, name in enumerate(ids) if name not in found]
            columns = {name: [values[k] for k in new] for name, values in self.columns.items()}
            # Another process may insert some of them first: then look again.
            if insert_rows(connection, decisions, columns) == len(new):
                insert_reviews(connection, columns, self.is_rejected[new])
                return found


@final
@dataclass(frozen=True, slots=True)
class LabelDelay:
    """How late labels are, of rows whose labels all arrive sooner or later.

    Attributes
    ----------
    seconds : float or None
        The usual delay: after it, 98 % of the labels have arrived. None if so many never did.
    missing_since : float or None
        If labels stopped arriving: those of rows decided since then are missing, and all else is
        of the rows before. None if they did not.
    n_rows, n_missing : int
        Rows decided so, and how many of them have no label yet.
    oldest : float
        The age of the oldest row without a label, in seconds; 0 if there is none.
    now : float
        When this was determined, in seconds since 1970.
    """

    seconds: float | None
    n_rows: int
    n_missing: int
    oldest: float
    now: float
    missing_since: float | None = None

    @classmethod
    def of(cls, created: FloatArray, labeled: FloatArray, now: float) -> Self:
        """Estimate the delay from the times of decisions and labels, NaN for those to come.

        The distribution of delays is that of Kaplan and Meier: rows that still wait count with
        their age, so that the short delays of recent rows do not pass for those of all.

        >>> LabelDelay.of(np.zeros(4), np.array([1.0, 2.0, 3.0, np.nan]), 10.0).seconds
        >>> LabelDelay.of(np.zeros(4), np.array([1.0, 2.0, 3.0, 4.0]), 10.0).seconds
        4.0
        """
        is_missing = np.isnan(labeled)
        age = np.maximum(np.where(is_missing, now, labeled) - created, 0.0)
        seconds, since = _usual_delay(age, is_missing), None
        if seconds is None and (since := _missing_since(created, is_missing)) is not None:
            is_before = created < since
            seconds = _usual_delay(age[is_before], is_missing[is_before])
            since = None if seconds is None else since
        n_missing, oldest = int(is_missing.sum()), float(age[is_missing].max(initial=0.0))
        return cls(seconds, created.size, n_missing, oldest, now, since)

    @property
    def due(self) -> float:
        """Rows decided until then have their labels; -inf if the usual delay is unknown."""
        if self.seconds is None:
            return -inf
        due = self.now - self.seconds
        since = self.missing_since
        return due if since is None else min(due, float(np.nextafter(since, -inf)))


def _usual_delay(age: FloatArray, is_missing: BoolArray) -> float | None:
    """Return the age at which 98 % of labels have arrived; None if so many never did."""
    if is_missing.all():
        return None
    from scipy.stats import CensoredData, ecdf  # slow to import, and rarely needed

    found = ecdf(CensoredData.right_censored(age, is_missing)).sf
    reached = found.quantiles[found.probabilities <= MAX_MISSING + 1e-12]
    return float(reached[0]) if reached.size else None


def _missing_since(created: FloatArray, is_missing: BoolArray) -> float | None:
    """Return when labels stopped arriving: of the rows before, 98 % have one.

    None unless most of the rows since have none. Where labels are missing here and there, the first
    rows have them by chance, or because theirs come early: these represent nothing.

    >>> _missing_since(np.arange(6.0), np.array([False, False, False, True, True, True]))
    3.0
    >>> _missing_since(np.arange(6.0), np.array([False, True, False, False, True, False]))
    """
    order = np.argsort(created, kind="stable")
    times, missing = created[order], is_missing[order]
    is_end = np.append(times[1:] > times[:-1], False)  # rows of one request are not told apart
    n_missing = np.cumsum(missing)
    complete = np.flatnonzero(is_end & (n_missing <= MAX_MISSING * np.arange(1, times.size + 1)))
    if not complete.size:
        return None
    labeled = np.flatnonzero(~missing[: complete[-1] + 1])
    first = int(np.searchsorted(times, times[labeled[-1]], side="right"))
    is_gap = first < times.size and missing[first:].mean() >= MIN_GAP
    return float(times[first]) if is_gap else None


@final
@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Decisions as columns, oldest first, with the labels known so far.

    Attributes
    ----------
    propensity : array of float
        The probability that the row was sent to review: 1 if rejected, else `audit_probability`.
    audit_probability, is_audit : array of float, array of bool
        The probability of being drawn for the audit, and whether the row was drawn.
    label : array of int
        -1 where the label is unknown.
    labeled : array of float
        When the label arrived; NaN where it is unknown.
    row_costs : array of object
        The columns that costs depend on, as JSON; None where none were sent.
    is_unresolved : array of bool
        Rows that reviewers escalated or skipped and that have no label.
    answers, label_actions : array of object
        Stored answers and actions per label (multilabel policies only); None where unknown.
    delay : LabelDelay or None
        Given if the labels of all rows are expected, not only of audited and rejected ones.
    """

    id: NDArray[np.str_]
    policy_id: IntArray
    created: FloatArray
    is_logits: BoolArray
    outputs: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    action: IntArray
    predicted_class: IntArray
    propensity: FloatArray
    audit_probability: FloatArray
    is_audit: BoolArray
    row_costs: NDArray[np.object_]
    label: IntArray
    labeled: FloatArray
    is_unresolved: BoolArray
    answers: NDArray[np.object_]
    label_actions: NDArray[np.object_]
    delay: LabelDelay | None = None

    def __len__(self) -> int:
        return self.action.size

    def columns_of(self, names: Sequence[str]) -> dict[str, FloatArray]:
        """Return the columns that costs depend on, NaN where a row has none."""
        return read_row_costs(self.row_costs.tolist(), names)

    def take(self, which: IntArray | BoolArray | slice) -> StoredRows:
        """Return some of the rows."""
        names = [one.name for one in fields(self) if one.name != "delay"]
        return StoredRows(**{one: getattr(self, one)[which] for one in names}, delay=self.delay)


@final
@dataclass(frozen=True, slots=True, eq=False)
class AlarmHistory:
    """The input of the sequential alarms: all rows that one policy decided, in order of arrival.

    Attributes
    ----------
    uncertainty : array of float
        1 minus the confidence of every row.
    confidence, is_correct : array of float, array of bool
        Audited rows with a label, in the order in which row and label were both there. Only the
        first label counts: a later correction or undo does not change what an alarm has seen.
    probabilities, answers : array of float, list of str
        The same rows of a policy of several labels per row; None and empty for classes.
    missing : float
        If the labels of all rows are expected: the fraction of rows without one although it is due.
        The others are then in order of their decisions.
    """

    uncertainty: FloatArray
    confidence: FloatArray
    is_correct: BoolArray
    probabilities: NDArray[np.float32] | None = None
    answers: Sequence[str] = ()
    missing: float = 0.0


def _insert_keys(connection: sa.Connection, keys: Mapping[IdempotencyKey, float]) -> int:
    """Insert idempotency keys with their times; return how many are new."""
    columns: dict[str, list[Any]] = {
        "key": [key.id for key in keys],
        "digest": [key.digest for key in keys],
        "created": list(keys.values()),
    }
    return insert_rows(connection, idempotency_keys, columns)


def add_key(connection: sa.Connection, key: IdempotencyKey, created: float) -> None:
    """Store an idempotency key, or raise if it was used with a different body."""
    if _insert_keys(connection, {key: created}):
        return
    query = sa.select(idempotency_keys.c.digest).where(idempotency_keys.c.key == key.id)
    if connection.execute(query).scalar_one() != key.digest:
        problem = f"Idempotency key {key.text!r} was used with a different body"
        raise HTTPError(CONFLICT, problem, "Use another key, or send the same body")


def _review_columns(columns: Mapping[str, list[Any]], is_rejected: BoolArray) -> dict[str, Any]:
    """Return the review entries of rejected and audited rows.

    Audited rows get a random priority, so that those reviewed so far are a random sample.
    """
    is_audit = columns["is_audit"]
    rows = np.flatnonzero(is_rejected | np.array(is_audit, dtype=bool)).tolist()
    return {
        "decision_id": [columns["id"][row] for row in rows],
        "created": [columns["created"][row] for row in rows],
        "priority": [random() if is_audit[row] else columns["review_value"][row] for row in rows],
        "is_audit": [is_audit[row] for row in rows],
        "is_open": [True] * len(rows),
        "lease_until": [0.0] * len(rows),
    }


def insert_reviews(
    connection: sa.Connection, columns: Mapping[str, list[Any]], is_rejected: BoolArray
) -> None:
    """Put rejected and audited rows into the review queue."""
    insert_rows(connection, reviews, _review_columns(columns, is_rejected))


def rows_by_id(
    connection: sa.Connection, query: sa.Select[Any], key: sa.Column[str], ids: Sequence[str]
) -> Iterator[Any]:
    """Yield the rows of a query whose key is among some ids, a limited number at a time."""
    for start in range(0, len(ids), MAX_IDS):
        some = query.where(is_among(connection, key, ids[start : start + MAX_IDS]))
        yield from connection.execute(some).mappings()


def is_among(
    connection: sa.Connection, key: sa.Column[str], ids: Sequence[str]
) -> sa.ColumnElement[bool]:
    """Return the condition that a key is among some ids."""
    if connection.dialect.name == "postgresql":  # one array is much faster than many parameters
        return key == sa.any_(sa.literal(list(ids), sa.ARRAY(sa.String)))
    return key.in_(ids)


def find_decisions(connection: sa.Connection, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the decisions of some ids; those that do not exist are left out.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    ids : sequence of str
        Ids of decisions.

    Returns
    -------
    dict of str to dict
        The columns of a response, by id.
    """
    query = sa.select(*(decisions.c[name] for name in RESPONSE_COLUMNS))
    return {row["id"]: dict(row) for row in rows_by_id(connection, query, decisions.c.id, ids)}


def decisions_since(connection: sa.Connection, since: float = 0.0) -> StoredRows:
    """Return all decisions made at or after a time, with their labels.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    since : float, default 0
        Seconds since 1970.

    Returns
    -------
    StoredRows
        One row per decision, in order of arrival.
    """
    passed_on = sa.exists().where(
        review_events.c.decision_id == decisions.c.id,
        review_events.c.kind.in_(["escalate", "skip"]),
        ~review_events.c.is_undone,
    )
    names = [name for name in ("outputs", "probabilities", *COLUMN_TYPES) if name in decisions.c]
    query = (
        sa.select(
            *(decisions.c[name] for name in names),
            labels.c.label,
            labels.c.answers,
            labels.c.created.label("labeled"),
            passed_on.correlate(decisions).label("passed_on"),
        )
        .outerjoin(labels, labels.c.decision_id == decisions.c.id)
        .where(decisions.c.created >= since)
        .order_by(*ARRIVAL_ORDER)
    )
    found = connection.execute(query)
    names, rows = list(found.keys()), found.all()
    columns = {name: [row[k] for row in rows] for k, name in enumerate(names)}
    label = np.array([-1 if code is None else code for code in columns["label"]], np.int64)
    arrays: dict[str, Any] = {
        name: np.array(columns[name], dtype=kind) for name, kind in COLUMN_TYPES.items()
    }
    return StoredRows(
        outputs=float_matrix(columns["outputs"]),
        probabilities=float_matrix(columns["probabilities"]),
        **arrays,
        label=label,
        is_unresolved=np.array(columns["passed_on"], np.bool_) & (label < 0),
    )


def label_delay(connection: sa.Connection, now: float) -> LabelDelay:
    """Return how late the labels of rows are whose labels all arrive sooner or later.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    now : float
        Seconds since 1970.
    """
    query = (
        sa.select(decisions.c.created, labels.c.created)
        .outerjoin(labels, labels.c.decision_id == decisions.c.id)
        .where(*EXPECTED)
    )
    times = np.array(connection.execute(query).all(), np.float64).reshape(-1, 2)
    return LabelDelay.of(times[:, 0], times[:, 1], now)


def alarm_history(
    connection: sa.Connection, policy_id: int, due: float | None = None
) -> AlarmHistory:
    """Return the input of the alarms: the uncertainty of every row, and labels of audited rows.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    policy_id : int
        The policy that made the decisions.
    due : float or None
        If the labels of all rows are expected: those of rows decided until then count, as they are
        now. In order of the decisions, late labels do not come after early ones.

    Returns
    -------
    AlarmHistory
        In order of arrival; only the first label of each audited row counts.
    """
    is_own = decisions.c.policy_id == policy_id
    every = sa.select(decisions.c.probability).where(is_own).order_by(*ARRIVAL_ORDER)
    confidence_of_all = np.array(connection.execute(every).scalars().all(), np.float64)
    first: dict[str, tuple[float, Label]]
    if due is None:
        is_used = sa.and_(is_own, decisions.c.is_audit)
        first = _first_labels(connection, is_used)
    else:
        is_used = sa.and_(is_own, *EXPECTED, decisions.c.created <= due)
        current = sa.select(labels).join(decisions, decisions.c.id == labels.c.decision_id)
        rows = connection.execute(current.where(is_used)).mappings()
        first = {row["decision_id"]: (0.0, label_of(row)) for row in rows}
    names = ("id", "created", "probability", "predicted_class", "probabilities")
    used = sa.select(*(decisions.c[name] for name in names)).where(is_used)
    every_used = connection.execute(used.order_by(*ARRIVAL_ORDER)).all()
    known = [row for row in every_used if row.id in first]
    known.sort(key=lambda row: max(first[row.id][0], row.created))
    answers = [label for row in known if isinstance(label := first[row.id][1], str)]
    confidence = np.array([row.probability for row in known], np.float64)
    return AlarmHistory(
        uncertainty=np.clip(1.0 - confidence_of_all, 0.0, 1.0),
        confidence=np.clip(confidence, 0.0, 1.0),
        is_correct=np.array([row.predicted_class == first[row.id][1] for row in known], np.bool_),
        probabilities=float_matrix([row.probabilities for row in known]) if answers else None,
        answers=answers,
        missing=0.0 if due is None or not every_used else 1 - len(known) / len(every_used),
    )


def _first_labels(
    connection: sa.Connection, is_used: sa.ColumnElement[bool]
) -> dict[str, tuple[float, Label]]:
    """Return the time and value of the first label of some decisions, by id."""
    undone = (review_events.c.kind == "label") & review_events.c.is_undone
    found: dict[str, tuple[float, Any]] = {}
    every = sa.true()
    for table, condition in ((labels, every), (corrections, every), (review_events, undone)):
        query = (
            sa.select(table.c.decision_id, table.c.created, table.c.label, table.c.answers)
            .join(decisions, decisions.c.id == table.c.decision_id)
            .where(is_used, condition)
        )
        for row in connection.execute(query).mappings():
            given = row["created"], label_of(row)
            found[row["decision_id"]] = min(found.get(row["decision_id"], given), given)
    return found


def find_features(connection: sa.Connection, ids: Sequence[str]) -> NDArray[np.float32] | None:
    """Return the features of some decisions.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    ids : sequence of str
        Ids of decisions.

    Returns
    -------
    array of float32 or None
        One row per id, or None if a row has no features or a different number of them.
    """
    query = sa.select(decisions.c.id, decisions.c.features)
    rows = rows_by_id(connection, query, decisions.c.id, ids)
    found = {row["id"]: row["features"] for row in rows}
    features = [found.get(name) or b"" for name in ids]
    lengths = {len(one) for one in features}
    return float_matrix(features) if len(lengths) == 1 and lengths != {0} else None


def delete_oldest(connection: sa.Connection, before: float) -> int:
    """Delete some of the decisions made before a time, with everything about them.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    before : float
        Seconds since 1970.

    Returns
    -------
    int
        The number of deleted decisions: 0 if none is left.
    """
    is_old = decisions.c.created < before
    query = sa.select(decisions.c.id).where(is_old).order_by(*ARRIVAL_ORDER).limit(MAX_IDS)
    old = connection.execute(query).scalars().all()
    for table in (review_events, reviews, corrections, labels, cascade_stages):
        connection.execute(sa.delete(table).where(is_among(connection, table.c.decision_id, old)))
    connection.execute(sa.delete(decisions).where(is_among(connection, decisions.c.id, old)))
    if not old:
        ids = cascade_stages.c.decision_id  # of rows that wait for a model
        newest = sa.func.max(cascade_stages.c.created)
        waiting = sa.select(ids).group_by(ids).having(newest < before)
        connection.execute(sa.delete(cascade_stages).where(ids.in_(waiting)))
        connection.execute(sa.delete(corrections).where(corrections.c.corrected < before))
        for table in (forecasts, labels, idempotency_keys):
            connection.execute(sa.delete(table).where(table.c.created < before))
    return len(old)


def _own_columns(
    decided: Decisions | MultiLabelDecisions | RegressionDecisions, confidence: FloatArray | None
) -> tuple[dict[str, list[Any]], BoolArray]:
    """Return the columns that a class, several labels or a value have, and the rejected rows.

    The probability of several labels is their mean confidence. Byte k of the label actions is what
    would be decided without a review, 0 or 1, and 2 more if label k is reviewed.
    """
    nothing = [0] * len(decided)
    if isinstance(decided, MultiLabelDecisions):
        p = decided.probabilities.astype(np.float64)
        codes = (decided.fallback + 2 * (decided.action == REVIEW)).astype(np.uint8)
        return {
            "probabilities": _row_bytes(decided.probabilities),
            "action": decided.row_action.tolist(),
            "predicted_class": nothing,
            "probability": np.maximum(p, 1 - p).mean(axis=1).tolist(),
            "reason": nothing,
            "label_actions": [row.tobytes() for row in codes],
        }, decided.row_action != AUTOMATIC
    if isinstance(decided, Decisions):
        found, rejected = decided.probabilities, decided.is_rejected
        classes, confidence = decided.predicted_class.tolist(), decided.probability
    else:
        found, rejected, classes = value_matrix(decided), decided.is_reviewed, nothing
    assert confidence is not None
    return {
        "probabilities": _row_bytes(found),
        "action": decided.action.tolist(),
        "predicted_class": classes,
        "probability": confidence.tolist(),
        "reason": decided.reason.tolist(),
        "label_actions": [None] * len(decided),
    }, rejected


def label_columns(given: Sequence[Label]) -> dict[str, list[Any]]:
    """Return labels as the columns of a table.

    >>> label_columns([2, "yn?"])
    {'label': [2, 0], 'answers': [None, 'yn?']}
    """
    return {
        "label": [0 if isinstance(one, str) else one for one in given],
        "answers": [one if isinstance(one, str) else None for one in given],
    }


def label_of(row: Any) -> Label:
    """Return the label in a row of a table."""
    label: Label = row["label"] if row["answers"] is None else row["answers"]
    return label


def read_row_costs(row_costs: Sequence[str | None], names: Sequence[str]) -> dict[str, FloatArray]:
    """Return the columns that costs depend on, as they are stored, NaN where a row has none."""
    rows = [{} if one is None else json.loads(one) for one in row_costs]
    return {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}


def _json_rows(table: NDArray[Any]) -> list[str]:
    """Return each row of a structured array as a JSON object."""
    names = table.dtype.names or ()
    return [json.dumps(dict(zip(names, row, strict=True))) for row in table.tolist()]


def digest_of(text: str) -> bytes:
    """Return a hash that tells what was sent from anything else."""
    return blake2b(text.encode(), digest_size=16).digest()


def _row_bytes(array: FloatArray) -> list[bytes]:
    r"""Return each row as little-endian float32 bytes.

    >>> _row_bytes(np.array([[1.0, 0.0]]))
    [b'\x00\x00\x80?\x00\x00\x00\x00']
    """
    whole = np.ascontiguousarray(array, "<f4")
    rows: list[bytes] = np.frombuffer(whole.tobytes(), f"V{whole.shape[1] * 4}").tolist()
    return rows
