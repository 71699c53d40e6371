"""Decided values and reviews from predictive distributions, and their results on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, cast, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.data.batch import Batch
from dubito.decide.policy.decide import BaseDecisions, reason_counts
from dubito.decide.policy.report import (
    UNCALIBRATED,
    BaseCostReport,
    BaseEvidence,
    Baseline,
    cost_difference,
    cost_figures,
    percents,
    proportion,
)
from dubito.decide.regression.error_costs import ErrorCosts, Regression
from dubito.decide.regression.estimates import minimum_expected_loss, minkowski_estimate
from dubito.decide.value import mean_of, weight_fractions
from dubito.errors import BadValueError
from dubito.formatting import decimal, join_words, percent, plain, quantity, short_percent
from dubito.measure.intervals import Interval
from dubito.measure.regression import central_interval, interval_scores, point_of_rows, values_of
from dubito.outputs import Normal, Samples, unchecked
from dubito.serialization.fields import Entry
from dubito.serialization.objects import stores_fields

ACTIONS = ("automatic", "review")
AUTOMATIC, REVIEW = range(2)
REASONS = ("lowest_expected_cost", "review_costs_less", "interval_too_wide", "out_of_distribution")
LOWEST_COST, REVIEW_COSTS_LESS, TOO_WIDE, OUT_OF_DISTRIBUTION = range(4)
REASON_TEXTS = (  # in the order of REASONS
    "lowest expected cost",
    "lower cost",
    "interval too wide",
    "out-of-distribution input",
)
TIE = 1e-9  # relative: at equal cost a row is reviewed


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RegressionDecisions(BaseDecisions):
    """The value that is decided for each row, or that it is reviewed by a person, and why.

    Returned by `RegressionPolicy.decide`. All arrays have one entry per row.

    Attributes
    ----------
    action : array of int
        Index into `actions`: 0 "automatic", 1 "review".
    value : array of float
        The value of lowest expected cost; for a reviewed row, what would be decided otherwise.
    low, high : array of float
        The prediction interval; infinite if there were too few rows to fit one.
    expected_cost : array of float
        The expected cost of the action.
    reason : array of int
        Index into `REASONS`: "lowest_expected_cost", "review_costs_less", "interval_too_wide" or
        "out_of_distribution".
    review_value : array of float
        The expected cost that knowing the truth saves over the value, the cost of the review not
        subtracted; of an out-of-distribution row that of the best constant value. It is 0 for rows
        that are not reviewed.
    calibrated : Normal, Samples or Quantiles
        The calibrated outputs that were decided on.
    """

    action: IntArray
    value: FloatArray
    low: FloatArray
    high: FloatArray
    expected_cost: FloatArray
    reason: IntArray
    review_value: FloatArray
    calibrated: Regression

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions."""
        return ACTIONS

    @property
    def is_reviewed(self) -> BoolArray:
        """Which rows are reviewed."""
        return np.asarray(self.action == REVIEW)

    @property
    def _is_for_review(self) -> BoolArray:
        return self.is_reviewed

    @property
    def _columns(self) -> dict[str, Any]:
        return {
            "action": (self.action, ACTIONS),
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "expected_cost": self.expected_cost,
            "reason": (self.reason, REASONS),
            "review_value": self.review_value,
        }

    def __str__(self) -> str:
        n_reviewed = int(self.is_reviewed.sum())
        text = f"{quantity(len(self))}: {percent(1 - n_reviewed / max(len(self), 1))} automatic"
        if not n_reviewed:
            return f"{text}."
        reasons = reason_counts(self.reason, REASON_TEXTS)
        return f"{text}, {n_reviewed:,} reviewed. Reasons for reviews: {reasons}."

    @classmethod
    def _joined(cls, name: str, values: list[Any]) -> Any:
        # Folds may choose different calibrators: of outputs of different kinds, it is the normal
        # distributions of their means and variances.
        if len({type(one) for one in values}) > 1:
            values = [_moment_matched(one) for one in values]
        first = values[0]
        names = ("mean", "std") if isinstance(first, Normal) else ("array",)
        arrays = {name: np.concatenate([getattr(one, name) for one in values]) for name in names}
        others = {one.name: getattr(first, one.name) for one in fields(first)}
        return unchecked(type(first), {**others, **arrays})


def _moment_matched(outputs: Regression) -> Regression:
    """Return normal distributions of the same means and variances."""
    variance = np.maximum(minimum_expected_loss(outputs, 2), np.finfo(np.float64).tiny)
    return Normal(minkowski_estimate(outputs, 2), np.sqrt(variance))


@final
@dataclass(frozen=True, slots=True, eq=False)
class ValueRule:
    """What turns calibrated outputs and intervals into decided values and reviews."""

    costs: ErrorCosts
    review_cost: float | None = None
    max_width: float | None = None
    max_relative_width: float | None = None
    constant_cost: float = 0.0  # of the best constant value

    def decide(
        self,
        calibrated: Regression,
        low: FloatArray,
        high: FloatArray,
        is_ood: BoolArray | None = None,
    ) -> RegressionDecisions:
        """Decide rows by their calibrated outputs and prediction intervals."""
        value, cost = self.costs.best(calibrated)
        reason = np.zeros(value.size, np.int64)
        expected, saved = cost.copy(), cost - self.costs.lowest
        if self.review_cost is not None:
            reason[cost >= self.review_cost * (1 - TIE)] = REVIEW_COSTS_LESS
            reason[(reason == LOWEST_COST) & self._is_wide(calibrated, low, high)] = TOO_WIDE
            if is_ood is not None:
                reason[is_ood] = OUT_OF_DISTRIBUTION
                saved[is_ood] = self.constant_cost - self.costs.lowest
            expected[reason != LOWEST_COST] = self.review_cost
        is_reviewed = reason != LOWEST_COST
        return RegressionDecisions(
            action=is_reviewed.astype(np.int64),
            value=value,
            low=low,
            high=high,
            expected_cost=expected,
            reason=reason,
            review_value=np.where(is_reviewed, np.maximum(saved, 0.0), 0.0),
            calibrated=calibrated,
        )

    def _is_wide(self, calibrated: Regression, low: FloatArray, high: FloatArray) -> BoolArray:
        """Return which intervals are wider than allowed."""
        with np.errstate(over="ignore"):
            width = high - low
        result = np.zeros(width.size, np.bool_)
        if self.max_width is not None:
            result |= width > self.max_width
        if self.max_relative_width is not None:
            size = np.abs(point_of_rows(calibrated).astype(np.float64))
            result |= width > self.max_relative_width * size
        return result

    def paid(self, decisions: RegressionDecisions, y: FloatArray) -> FloatArray:
        """Return the realized cost of each row, reviews included."""
        cost = self.costs.of_errors(decisions.value - y)
        if self.review_cost is None:
            return cost
        return np.where(decisions.is_reviewed, self.review_cost, cost)


CURRENT = "deciding the predicted mean"


@final
@dataclass(frozen=True, slots=True, eq=False)
class ValueEvidence(BaseEvidence):
    """Decided rows that a policy did not learn from."""

    batch: Batch
    decisions: RegressionDecisions
    level: float
    evaluation: str
    warnings: tuple[str, ...] = ()

    @property
    def uncalibrated(self) -> Regression:
        """The uncalibrated outputs."""
        return cast(Regression, self.batch.outputs)

    @property
    def y(self) -> FloatArray:
        """The targets."""
        return values_of(self.batch)


@final
@stores_fields
@dataclass(frozen=True, slots=True)
class RegressionPolicyReport(BaseCostReport):
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
    uncalibrated_cost : float
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
    uncalibrated_coverage : float or None
        That of the model's own central intervals; None where its outputs have none of this level.
    mean_width : float or None
        The mean width of the prediction intervals, None where one is infinite.
    interval_score : float or None
        Their mean width plus 2 / (1 - level) times the distance of targets outside (Winkler).
    bias : Interval
        The predicted mean, after calibration if there is any, minus the target, on average.
    review_rate : Interval
        The fraction of rows that are reviewed.
    reasons : dict
        The fraction of rows by reason.
    notes : tuple of str
        Remarks.
    """

    mean_cost: float
    mean_saved: Interval
    constant_value: float
    constant_cost: float
    level: float
    coverage: Interval
    uncalibrated_coverage: float | None
    mean_width: float | None
    interval_score: float | None
    bias: Interval
    review_rate: Interval
    reasons: dict[str, float]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, evidence: ValueEvidence, rule: ValueRule, seed: int = 0) -> RegressionPolicyReport:
        """Return the figures of decided rows with targets.

        Parameters
        ----------
        evidence : ValueEvidence
            Held-out rows, their targets and decisions.
        rule : ValueRule
            Costs and limits.
        seed : int, default 0
            Seed of the bootstrap.

        Returns
        -------
        RegressionPolicyReport
            Costs, coverage and reviews with intervals.
        """
        decisions, y, weight = evidence.decisions, evidence.y, evidence.batch.labeled_weight
        paid = rule.paid(decisions, y)
        # Without intervals and features there are no other reviews than by cost.
        by_cost = ValueRule(rule.costs, rule.review_cost)
        uncalibrated = rule.paid(
            by_cost.decide(evidence.uncalibrated, decisions.low, decisions.high), y
        )
        uncalibrated_mean = _allowed(minkowski_estimate(evidence.uncalibrated, 2), rule.costs)
        by_mean = rule.costs.of_errors(uncalibrated_mean - y)
        mean = minkowski_estimate(decisions.calibrated, 2)
        costs, others = [paid, decisions.expected_cost, uncalibrated], [by_mean - paid, mean - y]
        figures, (mean_saved, bias) = cost_figures(evidence, weight, costs, others, seed)
        is_inside = (decisions.low <= y) & (y <= decisions.high)
        width, score = _interval_figures(decisions, y, weight, evidence.level)
        constant = _best_constant(rule.costs, y, weight)
        return cls(
            **figures,
            mean_cost=mean_of(by_mean, weight),
            mean_saved=mean_saved,
            constant_value=constant[0],
            constant_cost=constant[1],
            level=evidence.level,
            coverage=proportion(is_inside, weight, weight),
            uncalibrated_coverage=_uncalibrated_coverage(evidence, weight),
            mean_width=width,
            interval_score=score,
            bias=bias,
            review_rate=proportion(decisions.is_reviewed, weight, weight),
            reasons=weight_fractions(decisions.reason, REASONS, weight),
            notes=evidence.warnings,
        )

    @property
    def better_baselines(self) -> tuple[str, ...]:
        """A sentence on baselines that cost less than the policy, beyond chance.

        None where rows are reviewed for other reasons than their costs.
        """
        if self.reasons[REASONS[TOO_WIDE]] or self.reasons[REASONS[OUT_OF_DISTRIBUTION]]:
            return ()
        found = []
        if self.mean_saved.high < 0:
            found.append(f"{CURRENT} costs {decimal(self.mean_cost)}")
        if self.constant_cost < self.cost.low:
            value = plain(self.constant_value)
            found.append(f"always deciding {value} costs {decimal(self.constant_cost)}")
        if not found:
            return ()
        less = f"The policy costs {decimal(self.cost.value)} per row, but {join_words(found)}."
        return (f"{less} The predictions do not fit these targets: audit them first.",)

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> RegressionPolicyReport:
        if tuple(values["reasons"]) != REASONS:
            raise entry.at("reasons").error(f"must have the keys {REASONS}", "others")
        if not 0 < values["level"] < 1:
            raise entry.at("level").error("between 0 and 1", f"{values['level']}")
        return cls(**values)

    @property
    def _baselines(self) -> list[Baseline]:
        return [
            (CURRENT, self.mean_cost, self.mean_saved),
            (UNCALIBRATED, self.uncalibrated_cost, None),
            (f"always {plain(self.constant_value)}", self.constant_cost, None),
        ]

    @property
    def lines(self) -> list[str]:
        """The figures as sentences."""
        lines = [
            f"Mean cost per row: {self.cost}, {cost_difference(self.mean_saved, CURRENT)}.",
            self._expected_line(
                f"{decimal(self.mean_cost)} with the predicted mean",
                f"{decimal(self.uncalibrated_cost)} with {UNCALIBRATED}",
                f"{decimal(self.constant_cost)} with the constant {plain(self.constant_value)}",
            ),
        ]
        if self.review_rate.value:
            parts = [
                f"{text} ({percent(self.reasons[name])})"
                for name, text in zip(REASONS[1:], REASON_TEXTS[1:], strict=True)
                if self.reasons[name]
            ]
            rate = percents(self.review_rate, "of rows")
            lines.append(f"Reviewed: {rate}. Reasons: {', '.join(parts)}.")
        text = f"{short_percent(self.level)} prediction intervals cover "
        text += percents(self.coverage, "of targets")
        if self.uncalibrated_coverage is not None:
            text += f", the model's own {percent(self.uncalibrated_coverage)}"
        if self.mean_width is not None:
            text += f"; their mean width is {plain(self.mean_width)}"
        return [*lines, f"{text}.", f"Bias of the predicted mean: {self.bias:+}.", self._rows_line]


def _best_constant(costs: ErrorCosts, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Return the best constant value for some targets, and its mean cost.

    More than 2,000 targets are replaced by 2,000 of their quantiles.
    """
    used, parts = y[weight > 0], weight[weight > 0]
    order = np.argsort(used, kind="stable")
    ends = np.cumsum(parts[order]) / parts.sum()
    n_points = min(used.size, 2000) if np.all(parts == parts[0]) else 2000
    at = (np.arange(n_points) + 0.5) / n_points
    points = used[order][np.minimum(np.searchsorted(ends, at), used.size - 1)]
    [value] = costs.best(Samples(points[np.newaxis])).value.tolist()
    return value, mean_of(costs.of_errors(value - y), weight)


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
    return mean_of(width, weight), mean_of(scores, weight)


def _uncalibrated_coverage(evidence: ValueEvidence, weight: FloatArray) -> float | None:
    """Return the coverage of the model's own intervals, None where it has none."""
    try:
        low, high = central_interval(evidence.uncalibrated, evidence.level, "RegressionPolicy.fit")
    except BadValueError:
        return None
    y = evidence.y
    return mean_of((low <= y) & (y <= high), weight)
