"""`/monitor`: metrics, alarms, and the active policy beside a candidate."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from dubito.decide import Cascade
from dubito.report.content import Block, Text
from dubito.serve.auth import AdminToken, Form, MonitorToken
from dubito.serve.http_errors import INVALID, HTTPError
from dubito.serve.monitor import active_report
from dubito.serve.pages import monitor_blocks as blocks
from dubito.serve.pages.rendering import PageRoute, redirect, render
from dubito.serve.policies import activate_policy, add_candidate, compare_policies
from dubito.serve.service import Service, get_service, log_event
from dubito.serve.store import StoredPolicy, StoredRows, Token
from dubito.serve.weighted_estimates import FORECAST_DAYS, recent_rows

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/monitor")
def show_monitor(request: Request, token: MonitorToken) -> Response:
    """Show metrics of the active policy, and a candidate beside it."""
    return _show(request, token)


@router.post("/monitor/refit")
def refit(request: Request, token: AdminToken) -> Response:
    """Fit a candidate to the labels so far; it is not activated."""
    try:
        policy_id = add_candidate(get_service(request))
    except HTTPError as error:
        return _show(request, token, error)
    log_event("policy refitted", policy=policy_id, user=token.name)
    return redirect("/monitor#policies")


@router.post("/monitor/activate")
def activate(request: Request, token: AdminToken, form: Form) -> Response:
    """Activate the policy of the form."""
    text = form.get("policy", "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HTTPError(INVALID, "The page sent an unknown policy", "Reload the page")
    activate_policy(get_service(request), token, int(text))
    return redirect("/monitor")


@router.post("/monitor/rollback")
def roll_back(request: Request, token: AdminToken) -> Response:
    """Activate the previously active policy again."""
    activate_policy(get_service(request), token, None)
    return redirect("/monitor#policies")


def _show(request: Request, token: Token, error: HTTPError | None = None) -> Response:
    """Return the page, with the error of the last action, if any."""
    service = get_service(request)
    if service.forecaster is not None:
        found = service.forecaster.report(FORECAST_DAYS)
        content: dict[str, Any] = {
            "verdict": blocks.forecast_verdict(found),
            "metrics": blocks.forecast_blocks(found),
        }
        return render(request, "forecasts.html.j2", user=token, is_forecast=True, **content)
    values = _page_values(service)
    status, problem = (200, "") if error is None else (error.status, str(error))
    return render(request, "monitor.html.j2", status, user=token, problem=problem, **values)


def _page_values(service: Service) -> dict[str, Any]:
    """Return the content of the page."""
    policy_id, report = active_report(service)
    policy = service.catalog.served(policy_id)
    rows = recent_rows(service)
    stored = service.store.list_policies()
    known = {one.id: one for one in stored}
    newer = [one for one in stored if one.id > policy_id and not one.was_active]
    candidate = next((one for one in reversed(newer) if service.catalog.find(one.id)), None)
    is_cascade = isinstance(policy, Cascade)
    comparison: list[Block] = []
    if candidate is not None and not is_cascade:
        comparison = _compare(service, rows, known[policy_id], candidate)
    verdict, metrics, shifts = blocks.VIEWS[type(policy)]
    return {
        "verdict": verdict(report),
        "metrics": metrics(report, policy),
        "shifts": shifts(report, policy),
        "policy_id": policy_id,
        "calibrator": policy.provenance["calibrator"],
        "is_cascade": is_cascade,
        "candidate": candidate,
        "notes": [] if candidate is None else getattr(candidate.served.report, "notes", ()),
        "policies": blocks.policy_table(stored),
        "previous": next((one.id for one in stored if one.is_previous), None),
        "comparison": comparison,
        "labels": blocks.describe_labels(rows, service.settings.audit_fraction),
        "n_waiting": service.store.queue_length(),
        "team": blocks.team_blocks(service.team.report()) if service.team else [],
    }


def _compare(
    service: Service, rows: StoredRows, active: StoredPolicy, candidate: StoredPolicy
) -> list[Block]:
    """Return the comparison of two policies, or why there is none."""
    try:
        found = compare_policies(service.store, rows, active, candidate)
    except HTTPError as error:
        return [Text(f"The two policies cannot be compared yet. {error}")]
    return blocks.comparison_blocks(found)
