"""`/monitor`: whether confidence still means what it says, and what could be done about it."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from dubito.decide import Policy
from dubito.report.blocks import Table
from dubito.serve.logs import log_event
from dubito.serve.monitor import monitor_figures
from dubito.serve.pages.monitor_blocks import (
    comparison,
    figure_blocks,
    shift_blocks,
    verdict_of,
)
from dubito.serve.pages.rendering import PageRoute, page, see
from dubito.serve.refitting import active_report, refit
from dubito.serve.refusals import WRONG, RefusedError
from dubito.serve.security import admitted, form_of
from dubito.serve.service import Service, service_of
from dubito.serve.standing import rows_taken
from dubito.serve.store import StoredPolicy, StoredRows
from dubito.serve.store.documents import text_of_policy
from dubito.serve.store.tokens import Token

__all__ = ["router"]

router = APIRouter(route_class=PageRoute, include_in_schema=False)
Watcher = Annotated[Token, Depends(admitted("review", "admin"))]
Admin = Annotated[Token, Depends(admitted("admin"))]


@router.get("/monitor")
async def watch(request: Request, token: Watcher) -> Response:
    """Show figures of the active policy, and a candidate beside it."""
    values = await run_in_threadpool(values_for, service_of(request))
    return page(request, "monitor.html.j2", reader=token, problem="", **values)


@router.post("/monitor/refit")
async def make_candidate(request: Request, token: Admin) -> Response:
    """Fit a candidate to labels so far; nothing is activated."""
    service = service_of(request)
    try:
        policy_id = await run_in_threadpool(candidate_of, service)
    except RefusedError as error:
        values = await run_in_threadpool(values_for, service)
        problem = str(error)
        return page(
            request, "monitor.html.j2", error.status, reader=token, problem=problem, **values
        )
    log_event("policy refitted", policy=policy_id, reader=token.name)
    return see("/monitor#policies")


@router.post("/monitor/activate")
async def activate(request: Request, token: Admin) -> Response:
    """Put a policy in force that was shown."""
    service, text = service_of(request), (await form_of(request)).get("policy", "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RefusedError(WRONG, "The page sent no policy that is known", "loading it again")
    await run_in_threadpool(service.store.activate, int(text))
    await run_in_threadpool(service.catalogue.refresh)
    log_event("policy activated", policy=int(text), reader=token.name)
    return see("/monitor")


def candidate_of(service: Service) -> int:
    """Fit a candidate, and keep it."""
    _, policy = service.catalogue.active
    store = service.store
    candidate = refit(store.rows_for_monitor(), policy, store.features_of)
    return store.add_policy(text_of_policy(candidate.policy))


def values_for(service: Service) -> dict[str, Any]:
    """Return what the page shows."""
    policy_id, policy = service.catalogue.active
    rows = service.store.rows_for_monitor()
    figures = monitor_figures(rows_taken(rows, rows.policy_id == policy_id), policy)
    known = service.store.policies().all
    newer = [one for one in known if one.id > policy_id]
    return {
        "verdict": verdict_of(figures),
        "figures": figure_blocks(figures, policy),
        "shifts": shift_blocks(figures, policy),
        "policy_id": policy_id,
        "summary": policy.provenance["calibrator"],
        "candidate": newer[-1] if newer else None,
        "beside": beside(service, rows, policy, newer[-1]) if newer else None,
        "n_labels": int(np.count_nonzero(rows.label >= 0)),
        "n_waiting": service.store.queue_length(),
    }


def beside(
    service: Service, rows: StoredRows, policy: Policy, candidate: StoredPolicy
) -> Table | None:
    """Return the active policy beside a candidate, None where labels do not stand for all rows."""
    try:
        active = active_report(rows, policy, service.store.features_of)
        return comparison(active, candidate.policy.report)
    except RefusedError:
        return None
