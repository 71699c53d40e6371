"""The value of decisions: their cost against constant actions and perfect information."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray, RandomState, as_fraction, draw_seed
from dubito.calibrate.calibrator import as_class_outputs
from dubito.data.argument_order import convert_in_order
from dubito.data.batch import as_weights, make_batch
from dubito.decide.actions import least_costs
from dubito.decide.costs import CostMatrix
from dubito.decide.realized import RealizedCosts, require_weight
from dubito.errors import BadValueError
from dubito.formatting import by_action, decimal, html_view, percent, quantity, short_percent
from dubito.measure.intervals import Interval, as_n_resamples, interval_of, resampled_sums


@final
@dataclass(frozen=True, slots=True)
class CostReport:
    """Mean costs per row: realized, expected, of the best constant action and of an oracle.

    Attributes
    ----------
    realized : Interval
        The realized cost of the decisions.
    expected : float
        The cost that the model expected.
    gap : Interval
        Expected minus realized cost; negative if the model expects too little.
    constant_action : str
        The best single action, chosen on these rows.
    constant : float
        Its cost.
    regret_to_constant : Interval
        Realized cost minus that of the constant action; negative if the decisions are better.
    oracle : float
        The cost with perfect information.
    regret_to_oracle : Interval
        Realized cost minus that of the oracle.
    fractions : dict
        The fraction of rows that each action gets.
    level : float
        The confidence level.
    n_rows, n_missing : int
        Labeled rows with a positive weight, and unlabeled rows.
    """

    realized: Interval
    expected: float
    gap: Interval
    constant_action: str
    constant: float
    regret_to_constant: Interval
    oracle: float
    regret_to_oracle: Interval
    fractions: dict[str, float]
    level: float
    n_rows: int
    n_missing: int

    def _repr_html_(self) -> str:
        return html_view(*str(self).split("\n", 1))

    def __str__(self) -> str:
        taken = by_action({name: percent(part) for name, part in self.fractions.items()})
        left_out = quantity(self.n_missing, "unlabeled row")
        missing = f"; {left_out} left out" if self.n_missing else ""
        return (
            f"Mean cost per row: {self.realized}.\n"
            f"Expected cost according to the model: {decimal(self.expected)}, {self.gap_text}.\n"
            f"Always '{self.constant_action}' would cost {decimal(self.constant)}; these decisions "
            f"are {self.comparison}.\n"
            f"Perfect information would cost {decimal(self.oracle)} "
            f"({decimal(self.regret_to_oracle.value)} less).\n"
            f"Actions: {taken}.\n"
            f"{self.n_rows:,} rows{missing}; {short_percent(self.level)} intervals in parentheses."
        )

    @property
    def gap_text(self) -> str:
        """Whether the model under- or overestimates the cost, if the interval excludes 0."""
        gap = self.gap
        if gap.high < 0:
            return f"an underestimate by {negated(gap)}"
        if gap.low > 0:
            return f"an overestimate by {gap}"
        return f"no significant difference, {gap:+}"

    @property
    def comparison(self) -> str:
        """How much better or worse than the constant action."""
        regret = self.regret_to_constant
        if regret.value > 0:
            return f"worse by {regret}"
        return f"better by {negated(regret)}"


def weight_fractions(
    numbers: IntArray, names: tuple[str, ...], weight: FloatArray
) -> dict[str, float]:
    """Return the fraction of the weight of each name, whose numbers are given by row."""
    parts = np.bincount(numbers, weight, len(names)) / weight.sum()
    return dict(zip(names, parts.tolist(), strict=True))


def mean_of(values: FloatArray | BoolArray, weight: FloatArray) -> float:
    """Return the weighted mean over rows."""
    return float(np.average(values, weights=weight))


def negated(interval: Interval) -> Interval:
    """Return an interval with its sign changed, without a -0."""
    return Interval(0 - interval.value, 0 - interval.high, 0 - interval.low)


def expected_risk(
    outputs: Any,
    costs: CostMatrix | None = None,
    row_costs: Any = None,
    *,
    sample_weight: Any = None,
) -> float:
    """Return the error rate, or the cost, that the outputs themselves predict, without labels.

    It is the mean of 1 - the largest probability, or of the lowest expected cost; it is right only
    if the outputs are calibrated.

    Parameters
    ----------
    outputs : array, Logits, Probabilities or Members
        Calibrated outputs.
    costs : CostMatrix, optional
        Without costs, the expected error rate is returned.
    row_costs : dict, data frame or array, optional
        As for `expected_costs`.
    sample_weight : array, optional
        Weights of the rows.

    Returns
    -------
    float

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5.1.

    Examples
    --------
    >>> from dubito.decide import expected_risk
    >>> expected_risk([[0.75, 0.25], [0.5, 0.5]])
    0.375
    """
    caller = "expected_risk"
    if costs is None:
        if row_costs is not None:
            rule, fix = "must be None without costs", "Pass costs=CostMatrix(...)"
            raise BadValueError("row_costs", caller, rule, type(row_costs).__name__, fix)
        risk = make_batch(None, outputs, caller=caller).rows.least_confidence
    else:
        risk = least_costs(outputs, costs, row_costs).cost
    weight = as_weights(sample_weight, risk.size, caller)
    require_weight(weight, "The expected risk")
    return mean_of(risk, weight)


def cost_report(
    y_true: Any,
    outputs: Any,
    costs: CostMatrix,
    row_costs: Any = None,
    *,
    level: float = 0.95,
    random_state: RandomState = 0,
    n_resamples: int = 1000,
    sample_weight: Any = None,
) -> CostReport:
    """Return the costs of optimal decisions on labeled rows, with bootstrap intervals.

    Use rows that neither the model nor its calibrator was fitted on.

    Parameters
    ----------
    y_true : array
        Labels.
    outputs : array, Logits, Probabilities or Members
        Outputs that the decisions are based on.
    costs : CostMatrix
        The cost of each action in each class.
    row_costs : dict, data frame or array, optional
        As for `expected_costs`.
    level : float, default 0.95
        The confidence level.
    random_state : int, RandomState or None, default 0
        Determines the resamples.
    n_resamples : int, default 1000
        The number of Poisson bootstrap resamples.
    sample_weight : array, optional
        Weights of the rows.

    Returns
    -------
    CostReport

    Examples
    --------
    >>> from dubito import CostMatrix
    >>> from dubito.decide import cost_report
    >>> costs = CostMatrix([[0, 10], [1, 0]], actions=["send home", "treat"])
    >>> report = cost_report([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.95, 0.05]], costs)
    >>> round(report.expected, 3), round(report.realized.value, 3), report.constant_action
    (0.533, 3.667, 'treat')
    """
    caller = "cost_report"
    interval = MeanInterval.of(level, random_state, n_resamples, caller)
    realized_costs = RealizedCosts.of(y_true, outputs, costs, row_costs, sample_weight, caller)
    weight, realized = realized_costs.weight, realized_costs.realized
    expected, oracle = realized_costs.expected, realized_costs.oracle
    constant = realized_costs.by_action[:, realized_costs.best_constant]
    names = realized_costs.costs.actions
    columns = [realized, expected - realized, realized - constant, realized - oracle]
    paid, gap, to_constant, to_oracle = interval.of_columns(columns, weight)
    return CostReport(
        realized=paid,
        expected=mean_of(expected, weight),
        gap=gap,
        constant_action=names[realized_costs.best_constant],
        constant=mean_of(constant, weight),
        regret_to_constant=to_constant,
        oracle=mean_of(oracle, weight),
        regret_to_oracle=to_oracle,
        fractions=weight_fractions(realized_costs.action, names, weight),
        level=interval.level,
        n_rows=int(np.count_nonzero(weight)),
        n_missing=realized_costs.labels.n_missing,
    )


@final
@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A bootstrap of weighted means over rows, with the same resamples in every call."""

    level: float
    seed: int
    n_resamples: int

    @classmethod
    def of(cls, level: Any, random_state: Any, n_resamples: Any, caller: str) -> MeanInterval:
        """Check the settings."""
        confidence = as_fraction(level, "level", caller, is_open=True)
        return cls(confidence, draw_seed(random_state, caller), as_n_resamples(n_resamples, caller))

    def __call__(
        self, values: FloatArray, weight: FloatArray, importance: FloatArray | float = 1.0
    ) -> Interval:
        """Return the mean of one column, or the ratio of the means of two, in size.

        `weight` is how many rows each stands for, `importance` how much each of these counts.
        """
        means, drawn = self._means([*np.reshape(values, (weight.size, -1)).T], weight, importance)
        if means.size == 1:
            return self._interval(float(means[0]), drawn[:, 0])
        require_weight(np.abs(means[1:]), "A ratio")
        first, second = np.abs(drawn[drawn[:, 1] != 0]).T
        return self._interval(float(abs(means[0]) / abs(means[1])), first / second)

    def of_columns(
        self,
        columns: Sequence[FloatArray],
        weight: FloatArray,
        importance: FloatArray | float = 1.0,
    ) -> list[Interval]:
        """Return the mean of each column, as single calls would: resamples are drawn once."""
        means, drawn = self._means(columns, weight, importance)
        return [self._interval(*pair) for pair in zip(means.tolist(), drawn.T, strict=True)]

    def _means(
        self, columns: Sequence[FloatArray], weight: FloatArray, importance: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mean of each column, and those of each resample, resamples x columns."""
        counted = np.stack([np.ones(weight.size), *columns]) * importance
        sums = (counted * weight).sum(axis=1)
        require_weight(sums[:1], "A mean")
        drawn = resampled_sums([*counted], weight, self.seed, self.n_resamples)[:, 2:, 0]
        drawn = drawn[drawn[:, 0] > 0]
        return sums[1:] / sums[0], drawn[:, 1:] / drawn[:, :1]

    def _interval(self, mean: float, drawn: FloatArray) -> Interval:
        """Return the interval of a mean from those of resamples."""
        return interval_of(mean, drawn[~np.isnan(drawn)], self.level, "A mean")


@final
@dataclass(frozen=True, slots=True)
class CostSavings:
    """Mean costs per row before and after a change of outputs, and their difference.

    Attributes
    ----------
    before, after : float
        The realized cost of decisions by either outputs.
    saved : Interval
        The cost before minus that after, paired; positive if the new outputs decide better.
    ratio : Interval or None
        The cost after divided by that before, None where a mean is not positive.
    gap_before, gap_after : Interval
        Expected minus realized cost.
    gap_ratio : Interval or None
        The size of the gap after divided by that before, None where there was none.
    level : float
        The confidence level.
    n_rows : int
        Labeled rows with a positive weight.
    """

    before: float
    after: float
    saved: Interval
    ratio: Interval | None
    gap_before: Interval
    gap_after: Interval
    gap_ratio: Interval | None
    level: float
    n_rows: int

    def _repr_html_(self) -> str:
        return html_view(*str(self).split("\n", 1))

    def __str__(self) -> str:
        verdict = f"No significant difference in cost, savings {self.saved:+} per row"
        if self.saved.low > 0:
            verdict = f"Saves {self.saved} per row"
        if self.saved.high < 0:
            verdict = f"Costs {negated(self.saved)} more per row"
        return (
            f"{verdict}: from {decimal(self.before)} to {decimal(self.after)}.\n"
            f"Expected minus realized cost: from {self.gap_before:+} to {self.gap_after:+}.\n"
            f"{self.n_rows:,} rows; {short_percent(self.level)} intervals in parentheses."
        )


def cost_savings(
    y_true: Any,
    before: Any,
    after: Any,
    costs: CostMatrix,
    row_costs: Any = None,
    *,
    level: float = 0.95,
    random_state: RandomState = 0,
    n_resamples: int = 1000,
    sample_weight: Any = None,
) -> CostSavings:
    """Return what deciding by other outputs of the same rows saves, with a paired interval.

    Use it to compare uncalibrated and calibrated outputs of rows that the calibrator was not fitted
    on.

    Parameters
    ----------
    y_true : array
        Labels.
    before, after : array, Logits, Probabilities or Members
        Two outputs for the same rows.
    costs : CostMatrix
        The cost of each action in each class.
    row_costs : dict, data frame or array, optional
        As for `expected_costs`.
    level : float, default 0.95
        The confidence level.
    random_state : int, RandomState or None, default 0
        Determines the resamples, which both outputs share.
    n_resamples : int, default 1000
        The number of Poisson bootstrap resamples.
    sample_weight : array, optional
        Weights of the rows.

    Returns
    -------
    CostSavings

    Examples
    --------
    >>> from dubito import CostMatrix
    >>> from dubito.decide import cost_savings
    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> cost_savings([0, 1], [[0.9, 0.1], [0.8, 0.2]], [[0.8, 0.2], [0.6, 0.4]], costs).saved.value
    0.375
    """
    caller = "cost_savings"
    interval = MeanInterval.of(level, random_state, n_resamples, caller)
    first_outputs = partial(as_class_outputs, argument="before")
    old = convert_in_order(y_true, before, first_outputs, caller, outputs_argument="before")
    new = as_class_outputs(after, caller, "after")
    if len(new) != len(old):
        rule, fix = f"must have {len(old)} rows, like `before`", "Pass outputs of the same rows"
        raise BadValueError("after", caller, rule, f"{len(new)}", fix)
    first = RealizedCosts.of(y_true, old, costs, row_costs, sample_weight, caller)
    second = RealizedCosts.of(y_true, new, costs, row_costs, sample_weight, caller)
    weight = first.weight
    paid = np.stack([second.realized, first.realized], axis=1)
    gaps = np.stack([second.expected, first.expected], axis=1) - paid
    means = np.average(paid, axis=0, weights=weight)
    return CostSavings(
        before=float(means[1]),
        after=float(means[0]),
        saved=interval(paid[:, 1] - paid[:, 0], weight),
        ratio=_ratio_of(interval, paid, weight) if (means >= 0).all() else None,
        gap_before=interval(gaps[:, 1], weight),
        gap_after=interval(gaps[:, 0], weight),
        gap_ratio=_ratio_of(interval, gaps, weight),
        level=interval.level,
        n_rows=int(np.count_nonzero(weight)),
    )


def _ratio_of(interval: MeanInterval, values: FloatArray, weight: FloatArray) -> Interval | None:
    """Return the ratio of two means, None where the second is 0."""
    return interval(values, weight) if np.average(values[:, 1], weights=weight) != 0 else None
