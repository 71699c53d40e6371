"""`GET /v1/review`, `POST /v1/review` and `POST /v1/review/{id}`: what people settle."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool

from dubito.decide.policy.decide import REASONS
from dubito.serve.api.schemas import BEARER, REFUSALS, body_of
from dubito.serve.bodies import as_codes, as_fields, as_json, as_name, read_body
from dubito.serve.refusals import CONFLICT, WRONG, RefusedError
from dubito.serve.security import admitted
from dubito.serve.service import Service, service_of
from dubito.serve.store import ReviewItem
from dubito.serve.store.tokens import Token

router = APIRouter(prefix="/v1", dependencies=[BEARER], responses=REFUSALS, tags=["review"])
STEPS = ("claim", "settle", "unsure", "skip", "undo")
MOST_BYTES = 10_000
BODY = body_of(
    {"do": {"enum": list(STEPS)}, "label": {"type": ["string", "integer", "number", "null"]}},
    ["do"],
)
Reader = Annotated[Token, Depends(admitted("review"))]


@router.get("/review")
async def queue(request: Request, token: Reader) -> dict[str, Any]:
    """Return how many rows wait, and those where a look is worth most."""
    store = service_of(request).store
    waiting = await run_in_threadpool(store.queue_length)
    return {"waiting": waiting, "next": await run_in_threadpool(store.next_ids, token.name)}


@router.post("/review")
async def claim(request: Request, token: Reader) -> dict[str, Any]:
    """Hold for the reader the row where a look is worth most; `item` is null if none waits."""
    service = service_of(request)
    seconds = service.settings.lease_seconds
    item = await run_in_threadpool(service.store.next_review, token.name, None, seconds)
    return {"item": None if item is None else _shown(item, service)}


@router.post("/review/{item_id:path}", openapi_extra=BODY)
async def step(request: Request, item_id: str, token: Reader) -> dict[str, Any]:
    """Claim a row, settle it with a label, be unsure, skip it, or undo that."""
    service = service_of(request)
    fields = as_fields(as_json(await read_body(request, MOST_BYTES)), ("do", "label"), ("do",))
    if fields["do"] not in STEPS:
        raise RefusedError(WRONG, f"`do` must be one of {', '.join(STEPS)}", '"do": "claim"')
    if (fields.get("label") is not None) != (fields["do"] == "settle"):
        raise RefusedError(WRONG, "`label` must be given to settle, and only then", "do: settle")
    name = as_name(item_id, "The id")
    item = await run_in_threadpool(_done, service, name, token.name, fields)
    return {"done": fields["do"], "item": None if item is None else _shown(item, service)}


def _done(service: Service, item_id: str, reader: str, fields: dict[str, Any]) -> ReviewItem | None:
    """Do one step; return the row if the reader holds it now."""
    store, seconds = service.store, service.settings.lease_seconds
    match fields["do"]:
        case "claim":
            item = store.next_review(reader, None, seconds, item_id)
            if item is None:
                problem = f"Id {item_id!r} does not wait for {reader!r}: settled, held or passed on"
                raise RefusedError(CONFLICT, problem, "POST /v1/review for the next one")
            return item
        case "settle":
            [code] = as_codes([fields["label"]], service.catalog.active[1].classes)
            store.settle(item_id, reader, code)
        case "unsure":
            store.unsure(item_id, reader)
        case "skip":
            store.skip(item_id, reader)
        case "undo":
            return store.undo(item_id, reader, seconds)
    return None


def _shown(item: ReviewItem, service: Service) -> dict[str, Any]:
    """Return what a reader may see of a row: in blind mode, nothing of what the model thinks."""
    facts = {
        "id": item.id,
        "lease_until": item.lease_until,
        "created": item.created,
        "amount": item.amount,
        "link": item.link,
        "classes": list(service.catalog.policy(item.policy_id).classes),
    }
    if service.settings.is_blind:
        return facts
    policy = service.catalog.policy(item.policy_id)
    return {
        **facts,
        "action": policy.costs.actions[item.action],
        "class": policy.classes[item.class_],
        "probability": item.probability,
        "probabilities": [float(share) for share in item.probabilities],
        "reason": REASONS[item.reason],
        "review_value": item.review_value,
        "is_audit": item.is_audit,
        "n_unsure": item.n_unsure,
    }
