"""`GET /v1/monitor`: metrics over time as labels arrive, distribution shifts, and alarms."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, final

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from numpy.typing import NDArray
from pydantic_core import to_jsonable_python
from scipy.special import xlogy

from dubito.arrays import FloatArray
from dubito.calibrate.calibrator import FLOOR
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.decide import CostMatrix, Policy, PriorEstimate, estimate_prior
from dubito.decide.multilabel.label_decisions import AUTOMATIC, POSITIVE, REVIEW, REVIEW_ROW
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.decide.row_costs import RowCosts
from dubito.decide.value import MeanInterval
from dubito.errors import DubitoWarning
from dubito.measure import BinaryAudit, Interval, audit, confidence_interval
from dubito.measure.calibration_error import ReliabilityState, expected_gaps, uniform_edges
from dubito.measure.regression import interval_scores
from dubito.measure.scorers import CATALOG
from dubito.monitor.sequential import SequentialAlarm
from dubito.monitor.shifts import DistributionShift, distribution_shift, mean_with_error
from dubito.outputs import MultiLabel, Probabilities
from dubito.serve.auth import require_scope
from dubito.serve.label_sets import action_matrix, answer_matrix
from dubito.serve.schemas import MonitorResponse
from dubito.serve.service import DAY, Service, get_service
from dubito.serve.store import AlarmHistory, StoredRows, Token
from dubito.serve.value_rows import StoredValues, targets
from dubito.serve.weighting import WeightedSample, propensity_weights

router = APIRouter(prefix="/v1", tags=["monitor"])
CALLER = "monitor"
MONITOR_DAYS = 30.0
LEVEL, N_RESAMPLES, N_BINS = 0.95, 200, 15
MAX_WINDOWS, MIN_ROWS = 8, 100  # rows per window
REFERENCE_ROWS, RECENT_ROWS = 1000, 2000
MAX_CLASSES = 50  # with more, hardly any class prior would be identified
TOLERANCE = 0.02  # smaller deviations raise no alarm


@final
@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric with its confidence interval, or None and why it is unavailable."""

    interval: Interval | None
    unavailable: str = ""


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
    """

    overall: Window
    windows: tuple[Window, ...]
    alarms: dict[str, SequentialAlarm]
    uncertainty: DistributionShift | None
    prior: PriorEstimate | None
    reference_prior: FloatArray


@final
@dataclass(frozen=True, slots=True)
class LabelWindow:
    """Metrics of the rows of several labels that were decided in a period.

    `n_labels` counts the known labels of the weighted samples. The log loss is the mean over
    labels, and the cost that of a row, its labels added up.
    """

    start: float
    end: float
    n_rows: int
    n_labels: int
    coverage: Estimate
    row_review_rate: float
    label_review_rate: float
    log_loss: Estimate
    cost: Estimate


@final
@dataclass(frozen=True, slots=True, eq=False)
class LabelMetrics:
    """Metrics of one of several labels, of the rows that its weighted sample represents.

    `audit` is None, and `unavailable` says why, while they are withheld. The alarm bets against
    the probability of the label, at a level that holds for all labels at once.
    """

    name: str
    n_labels: int
    review_rate: float
    cost: float | None
    log_loss: float | None
    audit: BinaryAudit | None
    unavailable: str
    note: str
    alarm: SequentialAlarm


@final
@dataclass(frozen=True, slots=True, eq=False)
class LabelMonitorReport:
    """Everything that is monitored of one policy of several labels per row."""

    overall: LabelWindow
    windows: tuple[LabelWindow, ...]
    labels: tuple[LabelMetrics, ...]
    alarms: dict[str, SequentialAlarm]
    uncertainty: DistributionShift | None


@final
@dataclass(frozen=True, slots=True)
class ValueWindow:
    """Metrics of the rows that a regression policy decided in a period.

    `coverage`, `interval_score` and `bias` are of the prediction intervals and the calibrated mean,
    and `automatic` is the fraction of rows without a review.
    """

    start: float
    end: float
    n_rows: int
    n_labels: int
    note: str
    coverage: Estimate
    bias: Estimate
    interval_score: Estimate
    cost: Estimate
    automatic: Estimate


@final
@dataclass(frozen=True, slots=True, eq=False)
class ValueMonitorReport:
    """Everything that is monitored of one regression policy.

    The alarms "coverage" and "bias" bet on the true values of audited rows, against the level of
    the prediction intervals and against half of the values above the calibrated median;
    "uncertainty" bets on the widths of the intervals of all rows after the first 1,000.
    """

    overall: ValueWindow
    windows: tuple[ValueWindow, ...]
    alarms: dict[str, SequentialAlarm]
    uncertainty: DistributionShift | None


AnyReport = MonitorReport | LabelMonitorReport | ValueMonitorReport


@router.get("/monitor")
def get_monitor(
    request: Request,
    token: Annotated[Token, Depends(require_scope("review", "admin"))],
    days: Annotated[float, Query(gt=0, le=3650)] = MONITOR_DAYS,
) -> MonitorResponse:
    """Return metrics of the active policy over the last days, from the labels so far.

    Alarms use all rows that the policy decided: they are valid only if no row is dropped.
    """
    policy_id, report = active_report(get_service(request), days)
    if isinstance(report, LabelMonitorReport):
        labels = {one.name: _describe_label(one) for one in report.labels}
        content = _as_json({**_shallow(report), "labels": labels})
    else:
        content = _as_json(report)
    return MonitorResponse(policy=policy_id, days=days, n_rows=report.overall.n_rows, **content)


def _shallow(report: LabelMonitorReport) -> dict[str, Any]:
    """Return the fields of a report that both kinds of policies have."""
    return {one: getattr(report, one) for one in ("overall", "windows", "alarms", "uncertainty")}


def _describe_label(label: LabelMetrics) -> dict[str, Any]:
    """Return the metrics of a label for a response."""
    plain = {name: getattr(label, name) for name in LabelMetrics.__slots__ if name != "audit"}
    names = ("base_rate", "mean_probability", "roc_auc", "expected_calibration_error")
    found = {name: label.audit and label.audit.intervals.get(name) for name in names}
    return {**plain, **found}


def active_report(service: Service, days: float = MONITOR_DAYS) -> tuple[int, AnyReport]:
    """Return the id of the active policy, and its report over the last days."""
    policy_id, policy = service.catalog.active
    rows = service.store.decisions_since(time.time() - days * DAY)
    own, history = rows.take(rows.policy_id == policy_id), service.store.alarm_history(policy_id)
    if isinstance(policy, MultiLabelPolicy):
        return policy_id, _monitor_labels(own, policy, history)
    if isinstance(policy, RegressionPolicy):
        return policy_id, _monitor_values(own, policy, history)
    return policy_id, _monitor_policy(own, policy, history)


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
        windows=tuple(_window(rows.take(one), costs, random_state) for one in _parts(len(rows))),
        alarms={
            "calibration": SequentialAlarm(tolerance=TOLERANCE).update(
                history.confidence, history.is_correct
            ),
            "uncertainty": _uncertainty_alarm(history.uncertainty),
        },
        uncertainty=_uncertainty_shift(rows.probabilities.max(axis=1, initial=0.0)),
        prior=_recent_prior(rows, prior, random_state),
        reference_prior=prior,
    )


def _parts(n_rows: int) -> list[NDArray[np.int64]]:
    """Return the rows of each window."""
    n_windows = int(np.clip(n_rows // MIN_ROWS, 1, MAX_WINDOWS))
    return np.array_split(np.arange(n_rows), n_windows)


def _uncertainty_shift(confidence: NDArray[np.float32]) -> DistributionShift | None:
    """Compare 1 - confidence of the first rows with the last; None if there are too few."""
    uncertainty = np.clip(1.0 - confidence.astype(np.float64), 0.0, 1.0)
    n_first = min(REFERENCE_ROWS, uncertainty.size // 2)
    if n_first < MIN_ROWS:
        return None
    return distribution_shift(uncertainty[:n_first], uncertainty[n_first:][-RECENT_ROWS:], LEVEL)


def _uncertainty_alarm(uncertainty: FloatArray) -> SequentialAlarm:
    """Bet against the mean uncertainty of the first rows, within its standard error."""
    first, later = uncertainty[:REFERENCE_ROWS], uncertainty[REFERENCE_ROWS:]
    if not later.size:
        return SequentialAlarm(tolerance=TOLERANCE)
    mean, error = mean_with_error(first)
    alarm = SequentialAlarm(tolerance=min(TOLERANCE + 3 * error, 1.0))
    return alarm.update(np.full(later.size, mean), later)


def _window(rows: StoredRows, costs: CostMatrix, seed: int) -> Window:
    """Return the metrics of some rows."""
    sample = propensity_weights(rows)
    mean = MeanInterval.of(LEVEL, seed, N_RESAMPLES, CALLER)
    is_decided = (rows.action != (-1 if costs.reject is None else costs.reject)).astype(np.float64)
    unknown = Estimate(None, sample.unavailable)
    error, log_loss, cost, expected = unknown, unknown, unknown, None
    if sample.is_available:
        labeled, weight = rows.take(sample.rows), sample.weight
        error = _estimate("expected_calibration_error", labeled, weight, seed)
        log_loss = _estimate("log_loss", labeled, weight, seed)
        cost = _mean_cost(labeled, weight, costs, mean)
        expected = _expected_error(labeled, weight)
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


def _expected_error(labeled: StoredRows, weight: FloatArray) -> float:
    """Return the calibration error that a calibrated model would have on these labels."""
    batch = Batch.of(labeled.label, Probabilities(labeled.probabilities), caller=CALLER)
    # A label with weight w varies as one label: its variance grows with the square of w.
    states = [
        ReliabilityState.of(batch.reweighted(one), uniform_edges(N_BINS))
        for one in (weight, weight**2)
    ]
    used = states[0].weight > 0
    row_weight = states[1].weight[used] / states[0].weight[used]
    gaps = expected_gaps(states[1].variance[used], row_weight)
    return float(gaps.sum() / weight.sum())


def _estimate(metric: str, labeled: StoredRows, weight: FloatArray, seed: int) -> Estimate:
    """Return a metric of all rows, estimated from the weighted sample."""
    batch = Batch.of(labeled.label, Probabilities(labeled.probabilities), caller=CALLER)

    def metric_of(_: None, rows: Batch, *, sample_weight: FloatArray) -> float:
        # A label stands for many rows, but was drawn once.
        return CATALOG[metric].function(None, rows.reweighted(sample_weight * weight))

    found = confidence_interval(
        metric_of, None, batch, level=LEVEL, random_state=seed, n_resamples=N_RESAMPLES
    )
    if np.isfinite(found.value) and np.isfinite(found.high):
        # Resampling biases a binned error upwards: all resamples may lie above a small one.
        low, high = min(found.low, found.value), max(found.high, found.value)
        return Estimate(Interval(found.value, low, high))
    return Estimate(None, "It is infinite: a class with probability 0 occurred.")


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
    by_action = RowCosts.of(columns or None, costs, len(labeled), CALLER).of_labels(labels)
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


@final
@dataclass(frozen=True, slots=True, eq=False)
class _LabelRows:
    """Rows of several labels as matrices, with a weighted sample of the rows of each label.

    A label is reviewed with probability 1 if its action is a review, and otherwise if its row is
    audited, so each label has a sample of its own.
    """

    rows: StoredRows
    actions: NDArray[np.int64]
    p: FloatArray
    y: FloatArray
    paid: FloatArray
    samples: list[WeightedSample]

    @classmethod
    def of(cls, rows: StoredRows, policy: MultiLabelPolicy) -> _LabelRows:
        n_labels = len(policy.label_names)
        actions, fallback = action_matrix(rows.label_actions.tolist(), n_labels)
        y = answer_matrix(rows.answers.tolist(), n_labels)
        p = rows.probabilities.reshape(len(rows), n_labels).astype(np.float64)
        costs, is_row = policy.costs.arrays, (rows.action == REVIEW_ROW)[:, np.newaxis]
        alone = np.where(actions == REVIEW, costs.review, costs.of_errors(y, fallback == POSITIVE))
        # The review of a row is paid in equal parts by its labels.
        paid = np.where(is_row, costs.review_row / n_labels if is_row.any() else 0.0, alone)
        samples = [
            propensity_weights(_rows_of_label(rows, actions[:, k], y[:, k]))
            for k in range(n_labels)
        ]
        return cls(rows, actions, p, y, paid, samples)

    @property
    def losses(self) -> FloatArray:
        """The log loss of each label."""
        positive, negative = np.maximum(self.p, FLOOR), np.maximum(1 - self.p, FLOOR)
        return np.asarray(-xlogy(self.y, positive) - xlogy(1 - self.y, negative))

    def mean_over_labels(self, values: FloatArray, names: Sequence[str], seed: int) -> Estimate:
        """Return the mean of a number per label, with a bootstrap over rows."""
        weight = np.zeros(values.shape)
        for k, sample in enumerate(self.samples):
            if not sample.is_available:
                return Estimate(None, f"{names[k]}: {sample.unavailable}")
            weight[sample.rows, k] = sample.weight / sample.weight.sum()
        used = weight.any(axis=1)
        importance = weight[used].mean(axis=1)
        sums = np.where(weight > 0, weight * values, 0.0)[used].mean(axis=1)
        mean = MeanInterval.of(LEVEL, seed, N_RESAMPLES, CALLER)
        return Estimate(mean(sums / importance, np.ones(importance.size), importance=importance))


def _rows_of_label(rows: StoredRows, action: NDArray[np.int64], y: FloatArray) -> StoredRows:
    """Return the rows as those of a policy that decides one label."""
    is_reviewed, is_known = action == REVIEW, ~np.isnan(y)
    is_answered = (rows.label >= 0) & (is_reviewed | rows.is_audit)
    return replace(
        rows,
        propensity=np.where(is_reviewed, 1.0, rows.audit_probability),
        label=np.where(is_known, np.nan_to_num(y), -1).astype(np.int64),
        is_unresolved=(rows.is_unresolved | is_answered) & ~is_known,
    )


def _monitor_labels(
    rows: StoredRows, policy: MultiLabelPolicy, history: AlarmHistory, *, random_state: int = 0
) -> LabelMonitorReport:
    """Return metrics and shifts of the rows that a policy of several labels decided lately."""
    names = [str(name) for name in policy.label_names]
    known = _LabelRows.of(rows, policy)
    losses = known.losses
    stated = history.probabilities
    observed = answer_matrix(history.answers, len(names))
    labels = []
    for k, (name, sample) in enumerate(zip(names, known.samples, strict=True)):
        found: BinaryAudit | None = None
        cost = log_loss = None
        if sample.is_available:
            used, weight = sample.rows, sample.weight
            outputs = MultiLabel(known.p[used, k : k + 1], [name])
            found = audit(
                known.y[used, k : k + 1], outputs, sample_weight=sample.frequency,
                n_resamples=N_RESAMPLES, random_state=random_state,
            ).labels[name]  # fmt: skip
            cost = float(np.average(known.paid[used, k], weights=weight))
            log_loss = float(np.average(losses[used, k], weights=weight))
        alarm = SequentialAlarm(level=0.05 / len(names), tolerance=TOLERANCE)
        if stated is not None:
            is_seen = ~np.isnan(observed[:, k])
            p = np.clip(stated[is_seen, k].astype(np.float64), 0.0, 1.0)
            alarm = alarm.update(p, observed[is_seen, k])
        labels.append(
            LabelMetrics(
                name=name,
                n_labels=sample.rows.size,
                review_rate=float((known.actions[:, k] == REVIEW).mean()) if len(rows) else 0.0,
                cost=cost,
                log_loss=log_loss,
                audit=found,
                unavailable=sample.unavailable,
                note=sample.note,
                alarm=alarm,
            )
        )
    confidence = np.maximum(known.p, 1 - known.p).mean(axis=1).astype(np.float32)
    return LabelMonitorReport(
        overall=_label_window(known, names, random_state),
        windows=tuple(
            _label_window(_LabelRows.of(rows.take(one), policy), names, random_state)
            for one in _parts(len(rows))
        ),
        labels=tuple(labels),
        alarms={"uncertainty": _uncertainty_alarm(history.uncertainty)},
        uncertainty=_uncertainty_shift(confidence),
    )


def _automatic(rows: StoredRows, seed: int) -> Estimate:
    """Return the fraction of rows that are decided without any review."""
    if not len(rows):
        return Estimate(None, "No rows have been decided yet.")
    mean = MeanInterval.of(LEVEL, seed, N_RESAMPLES, CALLER)
    is_decided = (rows.action == AUTOMATIC).astype(np.float64)
    return Estimate(mean(is_decided, np.ones(len(rows))))


def _monitor_values(
    rows: StoredRows, policy: RegressionPolicy, history: AlarmHistory, *, random_state: int = 0
) -> ValueMonitorReport:
    """Return metrics and shifts of the rows that a regression policy decided lately."""
    level, n_fitted = policy.interval.level, max(policy.report.n_rows, 1)
    alarms = {}
    seen = StoredValues.of(np.zeros((0, 0), np.float32))
    if history.probabilities is not None:
        seen = StoredValues.of(history.probabilities)
    y = targets(list(history.answers))
    above = np.where(y == seen.median, 0.5, (y > seen.median).astype(np.float64))
    is_inside = ((seen.low <= y) & (y <= seen.high)).astype(np.float64)
    for name, stated, observed in (("coverage", level, is_inside), ("bias", 0.5, above)):
        # What the policy claims was estimated from the rows of its fit.
        error = 3 * np.sqrt(stated * (1 - stated) / n_fitted)
        alarm = SequentialAlarm(tolerance=min(TOLERANCE + float(error), 1.0))
        alarms[name] = alarm.update(np.full(y.size, stated), observed)
    recent = history.uncertainty[-len(rows) :] if len(rows) else np.zeros(0)
    return ValueMonitorReport(
        overall=_value_window(rows, policy, random_state),
        windows=tuple(
            _value_window(rows.take(one), policy, random_state) for one in _parts(len(rows))
        ),
        alarms={**alarms, "uncertainty": _uncertainty_alarm(history.uncertainty)},
        uncertainty=_uncertainty_shift((1 - recent).astype(np.float32)),
    )


def _value_window(rows: StoredRows, policy: RegressionPolicy, seed: int) -> ValueWindow:
    """Return the metrics of some rows with decided values."""
    sample = propensity_weights(rows)
    names = ("coverage", "bias", "interval_score", "cost")
    found = dict.fromkeys(names, Estimate(None, sample.unavailable))
    if sample.is_available:
        labeled = rows.take(sample.rows)
        known, y = StoredValues.of(labeled.probabilities), targets(labeled.answers.tolist())
        paid = policy.costs.of_errors(known.value - y)
        if policy.review_cost is not None:
            paid = np.where(labeled.action == AUTOMATIC, paid, policy.review_cost)
        is_inside = ((known.low <= y) & (y <= known.high)).astype(np.float64)
        scores = interval_scores(y, known.low, known.high, policy.interval.level)
        columns = dict(zip(names, (is_inside, known.mean - y, scores, paid), strict=True))
        mean, once = MeanInterval.of(LEVEL, seed, N_RESAMPLES, CALLER), np.ones(y.size)
        for name, values in columns.items():
            found[name] = Estimate(None, "Some intervals are infinite.")
            if np.isfinite(values).all():
                found[name] = Estimate(mean(values, once, importance=sample.weight))
    return ValueWindow(
        start=float(rows.created[0]) if len(rows) else 0.0,
        end=float(rows.created[-1]) if len(rows) else 0.0,
        n_rows=len(rows),
        n_labels=sample.rows.size,
        note=sample.note,
        **found,
        automatic=_automatic(rows, seed),
    )


def _label_window(known: _LabelRows, names: Sequence[str], seed: int) -> LabelWindow:
    """Return the metrics of some rows of several labels."""
    rows, n_rows = known.rows, len(known.rows)
    coverage = _automatic(rows, seed)
    is_row = rows.action == REVIEW_ROW
    is_alone = (known.actions == REVIEW) & ~is_row[:, np.newaxis]
    return LabelWindow(
        start=float(rows.created[0]) if n_rows else 0.0,
        end=float(rows.created[-1]) if n_rows else 0.0,
        n_rows=n_rows,
        n_labels=sum(sample.rows.size for sample in known.samples),
        coverage=coverage,
        row_review_rate=float(is_row.mean()) if n_rows else 0.0,
        label_review_rate=float(is_alone.mean()) if n_rows else 0.0,
        log_loss=known.mean_over_labels(known.losses, names, seed),
        cost=known.mean_over_labels(len(names) * known.paid, names, seed),
    )
