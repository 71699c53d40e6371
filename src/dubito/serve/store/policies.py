"""Policies in the database: uploaded, activated, rolled back."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from sqlalchemy import Connection, insert, select, update

from dubito.decide import Policy
from dubito.serve.http_errors import CONFLICT, NOT_FOUND, HTTPError
from dubito.serve.store.tables import activations, policies

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

    `was_active` is True if it is or ever was active.
    """

    id: int
    created: float
    document: str
    is_active: bool
    was_active: bool = False
    trained_until: float | None = None

    @cached_property
    def policy(self) -> Policy:
        """The parsed policy."""
        return Policy.from_json(self.document, FILE)


@final
@dataclass(frozen=True, slots=True)
class Policies:
    """All policies of a store, oldest first; `previous` is the one a rollback would activate."""

    all: tuple[StoredPolicy, ...]
    previous: int | None = None

    @property
    def active(self) -> StoredPolicy | None:
        """The active policy."""
        return next((one for one in self.all if one.is_active), None)


def policy_content(document: str) -> dict[str, Any]:
    """Return the content of a policy document without the time of its fit, for comparison."""
    content: dict[str, Any] = json.loads(document)
    provenance = {name: one for name, one in content["provenance"].items() if name != "created"}
    return {**content, "provenance": provenance, "checksum": None}


def add_policy(connection: Connection, document: str, trained_until: float | None = None) -> int:
    """Store a policy; a policy that exists keeps its id.

    The checksum of the content identifies a policy, whatever the formatting of the file.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    document : str
        The content of a policy file.
    trained_until : float or None
        Of a refit: the time of the newest row it was fitted to.

    Returns
    -------
    int
        The id of the policy.
    """
    new = Policy.from_json(document, FILE)
    digest = str(json.loads(document)["checksum"]).removeprefix("sha256:")
    same = select(policies.c.id).where(policies.c.digest == digest)
    if (known := connection.execute(same).scalar()) is not None:
        return int(known)
    first = connection.execute(select(policies.c.document).order_by(policies.c.id).limit(1))
    if (existing := first.scalar()) is not None:
        classes = Policy.from_json(existing, FILE).classes
        if tuple(map(str, new.classes)) != tuple(map(str, classes)):
            names = ", ".join(map(str, classes[:10]))
            problem = f"All policies of a database must have the same classes ({names})"
            raise HTTPError(CONFLICT, problem, "Use another database for other classes")
    query = insert(policies).values(
        digest=digest, document=document, created=time.time(), trained_until=trained_until
    )
    return int(connection.execute(query.returning(policies.c.id)).scalar_one())


def list_policies(connection: Connection) -> Policies:
    """Return all policies.

    Returns
    -------
    Policies
        Oldest first, with the active one and the one that a rollback would activate.
    """
    last = [row.policy_id for row in connection.execute(ACTIVATIONS.limit(2))]
    ever = set(connection.execute(select(activations.c.policy_id).distinct()).scalars())
    names = ("id", "created", "document", "trained_until")
    query = select(*(policies.c[name] for name in names)).order_by(policies.c.id)
    found = [
        StoredPolicy(**row, is_active=row["id"] in last[:1], was_active=row["id"] in ever)
        for row in connection.execute(query).mappings()
    ]
    return Policies(tuple(found), previous=last[1] if len(last) > 1 else None)


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
