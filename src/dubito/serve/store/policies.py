"""Storage of what is served: policies, or the log of an online state and its forecasts."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from dubito.decide.cascade import Cascade
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.loading import AnyPolicy, policy_or_cascade_from_json
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.serve.http_errors import CONFLICT, NOT_FOUND, HTTPError
from dubito.serve.store.decisions import rows_by_id
from dubito.serve.store.tables import activations, forecast_events, forecasts, labels, policies
from dubito.serve.store.writer import insert_rows, lock_until_commit

ServedPolicy = AnyPolicy | Cascade
LOG_LOCK = 7_230_992  # arbitrary, the same in every process
FILE = "policy.json"  # what messages call a document
ACTIVATIONS = (
    select(activations.c.id, activations.c.policy_id)
    .where(~activations.c.is_undone)
    .order_by(activations.c.id.desc())
)


@final
@dataclass(frozen=True)
class StoredPolicy:
    """A policy that was uploaded, or refitted to rows decided until `trained_until`.

    `was_active` is True if it is or ever was active, `is_previous` if a rollback would activate it.
    """

    id: int
    created: float
    document: str
    is_active: bool
    was_active: bool = False
    is_previous: bool = False
    trained_until: float | None = None

    @cached_property
    def served(self) -> ServedPolicy:
        """The parsed policy or cascade."""
        return policy_or_cascade_from_json(self.document, FILE)

    @property
    def policy(self) -> AnyPolicy:
        """The parsed policy of a database without cascades."""
        assert not isinstance(self.served, Cascade)
        return self.served


def checksum(document: str) -> str:
    """Return the checksum in a valid policy document."""
    return str(json.loads(document)["checksum"]).removeprefix("sha256:")


def policy_content(document: str) -> dict[str, Any]:
    """Return the content of a policy document without the time of its fit, for comparison."""
    content: dict[str, Any] = {"provenance": {}, **json.loads(document), "checksum": None}
    return {**content, "provenance": {**content["provenance"], "created": None}}


def require_same_classes(new: ServedPolicy, existing: ServedPolicy) -> None:
    """Raise unless two policies have the same classes or labels, or take the same outputs.

    Labels of cascades say whether an answer is correct, whatever their models.
    """
    (kind, names), found = _named(existing), _named(new)
    if found != (kind, names):
        shown = ", ".join(names[:10])
        problem = f"All policies of a database must have the same {kind} ({shown})"
        if found[0] != kind:
            problem += f", and this one is of {found[0]}"
        raise HTTPError(CONFLICT, problem, f"Use another database for other {found[0]}")


def _named(policy: ServedPolicy) -> tuple[str, tuple[str, ...]]:
    """Return what a policy decides, and its names."""
    if isinstance(policy, Cascade):
        return "models", ("of a cascade",)
    if isinstance(policy, RegressionPolicy):
        levels = [f"{one:g}" for one in policy.levels or ()]
        draws = [] if policy.n_draws is None else [f"{policy.n_draws} draws"]
        return "outputs", (policy.kind, *levels, *draws)
    if isinstance(policy, MultiLabelPolicy):
        return "labels", tuple(map(str, policy.label_names))
    return "classes", tuple(map(str, policy.classes))


def insert_policy(
    connection: Connection, values: Mapping[str, Any], oldest: int | None
) -> int | None:
    """Store a validated policy; one that exists keeps its id.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    values : mapping
        `document`, the content of a policy file; `digest`, the checksum in it, which identifies the
        policy whatever the formatting of the file; and `trained_until`.
    oldest : int or None
        The policy that its classes were compared with.

    Returns
    -------
    int or None
        The id of the policy, or None if another policy is the oldest by now.
    """
    same = select(policies.c.id).where(policies.c.digest == values["digest"])
    if (known := connection.execute(same).scalar()) is not None:
        return int(known)
    if connection.execute(select(func.min(policies.c.id))).scalar() != oldest:
        return None
    query = insert(policies).values(**values, created=time.time())
    return int(connection.execute(query.returning(policies.c.id)).scalar_one())


def find_document(connection: Connection, policy_id: int | None = None) -> tuple[int, str] | None:
    """Return a policy file.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    policy_id : int or None
        The id of the policy; None for the oldest one.

    Returns
    -------
    tuple of int and str, or None
        Its id and the content of the file; None if there is no such policy.
    """
    query = select(policies.c.id, policies.c.document).order_by(policies.c.id).limit(1)
    if policy_id is not None:
        query = query.where(policies.c.id == policy_id)
    found = connection.execute(query).first()
    return None if found is None else (found.id, found.document)


def has_forecasts(connection: Connection) -> bool:
    """Return whether the database serves forecasts, and so no policies."""
    return connection.execute(select(forecast_events.c.number).limit(1)).first() is not None


def lock_log(connection: Connection) -> None:
    """Let no other process write to the log of the online state until the commit."""
    lock_until_commit(connection, LOG_LOCK)


def log_events(
    connection: Connection, since: int = 0, limit: int | None = None
) -> Sequence[Row[Any]]:
    """Return the events of the log of the online state from a number on: number, tag, content."""
    query = select(forecast_events).where(forecast_events.c.number >= since)
    return connection.execute(query.order_by(forecast_events.c.number).limit(limit)).all()


def write_event(
    connection: Connection, number: int, tag: str, content: str, *, is_first: bool = False
) -> None:
    """Append an event to the log; with `is_first`, the log begins with it."""
    values = {"number": number, "tag": tag, "content": content}
    connection.execute(insert(forecast_events).values(**values))
    if is_first:
        connection.execute(delete(forecast_events).where(forecast_events.c.number < number))


def find_forecasts(connection: Connection, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return stored forecasts by id; those that do not exist are left out.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    ids : sequence of str
        Ids of forecasts.
    """
    rows = rows_by_id(connection, select(forecasts), forecasts.c.id, ids)
    return {row["id"]: row for row in rows}


def insert_forecasts(connection: Connection, columns: Mapping[str, list[Any]]) -> None:
    """Store forecasts."""
    created = [time.time()] * len(columns["id"])
    insert_rows(connection, forecasts, {**columns, "created": created})


def forecasts_since(connection: Connection, since: float) -> Sequence[Row[Any]]:
    """Return the forecasts that were stored at or after a time, with their outcomes.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    since : float
        Seconds since 1970.
    """
    query = (
        select(forecasts, labels.c.label, labels.c.answers)
        .outerjoin(labels, labels.c.decision_id == forecasts.c.id)
        .where(forecasts.c.created >= since)
    )
    return connection.execute(query).all()


def list_policies(connection: Connection) -> list[StoredPolicy]:
    """Return all policies, oldest first."""
    last = [row.policy_id for row in connection.execute(ACTIVATIONS.limit(2))]
    ever = set(connection.execute(select(activations.c.policy_id).distinct()).scalars())
    names = ("id", "created", "document", "trained_until")
    query = select(*(policies.c[name] for name in names)).order_by(policies.c.id)
    return [
        StoredPolicy(
            **row,
            is_active=row["id"] in last[:1],
            was_active=row["id"] in ever,
            is_previous=row["id"] in last[1:],
        )
        for row in connection.execute(query).mappings()
    ]


def active_id(connection: Connection) -> int | None:
    """Return the id of the active policy, or None."""
    last = connection.execute(ACTIVATIONS.limit(1)).first()
    return None if last is None else int(last.policy_id)


def activate(connection: Connection, policy_id: int) -> None:
    """Make a policy the active one.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    policy_id : int
        The id of a stored policy.
    """
    known = select(policies.c.id).where(policies.c.id == policy_id)
    if connection.execute(known).scalar() is None:
        problem = f"There is no policy {policy_id}"
        raise HTTPError(NOT_FOUND, problem, "Use an id from GET /v1/policies")
    if active_id(connection) != policy_id:
        values = {"policy_id": policy_id, "created": time.time(), "is_undone": False}
        connection.execute(insert(activations).values(**values))


def roll_back(connection: Connection) -> int:
    """Activate the previously active policy again.

    Returns
    -------
    int
        The id of the policy that is active now.
    """
    last = connection.execute(ACTIVATIONS.limit(2)).all()
    if len(last) < 2:
        problem = "There is no previous policy to roll back to"
        raise HTTPError(CONFLICT, problem, "Activate a policy by its id")
    undone = update(activations).where(activations.c.id == last[0].id).values(is_undone=True)
    connection.execute(undone)
    return int(last[1].policy_id)
