"""Policies in the store: uploaded, put in force, and taken back."""

from __future__ import annotations

import json
import time

from sqlalchemy import Connection, Select, insert, select, update

from dubito.decide import Policy
from dubito.serve.refusals import CONFLICT, MISSING, RefusedError
from dubito.serve.store.documents import policy_of
from dubito.serve.store.records import Policies, StoredPolicy
from dubito.serve.store.tables import activations, policies


def add_policy(connection: Connection, document: str, learned_until: float | None = None) -> int:
    """Keep a policy; return its id, which is the old one where it was there already.

    Its seal, which is of what it says however that is written, tells whether it was. One that was
    fitted to rows of this store says until when these were decided.
    """
    new = policy_of(document)
    digest = str(json.loads(document)["checksum"]).removeprefix("sha256:")
    same = select(policies.c.id).where(policies.c.digest == digest)
    if (known := connection.execute(same).scalar()) is not None:
        return int(known)
    first = connection.execute(select(policies.c.document).order_by(policies.c.id).limit(1))
    if (before := first.scalar()) is not None:
        _require_same_classes(new, policy_of(before))
    values = {"digest": digest, "document": document, "created": time.time()}
    values |= {"learned_until": learned_until}
    made = connection.execute(insert(policies).values(**values).returning(policies.c.id))
    return int(made.scalar_one())


def _require_same_classes(new: Policy, before: Policy) -> None:
    """Raise unless labels mean the same under both policies."""
    if tuple(map(str, new.classes)) != tuple(map(str, before.classes)):
        names = ", ".join(map(str, before.classes[:10]))
        problem = f"The classes must be those of the policies before ({names}), in their order"
        raise RefusedError(CONFLICT, problem, "another database for a policy of other classes")


def all_policies(connection: Connection) -> Policies:
    """Return all policies, oldest first."""
    active = active_id(connection)
    ever = set(connection.execute(select(activations.c.policy_id).distinct()).scalars())
    rows = connection.execute(select(policies).order_by(policies.c.id)).mappings()
    return Policies(
        tuple(
            StoredPolicy(
                row["id"],
                row["created"],
                row["document"],
                is_active=row["id"] == active,
                was_active=row["id"] in ever,
                learned_until=row["learned_until"],
            )
            for row in rows
        ),
        before=connection.execute(_in_force().offset(1)).scalar(),
    )


def active_id(connection: Connection) -> int | None:
    """Return the id of the policy in force, or None."""
    return connection.execute(_in_force()).scalar()


def _in_force() -> Select[int]:
    """Return the query for the policy of the last activation that is not undone."""
    standing = select(activations.c.policy_id).where(~activations.c.is_undone)
    return standing.order_by(activations.c.id.desc()).limit(1)


def activate(connection: Connection, policy_id: int) -> None:
    """Put a policy in force."""
    known = select(policies.c.id).where(policies.c.id == policy_id)
    if connection.execute(known).scalar() is None:
        raise RefusedError(MISSING, f"There is no policy {policy_id}", "an id of GET /v1/policies")
    if active_id(connection) != policy_id:
        values = {"policy_id": policy_id, "created": time.time(), "is_undone": False}
        connection.execute(insert(activations).values(**values))


def roll_back(connection: Connection) -> int:
    """Put in force the policy before; return its id."""
    standing = select(activations.c.id, activations.c.policy_id).where(~activations.c.is_undone)
    last = connection.execute(standing.order_by(activations.c.id.desc()).limit(2)).all()
    if len(last) < 2:
        raise RefusedError(CONFLICT, "There is no policy before", "activating one by its id")
    undone = update(activations).where(activations.c.id == last[0].id).values(is_undone=True)
    connection.execute(undone)
    return int(last[1].policy_id)
