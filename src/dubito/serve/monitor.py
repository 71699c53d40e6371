"""`GET /v1/monitor`: metrics over time as labels arrive, distribution shifts, and alarms."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, final

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from pydantic_core import to_jsonable_python

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.decide import Cascade, CostMatrix, Policy, PriorEstimate, estimate_prior
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.decide.row_costs import RowCosts
from dubito.decide.value import MeanInterval
from dubito.errors import DubitoWarning
from dubito.monitor.metrics import DistributionShift
from dubito.monitor.sequential import SequentialAlarm
from dubito.outputs import Probabilities
from dubito.serve.auth import require_scope
from dubito.serve.cascades import Arrivals, count_waiting
from dubito.serve.model_answers import count_asked, model_actions
from dubito.serve.policy_metrics import (
    CascadeMonitorReport,
    LabelMetrics,
    LabelMonitorReport,
    ValueMonitorReport,
    monitor_cascade,
    monitor_labels,
    monitor_values,
)
from dubito.serve.schemas import ForecastMonitorResponse, MonitorResponse
from dubito.serve.service import DAY, Service, get_service
from dubito.serve.store import AlarmHistory, StoredRows, Token
from dubito.serve.store.decisions import LabelDelay
from dubito.serve.weighted_estimates import (
    CALLER,
    FORECAST_DAYS,
    LEVEL,
    MIN_ROWS,
    MONITOR_DAYS,
    N_RESAMPLES,
    RECENT_ROWS,
    TOLERANCE,
    Estimate,
    Reliability,
    expected_error,
    metric_estimate,
    propensity_weights,
    recent_rows,
    uncertainty_alarm,
    uncertainty_shift,
    window_rows,
)

router = APIRouter(prefix="/v1", tags=["monitor"])
SHARED = ("overall", "windows", "alarms", "uncertainty", "delay")
MAX_CLASSES = 50  # with more, hardly any class prior would be identified


@final
@dataclass(frozen=True, slots=True)
class Window:
    """Metrics of the rows decided in a period.

    `n_labels` counts the labels of the weighted sample, and `note` says which rows it does not
    represent. `expected_if_calibrated` is the calibration error that a calibrated model would have
    on so few labels.
    """

    start: float
    end: float
    n_rows: int
    n_labels: int
    note: str
    coverage: Estimate
    calibration_error: Estimate
    log_loss: Estimate
    cost: Estimate
    expected_if_calibrated: float | None


@final
@dataclass(frozen=True, slots=True, eq=False)
class MonitorReport:
    """Everything that is monitored of one policy.

    Attributes
    ----------
    overall, windows : Window, tuple of Window
        Metrics of all rows, and of consecutive parts of them.
    alarms : dict of str to SequentialAlarm
        "calibration" bets on the labels of audited rows in order of arrival, "uncertainty" on the
        outputs of all rows after the first 1,000.
    uncertainty : DistributionShift or None
        Mean uncertainty of the first rows compared with the last.
    prior, reference_prior : PriorEstimate or None, array of float
        Class priors of the last rows, estimated without labels, and those of the fit.
    delay : LabelDelay or None
        How late labels are, if those of all rows are expected.
    reliability : Reliability or None
        For two classes, of the positive one, otherwise of the top label; None while withheld.
    waiting : dict of str to int or None
        How many rows wait for the answer of each model that the policy asks; None if it asks none.
    """

    overall: Window
    windows: tuple[Window, ...]
    alarms: dict[str, SequentialAlarm]
    uncertainty: DistributionShift | None
    prior: PriorEstimate | None
    reference_prior: FloatArray
    delay: LabelDelay | None = None
    reliability: Reliability | None = None
    waiting: dict[str, int] | None = None


AnyReport = MonitorReport | LabelMonitorReport | ValueMonitorReport | CascadeMonitorReport


@router.get("/monitor")
def get_monitor(
    request: Request,
    token: Annotated[Token, Depends(require_scope("review", "admin"))],
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
    if isinstance(report, LabelMonitorReport):
        labels = {one.name: _describe_label(one) for one in report.labels}
        content = _as_json({**_shallow(report), "labels": labels})
    else:
        content = _as_json(report)
    return MonitorResponse(policy=policy_id, days=days, n_rows=report.overall.n_rows, **content)


def _shallow(report: LabelMonitorReport) -> dict[str, Any]:
    """Return the fields of a report that both kinds of policies have."""
    return {one: getattr(report, one) for one in SHARED}


def _describe_label(label: LabelMetrics) -> dict[str, Any]:
    """Return the metrics of a label for a response."""
    plain = {name: getattr(label, name) for name in LabelMetrics.__slots__ if name != "audit"}
    names = ("base_rate", "mean_probability", "roc_auc", "expected_calibration_error")
    found = {name: label.audit and label.audit.intervals.get(name) for name in names}
    return {**plain, **found}


def active_report(service: Service, days: float = MONITOR_DAYS) -> tuple[int, AnyReport]:
    """Return the id of the active policy, and its report over the last days."""
    policy_id, policy = service.catalog.active_served
    rows = recent_rows(service, days)
    own, due = rows.take(rows.policy_id == policy_id), rows.delay and rows.delay.due
    history = service.store.alarm_history(policy_id, due)
    if isinstance(policy, MultiLabelPolicy):
        return policy_id, monitor_labels(own, policy, history)
    if isinstance(policy, RegressionPolicy):
        return policy_id, monitor_values(own, policy, history)
    if isinstance(policy, Cascade):
        since = time.time() - days * DAY
        waiting = service.store.read(partial(count_waiting, since=since))
        first = next(iter(policy.tiers), None)
        arrivals = service.store.read(partial(Arrivals.find, policy_id=policy_id, tier=first))
        since -= (rows.delay and rows.delay.seconds) or 0.0
        return policy_id, monitor_cascade(own, policy, history, waiting, arrivals, since)
    report = _monitor_policy(own, policy, history)
    if models := model_actions(policy):
        since = time.time() - days * DAY
        count = partial(count_asked, policy_id=policy_id, models=models, since=since)
        report = replace(report, waiting=service.store.read(count))
    return policy_id, report


def _as_json(value: Any) -> Any:
    """Return a value with JSON types only; numbers that are not finite become null."""
    return to_jsonable_python(value, inf_nan_mode="null", fallback=lambda array: array.tolist())


def _monitor_policy(
    rows: StoredRows, policy: Policy, history: AlarmHistory, *, random_state: int = 0
) -> MonitorReport:
    """Return metrics and shifts of the rows that a policy decided lately, oldest first.

    Alarms use its whole history: they stay valid under continuous monitoring only if later rows
    come after earlier ones.
    """
    costs = policy.costs
    prior = policy.train_prior if policy.deploy_prior is None else policy.deploy_prior
    return MonitorReport(
        overall=_window(rows, costs, random_state),
        windows=tuple(
            _window(rows.take(one), costs, random_state) for one in window_rows(len(rows))
        ),
        alarms={
            "calibration": SequentialAlarm(tolerance=TOLERANCE + history.missing).update(
                history.confidence, history.is_correct
            ),
            "uncertainty": uncertainty_alarm(history.uncertainty),
        },
        uncertainty=uncertainty_shift(rows.probabilities.max(axis=1, initial=0.0)),
        prior=_recent_prior(rows, prior, random_state),
        reference_prior=prior,
        delay=rows.delay,
        reliability=_reliability(rows, policy),
    )


def positive_class(policy: Policy) -> Any:
    """Return the positive of two classes."""
    names = {str(name): name for name in policy.classes}
    return names.get(str(policy.provenance.get("positive")), policy.classes[1])


def _reliability(rows: StoredRows, policy: Policy) -> Reliability | None:
    """Return the reliability of the positive class of two, or of the top label of more."""
    sample = propensity_weights(rows)
    if not sample.is_available:
        return None
    labeled = rows.take(sample.rows)
    p = labeled.probabilities.astype(np.float64)
    if len(policy.classes) == 2:
        k = policy.classes.index(positive_class(policy))
        stated, is_true = p[:, k], labeled.label == k
    else:
        stated, is_true = p.max(axis=1), labeled.label == p.argmax(axis=1)
    return Reliability.of_bins(stated, is_true.astype(np.float64), sample.weight)


def _window(rows: StoredRows, costs: CostMatrix, seed: int) -> Window:
    """Return the metrics of some rows."""
    sample = propensity_weights(rows)
    mean = MeanInterval.of(LEVEL, seed, N_RESAMPLES, CALLER)
    is_decided = (~np.isin(rows.action, costs.rejecting)).astype(np.float64)
    unknown = Estimate(None, sample.unavailable)
    error, log_loss, cost, expected = unknown, unknown, unknown, None
    if sample.is_available:
        labeled, weight = rows.take(sample.rows), sample.weight
        batch = Batch.of(labeled.label, Probabilities(labeled.probabilities), caller=CALLER)
        error = metric_estimate("expected_calibration_error", batch, weight, seed)
        log_loss = metric_estimate("log_loss", batch, weight, seed)
        cost = _mean_cost(labeled, weight, costs, mean)
        expected = expected_error(batch, weight)
    return Window(
        start=float(rows.created[0]) if len(rows) else 0.0,
        end=float(rows.created[-1]) if len(rows) else 0.0,
        n_rows=len(rows),
        n_labels=sample.rows.size,
        note=sample.note,
        coverage=Estimate(mean(is_decided, np.ones(len(rows)))) if len(rows) else unknown,
        calibration_error=error,
        log_loss=log_loss,
        cost=cost,
        expected_if_calibrated=expected,
    )


def _mean_cost(
    labeled: StoredRows, weight: FloatArray, costs: CostMatrix, mean: MeanInterval
) -> Estimate:
    """Return the mean cost per row, estimated from the weighted sample."""
    columns = labeled.columns_of(costs.columns)
    missing = [name for name, values in columns.items() if np.isnan(values).any()]
    if missing:
        return Estimate(None, f"The costs depend on `{missing[0]}`, and some rows have none.")
    if labeled.action.max() >= costs.n_actions:
        return Estimate(None, "Some rows were decided by a policy with other actions.")
    labels = Labels.of(labeled.label, Probabilities(labeled.probabilities), "label", CALLER)
    by_row = RowCosts.of(columns or None, costs, len(labeled), CALLER)
    by_action = by_row.answered(Probabilities(labeled.probabilities)).of_labels(labels)
    paid = by_action[np.arange(len(labeled)), labeled.action]
    return Estimate(mean(np.asarray(paid), np.ones(weight.size), importance=weight))


def _recent_prior(rows: StoredRows, prior: FloatArray, seed: int) -> PriorEstimate | None:
    """Return the class priors of the last rows; None if there are too few."""
    recent = rows.probabilities[-RECENT_ROWS:]
    if len(recent) < MIN_ROWS or prior.size > MAX_CLASSES:
        return None
    # The estimate has `is_identified`.
    with warnings.catch_warnings(action="ignore", category=DubitoWarning):
        return estimate_prior(
            Probabilities(recent), prior, level=LEVEL, n_resamples=N_RESAMPLES, random_state=seed
        )
