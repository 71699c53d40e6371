"""Keeping decisions: each id once, a repeated request gets what the first one got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from random import random
from typing import Any

import numpy as np
from sqlalchemy import Connection, bindparam, select

from dubito.arrays import BoolArray
from dubito.serve.refusals import CONFLICT, RefusedError
from dubito.serve.store.inserting import insert_all, insert_rows
from dubito.serve.store.records import NewDecisions
from dubito.serve.store.tables import decisions, requests, reviews

MOST_IDS = 500  # a query
# What an answer is made of.
ANSWERED = [
    decisions.c[name]
    for name in (
        "id", "policy_id", "created", "digest", "action", "class_", "probability",
        "expected_cost", "reason", "review_value", "is_audit", "link", "amount",
    )
]  # fmt: skip
BY_IDS = select(*ANSWERED).where(decisions.c.id.in_(bindparam("ids", expanding=True)))
KEY_DIGEST = select(requests.c.digest).where(requests.c.key == bindparam("key"))


def add_all(connection: Connection, group: Sequence[NewDecisions]) -> bool:
    """Insert the decisions of many requests; tell whether every one of them was new."""
    keyed = [new for new in group if new.key is not None]
    if _insert_keys(connection, keyed) < len(keyed):
        return False
    names = list(group[0].columns)
    joined = {name: list(chain.from_iterable(new.columns[name] for new in group)) for name in names}
    is_rejected = np.concatenate([new.is_rejected for new in group])
    return insert_all(connection, decisions, joined) and insert_all(
        connection, reviews, _review_columns(joined, is_rejected)
    )


def add_one(connection: Connection, new: NewDecisions) -> dict[str, dict[str, Any]]:
    """Insert those decisions of a request that are new; return those that were there before.

    What was there must have been decided from the same rows, or nothing is kept.
    """
    if new.key is not None and not _insert_keys(connection, [new]):
        known = connection.execute(KEY_DIGEST, {"key": new.key}).scalar_one()
        if known != new.key_digest:
            problem = f"Idempotency key {new.key!r} came before with another body"
            raise RefusedError(CONFLICT, problem, "another key, or the same body")
    ids = new.columns["id"]
    while True:
        found = stored_rows(connection, ids)
        for name, digest in zip(ids, new.columns["digest"], strict=True):
            if name in found and found[name]["digest"] != digest:
                problem = f"Id {name!r} was decided before with another body"
                raise RefusedError(CONFLICT, problem, "another id, or the same body")
        fresh = [row for row, name in enumerate(ids) if name not in found]
        columns = {name: [values[row] for row in fresh] for name, values in new.columns.items()}
        # Another process may have been faster with some: then look again.
        if insert_rows(connection, decisions, columns) == len(fresh):
            insert_rows(connection, reviews, _review_columns(columns, new.is_rejected[fresh]))
            return found


def _insert_keys(connection: Connection, keyed: Sequence[NewDecisions]) -> int:
    """Insert idempotency keys; return how many are new."""
    columns: dict[str, list[Any]] = {
        "key": [new.key for new in keyed],
        "digest": [new.key_digest for new in keyed],
        "created": [new.columns["created"][0] if len(new) else 0.0 for new in keyed],
    }
    return insert_rows(connection, requests, columns)


def _review_columns(columns: Mapping[str, list[Any]], is_rejected: BoolArray) -> dict[str, Any]:
    """Return what goes into review: what was rejected, and what was drawn at random.

    Rows that were drawn get a place by chance, so that those looked at so far are a fair sample.
    """
    is_audit = columns["is_audit"]
    rows = np.flatnonzero(is_rejected | np.array(is_audit, dtype=bool)).tolist()
    return {
        "decision_id": [columns["id"][row] for row in rows],
        "created": [columns["created"][row] for row in rows],
        "review_value": [
            random() if is_audit[row] else columns["review_value"][row] for row in rows
        ],
        "is_audit": [is_audit[row] for row in rows],
        "is_open": [True] * len(rows),
        "lease_until": [0.0] * len(rows),
    }


def stored_rows(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the decisions of some ids, by id."""
    found: dict[str, dict[str, Any]] = {}
    for at in range(0, len(ids), MOST_IDS):
        rows = connection.execute(BY_IDS, {"ids": list(ids[at : at + MOST_IDS])}).mappings()
        found.update({row["id"]: dict(row) for row in rows})
    return found
