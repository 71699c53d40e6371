"""`POST /v1/decide` and `GET /v1/decisions/{id}`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import asdict
from hashlib import blake2b
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from dubito.data.stream import read_stream, write_stream
from dubito.serve.api.schemas import ARROW, BEARER, REFUSALS, body_of, list_of, text_of
from dubito.serve.asking import LONGEST_LINK, AskedRows
from dubito.serve.bodies import as_json, as_name, read_body
from dubito.serve.deciding import Question, answer_columns, answer_of
from dubito.serve.refusals import MISSING, RefusedError
from dubito.serve.security import admitted
from dubito.serve.service import Service, service_of
from dubito.serve.store import NewDecisions
from dubito.serve.store.tables import LONGEST_ID
from dubito.serve.store.tokens import Token

router = APIRouter(prefix="/v1", dependencies=[BEARER], responses=REFUSALS, tags=["decide"])
FEW_ROWS = 64  # so few are decided sooner than a thread would be found for them

NUMBERS = list_of(list_of({"type": "number"}))
BODY = body_of(
    {
        "logits": NUMBERS,
        "probabilities": NUMBERS,
        "ids": list_of(text_of(LONGEST_ID)),
        "features": NUMBERS,
        "row_costs": list_of({"type": "number", "minimum": 0}),
        "links": list_of({"type": ["string", "null"], "maxLength": LONGEST_LINK}),
    },
    [],
    or_arrow=True,
    oneOf=[{"required": ["logits"]}, {"required": ["probabilities"]}],
)
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": text_of(LONGEST_ID),
    "description": "A repeated request with the same key gets the first answer.",
}


@router.post("/decide", openapi_extra={**BODY, "parameters": [KEY]})
async def decide(
    request: Request, token: Annotated[Token, Depends(admitted("decide"))]
) -> Response:
    """Decide rows, keep the decisions, and answer once they are on the disk."""
    service = service_of(request)
    body = await read_body(request, service.settings.most_bytes)
    key = request.headers.get("idempotency-key")
    if key is not None:
        as_name(key, "The header Idempotency-Key")
    is_arrow = request.headers.get("content-type", "").partition(";")[0].strip() == ARROW
    if is_arrow or len(body) > FEW_ROWS * 1000:
        new = await run_in_threadpool(_decided, service, body, is_arrow, key)
    else:
        question = _question_of(service, body, is_arrow, key)
        kind = question.kind
        if kind is None:
            [new] = service.decide_all([question])
        else:
            new = await service.together.ask(kind, question)
    found = await asyncio.wrap_future(service.store.submit(new))
    if found and any(row["policy_id"] not in service.catalog.known for row in found.values()):
        await run_in_threadpool(service.catalog.refresh)
    answer = answer_columns(new, found, service.catalog.policy)
    for action, count in Counter(answer["action"]).items():
        service.metrics.count("dubito_decisions_total", count, action=action)
    request.state.n_rows = len(new)
    if is_arrow:
        answer["class"] = list(map(str, answer["class"]))
        return Response(await run_in_threadpool(write_stream, answer), media_type=ARROW)
    rows = [dict(zip(answer, row, strict=True)) for row in zip(*answer.values(), strict=True)]
    return Response(json.dumps({"decisions": rows}), media_type="application/json")


def _decided(service: Service, body: bytes, is_arrow: bool, key: str | None) -> NewDecisions:
    """Return the decisions that a body asks for."""
    [new] = service.decide_all([_question_of(service, body, is_arrow, key)])
    return new


def _question_of(service: Service, body: bytes, is_arrow: bool, key: str | None) -> Question:
    """Return what a body asks for."""
    settings = service.settings
    policy_id, policy = service.catalog.active
    if is_arrow:
        limits = {
            "max_samples": settings.max_samples,
            "most_columns": settings.most_columns,
            "most_bytes": settings.most_bytes,
        }
        fields: Any = read_stream(body, **limits)
    else:
        fields = as_json(body)
    asked = AskedRows.of(fields, policy.costs.n_classes, settings, key)
    digest = b"" if key is None else blake2b(body, digest_size=16).digest()
    return Question(asked, policy_id, policy, key, digest)


@router.get("/decisions/{decision_id:path}")
async def decision(
    request: Request,
    decision_id: str,
    token: Annotated[Token, Depends(admitted("decide", "admin"))],
) -> dict[str, Any]:
    """Return a decision that was kept, and its label if that is known."""
    service = service_of(request)
    name = as_name(decision_id, "The id")
    row = await run_in_threadpool(service.store.decision, name)
    if row is None:
        raise RefusedError(MISSING, f"There is no decision {name!r}", "an id that was decided")
    code = await run_in_threadpool(service.store.label, name)
    answer = await run_in_threadpool(answer_of, row, service.catalog.policy)
    classes = service.catalog.policy(row["policy_id"]).classes
    more = {name: row[name] for name in ("created", "amount", "link")}
    corrected = await run_in_threadpool(service.store.corrections, name)
    before = [{**asdict(one), "label": classes[one.label]} for one in corrected]
    label = None if code is None else classes[code]
    return {**answer, **more, "label": label, "labels_before": before}
