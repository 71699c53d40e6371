"""What calibration saved: the same rows and costs, decided before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.decide.actions import as_class_outputs
from dubito.decide.costs import CostMatrix
from dubito.decide.realized import Judged
from dubito.decide.value import MeanInterval
from dubito.errors import BadValueError
from dubito.measure.intervals import Interval

__all__ = ["CostSavings", "cost_savings"]


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
    amounts: Any = None,
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
    first = Judged.of(y_true, old, costs, amounts, sample_weight, caller)
    second = Judged.of(y_true, new, costs, amounts, sample_weight, caller)
    weight = first.weight
    paid = np.stack([second.realized, first.realized], axis=1)
    gaps = np.stack([second.expected, first.expected], axis=1) - paid
    means = np.average(paid, axis=0, weights=weight)
    return CostSavings(
        before=float(means[1]),
        after=float(means[0]),
        saved=interval(paid[:, 1] - paid[:, 0], weight),
        ratio=ratio_of(interval, paid, weight) if (means >= 0).all() else None,
        gap_before=interval(gaps[:, 1], weight),
        gap_after=interval(gaps[:, 0], weight),
        gap_ratio=ratio_of(interval, gaps, weight),
        level=interval.level,
        n_rows=int(np.count_nonzero(weight)),
    )


def ratio_of(interval: MeanInterval, values: FloatArray, weight: FloatArray) -> Interval | None:
    """Return the ratio of two means, None where the second is 0."""
    return interval(values, weight) if np.average(values[:, 1], weights=weight) != 0 else None
