"""Stages in the database: requests about a row that waits for models, and their answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, final

import numpy as np
from sqlalchemy import Connection, Select, func, select
from sqlalchemy.orm import aliased

from dubito.arrays import FloatArray
from dubito.serve.store.decisions import IdempotencyKey, add_key, rows_by_id
from dubito.serve.store.tables import cascade_stages, decisions
from dubito.serve.store.writer import PART_ROWS, insert_rows

Follow = Callable[[Connection], Any]  # stores what follows from stages


class SentRow(NamedTuple):
    """A row as it was sent: outputs, costs of calls and answers by model, and a link."""

    confidences: dict[str, float]
    costs: dict[str, float]
    answers: dict[str, str]
    link: str | None

    @classmethod
    def merge(cls, parts: Sequence[SentRow]) -> SentRow:
        """Return everything that was sent about a row; later costs and links replace earlier."""
        merged = cls({}, {}, {}, None)
        for part in parts:
            merged.confidences.update(part.confidences)
            merged.costs.update(part.costs)
            merged.answers.update(part.answers)
            merged = merged._replace(link=part.link or merged.link)
        return merged


class SentAnswer(NamedTuple):
    """The answer of a model that a policy asks: the position of the class."""

    model: str
    label: int


Sent = TypeVar("Sent", SentRow, SentAnswer)


@final
@dataclass(frozen=True, slots=True)
class Stage(Generic[Sent]):
    """A request about a row: what it added, and what it was answered.

    Those of a cascade are numbered from 0, the answers of models that a policy asks from 1.
    """

    number: int
    policy_id: int
    sent: Sent
    response: dict[str, Any]
    created: float = 0.0

    @property
    def next_model(self) -> str | None:
        """The model whose output the row waits for; None if the row is decided."""
        model: str | None = self.response["next_model"]
        return model

    def response_for(self, decision_id: str) -> dict[str, Any]:
        """Return the response to the request, of a row."""
        return {"id": decision_id, "policy": self.policy_id, **self.response}


@final
@dataclass(frozen=True, slots=True, eq=False)
class NewStages:
    """The stages that a request adds, as database columns, and what stores what follows."""

    stages: dict[str, list[Any]]
    follow: Follow
    key: IdempotencyKey | None

    @classmethod
    def parts(
        cls,
        stages: Mapping[str, Stage[Any]],
        follow: Callable[[dict[str, list[Any]], slice], Follow],
        key: IdempotencyKey | None,
    ) -> list[NewStages]:
        """Divide stages by id into parts, between which others write; the first one has the key.

        `follow` gets the columns and the rows of a part, and returns what stores what follows.
        """
        ids, each = list(stages), stages.values()
        columns: dict[str, list[Any]] = {
            "decision_id": ids,
            "number": [one.number for one in each],
            "policy_id": [one.policy_id for one in each],
            "created": [time.time()] * len(ids),
            "position": list(range(len(ids))),
            "next_model": [one.next_model for one in each],
            "sent": [json.dumps(one.sent._asdict()) for one in each],
            "response": [json.dumps(one.response) for one in each],
        }
        new = []
        for start in range(0, max(len(ids), key is not None), PART_ROWS):
            rows = slice(start, start + PART_ROWS)
            part = {name: values[rows] for name, values in columns.items()}
            new.append(cls(part, follow(part, rows), None if start else key))
        return new

    def add(self, connection: Connection) -> bool:
        """Store them; return False, and store none, if another request was faster for a row."""
        if self.key is not None:
            add_key(connection, self.key, time.time())
        with connection.begin_nested() as nested:
            n_new = insert_rows(connection, cascade_stages, self.stages)
            if n_new < len(self.stages["decision_id"]):
                nested.rollback()
                return False
            self.follow(connection)
        return True


def find_stages(connection: Connection, ids: Sequence[str]) -> dict[str, list[Stage[SentRow]]]:
    """Return the stages of rows by id, in order; empty for ids without any.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    ids : sequence of str
        Ids of rows of a cascade.
    """
    return _find(connection, ids, SentRow, select(cascade_stages))


def find_model_answers(
    connection: Connection, ids: Sequence[str]
) -> dict[str, list[Stage[SentAnswer]]]:
    """Return what models that a policy asked answered, in order; empty for ids without any.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    ids : sequence of str
        Ids of decisions; those of a cascade have none.
    """
    is_answer = cascade_stages.c.sent.startswith('{"model"')  # and no stage of a cascade
    return _find(connection, ids, SentAnswer, select(cascade_stages).where(is_answer))


def _find(
    connection: Connection, ids: Sequence[str], kind: type[Sent], query: Select[Any]
) -> dict[str, list[Stage[Sent]]]:
    """Return the stages of a query by id, in order."""
    found: dict[str, list[Stage[Sent]]] = {name: [] for name in ids}
    query = query.order_by(cascade_stages.c.number)
    for row in rows_by_id(connection, query, cascade_stages.c.decision_id, ids):
        sent, response = kind(**json.loads(row["sent"])), json.loads(row["response"])
        stage = Stage(row["number"], row["policy_id"], sent, response, row["created"])
        found[row["decision_id"]].append(stage)
    return found


@final
@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """When rows arrived, and what the first tier said of them, in that order.

    Decisions are in another order: in a batch, rows that wait for another model come last.
    `times` are those of the first request about each row, with the position in it.
    """

    times: dict[str, tuple[float, int]]
    confidence: FloatArray
    answered_at: FloatArray


def find_arrivals(connection: Connection, policy_id: int, tier: str | None) -> Arrivals:
    """Return the arrivals of all rows of a cascade; `answered_at` is of its first tier.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    policy_id : int
        The cascade.
    tier : str or None
        Its first tier, None if it has none.
    """
    one = cascade_stages.c
    query = (
        select(one.decision_id, one.created, one.position, one.sent)
        .where(one.policy_id == policy_id)
        .order_by(one.created, one.position, one.decision_id)
    )
    times: dict[str, tuple[float, int]] = {}
    outputs = []
    for name, moment, position, sent in connection.execute(query):
        times.setdefault(name, (moment, position))
        output = json.loads(sent)["confidences"].get(tier)
        if output is not None:
            outputs.append((output, moment))
    confidence, answered_at = np.array(outputs, np.float64).reshape(-1, 2).T
    return Arrivals(times, confidence, answered_at)


def count_waiting(connection: Connection, since: float) -> dict[str, int]:
    """Return how many rows wait for the output of each model, since their last request.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    since : float
        Only rows that have waited since then or a later time.
    """
    one, newer = cascade_stages.c, aliased(cascade_stages).c
    is_newer = (newer.decision_id == one.decision_id) & (newer.number > one.number)
    query = (
        select(one.next_model, func.count())
        .where(
            one.next_model.is_not(None),
            one.created >= since,
            ~select(newer.number).where(is_newer).exists(),
        )
        .group_by(one.next_model)
        .order_by(one.next_model)
    )
    return {name: int(n) for name, n in connection.execute(query)}


def count_asked(
    connection: Connection, policy_id: int, models: Mapping[int, str], since: float
) -> dict[str, int]:
    """Return how many rows wait for the answer of each model that a policy asks.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    policy_id : int
        The policy that decided the rows.
    models : mapping of int to str
        The actions that ask a model: see `model_actions`.
    since : float
        Only rows that have waited since then or a later time.
    """
    found = dict.fromkeys(models.values(), 0) | count_waiting(connection, since)
    of_row, row = cascade_stages.c.decision_id, decisions.c
    query = (
        select(row.action, func.count())
        .where(
            row.policy_id == policy_id,
            row.created >= since,
            row.action.in_(list(models)),
            ~select(of_row).where(of_row == row.id).exists(),
        )
        .group_by(row.action)
    )
    for action, n in connection.execute(query):
        found[models[action]] += int(n)
    return found
