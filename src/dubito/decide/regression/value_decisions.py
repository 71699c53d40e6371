"""From calibrated predictive distributions to decided values and reviews."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import ArrayResult, BoolArray, FloatArray, IntArray
from dubito.decide.regression.error_costs import ErrorCosts, Regression
from dubito.decide.regression.estimates import minimum_expected_loss, minkowski_estimate
from dubito.formatting import percent, quantity
from dubito.measure.regression import point_of_rows
from dubito.outputs import Normal, unchecked

ACTIONS = ("automatic", "review")
AUTOMATIC, REVIEW = range(2)
REASONS = ("lowest_expected_cost", "review_costs_less", "interval_too_wide", "out_of_distribution")
LOWEST_COST, REVIEW_COSTS_LESS, TOO_WIDE, OUT_OF_DISTRIBUTION = range(4)
REASON_TEXTS = (  # in the order of REASONS
    "lowest expected cost",
    "a review costs less",
    "interval too wide",
    "out-of-distribution input",
)
TIE = 1e-9  # relative: at equal cost a row is reviewed


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RegressionDecisions(ArrayResult):
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

    def __len__(self) -> int:
        return self.action.size

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions."""
        return ACTIONS

    @property
    def is_reviewed(self) -> BoolArray:
        """Which rows are reviewed."""
        return np.asarray(self.action == REVIEW)

    @property
    def review_order(self) -> IntArray:
        """Indices of the reviewed rows, those with the highest review value first."""
        rows = np.flatnonzero(self.is_reviewed)
        return np.asarray(rows[np.argsort(-self.review_value[rows], kind="stable")])

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the decisions as the columns of a table, with names instead of indices."""
        return {
            "action": np.array(ACTIONS)[self.action],
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "expected_cost": self.expected_cost,
            "reason": np.array(REASONS)[self.reason],
            "review_value": self.review_value,
        }

    def take(self, rows: IntArray) -> RegressionDecisions:
        """Return the decisions on some rows."""
        arrays = {one.name: getattr(self, one.name)[rows] for one in fields(self)[:-1]}
        return RegressionDecisions(**arrays, calibrated=self.calibrated.take(rows))

    def __str__(self) -> str:
        n_reviewed = int(self.is_reviewed.sum())
        text = f"{quantity(len(self))}: {percent(1 - n_reviewed / max(len(self), 1))} automatic"
        if not n_reviewed:
            return f"{text}."
        counts = np.bincount(self.reason, minlength=len(REASONS))
        whys = [f"{REASON_TEXTS[k]} {counts[k]:,}" for k in range(1, len(REASONS)) if counts[k]]
        return f"{text}, {n_reviewed:,} reviewed. Reasons for reviews: {', '.join(whys)}."

    @classmethod
    def joined(cls, parts: list[RegressionDecisions]) -> RegressionDecisions:
        """Return the decisions of several blocks of rows as one."""
        first = parts[0]
        if len(parts) == 1:
            return first
        names = [one.name for one in fields(cls)][:-1]
        arrays = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
        return cls(**arrays, calibrated=_joined([one.calibrated for one in parts]))


def _joined(parts: list[Regression]) -> Regression:
    """Return the outputs of several blocks of rows as one.

    Folds may choose different calibrators: of outputs of different kinds, it is the normal
    distributions of their means and variances.
    """
    if len({type(one) for one in parts}) > 1:
        parts = [_moment_matched(one) for one in parts]
    first = parts[0]
    names = ("mean", "std") if isinstance(first, Normal) else ("array",)
    arrays = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
    others = {one.name: getattr(first, one.name) for one in fields(first) if one.name not in arrays}
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
        return (
            cost
            if self.review_cost is None
            else np.where(decisions.is_reviewed, self.review_cost, cost)
        )
