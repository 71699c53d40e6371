"""`POST /v1/labels`: labels that arrive before or after their decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from dubito.calibrate import ConfidenceCalibrator
from dubito.decide import Policy
from dubito.decide.cascade import Cascade
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.serve import cascades, schemas
from dubito.serve.auth import DecideToken
from dubito.serve.decide import has_arrow_body, parse_arrow
from dubito.serve.http_errors import INVALID, HTTPError
from dubito.serve.label_sets import encode_answers
from dubito.serve.rows import require_few
from dubito.serve.service import Service, get_service, log_event
from dubito.serve.store.decisions import Label
from dubito.serve.store.labels import LabelCounts, add_labels, require_same_labels
from dubito.serve.store.policies import ServedPolicy
from dubito.serve.store.writer import PART_ROWS
from dubito.serve.value_rows import encode_targets

router = APIRouter(prefix="/v1", tags=["labels"])


@router.post("/labels", openapi_extra=schemas.request_body(schemas.LabelsRequest, or_arrow=True))
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


def takes_verdicts(policy: ServedPolicy | None) -> bool:
    """Whether labels say if answers are correct: of a cascade, or of scores of answers."""
    is_scored = isinstance(policy, Policy) and isinstance(policy.calibrator, ConfidenceCalibrator)
    return is_scored or isinstance(policy, Cascade)


def encode_any(
    policy: ServedPolicy, labels: Sequence[Any], place: str = "labels[{}]"
) -> Sequence[Label]:
    """Return labels as they are stored: classes, several labels, numbers, or whether correct.

    `place` is what messages call a row, with its number.
    """
    if isinstance(policy, MultiLabelPolicy):
        return encode_answers(labels, policy.label_names, place)
    if isinstance(policy, RegressionPolicy):
        return encode_targets(labels, place)
    if takes_verdicts(policy):
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
        content = schemas.parse_json(body, settings, allow_booleans=takes_verdicts(policy))
    fields = schemas.validate(schemas.LabelsRequest, content)
    require_few(len(fields.ids), settings.max_rows)
    if len(fields.ids) != len(fields.labels):
        problem = f"`ids` must have one id for each of {len(fields.labels)} labels"
        raise HTTPError(INVALID, f"{problem}, got {len(fields.ids)}", "Send one id per label")
    if forecaster is not None:
        codes = forecaster.encode_truths(fields.ids, fields.labels)
    elif policy is not None:
        codes = encode_any(policy, fields.labels)
    if isinstance(policy, Cascade):
        cascades.require_decided(service.store, fields.ids)
    found: dict[str, Label] = dict(zip(fields.ids, codes, strict=True))
    if any(found[name] != code for name, code in zip(fields.ids, codes, strict=True)):
        problem = "An id is repeated with different labels"
        raise HTTPError(INVALID, problem, "Send one label per id")
    return found
