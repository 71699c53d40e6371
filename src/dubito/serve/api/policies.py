"""`/v1/policies`: list, upload, activate, roll back."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.concurrency import run_in_threadpool

from dubito.serve.api.schemas import BEARER, REFUSALS
from dubito.serve.bodies import read_body
from dubito.serve.logs import log_event
from dubito.serve.refusals import WRONG, RefusedError
from dubito.serve.security import admitted
from dubito.serve.service import service_of
from dubito.serve.store.tokens import Token

router = APIRouter(prefix="/v1", dependencies=[BEARER], responses=REFUSALS, tags=["policies"])
FILE = {"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}}
Admin = Annotated[Token, Depends(admitted("admin"))]


@router.get("/policies")
async def listed(request: Request, token: Admin) -> dict[str, Any]:
    """Return all policies, oldest first, and which one is in force."""
    found = await run_in_threadpool(service_of(request).store.policies)
    return {
        "policies": [
            {
                "id": one.id,
                "created": one.created,
                "is_active": one.is_active,
                "provenance": one.policy.provenance,
            }
            for one in found.all
        ]
    }


@router.post("/policies", status_code=201, openapi_extra=FILE)
async def upload(request: Request, token: Admin) -> dict[str, int]:
    """Keep a policy, sent as the file that `dubito fit` wrote; it is not in force yet."""
    service = service_of(request)
    body = await read_body(request, service.settings.most_bytes)
    try:
        document = body.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = "The policy is no UTF-8"
        raise RefusedError(WRONG, problem, "the file as it was written") from error
    policy_id = await run_in_threadpool(service.store.add_policy, document)
    log_event("policy uploaded", policy=policy_id, reader=token.name)
    return {"id": policy_id}


@router.post("/policies/{policy_id}/activate")
async def activate(
    request: Request, token: Admin, policy_id: Annotated[int, Path(ge=1, le=2**31 - 1)]
) -> dict[str, int | None]:
    """Put a policy in force: here at once, in other processes within a second."""
    service = service_of(request)
    await run_in_threadpool(service.store.activate, policy_id)
    await run_in_threadpool(service.catalog.refresh)
    log_event("policy activated", policy=policy_id, reader=token.name)
    return {"active": service.catalog.active_id}


@router.post("/policies/rollback")
async def roll_back(request: Request, token: Admin) -> dict[str, int | None]:
    """Put in force the policy that was before."""
    service = service_of(request)
    policy_id = await run_in_threadpool(service.store.roll_back)
    await run_in_threadpool(service.catalog.refresh)
    log_event("policy rolled back", policy=policy_id, reader=token.name)
    return {"active": service.catalog.active_id}
