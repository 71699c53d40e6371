"""`/v1/labels` and `/v1/review`: labels of programs, and of reviewers who claim queued rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from dubito.calibrate import ConfidenceCalibrator
from dubito.decide import Policy
from dubito.decide.cascade import Cascade
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.decide import REASONS
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.formatting import quantity
from dubito.serve import cascades, label_sets, schemas, value_rows
from dubito.serve.auth import DecideToken, ReviewToken
from dubito.serve.decide import has_arrow_body, parse_arrow
from dubito.serve.http_errors import CONFLICT, INVALID, HTTPError
from dubito.serve.model_answers import updated_item
from dubito.serve.rows import require_few
from dubito.serve.service import Service, get_service, log_event
from dubito.serve.store import ReviewItem
from dubito.serve.store.decisions import Label
from dubito.serve.store.labels import LabelCounts, add_labels, require_same_labels
from dubito.serve.store.policies import ServedPolicy
from dubito.serve.store.writer import PART_ROWS

router = APIRouter(prefix="/v1")
MAX_BYTES = 1_000_000  # of what a reviewer sends


@router.post(
    "/labels",
    tags=["labels"],
    openapi_extra=schemas.request_body(schemas.LabelsRequest, or_arrow=True),
)
async def post_labels(
    request: Request,
    token: DecideToken,
    correct: Annotated[bool, Query(description="Replace labels that differ.")] = False,
) -> schemas.LabelsResponse:
    """Store labels, before or after their decisions; repeating a request is safe.

    A label that differs from the stored one is rejected with 409 unless `correct` is true: then it
    replaces the stored one, which stays on record. With `--labels all` it also replaces that of a
    reviewer.
    """
    service = get_service(request)
    body = await schemas.read_body(request, service.settings.max_bytes)
    is_arrow, corrected_by = has_arrow_body(request), token.name if correct else None
    has_all = service.settings.labels == "all"
    async with service.turn(body):
        codes = await run_in_threadpool(_parse_labels, service, body, is_arrow)
        ids, n_new, n_corrected = list(codes), 0, 0
        if len(ids) > PART_ROWS and not correct:  # nothing is stored if one differs
            find = partial(service.store.find_labels, ids, of_reviewers=not has_all)
            require_same_labels(codes, await run_in_threadpool(find))
        add: Callable[..., LabelCounts] = partial(
            add_labels, truth_by=token.name if has_all else None
        )
        if service.forecaster is not None:
            add = service.forecaster.add_truths
        for start in range(0, len(ids), PART_ROWS):  # others write in between
            part = ids[start : start + PART_ROWS]
            values = [codes[name] for name in part]
            work = partial(add, ids=part, codes=values, corrected_by=corrected_by)
            counts = await asyncio.wrap_future(service.store.submit(work))
            n_new, n_corrected = n_new + counts.n_new, n_corrected + counts.n_corrected
    service.metrics.labels.inc(n_new)
    if n_corrected:
        log_event("labels corrected", rows=n_corrected, user=token.name)
    request.state.n_rows = len(codes)
    return schemas.LabelsResponse(received=len(codes), new=n_new, corrected=n_corrected)


def _takes_verdicts(policy: ServedPolicy | None) -> bool:
    """Whether labels say if answers are correct: of a cascade, or of scores of answers."""
    is_scored = isinstance(policy, Policy) and isinstance(policy.calibrator, ConfidenceCalibrator)
    return is_scored or isinstance(policy, Cascade)


def _encode_any(
    policy: ServedPolicy, labels: Sequence[Any], place: str = "labels[{}]"
) -> Sequence[Label]:
    """Return labels as they are stored: classes, several labels, numbers, or whether correct.

    `place` is what messages call a row, with its number.
    """
    if isinstance(policy, MultiLabelPolicy):
        return label_sets.encode_answers(labels, policy.label_names, place)
    if isinstance(policy, RegressionPolicy):
        return value_rows.encode_targets(labels, place)
    if _takes_verdicts(policy):
        return cascades.encode_verdicts(labels, place)
    assert isinstance(policy, Policy)
    return schemas.encode_labels(labels, policy.classes)


def _parse_labels(service: Service, body: bytes, is_arrow: bool) -> dict[str, Label]:
    """Return the labels of a body as they are stored, by id."""
    settings, forecaster = service.settings, service.forecaster
    policy = None if forecaster is not None else service.catalog.active_served[1]
    if is_arrow:
        content = parse_arrow(body, settings, 1, has_gaps=isinstance(policy, MultiLabelPolicy))
    else:
        content = schemas.parse_json(body, settings, allow_booleans=_takes_verdicts(policy))
    fields = schemas.validate(schemas.LabelsRequest, content)
    require_few(len(fields.ids), settings.max_rows)
    if len(fields.ids) != len(fields.labels):
        got = f"{len(fields.ids)} for {quantity(len(fields.labels), 'label')}"
        problem = f"`ids` must have one id per label, got {got}"
        raise HTTPError(INVALID, problem, "Send as many ids as labels")
    if forecaster is not None:
        codes = forecaster.encode_truths(fields.ids, fields.labels)
    elif policy is not None:
        codes = _encode_any(policy, fields.labels)
    if isinstance(policy, Cascade):
        cascades.require_decided(service.store, fields.ids)
    found: dict[str, Label] = dict(zip(fields.ids, codes, strict=True))
    if any(found[name] != code for name, code in zip(fields.ids, codes, strict=True)):
        problem = "An id is repeated with different labels"
        raise HTTPError(INVALID, problem, "Send one label per id")
    return found


@router.get("/review", tags=["review"])
def get_queue(request: Request, token: ReviewToken) -> schemas.QueueResponse:
    """Return how many rows wait, and the ids that come next."""
    service = get_service(request)
    ids = service.store.review_queue if service.team is None else service.team.next_ids
    return schemas.QueueResponse(waiting=service.store.queue_length(), next=ids(token.name))


@router.post(
    "/review",
    tags=["review"],
    response_model=schemas.ClaimResponse,
    response_model_exclude_unset=True,
)
def claim_next(request: Request, token: ReviewToken) -> dict[str, Any]:
    """Claim the row with the highest review value; `item` is null if none waits.

    With a team, it is the row that is worth most with this reviewer, within its capacity.
    """
    service = get_service(request)
    item = claim_row(service, token.name)
    if item is None and service.team is not None:
        return {"item": None, "note": service.team.waits(token.name)}
    return {"item": item and describe_item(item, service)}


@router.post(
    "/review/{item_id:path}",
    tags=["review"],
    openapi_extra=schemas.request_body(schemas.ReviewRequest),
    response_model=schemas.ReviewResponse,
    response_model_exclude_unset=True,
)
async def answer(request: Request, item_id: str, token: ReviewToken) -> dict[str, Any]:
    """Claim, label, escalate or skip a row, or undo that."""
    service = get_service(request)
    policy, body = service.catalog.active_served[1], await schemas.read_body(request, MAX_BYTES)
    content = schemas.parse_json(body, allow_booleans=_takes_verdicts(policy))
    fields = schemas.validate(schemas.ReviewRequest, content)
    has_sets = isinstance(policy, MultiLabelPolicy)
    field, other = ("labels", "label") if has_sets else ("label", "labels")
    given = getattr(fields, field)
    if (given is not None) != (fields.action == "label") or getattr(fields, other) is not None:
        needed, example = ("`labels`", '{"edema": 1, ...}') if has_sets else ("a `label`", "...")
        problem = f'The action "label", and no other, needs {needed}'
        raise HTTPError(INVALID, problem, f'Send {{"action": "label", "{field}": {example}}}')
    name = schemas.check_name(item_id, "The id")
    label: Label | None = None
    if given is not None:
        [label] = _encode_any(policy, [given], field)
    item = await run_in_threadpool(apply_action, service, name, token.name, fields.action, label)
    return {"action": fields.action, "item": item and describe_item(item, service)}


def claim_row(service: Service, reviewer: str, item_id: str | None = None) -> ReviewItem | None:
    """Claim the next row of a reviewer, or a given one; None if it is not available."""
    if service.team is not None:
        return service.team.claim(reviewer, item_id)
    seconds = service.settings.lease_seconds
    return service.store.claim_review(reviewer, item_id, lease_seconds=seconds)


def apply_action(
    service: Service, item_id: str, reviewer: str, action: str, label: Label | None
) -> ReviewItem | None:
    """Claim, label, escalate or skip a row, or undo that; return it if the reviewer holds it now.

    `label` is the position of a class, or the answers of several labels.
    """
    store, seconds = service.store, service.settings.lease_seconds
    if action == "claim":
        item = claim_row(service, reviewer, item_id)
        if item is None:
            problem = f"Id {item_id!r} is not available to {reviewer!r}: it is labeled"
            problem += ", claimed by someone else, or was passed on"
            raise HTTPError(CONFLICT, problem, "Claim the next one with POST /v1/review")
        return item
    if action == "undo":
        if service.team is not None:
            return service.team.undo(item_id, reviewer)
        return store.undo_review(item_id, reviewer, lease_seconds=seconds)
    if isinstance(label, int) and service.team is not None:
        service.team.label(item_id, reviewer, label)
    elif label is not None:
        store.label_review(item_id, reviewer, label)
    else:
        store.pass_review(item_id, reviewer, action)
    return None


def describe_item(item: ReviewItem, service: Service) -> dict[str, Any]:
    """Return what a reviewer may see of a row: in blind mode nothing of the prediction."""
    policy, blind = service.catalog.served(item.policy_id), service.settings.blind
    facts = item.facts("id", "lease_until", "created", "link")
    if isinstance(policy, MultiLabelPolicy):
        own, predicted = label_sets.describe_row(item, policy, blind=blind)
    elif isinstance(policy, RegressionPolicy):
        own, predicted = {"answer": "number"}, value_rows.describe_row(item)
    else:
        if isinstance(policy, Cascade):
            own, predicted = cascades.describe_row(item, policy, service)
        else:
            item = updated_item(item, policy, service.store)
            row_costs = None if item.row_costs is None else json.loads(item.row_costs)
            own = {"row_costs": row_costs, "classes": list(policy.classes)}
            predicted = {
                "action": policy.costs.actions[item.action],
                "class": policy.classes[item.predicted_class],
                "probability": item.probability,
                "probabilities": item.probabilities.tolist(),
                "reason": REASONS[item.reason],
            }
        if service.team is not None:
            own["is_second_opinion"] = item.n_answers > 0
            predicted["value_with_reviewer"] = item.value_with_reviewer
    queued = item.facts("review_value", "is_audit", "n_escalations")
    return facts | own if blind else facts | own | predicted | queued
