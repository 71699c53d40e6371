"""Cascades in the service: which model to call next, and its output under the same id.

A request adds the outputs of models to what is stored of its rows. Each is answered from all of
them, and stored with the answer as a stage of the row. A row whose answer is to call no further
model is decided: then it is a decision like those of policies, with reviews, audits and labels. Its
two classes say whether the answer of the last model is wrong or correct.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from starlette.concurrency import run_in_threadpool

from dubito.decide.cascade import REVIEW, Cascade
from dubito.formatting import quantity
from dubito.serve import schemas
from dubito.serve.http_errors import (
    CONFLICT,
    INVALID,
    MAX_SHOWN,
    HTTPError,
    no_decision,
    show_json,
)
from dubito.serve.rows import as_links, as_unique_ids, require_few
from dubito.serve.service import Service, Settings
from dubito.serve.store import NewDecisions, ReviewItem, Store
from dubito.serve.store.decisions import IdempotencyKey, digest_of
from dubito.serve.store.stages import Follow, NewStages, SentRow, Stage

VERDICTS = ("wrong", "correct")  # the position is the label
EXAMPLE = 'Send for example {"ids": ["q-17"], "confidences": {"small": [0.7]}}'


Rows = TypeVar("Rows")


async def answer_stages(
    service: Service,
    body: bytes,
    parse: Callable[[Any], Rows | None],
    plan: Callable[[Rows], tuple[list[dict[str, Any]], list[NewStages]]],
) -> list[dict[str, Any]] | None:
    """Return the answers to the rows of a body once they are on disk; None if it has no rows."""
    async with service.turn(body):
        rows = await run_in_threadpool(lambda: parse(schemas.parse_json(body, service.settings)))
        while rows is not None:
            answers, new = await run_in_threadpool(plan, rows)
            futures = [asyncio.wrap_future(service.store.submit(part.add)) for part in new]
            if all([await one for one in futures]):
                return answers
            # Another request has added to one of the rows: plan again from what is stored now.
    return None


def _parse(
    content: Any, cascade: Cascade, settings: Settings, key: IdempotencyKey | None
) -> dict[str, SentRow]:
    """Return the rows of a body by id; missing ids are random, or derived from the key."""
    fields = schemas.validate(schemas.CascadeRequest, content)
    n_rows = _count_rows(fields)
    if not n_rows:
        raise HTTPError(INVALID, "The body must have rows: `ids` or `confidences`", EXAMPLE)
    require_few(n_rows, settings.max_rows)
    confidences, costs, answers = (
        values_by_model(getattr(fields, name), name, n_rows, EXAMPLE, cascade.models)
        for name in schemas.ENTRIES
    )
    for row, given in enumerate(answers):
        without = next((name for name in given if name not in confidences[row]), None)
        if without is not None:
            problem = f"`answers.{without}[{row}]` has no confidence"
            raise HTTPError(INVALID, problem, f"Send `confidences.{without}[{row}]` with it")
    ids = as_unique_ids(fields.ids, n_rows, key and key.id)
    links = as_links(fields.links, n_rows)
    each = map(SentRow, confidences, costs, answers, links)
    return dict(zip(ids, each, strict=True))


def _plan(
    sent: Mapping[str, SentRow],
    cascade: Cascade,
    policy_id: int,
    service: Service,
    key: IdempotencyKey | None,
) -> tuple[list[dict[str, Any]], list[NewStages]]:
    """Return the responses, and what is to be stored, part by part.

    Raises if something differs from what is stored.
    """
    stored = service.store.find_stages(list(sent))
    repeated = {name: _repeated(name, row, stored[name]) for name, row in sent.items()}
    ids = [name for name, stage in repeated.items() if stage is None]
    whole = [SentRow.merge([*(one.sent for one in stored[name]), sent[name]]) for name in ids]
    steps = _next_steps(whole, cascade)
    new = {
        name: Stage(len(stored[name]), policy_id, sent[name], step)
        for name, step in zip(ids, steps, strict=True)
    }

    def follow(part: dict[str, list[Any]], rows: slice) -> Follow:
        return _decisions(part, whole[rows], steps[rows], cascade, service).insert

    found = [(stage or new[name]).response_for(name) for name, stage in repeated.items()]
    return found, NewStages.parts(new, follow, key)


def _count_rows(fields: schemas.CascadeRequest) -> int:
    """Return the number of rows, 1 if the outputs are no lists by model: see `values_by_model`."""
    if fields.ids is not None or not fields.confidences:
        return len(fields.ids or ())
    given = fields.confidences
    first = next(iter(given.values())) if isinstance(given, dict) else None
    return len(first) if isinstance(first, list) else 1


def values_by_model(
    given: Any, field: str, n_rows: int, fix: str, models: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return the values of each row by model, without null; raise if one is invalid.

    Those of a cascade, whose `models` are given, must be as `schemas.ENTRIES` says.
    """
    entry = schemas.ENTRIES[field]
    rows: list[dict[str, Any]] = [{} for _ in range(n_rows)]
    names = "" if models is None else f" ({', '.join(models)})"
    if given is not None and not isinstance(given, dict):
        problem = f"`{field}` must be lists by model{names}, got {show_json(given)}"
        raise HTTPError(INVALID, problem, fix)
    for model, values in (given or {}).items():
        place = f"{field}.{model[:MAX_SHOWN]}"
        if models is not None and model not in models:
            problem = f"`{place}` is not a model of the cascade"
            raise HTTPError(INVALID, problem, f"Use only {', '.join(models)}")
        if not isinstance(values, list) or len(values) != n_rows:
            got = f"{len(values)}" if isinstance(values, list) else show_json(values)
            got = f"{got} for {quantity(n_rows, 'row')}"
            problem = f"`{place}` must be a list with one entry per row, got {got}"
            raise HTTPError(INVALID, problem, "Use null where there is none")
        for row, value in enumerate(values):
            if value is None:
                continue
            if models is not None and not entry.is_valid(value):
                problem = f"`{place}[{row}]` must be {entry.rule}, got {show_json(value)}"
                raise HTTPError(INVALID, problem, entry.fix)
            rows[row][model] = value
    return rows


def _repeated(name: str, sent: SentRow, stages: Sequence[Stage[SentRow]]) -> Stage[SentRow] | None:
    """Return the stage of a row that a request repeats; None if it adds an output.

    Raises if something differs from what is stored, or if the row is decided.
    """
    if not stages:
        return None
    known = SentRow.merge([one.sent for one in stages]).confidences
    for model, value in sent.confidences.items():
        if known.get(model, value) != value:
            problem = f"Id {name!r} has confidence {known[model]:g} of {model}, got {value:g}"
            raise HTTPError(CONFLICT, problem, "Use another id, or send the same output")
    added = [model for model in sent.confidences if model not in known]
    if added:
        if stages[-1].next_model is not None:
            return None
        problem = f"Id {name!r} is decided: {stages[-1].response['action']}"
        problem += f". The output of {added[0]} was not asked for"
        raise HTTPError(CONFLICT, problem, "Use another id to decide it again")
    same = [k for k, one in enumerate(stages) if sent.confidences.keys() & one.sent.confidences]
    if not same:  # nothing was sent: what was answered to that, or else last
        same = [len(stages) - 1 if stages[0].sent.confidences else 0]
    before = SentRow.merge([one.sent for one in stages[: same[-1] + 1]])
    for field in ("costs", "answers"):
        then, now = getattr(before, field), getattr(sent, field)
        if any(then.get(model) != value for model, value in now.items()):
            raise _other_body(name, field)
    if sent.link not in (None, before.link):
        raise _other_body(name, "links")
    return stages[same[-1]]


def _other_body(name: str, field: str) -> HTTPError:
    """Return the error for a repeated request that differs."""
    problem = f"Id {name!r} was decided with other `{field}`"
    return HTTPError(CONFLICT, problem, "Use another id, or send the same body")


def _next_steps(rows: Sequence[SentRow], cascade: Cascade) -> list[dict[str, Any]]:
    """Return what to do next with rows, from all that was sent about them."""
    if not rows:
        return []
    tiers = cascade.tiers
    known = {name: np.array([row.confidences.get(name, np.nan) for row in rows]) for name in tiers}
    prices = {
        name: np.array([row.costs.get(name, cascade.call_costs[k]) for row in rows])
        for k, name in enumerate(tiers)
    }
    # Without tiers, a cost says how many rows there are.
    found = cascade.decide(known, costs=prices or {cascade.models[0]: np.zeros(len(rows))})
    return [
        {
            "action": found.actions[k],
            "next_model": tiers[k] if k < len(tiers) else None,
            "p_correct": chance if row.confidences.keys() & tiers else None,
            "expected_cost": costs[k],
            "expected_costs": {
                name: cost
                for name, cost in zip(found.actions, costs, strict=True)
                if np.isfinite(cost)
            },
        }
        for row, k, chance, costs in zip(
            rows,
            found.action.tolist(),
            found.p_correct.tolist(),
            found.expected_cost.tolist(),
            strict=True,
        )
    ]


def _decisions(
    stages: Mapping[str, list[Any]],
    rows: Sequence[SentRow],
    steps: Sequence[Mapping[str, Any]],
    cascade: Cascade,
    service: Service,
) -> NewDecisions:
    """Return the rows for which no further model is called, and the draw of the audit."""
    settings = service.settings
    last = [k for k, step in enumerate(steps) if step["next_model"] is None]
    steps, rows = [steps[k] for k in last], [rows[k] for k in last]
    is_review = np.array([step["action"] == REVIEW for step in steps], np.bool_)
    probability = [step["p_correct"] or 0.0 for step in steps]
    content = [np.array([1 - p, p], "<f4").tobytes() for p in probability]
    n, audited = len(last), settings.audit_probability
    names = {"decision_id": "id", "policy_id": "policy_id", "created": "created"}
    names["position"] = "position"
    return NewDecisions(
        columns={
            **{new: [stages[old][k] for k in last] for old, new in names.items()},
            "digest": [digest_of(json.dumps(row, sort_keys=True)) for row in rows],
            "is_logits": [False] * n,
            "outputs": content,
            "probabilities": content,
            "action": [cascade.actions.index(step["action"]) for step in steps],
            "predicted_class": [1] * n,
            "probability": probability,
            "expected_cost": [step["expected_cost"] for step in steps],
            "reason": [0] * n,
            "review_value": [_review_value(step) for step in steps],
            "propensity": np.where(is_review, 1.0, audited).tolist(),
            "is_audit": settings.draw_audit(service.rng, n).tolist(),
            "row_costs": [json.dumps(_paid(row, cascade)) for row in rows],
            "link": [row.link for row in rows],
            "audit_probability": [audited] * n,
        },
        is_rejected=is_review,
    )


def _review_value(step: Mapping[str, Any]) -> float:
    """Return what a review is expected to save, compared with the best action without it."""
    costs = step["expected_costs"]
    others = [cost for name, cost in costs.items() if name != REVIEW]
    return max(min(others) - costs[REVIEW], 0.0) if others and REVIEW in costs else 0.0


def _paid(row: SentRow, cascade: Cascade) -> dict[str, float]:
    """Return what the calls so far cost, by model, waiting included."""
    usual = dict(zip(cascade.tiers, cascade.call_costs, strict=True))
    latency = dict(zip(cascade.tiers, cascade.latency_costs, strict=True))
    return {
        name: float(row.costs.get(name, usual.get(name, 0.0)) + latency.get(name, 0.0))
        for name in row.confidences
    }


async def decide_rows(
    service: Service, cascade: tuple[int, Cascade], body: bytes, key: IdempotencyKey | None
) -> list[dict[str, Any]]:
    """Return what to do next with each row of a body, once it is on disk.

    Parameters
    ----------
    service : Service
        The service.
    cascade : tuple of int and Cascade
        The id of the active cascade, and the cascade.
    body : bytes
        JSON: see `schemas.CascadeRequest`.
    key : IdempotencyKey or None
        The idempotency key of the request.
    """
    policy_id, policy = cascade
    parse = partial(_parse, cascade=policy, settings=service.settings, key=key)
    plan = partial(_plan, cascade=policy, policy_id=policy_id, service=service, key=key)
    return await answer_stages(service, body, parse, plan) or []


def describe_stored(store: Store, name: str) -> dict[str, Any]:
    """Return the last step of a row with its stages and its label."""
    stages = store.find_stages([name])[name]
    if not stages:
        raise no_decision(name)
    return {
        **stages[-1].response_for(name),
        "created": stages[-1].created,
        "link": SentRow.merge([one.sent for one in stages]).link,
        "stages": [
            {"policy": one.policy_id, "created": one.created, **one.sent._asdict(), **one.response}
            for one in stages
        ],
        **store.label_history(name, bool),
    }


def encode_verdicts(labels: Sequence[Any], place: str = "labels[{}]") -> list[int]:
    """Return whether answers are correct as labels are stored.

    >>> encode_verdicts([True, 0, "correct"])
    [1, 0, 1]
    """
    known: dict[Any, int] = {0: 0, 1: 1, **{name: k for k, name in enumerate(VERDICTS)}}
    for row, one in enumerate(labels):
        if not isinstance(one, bool | int | float | str) or one not in known:
            problem = f"`{place.format(row)}` must be true or false, got {show_json(one)}"
            fix = "Say whether the answer is correct: true or false, 1 or 0, correct or wrong"
            raise HTTPError(INVALID, problem, fix)
    return [known[one] for one in labels]


def require_decided(store: Store, ids: Sequence[str]) -> None:
    """Raise unless no further model is to be called for rows that get a label."""
    for name, stages in store.find_stages(ids).items():
        if not stages:
            raise no_decision(name, "Send it to POST /v1/decide before its label")
        if (model := stages[-1].next_model) is not None:
            problem = f"Id {name!r} waits for the output of {model}"
            raise HTTPError(CONFLICT, problem, "Send that before the label of the last answer")


def describe_row(
    item: ReviewItem, cascade: Cascade, service: Service
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the models said of a row, for its reviewer, and what was decided.

    In blind mode, models have no confidence.
    """
    whole = SentRow.merge([one.sent for one in service.store.find_stages([item.id])[item.id]])
    order = [name for name in cascade.models if name in whole.confidences]
    models: list[dict[str, Any]] = [
        {"model": name, "answer": whole.answers.get(name)}
        for name in sorted(order, key=[*cascade.tiers, *cascade.models].index)
    ]
    if not service.settings.blind:
        models = [{**one, "confidence": whole.confidences[one["model"]]} for one in models]
    p_correct = item.probability if models else None
    return {"models": models}, {"action": cascade.actions[item.action], "p_correct": p_correct}
