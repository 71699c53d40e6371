"""`GET /v1/monitor`: metrics over time as labels arrive, distribution shifts, and alarms."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic_core import to_jsonable_python

from dubito.decide import Cascade
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.serve import policy_metrics
from dubito.serve.auth import MonitorToken
from dubito.serve.model_answers import model_actions
from dubito.serve.policy_metrics import MonitorReport
from dubito.serve.schemas import ForecastMonitorResponse, MonitorResponse
from dubito.serve.service import DAY, Service, get_service
from dubito.serve.weighted_estimates import FORECAST_DAYS, MONITOR_DAYS, recent_rows

router = APIRouter(prefix="/v1", tags=["monitor"])


@router.get("/monitor")
def get_monitor(
    request: Request,
    token: MonitorToken,
    days: Annotated[float | None, Query(gt=0, le=3650)] = None,
) -> MonitorResponse | ForecastMonitorResponse:
    """Return metrics of the active policy over the last days, from the labels so far.

    Alarms use all rows that the policy decided: they are valid only if no row is dropped. The
    default is 30 days, and 365 of forecasts.
    """
    service = get_service(request)
    if service.forecaster is not None:
        days = FORECAST_DAYS if days is None else days
        return ForecastMonitorResponse(days=days, **_as_json(service.forecaster.report(days)))
    days = MONITOR_DAYS if days is None else days
    policy_id, report = active_report(service, days)
    content = {one.name: getattr(report, one.name) for one in fields(report)}
    if report.labels is not None:
        content["labels"] = {one.name: one.description for one in report.labels}
    n_rows = report.overall.n_rows
    return MonitorResponse(policy=policy_id, days=days, n_rows=n_rows, **_as_json(content))


def active_report(service: Service, days: float = MONITOR_DAYS) -> tuple[int, MonitorReport[Any]]:
    """Return the id of the active policy, and its report over the last days."""
    policy_id, policy = service.catalog.active_served
    rows = recent_rows(service, days)
    own, due = rows.take(rows.policy_id == policy_id), rows.delay and rows.delay.due
    history = service.store.alarm_history(policy_id, due)
    if isinstance(policy, MultiLabelPolicy):
        return policy_id, policy_metrics.monitor_labels(own, policy, history)
    if isinstance(policy, RegressionPolicy):
        return policy_id, policy_metrics.monitor_values(own, policy, history)
    since = time.time() - days * DAY
    if isinstance(policy, Cascade):
        waiting = service.store.count_waiting(since)
        first = next(iter(policy.tiers), None)
        arrivals = service.store.find_arrivals(policy_id, first)
        since -= (rows.delay and rows.delay.seconds) or 0.0
        return policy_id, policy_metrics.monitor_cascade(
            own, policy, history, waiting, arrivals, since
        )
    report = policy_metrics.monitor_classes(own, policy, history)
    if models := model_actions(policy):
        waiting = service.store.count_asked(policy_id, models, since)
        report = replace(report, waiting=waiting)
    return policy_id, report


def _as_json(value: Any) -> Any:
    """Return a value with JSON types only; numbers that are not finite become null."""
    return to_jsonable_python(value, inf_nan_mode="null", fallback=lambda array: array.tolist())
