"""Actions that ask someone: a model, whose answer is sent under the same id, or a reviewer.

The first decision about a row is one like any other. If its action asks a model, the row waits for
that answer, not for a review. The answer is combined with the probabilities as the policy says, and
the row is decided again, without those who were asked. Each answer is stored with what it led to as
a stage of the row, in one commit; the first decision is unchanged, so metrics and refits rest on
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeGuard, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.calibrate import ConfidenceCalibrator
from dubito.decide import Policy, optimal_actions
from dubito.decide.answerers import Answerer
from dubito.decide.costs import CostMatrix
from dubito.decide.policy.decide import OUT_OF_DISTRIBUTION, REASONS, DecisionRule
from dubito.decide.row_costs import without_reject
from dubito.outputs import Probabilities
from dubito.serve import schemas
from dubito.serve.cascades import answer_stages, values_by_model
from dubito.serve.http_errors import CONFLICT, INVALID, HTTPError, no_decision
from dubito.serve.rows import require_few, require_unique
from dubito.serve.service import Service
from dubito.serve.store import ReviewItem, Store
from dubito.serve.store.decisions import IdempotencyKey, insert_reviews, read_row_costs
from dubito.serve.store.policies import ServedPolicy
from dubito.serve.store.stages import Follow, NewStages, SentAnswer, Stage

EXAMPLE = 'Send for example {"ids": ["order-17"], "answers": {"large": ["cat"]}}'


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """The decision on a row, given the model and the answers of the experts who were asked.

    Attributes
    ----------
    probabilities : list of float
        Posterior probability of each class, given the answers and the experts' error rates.
    action : str
        The action of lowest expected cost under these.
    """

    probabilities: list[float]
    action: str


def _asks_models(policy: ServedPolicy) -> TypeGuard[Policy]:
    """Return whether a policy of one class per row asks models.

    Those for answers do not: which of two answers to take is the question of a cascade.
    """
    if not isinstance(policy, Policy) or isinstance(policy.calibrator, ConfidenceCalibrator):
        return False
    return any(one.kind == "model" for one in policy.costs.reviews)


def model_actions(policy: ServedPolicy) -> dict[int, str]:
    """Return the actions that ask a model, by their index."""
    if not _asks_models(policy):
        return {}
    costs = policy.costs
    return {costs.actions.index(one.name): one.name for one in costs.reviews if one.kind == "model"}


def _answerers(policy: Policy) -> dict[str, Answerer]:
    """Return who is asked by actions of a policy, by name."""
    return {one.name: one for one in policy.costs.reviews}


def stored_posterior(
    policy: Policy, probabilities: bytes, reason: int, answers: Sequence[SentAnswer]
) -> FloatArray:
    """Return the probabilities of a stored row, given what models answered.

    Those of an out-of-distribution row say nothing: then the class frequencies are used.
    """
    p = np.frombuffer(probabilities, "<f4").astype(np.float64)
    if reason == OUT_OF_DISTRIBUTION:
        p = np.asarray(policy.rule.frequencies, np.float64)
    p = p / p.sum()
    asked = _answerers(policy) if answers else {}
    for one in answers:
        p = asked[one.model].updated(p[np.newaxis], np.array([one.label]))[0]
    return np.asarray(p)


def cost_columns(
    costs: CostMatrix, row_costs: Sequence[str | None]
) -> dict[str, FloatArray] | None:
    """Return the columns that costs depend on, of some rows; None if they depend on none."""
    return read_row_costs(row_costs, costs.columns) if costs.columns else None


@lru_cache(maxsize=64)
def _without(costs: CostMatrix, asked: tuple[str, ...]) -> CostMatrix:
    """Return the costs of all actions but those that asked someone."""
    kept = [k for k, name in enumerate(costs.actions) if name not in asked]
    names = [costs.actions[k] for k in kept]
    return CostMatrix(
        costs.cells[kept],
        names,
        costs.classes,
        reject=costs.reject_name if costs.reject_name in names else None,
        reviews=[one for one in costs.reviews if one.name not in asked],
    )


def _parse(content: Any, service: Service) -> dict[str, tuple[str, Any]] | None:
    """Return the model and its answer by id; None if a body has no answers.

    Rows may be of earlier policies, so the models are not those of the active one.
    """
    if not isinstance(content, dict) or content.get("answers") is None:
        return None
    fields = schemas.validate(schemas.AnswersRequest, content)
    require_few(len(fields.ids), service.settings.max_rows)
    if not fields.ids:
        raise HTTPError(INVALID, "`ids` must have one id per answer, got none", EXAMPLE)
    require_unique(fields.ids, EXAMPLE)
    rows = values_by_model(fields.answers, "answers", len(fields.ids), EXAMPLE)
    given = dict(zip(fields.ids, rows, strict=True))
    for name, found in given.items():
        if len(found) != 1:
            problem = f"Id {name!r} must have the answer of one model, got {len(found)}"
            raise HTTPError(INVALID, problem, EXAMPLE)
    return {name: next(iter(found.items())) for name, found in given.items()}


async def decide_answers(
    service: Service, body: bytes, key: IdempotencyKey | None
) -> list[dict[str, Any]] | None:
    """Return what is decided after the answers of models, once it is on disk.

    Parameters
    ----------
    service : Service
        The service.
    body : bytes
        JSON: see `schemas.AnswersRequest`. A body without answers gives None.
    key : IdempotencyKey or None
        The idempotency key of the request.
    """
    parse, plan = partial(_parse, service=service), partial(_plan, service=service, key=key)
    return await answer_stages(service, body, parse, plan)


def _plan(
    given: Mapping[str, tuple[str, Any]], service: Service, key: IdempotencyKey | None
) -> tuple[list[dict[str, Any]], list[NewStages]]:
    """Return the responses, and what is to be stored, part by part.

    Raises if a row does not exist, or waits for no such answer.
    """
    ids = list(given)
    stored = service.store.find_decisions(ids)
    earlier = service.store.find_model_answers(ids)
    stages: dict[str, Stage[SentAnswer]] = {}
    alike: dict[tuple[int, tuple[str, ...]], dict[str, list[SentAnswer]]] = defaultdict(dict)
    for name, (model, answer) in given.items():
        if name not in stored:
            raise no_decision(name, "Send its outputs to POST /v1/decide first")
        policy_id = stored[name]["policy_id"]
        policy = service.catalog.policy(policy_id)
        if not _asks_models(policy):
            problem = f"Id {name!r} was decided by a policy that asks no model"
            raise HTTPError(CONFLICT, problem, "Use the id of a row whose `next_model` is a model")
        [code] = schemas.encode_labels([answer], policy.classes)
        sent, known = SentAnswer(model, code), earlier[name]
        repeated = _repeated(name, sent, known, policy)
        if repeated is not None:
            stages[name] = repeated
            continue
        first_model = model_actions(policy).get(stored[name]["action"])
        waits_for = known[-1].next_model if known else first_model
        if waits_for != model:
            problem = f"Id {name!r} waits for the answer of {waits_for}, not of {model[:50]}"
            if waits_for is None:
                problem = f"Id {name!r} is decided: the answer of {model[:50]} was not asked for"
            raise HTTPError(CONFLICT, problem, "Send the answer of the model in `next_model`")
        answers = [*(one.sent for one in known), sent]
        alike[policy_id, tuple(one.model for one in answers)][name] = answers
    new: dict[str, Stage[SentAnswer]] = {}
    for (policy_id, asked), rows in alike.items():
        policy = service.catalog.policy(policy_id)
        assert isinstance(policy, Policy)
        first = [stored[name] for name in rows]
        responses = _decide_again(policy, asked, list(rows.values()), first)
        for (name, answers), response in zip(rows.items(), responses, strict=True):
            new[name] = Stage(len(answers), policy_id, answers[-1], response)
    stages |= new
    found = [stages[name].response_for(name) for name in ids]
    return found, NewStages.parts(new, _queue_reviewed(list(new.values())), key)


def _repeated(
    name: str, sent: SentAnswer, known: Sequence[Stage[SentAnswer]], policy: Policy
) -> Stage[SentAnswer] | None:
    """Return the stage that an answer repeats; raise if the model answered otherwise before."""
    same = next((one for one in known if one.sent.model == sent.model), None)
    if same is not None and same.sent != sent:
        before, now = (f"{policy.classes[one.label]}" for one in (same.sent, sent))
        problem = f"Id {name!r} has the answer {before!r} of {sent.model}, got {now!r}"
        raise HTTPError(CONFLICT, problem, "Use another id, or send the same answer")
    return same


def _decide_again(
    policy: Policy,
    asked: tuple[str, ...],
    answers: Sequence[Sequence[SentAnswer]],
    first: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return what is decided after the answers of the same models, from the first decisions."""
    p = np.array(
        [
            stored_posterior(policy, one["probabilities"], one["reason"], given)
            for one, given in zip(first, answers, strict=True)
        ]
    )
    costs = _without(policy.costs, asked)
    row_costs = [one["row_costs"] for one in first]
    outputs = Probabilities(p, policy.classes)
    rule, others = DecisionRule(costs, policy.rule.frequencies), without_reject(costs)
    decided = rule.decide(outputs, None, cost_columns(costs, row_costs))
    fallback = optimal_actions(outputs, others, cost_columns(others, row_costs))
    models, is_rejected = model_actions(policy).values(), decided.is_rejected
    actions = [costs.actions[code] for code in decided.action]
    has_positive = len(policy.classes) == 2
    return [
        {
            "action": action,
            "class": policy.classes[decided.predicted_class[k]],
            "probability": float(decided.probability[k]),
            "probability_positive": float(p[k, policy.pos_column]) if has_positive else None,
            "expected_cost": float(decided.expected_cost[k]),
            "reason": REASONS[decided.reason[k]],
            "review_value": float(decided.review_value[k]),
            "fallback_action": others.actions[fallback[k]] if is_rejected[k] else None,
            "next_model": action if action in models else None,
            "probabilities": p[k].tolist(),
        }
        for k, action in enumerate(actions)
    ]


def _queue_reviewed(
    stages: Sequence[Stage[SentAnswer]],
) -> Callable[[dict[str, list[Any]], slice], Follow]:
    """Return what puts rows that go to review after the answers into the queue, part by part."""

    def follow(part: dict[str, list[Any]], rows: slice) -> Follow:
        some = [one.response for one in stages[rows]]
        is_sent = [one["next_model"] is None and one["fallback_action"] is not None for one in some]
        queued = {
            "id": part["decision_id"],
            "created": part["created"],
            "is_audit": [False] * len(some),
            "review_value": [one["review_value"] for one in some],
        }
        return partial(insert_reviews, columns=queued, is_rejected=np.array(is_sent, np.bool_))

    return follow


def describe_answers(answers: Sequence[Stage[SentAnswer]], policy: Policy) -> dict[str, Any]:
    """Return the last decision about a row whose models answered, and their answers."""
    last = answers[-1].response if answers else {}
    return last | {
        "model_answers": [
            {
                "model": one.sent.model,
                "label": policy.classes[one.sent.label],
                "created": one.created,
                "action": one.response["action"],
                "probabilities": one.response["probabilities"],
            }
            for one in answers
        ]
    }


def review_outcome(
    policy: Policy,
    decision: Mapping[str, Any],
    answers: Sequence[Stage[SentAnswer]],
    action: str,
    code: int,
) -> Outcome | None:
    """Return what the answer of a reviewer leads to; None unless the action asks one who may err.

    Parameters
    ----------
    policy : Policy
        The policy that decided the row.
    decision : mapping
        The columns of the first decision.
    answers : sequence of Stage
        What models answered since.
    action : str
        The last action, after the answers of models.
    code : int
        The class that the reviewer answered.
    """
    asked = _answerers(policy).get(action)
    if asked is None or asked.kind != "review":
        return None
    given = [one.sent for one in answers]
    p = stored_posterior(policy, decision["probabilities"], decision["reason"], given)
    p = asked.updated(p[np.newaxis], np.array([code]))[0]
    return outcome_of(policy, p, decision["row_costs"])


def outcome_of(policy: Policy, p: FloatArray, row_costs: str | None) -> Outcome:
    """Return the action of lowest expected cost that asks no one, of a row."""
    costs = without_reject(policy.costs)
    columns = cost_columns(costs, [row_costs])
    [action] = optimal_actions(Probabilities(p[np.newaxis], policy.classes), costs, columns)
    return Outcome(p.tolist(), str(costs.actions[action]))


def updated_item(item: ReviewItem, policy: Policy, store: Store) -> ReviewItem:
    """Return a claimed row as it is after the answers of models, if there are any."""
    if not _asks_models(policy):
        return item
    answers = store.find_model_answers([item.id])[item.id]
    if not answers:
        return item
    last = answers[-1].response
    names = [str(name) for name in policy.classes]
    return replace(
        item,
        action=policy.costs.actions.index(last["action"]),
        predicted_class=names.index(str(last["class"])),
        probability=last["probability"],
        probabilities=np.array(last["probabilities"], np.float32),
        reason=REASONS.index(last["reason"]),
        review_value=last["review_value"],
    )
