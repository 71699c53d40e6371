"""The value of decisions: expected and realized cost beside constant actions and perfect information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray, as_share
from dubito.data.batch import Batch, as_weights
from dubito.decide.actions import as_class_outputs, least_costs
from dubito.decide.costs import CostMatrix
from dubito.decide.realized import Judged, require_weight
from dubito.errors import BadValueError
from dubito.kernels.blocks import kept_threads
from dubito.measure.intervals import Interval, as_n_resamples, confidence_interval


@final
@dataclass(frozen=True, slots=True)
class CostReport:
    """Costs a row: paid, expected, and what other ways to decide would have cost.

    `gap` is what was expected less what was paid: below 0 the model expects too little. A regret
    is what was paid less what the other way costs: below 0 the decisions are better. `constant` is
    the best of all single actions, found on these very rows, and held fixed in its interval.
    """

    realized: Interval
    predicted: float
    gap: Interval
    constant_action: str
    constant: float
    regret_to_constant: Interval
    oracle: float
    regret_to_oracle: Interval
    shares: dict[str, float]
    level: float
    n_rows: int
    n_missing: int

    def __str__(self) -> str:
        taken = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        missing = f"; {self.n_missing:,} more without a label left out" if self.n_missing else ""
        return "\n".join(
            [
                f"A row costs {self.realized.value:.4g} on average{self.between(self.realized)}.",
                f"The model expected {self.predicted:.4g}: {self.surprise}.",
                f"Always '{self.constant_action}' would cost {self.constant:.4g}: these decisions "
                f"are {self.comparison}.",
                f"Knowing every truth it would cost {self.oracle:.4g}: "
                f"{self.regret_to_oracle.value:.4g} less.",
                f"Actions: {taken}.",
                f"{self.n_rows:,} rows{missing}; {self.level:.0%} intervals in brackets.",
            ]
        )

    @property
    def surprise(self) -> str:
        """Whether the model expected too little or too much, where the interval tells."""
        gap = self.gap
        if gap.high < 0:
            return f"too little by {-gap.value:.4g}{self.between(_turned(gap))}"
        if gap.low > 0:
            return f"too much by {gap.value:.4g}{self.between(gap)}"
        return f"no sign that it is wrong, off by {gap.value:.4g}{self.between(gap)}"

    @property
    def comparison(self) -> str:
        """How much better or worse than always doing the same."""
        regret = self.regret_to_constant
        if regret.value > 0:
            return f"{regret.value:.4g} worse{self.between(regret)}"
        return f"{0 - regret.value:.4g} better{self.between(_turned(regret))}"

    def between(self, interval: Interval) -> str:
        """Return an interval in brackets."""
        return f" ({interval.low:.4g} to {interval.high:.4g})"


def _turned(interval: Interval) -> Interval:
    """Return an interval with its sign turned, without a -0."""
    return Interval(0 - interval.value, 0 - interval.high, 0 - interval.low)


def expected_risk(
    outputs: Any,
    costs: CostMatrix | None = None,
    row_costs: Any = None,
    *,
    sample_weight: Any = None,
) -> float:
    """Return the error, or the cost, that the outputs themselves expect: no labels needed.

    It is the mean of 1 - the largest probability, or of the least expected cost; true only as far
    as the outputs are calibrated. Bishop, "Pattern recognition and machine learning", 2006, 1.5.1.

    >>> expected_risk([[0.75, 0.25], [0.5, 0.5]])
    0.375
    """
    caller = "expected_risk"
    if costs is None:
        if row_costs is not None:
            rule, fix = "None without costs", "`costs=CostMatrix(..., rate=...)` with it"
            raise BadValueError("row_costs", caller, rule, type(row_costs).__name__, fix)
        risk = Batch.of(None, outputs, caller=caller).rows.least_confidence
    else:
        risk = least_costs(outputs, costs, row_costs).cost
    weight = as_weights(sample_weight, risk.size, caller)
    require_weight(weight, "A predicted risk")
    return float(np.average(risk, weights=weight))


def cost_report(
    y_true: Any,
    outputs: Any,
    costs: CostMatrix,
    row_costs: Any = None,
    *,
    level: float = 0.95,
    seed: int = 0,
    n_resamples: int = 1000,
    sample_weight: Any = None,
) -> CostReport:
    """Return what deciding by least expected cost cost on rows whose truth is known.

    Use rows that neither the model nor its calibrator saw. Poisson bootstrap intervals.

    >>> costs = CostMatrix([[0, 10], [1, 0]], actions=["send home", "treat"])
    >>> report = cost_report([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.95, 0.05]], costs)
    >>> round(report.predicted, 3), round(report.realized.value, 3), report.constant_action
    (0.533, 3.667, 'treat')
    """
    caller = "cost_report"
    interval = MeanInterval.of(level, seed, n_resamples, caller)
    judged = Judged.of(y_true, outputs, costs, row_costs, sample_weight, caller)
    weight, realized = judged.weight, judged.realized
    constant = judged.by_action[:, judged.best_constant]
    shares = np.bincount(judged.action, weight, judged.costs.n_actions) / weight.sum()
    return CostReport(
        realized=interval(realized, weight),
        predicted=float(np.average(judged.expected, weights=weight)),
        gap=interval(judged.expected - realized, weight),
        constant_action=judged.costs.actions[judged.best_constant],
        constant=float(np.average(constant, weights=weight)),
        regret_to_constant=interval(realized - constant, weight),
        oracle=float(np.average(judged.oracle, weights=weight)),
        regret_to_oracle=interval(realized - judged.oracle, weight),
        shares=dict(zip(judged.costs.actions, shares.tolist(), strict=True)),
        level=interval.level,
        n_rows=int(np.count_nonzero(weight)),
        n_missing=judged.labels.n_missing,
    )


@final
@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A bootstrap of weighted means over rows; the same resamples for all that it is asked."""

    level: float
    seed: int
    n_resamples: int

    @classmethod
    def of(cls, level: Any, seed: Any, n_resamples: Any, caller: str) -> MeanInterval:
        """Check the settings."""
        share = as_share(level, "level", caller, is_open=True)
        return cls(share, seed, as_n_resamples(n_resamples, caller))

    def __call__(self, values: FloatArray, weight: FloatArray) -> Interval:
        """Return the mean of one number a row, or of two the ratio of their means' sizes."""
        with kept_threads():
            return confidence_interval(
                _mean_or_ratio,
                None,
                values,
                level=self.level,
                random_state=self.seed,
                n_resamples=self.n_resamples,
                sample_weight=weight,
            )


def _mean_or_ratio(y_true: None, values: FloatArray, *, sample_weight: FloatArray) -> float:
    """Return the mean of a column, or the size of the first column's mean in that of the second."""
    require_weight(sample_weight, "A mean")
    means = sample_weight @ values / sample_weight.sum()
    if np.ndim(means) == 0:
        return float(means)
    require_weight(np.abs(means[1:]), "A ratio")
    return float(abs(means[0]) / abs(means[1]))


@final
@dataclass(frozen=True, slots=True)
class CostSavings:
    """Costs a row before and after, and what was saved: above 0 the later outputs decide better.

    `ratio` is the cost after in that before, None where nothing was to be saved (a mean of 0 or
    below). A gap is what was expected less what was paid; `gap_ratio` is its size after in its size
    before, None where there was none.
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

    def __str__(self) -> str:
        low, high = self.saved.low, self.saved.high
        saved = f"It saved {self.saved.value:.4g}"
        lost = f"It lost {-self.saved.value:.4g}"
        verdict = saved if low > 0 else lost if high < 0 else "No sure difference in cost"
        return (
            f"{verdict} a row "
            f"({self.level:.0%} interval of what was saved {low:.4g} to {high:.4g}), "
            f"from {self.before:.4g} to {self.after:.4g}.\n"
            f"What is expected less what is paid went from {self.gap_before.value:.4g} "
            f"({self.gap_before.low:.4g} to {self.gap_before.high:.4g}) "
            f"to {self.gap_after.value:.4g} "
            f"({self.gap_after.low:.4g} to {self.gap_after.high:.4g}); {self.n_rows:,} rows."
        )


def cost_savings(
    y_true: Any,
    before: Any,
    after: Any,
    costs: CostMatrix,
    row_costs: Any = None,
    *,
    level: float = 0.95,
    seed: int = 0,
    n_resamples: int = 1000,
    sample_weight: Any = None,
) -> CostSavings:
    """Return what deciding by other outputs of the same rows saved, with a paired interval.

    Use it for raw and calibrated outputs of rows that the calibrator did not see. Both see the same
    resamples, so that what the rows share cancels.

    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> cost_savings([0, 1], [[0.9, 0.1], [0.8, 0.2]], [[0.8, 0.2], [0.6, 0.4]], costs).saved.value
    0.375
    """
    caller = "cost_savings"
    interval = MeanInterval.of(level, seed, n_resamples, caller)
    old, new = as_class_outputs(before, "before", caller), as_class_outputs(after, "after", caller)
    if len(new) != len(old):
        rule, fix = f"of {len(old)} rows, like `before`", "outputs of the same rows"
        raise BadValueError("after", caller, rule, f"{len(new)} rows", fix)
    first = Judged.of(y_true, old, costs, row_costs, sample_weight, caller)
    second = Judged.of(y_true, new, costs, row_costs, sample_weight, caller)
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
