"""The results of a regression policy on rows that it was not fitted on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.decide.policy.report import (
    FEW_ROWS,
    LEVEL,
    BaseReport,
    cost_difference,
    field_checks,
    proportion,
)
from dubito.decide.regression.error_costs import ErrorCosts, Regression
from dubito.decide.regression.estimates import minkowski_estimate
from dubito.decide.regression.value_decisions import (
    REASON_TEXTS,
    REASONS,
    RegressionDecisions,
    ValueRule,
)
from dubito.decide.value import MeanInterval
from dubito.errors import BadValueError
from dubito.formatting import decimal, percent, plain, short_percent
from dubito.measure.intervals import Interval
from dubito.measure.regression import central_interval, interval_scores, values_of
from dubito.outputs import Samples
from dubito.serialization.fields import Entry

CURRENT = "the predicted mean"


@final
@dataclass(frozen=True, slots=True, eq=False)
class ValueEvidence:
    """Decided rows that a policy did not learn from."""

    batch: Batch
    raw: Regression
    decisions: RegressionDecisions
    level: float
    evaluation: str
    warnings: tuple[str, ...] = ()

    @property
    def y(self) -> FloatArray:
        """The targets."""
        return values_of(self.batch)

    def by_group(self) -> dict[str, ValueEvidence]:
        """Return the rows of each group that has a known target."""
        names = np.array([] if self.batch.groups is None else [*map(str, self.batch.groups)])
        found = {}
        for name in np.unique(names):
            rows = np.flatnonzero(names == name)
            batch = self.batch.take(rows)
            if batch.labeled_weight.any():
                found[str(name)] = replace(
                    self,
                    batch=batch,
                    raw=self.raw.take(rows),
                    decisions=self.decisions.take(rows),
                )
        return found


@final
@dataclass(frozen=True, slots=True)
class RegressionPolicyReport(BaseReport):
    """Results of a regression policy on rows that it was not fitted on, with 95 % intervals.

    Costs are means per row.

    Attributes
    ----------
    evaluation : str
        How the rows were held out.
    n_rows : int
        Rows with a target and a positive weight.
    cost : Interval
        The realized cost, reviews included.
    expected_cost : float
        The cost that the policy expected.
    gap : Interval
        Expected minus realized cost.
    raw_cost : float
        The cost of optimal decisions, reviews by cost included, with uncalibrated outputs.
    saved : Interval
        What the policy saves over uncalibrated outputs.
    mean_cost : float
        The cost of always deciding the predicted mean (of allowed values the nearest).
    mean_saved : Interval
        What the policy saves over that.
    constant_value, constant_cost : float
        The best constant value in hindsight, and its cost.
    level : float
        The nominal coverage of the prediction intervals.
    coverage : Interval
        The fraction of targets in their prediction interval.
    raw_coverage : float or None
        That of the model's own central intervals; None where its outputs have none of this level.
    mean_width : float or None
        The mean width of the prediction intervals, None where one is infinite.
    interval_score : float or None
        Their mean width plus 2 / (1 - level) times the distance of targets outside (Winkler).
    bias : Interval
        The mean of the calibrated mean minus the target.
    review_rate : Interval
        The fraction of rows that are reviewed.
    reasons : dict
        The fraction of rows by reason.
    notes : tuple of str
        Remarks.
    """

    evaluation: str
    n_rows: int
    cost: Interval
    expected_cost: float
    gap: Interval
    raw_cost: float
    saved: Interval
    mean_cost: float
    mean_saved: Interval
    constant_value: float
    constant_cost: float
    level: float
    coverage: Interval
    raw_coverage: float | None
    mean_width: float | None
    interval_score: float | None
    bias: Interval
    review_rate: Interval
    reasons: dict[str, float]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, evidence: ValueEvidence, rule: ValueRule, seed: int = 0) -> RegressionPolicyReport:
        """Return the figures of decided rows with targets."""
        bootstrap = MeanInterval.of(LEVEL, seed, 1000, "RegressionPolicy.fit")
        decisions, y, weight = evidence.decisions, evidence.y, evidence.batch.labeled_weight
        paid = rule.paid(decisions, y)
        # Without intervals and features there are no other reviews than by cost.
        by_cost = ValueRule(rule.costs, rule.review_cost)
        raw = rule.paid(by_cost.decide(evidence.raw, decisions.low, decisions.high), y)
        by_mean = rule.costs.of_errors(
            _allowed(minkowski_estimate(evidence.raw, 2), rule.costs) - y
        )
        mean = minkowski_estimate(decisions.calibrated, 2)
        columns = [
            paid, decisions.expected_cost - paid, raw - paid, by_mean - paid, mean - y,
        ]  # fmt: skip
        cost, gap, saved, mean_saved, bias = bootstrap.of_columns(
            columns, weight, np.ones(weight.size)
        )
        is_inside = (decisions.low <= y) & (y <= decisions.high)
        width, score = _interval_figures(decisions, y, weight, evidence.level)
        constant = _best_constant(rule.costs, y, weight)
        parts = np.bincount(decisions.reason, weight, len(REASONS)) / weight.sum()
        return cls(
            evaluation=evidence.evaluation,
            n_rows=int(np.count_nonzero(weight)),
            cost=cost,
            expected_cost=float(np.average(decisions.expected_cost, weights=weight)),
            gap=gap,
            raw_cost=float(np.average(raw, weights=weight)),
            saved=saved,
            mean_cost=float(np.average(by_mean, weights=weight)),
            mean_saved=mean_saved,
            constant_value=constant[0],
            constant_cost=constant[1],
            level=evidence.level,
            coverage=proportion(is_inside, weight, weight),
            raw_coverage=_raw_coverage(evidence, weight),
            mean_width=width,
            interval_score=score,
            bias=bias,
            review_rate=proportion(decisions.is_reviewed, weight, weight),
            reasons=dict(zip(REASONS, parts.tolist(), strict=True)),
            notes=evidence.warnings,
        )

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> RegressionPolicyReport:
        if tuple(values["reasons"]) != REASONS:
            raise entry.at("reasons").error(f"must have the keys {REASONS}", "others")
        if not 0 < values["level"] < 1:
            raise entry.at("level").error("between 0 and 1", f"{values['level']}")
        return cls(**values)

    def __str__(self) -> str:
        return "\n".join([*self.lines, *self.notes])

    @property
    def lines(self) -> list[str]:
        """The figures as sentences."""
        lines = [
            f"Mean cost per row: {self.cost}, {cost_difference(self.mean_saved, CURRENT)}.",
            f"Expected according to the model: {decimal(self.expected_cost)}. Baselines: "
            f"{decimal(self.mean_cost)} with {CURRENT}, {decimal(self.raw_cost)} with optimal "
            f"decisions on uncalibrated outputs, {decimal(self.constant_cost)} with always "
            f"{plain(self.constant_value)}.",
        ]
        if self.review_rate.value:
            rate = self.review_rate
            parts = [
                f"{text} ({percent(self.reasons[name])})"
                for name, text in zip(REASONS[1:], REASON_TEXTS[1:], strict=True)
                if self.reasons[name]
            ]
            between = f"{percent(rate.low)} to {percent(rate.high)}"
            lines.append(
                f"Reviewed: {percent(rate.value)} of rows ({between}). Reasons: {', '.join(parts)}."
            )
        between = f"{percent(self.coverage.low)} to {percent(self.coverage.high)}"
        text = f"{short_percent(self.level)} prediction intervals cover "
        text += f"{percent(self.coverage.value)} of targets ({between})"
        if self.raw_coverage is not None:
            text += f", the model's own {percent(self.raw_coverage)}"
        if self.mean_width is not None:
            text += f"; their mean width is {plain(self.mean_width)}"
        lines.append(f"{text}.")
        lines.append(f"Bias of the calibrated mean: {self.bias:+}.")
        few = " Too few rows for reliable costs." if self.n_rows < FEW_ROWS else ""
        rows_used = f"{self.n_rows:,} rows, {self.evaluation}; 95 % intervals in parentheses."
        return [*lines, f"{rows_used}{few}"]


RegressionPolicyReport.fields = field_checks(RegressionPolicyReport)


def _best_constant(costs: ErrorCosts, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Return the best constant value for some targets, and its mean cost.

    Of more than 2,000 targets, 2,000 of their quantiles stand for them.
    """
    used, parts = y[weight > 0], weight[weight > 0]
    order = np.argsort(used, kind="stable")
    ends = np.cumsum(parts[order]) / parts.sum()
    n_points = min(used.size, 2000) if np.all(parts == parts[0]) else 2000
    at = (np.arange(n_points) + 0.5) / n_points
    points = used[order][np.minimum(np.searchsorted(ends, at), used.size - 1)]
    [value] = costs.best(Samples(points[np.newaxis])).value.tolist()
    return value, float(np.average(costs.of_errors(value - y), weights=weight))


def _allowed(points: FloatArray, costs: ErrorCosts) -> FloatArray:
    """Return points, or the nearest of the values that may be decided."""
    if costs.values is None:
        return points
    values = np.array(costs.values)
    return np.asarray(values[np.abs(points[:, np.newaxis] - values).argmin(axis=1)])


def _interval_figures(
    decisions: RegressionDecisions, y: FloatArray, weight: FloatArray, level: float
) -> tuple[float | None, float | None]:
    """Return the mean width and interval score, None where intervals are infinite."""
    with np.errstate(over="ignore"):
        width = decisions.high - decisions.low
        scores = interval_scores(y, decisions.low, decisions.high, level)
    if not np.isfinite(scores).all():
        return None, None
    return float(np.average(width, weights=weight)), float(np.average(scores, weights=weight))


def _raw_coverage(evidence: ValueEvidence, weight: FloatArray) -> float | None:
    """Return the coverage of the model's own intervals, None where it has none."""
    try:
        low, high = central_interval(evidence.raw, evidence.level, "RegressionPolicy.fit")
    except BadValueError:
        return None
    y = evidence.y
    return float(np.average((low <= y) & (y <= high), weights=weight))
