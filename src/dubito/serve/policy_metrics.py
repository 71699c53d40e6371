"""Metrics, alarms and shifts of policies of every kind, and of cascades."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import BoolArray, FloatArray
from dubito.calibrate.cross_validation import label_losses
from dubito.data.batch import Batch, make_batch
from dubito.data.labels import Labels
from dubito.decide import CostMatrix, Policy, PriorEstimate
from dubito.decide.cascade import ABSTAIN, Cascade
from dubito.decide.cascade import REVIEW as REVIEW_ACTION
from dubito.decide.multilabel.label_decisions import AUTOMATIC, POSITIVE, REVIEW, REVIEW_ROW
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.decide.row_costs import RowCosts
from dubito.measure import BinaryAudit, audit
from dubito.measure.regression import interval_scores
from dubito.monitor.metrics import DistributionShift
from dubito.monitor.sequential import SequentialAlarm
from dubito.outputs import MultiLabel, Probabilities, TopLabel
from dubito.serve.label_sets import action_matrix, answer_matrix
from dubito.serve.store import AlarmHistory, StoredRows
from dubito.serve.store.decisions import LabelDelay
from dubito.serve.store.stages import Arrivals
from dubito.serve.value_rows import StoredValues, targets
from dubito.serve.weighted_estimates import (
    CALLER,
    N_RESAMPLES,
    SEED,
    TOLERANCE,
    Estimate,
    Reliability,
    WeightedSample,
    accuracy_estimate,
    expected_error,
    fraction_estimate,
    mean_estimate,
    metric_estimate,
    propensity_weights,
    recent_prior,
    uncertainty_alarm,
    uncertainty_shift,
    window_rows,
)

OF_AUDIT = ("base_rate", "mean_probability", "roc_auc", "expected_calibration_error")


@dataclass(frozen=True, slots=True)
class Window:
    """Rows of a period, and how many labels their metrics rest on."""

    start: float
    end: float
    n_rows: int
    n_labels: int


AnyWindow = TypeVar("AnyWindow", bound=Window)


def _period(times: FloatArray, n_labels: int) -> dict[str, Any]:
    """Return what all windows have, from the times of their rows."""
    start, end = (float(times[0]), float(times[-1])) if times.size else (0.0, 0.0)
    return {"start": start, "end": end, "n_rows": times.size, "n_labels": n_labels}


@final
@dataclass(frozen=True, slots=True)
class ClassWindow(Window):
    """Metrics of the rows that a policy of one class per row decided in a period.

    `n_labels` counts the labels of the weighted sample, and `note` says which rows it does not
    represent. `expected_if_calibrated` is the calibration error that a calibrated model would have
    on so few labels.
    """

    note: str
    coverage: Estimate
    calibration_error: Estimate
    log_loss: Estimate
    cost: Estimate
    expected_if_calibrated: float | None


@final
@dataclass(frozen=True, slots=True)
class LabelWindow(Window):
    """Metrics of the rows of several labels that were decided in a period.

    `n_labels` counts the known labels of the weighted samples. The log loss is the mean over
    labels, and the cost that of a row, its labels added up.
    """

    coverage: Estimate
    row_review_rate: float
    label_review_rate: float
    log_loss: Estimate
    cost: Estimate


@final
@dataclass(frozen=True, slots=True)
class ValueWindow(Window):
    """Metrics of the rows that a regression policy decided in a period.

    `coverage`, `interval_score` and `bias` are of the prediction intervals and the calibrated mean,
    and `automatic` is the fraction of rows without a review.
    """

    note: str
    coverage: Estimate
    bias: Estimate
    interval_score: Estimate
    cost: Estimate
    automatic: Estimate


@final
@dataclass(frozen=True, slots=True)
class CascadeWindow(Window):
    """Metrics of the rows that a cascade decided in a period.

    `actions` counts rows by action, `calls` the calls of each model. `cost` is that of calls,
    wrong answers and rejected rows, `accuracy` that of answers, which `p_correct` is the mean
    probability of. The calibration error is that of P(correct), of all rows with a call.
    """

    note: str
    actions: dict[str, int]
    calls: dict[str, int]
    answered: Estimate
    cost: Estimate
    accuracy: Estimate
    p_correct: float | None
    calibration_error: Estimate
    expected_if_calibrated: float | None


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

    @property
    def description(self) -> dict[str, Any]:
        """The metrics for a response, with some of the audit."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "audit"}
        intervals = {} if self.audit is None else self.audit.intervals
        return plain | {name: intervals.get(name) for name in OF_AUDIT}


@final
@dataclass(frozen=True, slots=True, eq=False)
class MonitorReport(Generic[AnyWindow]):
    """Everything that is monitored of one policy.

    Attributes
    ----------
    overall, windows : Window, tuple of Window
        Metrics of all rows, and of consecutive parts of them; of a cascade in order of arrival.
    alarms : dict of str to SequentialAlarm
        "uncertainty" bets on the outputs of all rows after the first 1,000; of values, that is the
        width of intervals, and of a cascade P(correct) of the first tier. "calibration" bets on the
        labels of audited rows in order of arrival, of a cascade against P(correct). Those of values
        are "coverage", against the level of the intervals, and "bias", against half of the true
        values above the calibrated median; several labels have their own.
    uncertainty : DistributionShift or None
        Mean uncertainty of the first rows compared with the last.
    delay : LabelDelay or None
        How late labels are, if those of all rows are expected.
    reliability : Reliability or None
        For two classes, of the positive one, otherwise of the top label; of values, of the ends of
        the intervals and the median; of a cascade, of P(correct). None while withheld.
    prior, reference_prior : PriorEstimate or None, array of float or None
        Class priors of the last rows, estimated without labels, and those of the fit.
    labels : tuple of LabelMetrics or None
        Metrics of each of several labels.
    waiting : dict of str to int or None
        How many rows wait for the output of each model that a cascade or a policy asks; None if it
        asks none.
    """

    overall: AnyWindow
    windows: tuple[AnyWindow, ...]
    alarms: dict[str, SequentialAlarm]
    uncertainty: DistributionShift | None
    delay: LabelDelay | None
    reliability: Reliability | None = None
    prior: PriorEstimate | None = None
    reference_prior: FloatArray | None = None
    labels: tuple[LabelMetrics, ...] | None = None
    waiting: dict[str, int] | None = None


def _windows(rows: StoredRows, window: Callable[[StoredRows], AnyWindow]) -> tuple[AnyWindow, ...]:
    """Return the metrics of consecutive parts of some rows."""
    return tuple(window(rows.take(one)) for one in window_rows(len(rows)))


def _calibration_alarm(history: AlarmHistory) -> SequentialAlarm:
    """Bet on the labels of audited rows against the stated confidence."""
    alarm = SequentialAlarm(tolerance=TOLERANCE + history.missing)
    return alarm.update(history.confidence, history.is_correct)


def monitor_classes(
    rows: StoredRows, policy: Policy, history: AlarmHistory
) -> MonitorReport[ClassWindow]:
    """Return metrics and shifts of the rows that a policy decided lately, oldest first.

    Alarms use its whole history: they stay valid under continuous monitoring only if later rows
    come after earlier ones.
    """
    window = partial(_class_window, costs=policy.costs)
    prior = policy.train_prior if policy.deploy_prior is None else policy.deploy_prior
    return MonitorReport(
        overall=window(rows),
        windows=_windows(rows, window),
        alarms={
            "calibration": _calibration_alarm(history),
            "uncertainty": uncertainty_alarm(history.uncertainty),
        },
        uncertainty=uncertainty_shift(rows.probabilities.max(axis=1, initial=0.0)),
        delay=rows.delay,
        reliability=_class_reliability(rows, policy),
        prior=recent_prior(rows.probabilities, prior),
        reference_prior=prior,
    )


def _class_reliability(rows: StoredRows, policy: Policy) -> Reliability | None:
    """Return the reliability of the positive class of two, or of the top label of more."""
    sample = propensity_weights(rows)
    if not sample.is_available:
        return None
    labeled = rows.take(sample.rows)
    p = labeled.probabilities.astype(np.float64)
    if len(policy.classes) == 2:
        k = policy.pos_column
        stated, is_true = p[:, k], labeled.label == k
    else:
        stated, is_true = p.max(axis=1), labeled.label == p.argmax(axis=1)
    return Reliability.of_bins(stated, is_true.astype(np.float64), sample.weight)


def _class_window(rows: StoredRows, costs: CostMatrix) -> ClassWindow:
    """Return the metrics of some rows."""
    sample = propensity_weights(rows)
    found = _unavailable(sample, "calibration_error", "log_loss", "cost")
    found["expected_if_calibrated"] = None
    if sample.is_available:
        labeled, weight = rows.take(sample.rows), sample.weight
        batch = make_batch(labeled.label, Probabilities(labeled.probabilities), caller=CALLER)
        found |= _calibration(batch, weight)
        found["log_loss"] = metric_estimate("log_loss", batch, weight)
        found["cost"] = _mean_cost(labeled, weight, costs)
    return ClassWindow(
        **_period(rows.created, sample.rows.size),
        note=sample.note,
        coverage=fraction_estimate(~np.isin(rows.action, costs.rejecting)),
        **found,
    )


def _unavailable(sample: WeightedSample, *names: str) -> dict[str, Any]:
    """Return metrics by name for rows that no sample represents."""
    return dict.fromkeys(names, Estimate(None, sample.unavailable))


def _calibration(batch: Batch, weight: FloatArray) -> dict[str, Any]:
    """Return the calibration error of labeled rows, and that of a calibrated model."""
    return {
        "calibration_error": metric_estimate("expected_calibration_error", batch, weight),
        "expected_if_calibrated": expected_error(batch, weight),
    }


def _mean_cost(labeled: StoredRows, weight: FloatArray, costs: CostMatrix) -> Estimate:
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
    return mean_estimate(np.asarray(paid), weight)


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
    losses: FloatArray
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
        return cls(rows, actions, p, y, label_losses(y, p), paid, samples)

    def metrics_of(self, k: int, name: str, alarm: SequentialAlarm) -> LabelMetrics:
        """Return the metrics of one label."""
        sample, is_reviewed = self.samples[k], self.actions[:, k] == REVIEW
        found: dict[str, Any] = dict.fromkeys(("cost", "log_loss", "audit"))
        if sample.is_available:
            used, weight = sample.rows, sample.weight
            y, outputs = self.y[used, k : k + 1], MultiLabel(self.p[used, k : k + 1], [name])
            report = audit(
                y,
                outputs,
                sample_weight=sample.frequency,
                n_resamples=N_RESAMPLES,
                random_state=SEED,
            )
            found = {
                "cost": float(np.average(self.paid[used, k], weights=weight)),
                "log_loss": float(np.average(self.losses[used, k], weights=weight)),
                "audit": report.labels[name],
            }
        return LabelMetrics(
            name=name,
            n_labels=sample.rows.size,
            review_rate=float(is_reviewed.mean()) if is_reviewed.size else 0.0,
            unavailable=sample.unavailable,
            note=sample.note,
            alarm=alarm,
            **found,
        )

    def mean_over_labels(self, values: FloatArray, names: Sequence[str]) -> Estimate:
        """Return the mean of a number per label, with a bootstrap over rows."""
        weight = np.zeros(values.shape)
        for k, sample in enumerate(self.samples):
            if not sample.is_available:
                return Estimate(None, f"{names[k]}: {sample.unavailable}")
            weight[sample.rows, k] = sample.weight / sample.weight.sum()
        used = weight.any(axis=1)
        importance = weight[used].mean(axis=1)
        sums = np.where(weight > 0, weight * values, 0.0)[used].mean(axis=1)
        return mean_estimate(sums / importance, importance)


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


def monitor_labels(
    rows: StoredRows, policy: MultiLabelPolicy, history: AlarmHistory
) -> MonitorReport[LabelWindow]:
    """Return metrics and shifts of the rows that a policy of several labels decided lately."""
    names = [str(name) for name in policy.label_names]
    known = _LabelRows.of(rows, policy)
    observed = answer_matrix(history.answers, len(names))
    alarm = SequentialAlarm(alpha=0.05 / len(names), tolerance=TOLERANCE + history.missing)
    alarms = [alarm] * len(names)
    if (stated := history.probabilities) is not None:
        p = np.clip(stated.astype(np.float64), 0.0, 1.0)
        is_seen = ~np.isnan(observed)
        alarms = [
            alarm.update(p[is_seen[:, k], k], observed[is_seen[:, k], k]) for k in range(len(names))
        ]
    confidence = np.maximum(known.p, 1 - known.p).mean(axis=1).astype(np.float32)
    return MonitorReport(
        overall=_label_window(known, names),
        windows=_windows(rows, lambda some: _label_window(_LabelRows.of(some, policy), names)),
        labels=tuple(
            known.metrics_of(k, *one) for k, one in enumerate(zip(names, alarms, strict=True))
        ),
        alarms={"uncertainty": uncertainty_alarm(history.uncertainty)},
        uncertainty=uncertainty_shift(confidence),
        delay=rows.delay,
    )


def _label_window(known: _LabelRows, names: Sequence[str]) -> LabelWindow:
    """Return the metrics of some rows of several labels."""
    rows, n_rows = known.rows, len(known.rows)
    is_row = rows.action == REVIEW_ROW
    is_alone = (known.actions == REVIEW) & ~is_row[:, np.newaxis]
    return LabelWindow(
        **_period(rows.created, sum(sample.rows.size for sample in known.samples)),
        coverage=fraction_estimate(rows.action == AUTOMATIC),
        row_review_rate=float(is_row.mean()) if n_rows else 0.0,
        label_review_rate=float(is_alone.mean()) if n_rows else 0.0,
        log_loss=known.mean_over_labels(known.losses, names),
        cost=known.mean_over_labels(len(names) * known.paid, names),
    )


def monitor_values(
    rows: StoredRows, policy: RegressionPolicy, history: AlarmHistory
) -> MonitorReport[ValueWindow]:
    """Return metrics and shifts of the rows that a regression policy decided lately."""
    level, n_fitted = policy.interval.level, max(policy.report.n_rows, 1)
    alarms, stored = {}, history.probabilities
    seen = StoredValues.of(np.zeros((0, 0), np.float32) if stored is None else stored)
    y = targets(history.answers)
    above, is_inside = 1 - seen.below(y, seen.median), seen.is_inside(y)
    for name, stated, observed in (("coverage", level, is_inside), ("bias", 0.5, above)):
        # What the policy claims was estimated from the rows of its fit.
        error = 3 * np.sqrt(stated * (1 - stated) / n_fitted)
        alarm = SequentialAlarm(tolerance=min(TOLERANCE + history.missing + float(error), 1.0))
        alarms[name] = alarm.update(np.full(y.size, stated), observed)
    recent = history.uncertainty[-len(rows) :] if len(rows) else np.zeros(0)
    window = partial(_value_window, policy=policy)
    return MonitorReport(
        overall=window(rows),
        windows=_windows(rows, window),
        alarms={**alarms, "uncertainty": uncertainty_alarm(history.uncertainty)},
        uncertainty=uncertainty_shift((1 - recent).astype(np.float32)),
        delay=rows.delay,
        reliability=_value_reliability(rows, level),
    )


def _value_reliability(rows: StoredRows, level: float) -> Reliability | None:
    """Return how many true values lie below the ends of the intervals, and below the median."""
    sample = propensity_weights(rows)
    if not sample.is_available:
        return None
    labeled = rows.take(sample.rows)
    known, y = StoredValues.of(labeled.probabilities), targets(labeled.answers.tolist())
    stated = np.array([(1 - level) / 2, 0.5, (1 + level) / 2])
    ends = (known.low, known.median, known.high)
    return Reliability.of(stated, [(known.below(y, end), sample.weight) for end in ends])


def _value_window(rows: StoredRows, policy: RegressionPolicy) -> ValueWindow:
    """Return the metrics of some rows with decided values."""
    sample = propensity_weights(rows)
    names = ("coverage", "bias", "interval_score", "cost")
    found = _unavailable(sample, *names)
    if sample.is_available:
        labeled = rows.take(sample.rows)
        known, y = StoredValues.of(labeled.probabilities), targets(labeled.answers.tolist())
        paid = policy.costs.of_errors(known.value - y)
        if policy.review_cost is not None:
            paid = np.where(labeled.action == AUTOMATIC, paid, policy.review_cost)
        scores = interval_scores(y, known.low, known.high, policy.interval.level)
        columns = (known.is_inside(y), known.mean - y, scores, paid)
        for name, values in zip(names, columns, strict=True):
            found[name] = Estimate(None, "Some intervals are infinite.")
            if np.isfinite(values).all():
                found[name] = mean_estimate(values, sample.weight)
    return ValueWindow(
        **_period(rows.created, sample.rows.size),
        note=sample.note,
        **found,
        automatic=fraction_estimate(rows.action == AUTOMATIC),
    )


def monitor_cascade(
    rows: StoredRows,
    cascade: Cascade,
    history: AlarmHistory,
    waiting: Mapping[str, int],
    arrivals: Arrivals,
    since: float,
) -> MonitorReport[CascadeWindow]:
    """Return metrics of the rows that a cascade decided lately, and shifts of those that arrived.

    Shifts are those of P(correct) by the first tier alone, which all rows have: the order in which
    rows are decided depends on it.
    """
    pairs = zip(rows.id.tolist(), rows.created.tolist(), strict=True)
    times = [arrivals.times.get(name, (decided, 0)) for name, decided in pairs]
    order = np.array(sorted(range(len(times)), key=times.__getitem__), np.int64)
    rows, arrived = rows.take(order), np.array([times[k][0] for k in order], np.float64)
    first_confidence = cascade.first_p_correct(arrivals.confidence)
    recent_confidence = first_confidence[arrivals.answered_at >= since]
    sample, is_called = propensity_weights(rows), _is_called(rows, cascade)
    used = sample.rows[is_called[sample.rows]]
    reliability = None
    if sample.is_available and used.size:
        labeled, weight = rows.take(used), sample.weight[is_called[sample.rows]]
        reliability = Reliability.of_bins(_p_correct(labeled), labeled.label == 1.0, weight)
    return MonitorReport(
        overall=_cascade_window(rows, cascade, arrived),
        windows=tuple(
            _cascade_window(rows.take(one), cascade, arrived[one]) for one in window_rows(len(rows))
        ),
        alarms={
            "calibration": _calibration_alarm(history),
            "uncertainty": uncertainty_alarm(1 - first_confidence),
        },
        uncertainty=uncertainty_shift(recent_confidence.astype(np.float32)),
        waiting=dict(waiting),
        delay=rows.delay,
        reliability=reliability,
    )


def _p_correct(rows: StoredRows) -> FloatArray:
    """Return the probability that the last answer of each row is correct."""
    return rows.probabilities.reshape(len(rows), 2)[:, 1].astype(np.float64)


def _paid(rows: StoredRows, models: Sequence[str]) -> FloatArray:
    """Return what the calls of each model cost, NaN where it was not called."""
    columns = rows.columns_of(models)
    return np.array(list(columns.values())).reshape(len(models), len(rows))


def _is_called(rows: StoredRows, cascade: Cascade) -> BoolArray:
    """Return the rows for which a tier was called, so that there is an answer."""
    return np.asarray(~np.isnan(_paid(rows, cascade.tiers)).all(axis=0))


def _is_answered(rows: StoredRows, cascade: Cascade) -> BoolArray:
    """Return the rows that are answered by a model."""
    rejecting = [k for k, one in enumerate(cascade.actions) if one in (ABSTAIN, REVIEW_ACTION)]
    return ~np.isin(rows.action, rejecting)


def _realized_costs(labeled: StoredRows, cascade: Cascade) -> FloatArray:
    """Return the cost of each row: calls, and a wrong answer, a review or no answer.

    The error rate of a person's answer is that of the fit (`review_error_rate`).
    """
    paid = np.nansum(_paid(labeled, cascade.models), axis=0)
    error = np.where(labeled.label == 1, 0.0, cascade.error_cost)
    names = np.array(cascade.actions, dtype=object)[labeled.action]
    review = (cascade.review_cost or 0.0) + cascade.review_error_rate * cascade.error_cost
    rejected = np.where(names == REVIEW_ACTION, review, cascade.abstain_cost or 0.0)
    return np.asarray(paid + np.where(_is_answered(labeled, cascade), error, rejected))


def _cascade_window(rows: StoredRows, cascade: Cascade, arrived: FloatArray) -> CascadeWindow:
    """Return the metrics of some rows, which arrived at these times."""
    sample = propensity_weights(rows)
    is_answered, is_called = _is_answered(rows, cascade), _is_called(rows, cascade)
    found = _unavailable(sample, "cost", "accuracy", "calibration_error")
    found["expected_if_calibrated"] = None
    if sample.is_available:
        labeled, weight = rows.take(sample.rows), sample.weight
        found["cost"] = mean_estimate(_realized_costs(labeled, cascade), weight)
        has_answer = is_answered[sample.rows]
        found["accuracy"] = accuracy_estimate(labeled.label[has_answer] == 1, weight[has_answer])
        used, none = is_called[sample.rows], "No model was called for a row with a label."
        found["calibration_error"] = Estimate(None, none)
        if used.any():
            some = labeled.take(used)
            outputs = TopLabel(_p_correct(some), (some.label == 1).astype(np.float64))
            found |= _calibration(make_batch(None, outputs, caller=CALLER), weight[used])
    counts = np.bincount(rows.action, minlength=len(cascade.actions)).tolist()
    n_tiers, n_calls = len(cascade.tiers), (~np.isnan(_paid(rows, cascade.models))).sum(axis=1)
    return CascadeWindow(
        **_period(arrived, sample.rows.size),
        note=sample.note,
        actions=dict(zip(cascade.actions[n_tiers:], counts[n_tiers:], strict=True)),
        calls=dict(zip(cascade.models, n_calls.tolist(), strict=True)),
        answered=fraction_estimate(is_answered),
        p_correct=float(_p_correct(rows)[is_answered].mean()) if is_answered.any() else None,
        **found,
    )
