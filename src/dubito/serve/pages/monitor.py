"""`/monitor`: whether confidence still means what it says, and what could be done about it."""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from dubito.report.content import Block, Text
from dubito.serve.comparing import compare
from dubito.serve.logs import log_event
from dubito.serve.monitor import DAY, WINDOW_DAYS, monitor_figures
from dubito.serve.pages.monitor_blocks import (
    comparison,
    figure_blocks,
    policy_table,
    shift_blocks,
    verdict_of,
)
from dubito.serve.pages.rendering import PageRoute, page, see
from dubito.serve.refitting import refit
from dubito.serve.refusals import CONFLICT, WRONG, RefusedError
from dubito.serve.security import admitted, form_of
from dubito.serve.service import Service, service_of
from dubito.serve.standing import rows_taken
from dubito.serve.store import StoredPolicy, StoredRows
from dubito.serve.store.documents import content_of, text_of_policy
from dubito.serve.store.tokens import Token

router = APIRouter(route_class=PageRoute, include_in_schema=False)
Watcher = Annotated[Token, Depends(admitted("review", "admin"))]
Admin = Annotated[Token, Depends(admitted("admin"))]


@router.get("/monitor")
async def watch(request: Request, token: Watcher) -> Response:
    """Show figures of the active policy, and a candidate beside it."""
    values = await run_in_threadpool(_values_for, service_of(request))
    return page(request, "monitor.html.j2", reader=token, problem="", **values)


@router.post("/monitor/refit")
async def make_candidate(request: Request, token: Admin) -> Response:
    """Fit a candidate to labels so far; nothing is activated."""
    service = service_of(request)
    try:
        policy_id = await run_in_threadpool(_candidate_of, service)
    except RefusedError as error:
        values = await run_in_threadpool(_values_for, service)
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
    await run_in_threadpool(service.catalog.refresh)
    log_event("policy activated", policy=int(text), reader=token.name)
    return see("/monitor")


@router.post("/monitor/rollback")
async def roll_back(request: Request, token: Admin) -> Response:
    """Put in force the policy that was before."""
    service = service_of(request)
    policy_id = await run_in_threadpool(service.store.roll_back)
    await run_in_threadpool(service.catalog.refresh)
    log_event("policy rolled back", policy=policy_id, reader=token.name)
    return see("/monitor#policies")


def _candidate_of(service: Service) -> int:
    """Fit a candidate to labels of the last days, and keep it unless it is there already."""
    _, policy = service.catalog.active
    store, now = service.store, time.time()
    rows = store.rows_for_monitor(now - WINDOW_DAYS * DAY)
    document = text_of_policy(refit(rows, policy, store.features_of))
    content = content_of(document)
    for one in store.policies().all:
        if content_of(one.document) == content:
            if one.was_active:
                problem = f"Labels so far give policy {one.id} again, which is or was in force"
                raise RefusedError(CONFLICT, problem, "more labels, or activating it by its id")
            return one.id
    return store.add_policy(document, learned_until=now)


def _values_for(service: Service) -> dict[str, Any]:
    """Return what the page shows."""
    policy_id, policy = service.catalog.active
    rows = service.store.rows_for_monitor(time.time() - WINDOW_DAYS * DAY)
    mine = rows_taken(rows, rows.policy_id == policy_id)
    figures = monitor_figures(mine, policy, service.store.history_of(policy_id))
    kept = service.store.policies()
    known = {one.id: one for one in kept.all}
    newer = [one for one in known.values() if one.id > policy_id and not one.was_active]
    candidate = newer[-1] if newer else None
    return {
        "verdict": verdict_of(figures),
        "figures": figure_blocks(figures, policy),
        "shifts": shift_blocks(figures, policy),
        "policy_id": policy_id,
        "summary": policy.provenance["calibrator"],
        "days": f"{WINDOW_DAYS:.0f}",
        "candidate": candidate,
        "kept": policy_table(kept.all),
        "before": kept.before,
        "beside": _beside(service, rows, known[policy_id], candidate) if candidate else [],
        "n_labels": int(np.count_nonzero(rows.label >= 0)),
        "n_waiting": service.store.queue_length(),
    }


def _beside(
    service: Service, rows: StoredRows, active: StoredPolicy, candidate: StoredPolicy
) -> list[Block]:
    """Return the active policy beside a candidate, or why they cannot be compared."""
    try:
        return comparison(compare(service.store, rows, active, candidate))
    except RefusedError as error:
        return [Text(f"The two cannot be compared yet. {error}")]
