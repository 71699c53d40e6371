"""Tests whether numbers or classes have the same distribution in two periods."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import scipy

from dubito.arrays import FloatArray, IntArray
from dubito.measure.intervals import Interval

MANY_ROWS = 500  # of both periods, from which on means are normal enough for Welch's test
N_PERMUTATIONS = 1999
MIN_EXPECTED = 5  # rows of a class, below which it is pooled with other rare classes


@final
@dataclass(frozen=True, slots=True)
class DistributionShift:
    """The shift of one quantity between two periods.

    Attributes
    ----------
    p_value : float or None
        Of the same distribution in both periods, adjusted for all tests; None if not tested.
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
    if min(reference.size, current.size) >= MANY_ROWS:
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
    return DistributionShift(
        p_value, None, before, after, Interval(value, value - reach, value + reach)
    )


def mean_with_error(values: FloatArray) -> tuple[float, float]:
    """Return a mean and its standard error, which is 0 for a single number."""
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
