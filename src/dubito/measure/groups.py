"""Groups compared: rates, calibration and cost, with intervals that hold for all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Protocol, Self, final

import numpy as np

from dubito.arrays import FloatArray, dot
from dubito.data.batch import Batch
from dubito.measure.binary import (
    LEVEL,
    THRESHOLD,
    BinaryAudit,
    Confusion,
    Z,
    error_draws,
    error_interval,
    log_odds_interval,
    positive_rows,
)
from dubito.measure.intervals import Interval, ends_of
from dubito.measure.state import WEIGHT, State, require_weight
from dubito.serialization.objects import stores_fields

if TYPE_CHECKING:
    from dubito.measure.audit import Audit

MIN_ROWS = 20  # below, there is no verdict, and a group is not compared
MIN_EVENTS = 20  # below, the distribution of a gap is that of the rarer outcome
ECE, IF_CALIBRATED = "expected_calibration_error", "expected_if_calibrated"
TITLES = {
    "accuracy": "accuracy",
    "base_rate": "base rate",
    "selection_rate": "selection rate",
    "false_positive_rate": "false positive rate",
    "false_negative_rate": "false negative rate",
    "precision": "precision",
    "gap": "gap",
    "positive_gap": "calibration gap",
    ECE: "ECE",
    f"positive_{ECE}": "ECE",
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "mean_cost": "cost per row",
}
AREAS = ("roc_auc", "average_precision")  # they and costs are not shown in percent
_Estimate = Callable[[float], Interval]  # the interval of a figure at a level


class DecidesRows(Protocol):
    """An object that decides rows, such as a `CostMatrix`."""

    def decide_rows(self, batch: Batch, pos_column: int | None) -> tuple[FloatArray, FloatArray]:
        """Return whether each row's action is that of the positive class, and its realized cost."""
        ...


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class DecisionState(State):
    """Sums over the probabilities, outcomes and decisions of rows, and over their costs.

    The outcome is the positive class and its probability, or whether the top label is correct and
    its confidence.
    """

    weight: Annotated[float, WEIGHT]
    probability: Annotated[float, WEIGHT]
    outcome: Annotated[float, WEIGHT]
    # of probability minus outcome: the Brier score of two classes
    square: Annotated[float, WEIGHT]
    selected: Annotated[float, WEIGHT]
    # selected, with the outcome
    hit: Annotated[float, WEIGHT]
    cost: float
    cost_square: Annotated[float, WEIGHT]

    @classmethod
    def of(
        cls,
        batch: Batch,
        pos_column: int | None = None,
        *,
        threshold: float = THRESHOLD,
        costs: DecidesRows | None = None,
    ) -> Self:
        weight, rows = batch.labeled_weight, batch.rows
        p: FloatArray = rows.confidence.astype(np.float64)
        y = rows.correct
        if pos_column is not None:
            p, y = positive_rows(batch, pos_column)
        is_selected: FloatArray = (p >= threshold) * 1.0
        cost: FloatArray = np.zeros(p.size)
        if costs is not None:
            is_selected, cost = costs.decide_rows(batch, pos_column)
        square = y * (1 - p) ** 2 + (1 - y) * p**2
        columns = (np.ones(p.size), p, y, square, is_selected, is_selected * y, cost, cost**2)
        # Rows without a label have no outcome and no weight.
        is_labeled = weight > 0
        return cls(*(dot(weight[is_labeled], column[is_labeled]) for column in columns))

    @property
    def value(self) -> Self:
        """The state itself; raises for no rows."""
        require_weight(self.weight, "A comparison of groups")
        return self

    def confusion(self, threshold: float | None) -> Confusion:
        """Return the outcomes of the decisions."""
        missed = self.outcome - self.hit
        rejected = self.weight - self.selected - missed
        return Confusion(threshold, self.hit, self.selected - self.hit, missed, rejected)

    @property
    def mean_cost(self) -> float:
        """The mean realized cost per row."""
        return self.cost / self.weight

    def cost_interval(self, level: float) -> Interval:
        """Return the mean realized cost with Student's interval."""
        return _student(self.mean_cost, self.cost_square / self.weight, self.weight, level)


@final
@dataclass(frozen=True, slots=True)
class Disparity:
    """The largest difference of a figure between two groups.

    Attributes
    ----------
    highest, lowest : str
        The groups with the highest and the lowest value.
    interval : Interval
        Their difference, with an interval that holds for all pairs of groups at once.
    """

    highest: str
    lowest: str
    interval: Interval


@final
@dataclass(frozen=True, slots=True)
class GroupComparison:
    """Metrics of all groups with simultaneous intervals, and their largest differences.

    `Audit.group_comparison` of an audit with groups. With probability `level`, all intervals of one
    metric hold at once.

    Attributes
    ----------
    metrics : dict of str to dict
        The interval of each metric, by group. For two classes these are base rate, selection rate,
        false positive and false negative rate, precision, calibration gap (mean probability minus
        base rate), calibration error, ROC-AUC and average precision of the positive class;
        otherwise accuracy, gap (confidence minus accuracy) and calibration error. With costs, the
        mean realized cost.
    disparities : dict of str to Disparity
        The largest difference between two groups, by metric.
    too_few_rows : tuple of str
        Groups of fewer than 20 rows, which are not compared.
    level : float
        The level of the intervals of one metric, together.

    Notes
    -----
    Groups are independent, so that each interval has level 0.95^(1 / n_groups) (Šidák). Rates have
    Clopper-Pearson intervals, gaps and costs Student's (of fewer than 20 positives or negatives,
    the exact interval of the rate around the mean probability), ROC-AUC and average precision
    normal ones on the scale of log odds, calibration errors a bootstrap (with a lower end of 0
    where a calibrated model may show as much).
    Differences combine the intervals of both groups (MOVER), adjusted for all pairs (Bonferroni).

    References
    ----------
    Šidák, "Rectangular confidence regions for the means of multivariate normal distributions",
    Journal of the American Statistical Association, 1967.
    Zou and Donner, "Construction of confidence limits about effect measures: a general approach",
    Statistics in Medicine, 2008.
    Hardt, Price and Srebro, "Equality of opportunity in supervised learning", NeurIPS, 2016.

    Examples
    --------
    >>> from dubito import audit
    >>> report = audit([0, 1] * 50, [0.25, 0.75] * 50, groups=["a", "b"] * 50)
    >>> disparity = report.group_comparison.disparities["selection_rate"]
    >>> disparity.highest, disparity.lowest, disparity.interval.value
    ('b', 'a', 1.0)
    """

    metrics: dict[str, dict[str, Interval]]
    disparities: dict[str, Disparity]
    too_few_rows: tuple[str, ...] = ()
    level: float = LEVEL

    @classmethod
    def of(
        cls,
        audits: Mapping[str, Audit],
        sums: Mapping[str, DecisionState],
        draws: Mapping[str, Mapping[str, list[float]]],
        *,
        has_costs: bool = False,
        seed: int = 0,
    ) -> GroupComparison:
        """Compare audited groups; `draws` are bootstrap resamples of their metrics, if any.

        Parameters
        ----------
        audits : dict of str to Audit
            The audit of each group.
        sums : dict of str to DecisionState
            The decisions of each group. Groups with too few rows are left out.
        draws : dict of str to dict
            Resampled values by group and metric.
        has_costs : bool, default=False
            Whether costs are compared as well.
        seed : int, default=0
            Seed of the resamples that are drawn here.

        Returns
        -------
        GroupComparison
            Rates with simultaneous intervals, and the largest differences.
        """

        def estimate(name: str) -> dict[str, _Estimate]:
            return _estimates(audits[name], sums[name], draws.get(name, {}), has_costs, seed)

        return cls._compared(sums, estimate, LEVEL)

    @classmethod
    def of_positive(
        cls,
        audits: Mapping[str, BinaryAudit],
        sums: Mapping[str, DecisionState],
        *,
        n_resamples: int,
        seed: int = 0,
        level: float = LEVEL,
    ) -> GroupComparison:
        """Compare groups by the probability of a positive class alone.

        Parameters
        ----------
        audits : dict of str to BinaryAudit
            The audit of each group.
        sums : dict of str to DecisionState
            The decisions of each group. Groups with too few rows are left out.
        n_resamples : int
            Number of bootstrap resamples.
        seed : int, default=0
            Seed of the resamples.
        level : float, default=0.95
            The simultaneous confidence level.

        Returns
        -------
        GroupComparison
            Rates with simultaneous intervals, and the largest differences.
        """

        def estimate(name: str) -> dict[str, _Estimate]:
            return _positive_estimates(audits[name], sums[name], n_resamples, seed)

        return cls._compared(sums, estimate, level)

    @classmethod
    def _compared(
        cls,
        sums: Mapping[str, DecisionState],
        estimate: Callable[[str], dict[str, _Estimate]],
        level: float,
    ) -> GroupComparison:
        """Compare the groups of enough rows by the estimates of their metrics."""
        estimates = {name: estimate(name) for name, one in sums.items() if one.weight >= MIN_ROWS}
        at_once = level ** (1 / max(len(estimates), 1))
        metrics = {
            name: {metric: interval(at_once) for metric, interval in one.items()}
            for name, one in estimates.items()
        }
        disparities = {}
        for metric in TITLES:
            known = {name: one[metric] for name, one in estimates.items() if metric in one}
            if len(known) > 1:
                disparities[metric] = _largest_difference(known, level)
        too_few = tuple(name for name in sums if name not in estimates)
        return cls(metrics, disparities, too_few, level)

    @property
    def numbers(self) -> dict[str, float]:
        """The ends of all intervals, and the differences, in a flat dictionary."""
        found: dict[str, float] = {}
        for group, metrics in self.metrics.items():
            found |= ends_of(metrics, f"group.{group}.")
        for name, one in self.disparities.items():
            found[f"disparity.{name}"] = one.interval.value
            found |= ends_of({name: one.interval}, "disparity.")
        return found


def _estimates(
    audit: Audit,
    sums: DecisionState,
    draws: Mapping[str, list[float]],
    has_costs: bool,
    seed: int,
) -> dict[str, _Estimate]:
    """Return the metrics of a group as functions from a level to an interval."""
    if audit.positive is not None:
        n_resamples = max(map(len, draws.values()), default=0)
        found = _positive_estimates(audit.positive, sums, n_resamples, seed)
    else:
        accuracy = partial(clopper_pearson, sums.outcome, sums.weight)
        found = {"accuracy": accuracy, "gap": partial(_gap, sums)}
        if ECE in draws:
            drawn = (np.asarray(draws[ECE]), np.asarray(draws[IF_CALIBRATED]))
            found[ECE] = partial(error_interval, audit.expected_calibration_error, *drawn)
    if has_costs:
        found["mean_cost"] = sums.cost_interval
    return found


def _positive_estimates(
    positive: BinaryAudit, sums: DecisionState, n_resamples: int, seed: int
) -> dict[str, _Estimate]:
    """Return the metrics of the positive class in a group, as functions of the level."""
    rates = {
        "base_rate": (sums.outcome, sums.weight),
        "selection_rate": (sums.selected, sums.weight),
        "false_positive_rate": (sums.selected - sums.hit, sums.weight - sums.outcome),
        "false_negative_rate": (sums.outcome - sums.hit, sums.outcome),
        "precision": (sums.hit, sums.selected),
    }
    found: dict[str, _Estimate] = {
        name: partial(clopper_pearson, *pair) for name, pair in rates.items() if pair[1] > 0
    }
    found["positive_gap"] = partial(_gap, sums)
    if n_resamples:
        drawn = error_draws(positive.ranked, positive.curve.edges, n_resamples, seed)
        error = positive.expected_calibration_error
        found[f"positive_{ECE}"] = partial(error_interval, error, *drawn)
    areas = {name: positive.intervals[name] for name in AREAS if name in positive.intervals}
    return found | {name: partial(_rescaled, one) for name, one in areas.items()}


def _largest_difference(known: Mapping[str, _Estimate], level: float) -> Disparity:
    """Return the largest difference, with an interval that holds for all pairs at once."""
    n_pairs = len(known) * (len(known) - 1) // 2
    level = 1 - (1 - level) / n_pairs
    intervals = {name: estimate(level) for name, estimate in known.items()}
    highest = max(intervals, key=lambda name: intervals[name].value)
    lowest = min((name for name in intervals if name != highest), key=lambda n: intervals[n].value)
    a, b = intervals[highest], intervals[lowest]
    value = a.value - b.value
    low = value - float(np.hypot(a.value - a.low, b.high - b.value))
    high = value + float(np.hypot(a.high - a.value, b.value - b.low))
    return Disparity(highest, lowest, Interval(value, low, high))


def clopper_pearson(part: float, whole: float, level: float) -> Interval:
    """Return a proportion with its exact interval.

    >>> print(clopper_pearson(0, 10, 0.95))
    0.0000 (0.0000 to 0.3085)
    """
    from scipy.special import betaincinv  # not needed by audits without groups

    tail, rest = (1 - level) / 2, max(whole - part, 0.0)
    low = betaincinv(part, rest + 1, tail) if part > 0 else 0.0
    high = betaincinv(part + 1, rest, 1 - tail) if rest > 0 else 1.0
    return Interval(part / whole, float(low), float(high))


def _student(mean: float, mean_square: float, n: float, level: float) -> Interval:
    """Return a mean with Student's interval."""
    from scipy.special import stdtrit

    variance = max(mean_square - mean**2, 0.0) / max(n - 1, 1.0)
    margin = float(stdtrit(max(n - 1, 1.0), (1 + level) / 2) * np.sqrt(variance))
    return Interval(mean, mean - margin, mean + margin)


def _gap(sums: DecisionState, level: float) -> Interval:
    """Return the mean probability minus the frequency of the outcome."""
    mean, n = sums.probability / sums.weight, sums.weight
    if min(sums.outcome, n - sums.outcome) < MIN_EVENTS:
        rate = clopper_pearson(sums.outcome, n, level)
        return Interval(mean - rate.value, mean - rate.high, mean - rate.low)
    return _student(mean - sums.outcome / n, sums.square / n, n, level)


def _rescaled(interval: Interval, level: float) -> Interval:
    """Return a 95 % interval that is normal on the scale of log odds, at another level."""
    if not 0 < interval.value < 1:
        return interval
    ratio = NormalDist().inv_cdf((1 + level) / 2) / Z
    value, high = (np.log(one / (1 - one)) for one in (interval.value, interval.high))
    return log_odds_interval(interval.value, ratio * (high - value))
