"""`/v1/policies`: list, upload, activate, roll back; refits as candidates."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.concurrency import run_in_threadpool

from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.loading import AnyPolicy
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.serve import schemas
from dubito.serve.auth import require_scope
from dubito.serve.http_errors import CONFLICT, INVALID, HTTPError
from dubito.serve.monitor import MONITOR_DAYS
from dubito.serve.refit import refit, refit_labels, refit_values
from dubito.serve.service import DAY, Service, get_service, log_event
from dubito.serve.store import Store, Token
from dubito.serve.store.policies import policy_content

router = APIRouter(prefix="/v1", tags=["policies"])
FILE: dict[str, Any] = {
    "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}
}
Admin = Annotated[Token, Depends(require_scope("admin"))]


def deploy_policy(store: Store, policy: AnyPolicy) -> int:
    """Store a policy, and activate it if the store has not seen it before.

    A service that is restarted with an older file keeps what was activated since.

    Parameters
    ----------
    store : Store
        The database.
    policy : Policy, MultiLabelPolicy or RegressionPolicy
        The policy of the file.

    Returns
    -------
    int
        The id of the policy.
    """
    known = {one.id for one in store.list_policies()}
    policy_id = store.add_policy(policy.to_json())
    if policy_id not in known:
        store.activate(policy_id)
    return policy_id


def activate_policy(service: Service, token: Token, policy_id: int | None) -> int | None:
    """Activate a policy, or with None the previous one, in this process at once; return its id."""
    previous = [one.id for one in service.store.list_policies() if one.is_previous]
    for wanted in previous if policy_id is None else [policy_id]:
        service.catalog.policy(wanted)  # nothing is activated that this process cannot read
    if policy_id is None:
        event, policy_id = "policy rolled back", service.store.roll_back()
    else:
        event = "policy activated"
        service.store.activate(policy_id)
    service.catalog.refresh()
    log_event(event, policy=policy_id, user=token.name)
    return service.catalog.active_id


def add_candidate(service: Service) -> int:
    """Refit the active policy, store the candidate unless it exists, and return its id."""
    _, policy = service.catalog.active
    store, now = service.store, time.time()
    rows = store.decisions_since(now - MONITOR_DAYS * DAY)
    if isinstance(policy, MultiLabelPolicy):
        document = refit_labels(rows, policy).to_json()
    elif isinstance(policy, RegressionPolicy):
        document = refit_values(rows, policy, store.find_features).to_json()
    else:
        document = refit(rows, policy, store.find_features).to_json()
    content = policy_content(document)
    for one in store.list_policies():
        if policy_content(one.document) == content:
            if one.was_active:
                problem = f"The labels so far give policy {one.id} again, which is or was active"
                fix = "Wait for more labels, or activate it by its id"
                raise HTTPError(CONFLICT, problem, fix)
            return one.id
    return store.add_policy(document, trained_until=now)


@router.get("/policies", response_model=schemas.PoliciesResponse)
def list_policies(request: Request, token: Admin) -> dict[str, Any]:
    """Return all policies, oldest first, and which one is active."""
    service = get_service(request)
    summaries = []
    for one in service.store.list_policies():
        policy, error = service.catalog.find(one.id), service.catalog.unreadable.get(one.id)
        provenance = dict(policy.provenance) if policy else {"error": str(error)}
        summaries.append({**asdict(one), "provenance": provenance})
    return {"policies": summaries}


@router.post("/policies", status_code=201, openapi_extra=FILE)
async def upload_policy(request: Request, token: Admin) -> schemas.UploadResponse:
    """Store a policy file written by `dubito fit`; it is not active yet."""
    service = get_service(request)
    body = await schemas.read_body(request, service.settings.max_bytes)
    async with service.bulk:
        policy_id = await run_in_threadpool(_add_document, service, body)
    log_event("policy uploaded", policy=policy_id, user=token.name)
    return schemas.UploadResponse(id=policy_id)


def _add_document(service: Service, body: bytes) -> int:
    """Store the policy of a body and return its id."""
    schemas.require_bounded(body, service.settings)
    try:
        return service.store.add_policy(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        problem = "The policy is not UTF-8"
        raise HTTPError(INVALID, problem, "Send the file as `dubito fit` wrote it") from error


@router.post("/policies/{policy_id}/activate")
def activate(
    request: Request, token: Admin, policy_id: Annotated[int, Path(ge=1, le=2**31 - 1)]
) -> schemas.ActiveResponse:
    """Activate a policy: in this process at once, in others within a second."""
    return schemas.ActiveResponse(active=activate_policy(get_service(request), token, policy_id))


@router.post("/policies/rollback")
def roll_back(request: Request, token: Admin) -> schemas.ActiveResponse:
    """Activate the previously active policy again."""
    return schemas.ActiveResponse(active=activate_policy(get_service(request), token, None))
