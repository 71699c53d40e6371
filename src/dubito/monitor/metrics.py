"""The metrics by which models are compared, tests of shifts, and p-values adjusted for several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
import scipy
from scipy.special import ndtr, ndtri

from dubito.arrays import FloatArray, IntArray, dot
from dubito.data.batch import Batch, Ranks
from dubito.errors import BadValueError
from dubito.measure.binary import bin_edges, bins_of, positive_rows, rank_positives
from dubito.measure.calibration_error import ReliabilityState, uniform_edges
from dubito.measure.detection import RankingState, auroc_of, average_precision_of
from dubito.measure.intervals import Interval, over_resamples
from dubito.measure.proper_scores import ProperScoresState
from dubito.measure.regression import (
    central_interval,
    crps_of_rows,
    has_median,
    interval_scores,
    nll_of_rows,
    pinballs,
    point_of_rows,
    require_targets,
    squared_errors,
    values_of,
)
from dubito.measure.selective import RiskCoverageCurve
from dubito.outputs import BaseClassOutputs, BaseOutputs, Normal, Quantiles

N_BINS, N_POSITIVE_BINS = 15, 10
INTERVALS = (90, 80, 95, 50)  # whose score is compared, in percent: the first that models have
MIN_ROWS = 20  # with fewer (in a period), nothing is called significant
TITLES = {
    "cost": "cost per row",
    "log_loss": "log loss",
    "accuracy": "accuracy",
    "brier_score": "Brier score",
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "brier_skill_score": "Brier skill score",
    "positive_expected_calibration_error": f"ECE of P(positive) ({N_POSITIVE_BINS} quantile bins)",
    "expected_calibration_error": f"ECE ({N_BINS} uniform bins)",
    "debiased_calibration_error": f"debiased ECE ({N_BINS} uniform bins)",
    "area_under_risk_coverage": "AURC",
    "continuous_ranked_probability_score": "CRPS",
    "crps_from_quantiles": "CRPS (from quantiles)",
    "negative_log_likelihood": "negative log-likelihood",
    "pinball_loss": "pinball loss",
    **{f"interval_score_{level}": f"interval score ({level} %)" for level in INTERVALS},
    "mean_absolute_error": "mean absolute error",
    "mean_squared_error": "mean squared error",
}
OUTPUT_NAMES = {  # where the name of the class is not enough
    "Members": "ensemble members", "Normal": "normal distributions", "TopLabel": "top labels",
}  # fmt: skip
HIGHER_IS_BETTER = frozenset({"accuracy", "roc_auc", "average_precision", "brier_skill_score"})


@final
@dataclass(frozen=True, slots=True)
class PositiveRows:
    """The probability of the positive class of two, ranked and binned once for all resamples."""

    probability: FloatArray
    outcome: FloatArray
    ranks: Ranks
    bins: IntArray

    @classmethod
    def of(cls, batch: Batch, column: int) -> Self:
        """Rank and bin the rows of a batch, in equal-mass bins."""
        p, y = positive_rows(batch, column)
        edges = bin_edges(rank_positives(batch, column), N_POSITIVE_BINS, "quantile")
        return cls(p, np.where(batch.labeled_weight > 0, y, 0.0), Ranks.of(p), bins_of(p, edges))

    def metrics(self, weight: FloatArray) -> dict[str, float]:
        """Return the metrics of weighted rows; none without both classes."""
        p, y, total = self.probability, self.outcome, float(weight.sum())
        base_rate = dot(weight, y) / total
        if not 0 < base_rate < 1:
            return {}
        ranked = RankingState.of_ranks(self.ranks, weight, weight * y)
        brier = dot(weight, y * (1 - p) ** 2 + (1 - y) * p**2) / total
        gaps = np.bincount(self.bins, weight * (p - y))
        return {
            "roc_auc": auroc_of(ranked),
            "average_precision": average_precision_of(ranked),
            "brier_skill_score": 1 - brier / (base_rate * (1 - base_rate)),
            "positive_expected_calibration_error": float(np.abs(gaps).sum() / total),
        }


def row_metrics(batch: Batch, positive: PositiveRows | None = None) -> dict[str, float]:
    """Return the metrics of a classifier on labeled rows, as far as top labels have them.

    `positive` adds those of the positive class of two.

    >>> row_metrics(Batch.of([0, 1], [[0.75, 0.25], [0.75, 0.25]]))["accuracy"]
    0.5
    """
    scores = ProperScoresState.of(batch).value
    bins = ReliabilityState.of(batch, uniform_edges(N_BINS))
    found = {
        "log_loss": scores.log_loss,
        "accuracy": scores.accuracy,
        "brier_score": scores.brier_score,
        "expected_calibration_error": bins.expected(),
        "debiased_calibration_error": bins.debiased,
        "area_under_risk_coverage": RiskCoverageCurve.of(RankingState.of(batch)).area,
    }
    known = {name: value for name, value in found.items() if value is not None}
    return known if positive is None else {**known, **positive.metrics(batch.labeled_weight)}


def resampled_metrics(
    batch: Batch,
    metrics: Sequence[str],
    seed: int,
    n_resamples: int,
    positive: PositiveRows | None = None,
) -> dict[str, FloatArray]:
    """Return the metrics of each Poisson bootstrap resample that has all of them."""

    def metrics_of(resample: Batch) -> Mapping[str, float] | None:
        found = row_metrics(resample, positive) if resample.labeled_weight.any() else {}
        return found if found.keys() >= set(metrics) else None

    drawn = [one for one in over_resamples(batch, metrics_of, seed, n_resamples) if one is not None]
    return {name: np.array([one[name] for one in drawn]) for name in metrics}


def describe_outputs(outputs: BaseOutputs) -> str:
    """Return the kind of outputs in words, for messages.

    >>> from dubito import Logits
    >>> describe_outputs(Normal([0.0], [1.0])), describe_outputs(Logits([[2.0, 1.0]]))
    ('normal distributions', 'logits of 2 classes')
    """
    kind = type(outputs).__name__
    name = OUTPUT_NAMES.get(kind, kind.lower())
    if isinstance(outputs, BaseClassOutputs):
        name += f" of {outputs.n_classes} classes"
    return name


def row_losses(batch: Batch, caller: str) -> dict[str, FloatArray]:
    """Return the losses of a regression model per row, averaged over vector targets."""
    require_targets(batch, caller)
    outputs, y = batch.outputs, values_of(batch)
    is_part = isinstance(outputs, Quantiles)  # a mean over levels, not over a distribution
    name = "crps_from_quantiles" if is_part else "continuous_ranked_probability_score"
    losses: dict[str, Any] = {name: crps_of_rows(outputs, y)}
    if isinstance(outputs, Normal):
        losses["negative_log_likelihood"] = nll_of_rows(outputs, y)
    if isinstance(outputs, Quantiles):
        losses["pinball_loss"] = pinballs(outputs, y).mean(axis=1)
    for level in INTERVALS:
        with suppress(BadValueError):  # the quantiles or draws do not have this interval
            low, high = central_interval(outputs, level / 100, caller)
            losses[f"interval_score_{level}"] = interval_scores(y, low, high, level / 100)
    if has_median(outputs):
        losses["mean_absolute_error"] = np.abs(y - point_of_rows(outputs))
        losses["mean_squared_error"] = squared_errors(outputs, y)
    return {
        name: np.asarray(rows if rows.ndim == 1 else rows.mean(axis=1), dtype=np.float64)
        for name, rows in losses.items()
    }


def _holm(p_values: Sequence[float]) -> FloatArray:
    """Return p-values adjusted for multiple tests; valid however the tests depend on each other.

    Holm, "A simple sequentially rejective multiple test procedure", 1979.

    >>> _holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = values[order] * np.arange(values.size, 0, -1)
    adjusted = np.empty(values.size)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def adjusted(p_values: Sequence[float], n_rows: int) -> list[float]:
    """Return p-values adjusted for multiple tests, all 1 with too few rows to call any small."""
    return _holm(p_values).tolist() if n_rows >= MIN_ROWS else [1.0] * len(p_values)


def normal_p_value(interval: Interval, level: float) -> float:
    """Return the two-sided p-value of a true value of 0, from a normal confidence interval.

    >>> round(normal_p_value(Interval(1.96, 0.0, 3.92), 0.95), 3)
    0.05
    """
    error = (interval.high - interval.low) / (2 * ndtri((1 + level) / 2))
    if error == 0:
        return 1.0 if interval.value == 0 else 0.0
    return float(2 * ndtr(-abs(interval.value) / error))


MIN_WELCH_ROWS = 500  # of both periods, from which on means are normal enough for Welch's test
N_PERMUTATIONS = 1999
MIN_EXPECTED = 5  # rows of a class, below which it is pooled with other rare classes


@final
@dataclass(frozen=True, slots=True)
class DistributionShift:
    """The shift of one quantity between two periods.

    Attributes
    ----------
    p_value : float or None
        Of the hypothesis that both periods have the same distribution, adjusted for all tests; None
        if not tested.
    distance : float or None
        Between 0 and 1: the Kolmogorov-Smirnov distance, or the total variation distance of class
        frequencies.
    reference, current : float or None
        The mean or fraction in each period.
    difference : Interval or None
        Current minus reference, with its confidence interval.
    has_shifted : bool
        Whether the shift is significant.
    """

    p_value: float | None
    distance: float | None = None
    reference: float | None = None
    current: float | None = None
    difference: Interval | None = None
    has_shifted: bool = False


def distribution_shift(
    reference: FloatArray, current: FloatArray, level: float
) -> DistributionShift:
    """Return the shift of a distribution, by the Kolmogorov-Smirnov test.

    >>> distribution_shift(np.arange(50.0), np.arange(50.0) + 25, 0.95).distance
    0.5
    """
    values, n, m = np.concatenate([reference, current]), reference.size, current.size
    before = np.searchsorted(np.sort(reference), values, "right") / n
    after = np.searchsorted(np.sort(current), values, "right") / m
    distance = float(np.abs(before - after).max())
    p_value = float(scipy.stats.kstwo.sf(distance, max(1, round(n * m / (n + m)))))
    return replace(_welch_shift(reference, current, level), p_value=p_value, distance=distance)


def mean_shift(
    reference: FloatArray,
    current: FloatArray,
    level: float,
    seed: int = 0,
    n_permutations: int = N_PERMUTATIONS,
) -> DistributionShift:
    """Return the shift of a mean, by Welch's test.

    With fewer than 500 rows in a period, by a permutation test, which stays valid if a few rows
    have large losses.

    >>> mean_shift(np.array([0.0, 2.0]), np.array([3.0, 5.0]), 0.95).difference.value
    3.0
    """
    found = _welch_shift(reference, current, level)
    if min(reference.size, current.size) >= MIN_WELCH_ROWS:
        return found
    return replace(found, p_value=_permutation_p_value(reference, current, seed, n_permutations))


def _permutation_p_value(
    reference: FloatArray, current: FloatArray, seed: int, n_permutations: int
) -> float:
    """Return how often means are as far apart when rows are assigned to periods at random."""
    pool = np.concatenate([reference, current])
    pool = pool - pool.mean()
    n_small = min(reference.size, current.size)
    small = pool[: reference.size] if reference.size == n_small else pool[reference.size :]
    # The sums of both periods add up to 0: one of them determines the difference of means.
    drawn = np.random.default_rng(seed)
    sums = [
        abs(pool[drawn.choice(pool.size, n_small, replace=False, shuffle=False)].sum())
        for _ in range(n_permutations)
    ]
    # Sums in another order differ by rounding.
    as_far = np.count_nonzero(np.array(sums) >= abs(small.sum()) - 1e-12 * np.abs(pool).sum())
    return float((1 + as_far) / (1 + n_permutations))


def _welch_shift(reference: FloatArray, current: FloatArray, level: float) -> DistributionShift:
    """Return the shift of a mean, by Welch's test of unequal variances."""
    before, error_before = mean_with_error(reference)
    after, error_after = mean_with_error(current)
    value, error = after - before, float(np.hypot(error_before, error_after))
    if error == 0:
        p_value = 1.0 if value == 0 else 0.0
        return DistributionShift(p_value, None, before, after, Interval(value, value, value))
    # Welch-Satterthwaite degrees of freedom, from ratios so that nothing overflows.
    parts = (error_before / error) ** 4 / max(reference.size - 1, 1)
    parts += (error_after / error) ** 4 / max(current.size - 1, 1)
    law = scipy.stats.t(1 / parts)
    reach = float(law.ppf((1 + level) / 2)) * error
    p_value = float(2 * law.sf(abs(value) / error))
    difference = Interval(value, value - reach, value + reach)
    return DistributionShift(p_value, None, before, after, difference)


def mean_with_error(values: FloatArray) -> tuple[float, float]:
    """Return a mean and its standard error, which is 0 for a single number."""
    with np.errstate(over="ignore", invalid="ignore"):  # of values whose squares overflow
        spread = values.std(ddof=1) if values.size > 1 else 0.0
    return float(values.mean()), float(spread / np.sqrt(values.size))


def class_shift(reference: IntArray, current: IntArray, n_classes: int) -> DistributionShift:
    """Return the shift of class frequencies, by the chi-square test.

    Classes with fewer than 5 expected rows are pooled.

    >>> class_shift(np.array([0, 1] * 50), np.array([0, 0, 0, 1] * 25), 2).distance
    0.25
    """
    counts = np.stack([np.bincount(rows, minlength=n_classes) for rows in (reference, current)])
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    distance = float(np.abs(frequencies[0] - frequencies[1]).sum() / 2)
    expected = counts.sum(axis=0) * min(reference.size, current.size) / counts.sum()
    is_rare = expected < MIN_EXPECTED
    table = np.column_stack([counts[:, ~is_rare], counts[:, is_rare].sum(axis=1)])
    table = table[:, table.any(axis=0)]
    if table.shape[1] < 2:
        return DistributionShift(1.0, distance)
    found: Any = scipy.stats.chi2_contingency(table, correction=False)
    return DistributionShift(float(found.pvalue), distance)


def ood_shift(n_known: int, n_rows: int, n_ood: int, alpha: float) -> DistributionShift:
    """Return whether more rows are out of distribution than expected, by an exact test.

    If all rows have one distribution, the number of `n_rows` beyond what a fraction `alpha` of
    `n_known` rows exceeds is beta-binomial.

    >>> ood_shift(n_known=199, n_rows=100, n_ood=5, alpha=0.05).p_value > 0.4
    True
    """
    # An OOD row exceeds the known score of this rank from the top.
    rank = int(np.ceil(alpha * (n_known + 1))) - 1
    fraction = n_ood / n_rows
    if rank < 1:  # too few known rows to detect any
        return DistributionShift(1.0, None, alpha, fraction)
    p_value = scipy.stats.betabinom.sf(n_ood - 1, n_rows, rank, n_known + 1 - rank)
    return DistributionShift(float(p_value), None, alpha, fraction)
