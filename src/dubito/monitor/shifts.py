"""Tests whether one number a row, or its class, is distributed in one period as in another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from scipy import stats

from dubito.arrays import FloatArray, IntArray
from dubito.measure.intervals import Interval

MANY_ROWS = 500  # of both periods, from which on means are as good as normal
N_PERMUTATIONS = 1999
FEWEST_EXPECTED = 5  # rows of a class, below which its count is pooled with others


@final
@dataclass(frozen=True, slots=True)
class DistributionShift:
    """What one period says and the other, how far apart they are, and whether that is chance.

    `reference` and `current` are means, or shares; `difference` is the latter less the former with
    its interval; `distance` is between 0 and 1: the Kolmogorov-Smirnov distance of two
    distributions, or half the sum of absolute differences of shares. `p_value` is None where
    nothing is tested, `has_moved` then False.
    """

    p_value: float | None
    distance: float | None = None
    reference: float | None = None
    current: float | None = None
    difference: Interval | None = None
    has_moved: bool = False


def distribution_shift(
    reference: FloatArray, current: FloatArray, level: float
) -> DistributionShift:
    """Return how far two sets of numbers are apart in distribution, by Kolmogorov and Smirnov.

    >>> distribution_shift(np.arange(50.0), np.arange(50.0) + 25, 0.95).distance
    0.5
    """
    values, n, m = np.concatenate([reference, current]), reference.size, current.size
    before = np.searchsorted(np.sort(reference), values, "right") / n
    after = np.searchsorted(np.sort(current), values, "right") / m
    distance = float(np.abs(before - after).max())
    p_value = float(stats.kstwo.sf(distance, max(1, round(n * m / (n + m)))))
    return replace(_welch_shift(reference, current, level), p_value=p_value, distance=distance)


def mean_shift(
    reference: FloatArray, current: FloatArray, level: float, seed: int = 0
) -> DistributionShift:
    """Return how far the means of two sets of numbers are apart.

    By Welch's test; where either has fewer than 500, by permutations, which a few large losses
    among few rows do not mislead.

    >>> mean_shift(np.array([0.0, 2.0]), np.array([3.0, 5.0]), 0.95).difference.value
    3.0
    """
    found = _welch_shift(reference, current, level)
    if min(reference.size, current.size) >= MANY_ROWS:
        return found
    return replace(found, p_value=_permutation_p_value(reference, current, seed))


def _permutation_p_value(reference: FloatArray, current: FloatArray, seed: int) -> float:
    """Return how often means are as far apart when rows change periods by chance."""
    pool = np.concatenate([reference, current])
    pool = pool - pool.mean()
    n_small = min(reference.size, current.size)
    small = pool[: reference.size] if reference.size == n_small else pool[reference.size :]
    # The other sum is minus this one: the difference of means grows with it alone.
    drawn = np.random.default_rng(seed)
    sums = [
        abs(pool[drawn.choice(pool.size, n_small, replace=False, shuffle=False)].sum())
        for _ in range(N_PERMUTATIONS)
    ]
    # Sums in another order differ by rounding.
    as_far = np.count_nonzero(np.array(sums) >= abs(small.sum()) - 1e-12 * np.abs(pool).sum())
    return float((1 + as_far) / (1 + N_PERMUTATIONS))


def _welch_shift(reference: FloatArray, current: FloatArray, level: float) -> DistributionShift:
    """Return how far means are apart, by Welch's test of unequal variances."""
    before, error_before = mean_with_error(reference)
    after, error_after = mean_with_error(current)
    value, error = after - before, float(np.hypot(error_before, error_after))
    if error == 0:
        p_value = 1.0 if value == 0 else 0.0
        return DistributionShift(p_value, None, before, after, Interval(value, value, value))
    # Welch and Satterthwaite's degrees of freedom, of shares so that nothing overflows.
    parts = (error_before / error) ** 4 / max(reference.size - 1, 1)
    parts += (error_after / error) ** 4 / max(current.size - 1, 1)
    law = stats.t(1 / parts)
    reach = float(law.ppf((1 + level) / 2)) * error
    p_value = float(2 * law.sf(abs(value) / error))
    return DistributionShift(
        p_value, None, before, after, Interval(value, value - reach, value + reach)
    )


def mean_with_error(values: FloatArray) -> tuple[float, float]:
    """Return the mean of numbers and its standard error; of a single one that is 0."""
    spread = values.std(ddof=1) if values.size > 1 else 0.0
    return float(values.mean()), float(spread / np.sqrt(values.size))


def share_shift(reference: IntArray, current: IntArray, n_classes: int) -> DistributionShift:
    """Return how far the shares of classes are apart, by the chi-square test.

    Classes so rare that fewer than 5 rows of them are expected count as one.

    >>> share_shift(np.array([0, 1] * 50), np.array([0, 0, 0, 1] * 25), 2).distance
    0.25
    """
    counts = np.stack([np.bincount(rows, minlength=n_classes) for rows in (reference, current)])
    shares = counts / counts.sum(axis=1, keepdims=True)
    distance = float(np.abs(shares[0] - shares[1]).sum() / 2)
    expected = counts.sum(axis=0) * min(reference.size, current.size) / counts.sum()
    is_rare = expected < FEWEST_EXPECTED
    table = np.column_stack([counts[:, ~is_rare], counts[:, is_rare].sum(axis=1)])
    table = table[:, table.any(axis=0)]
    if table.shape[1] < 2:
        return DistributionShift(1.0, distance)
    found: Any = stats.chi2_contingency(table, correction=False)
    return DistributionShift(float(found.pvalue), distance)


def strange_shift(n_known: int, n_rows: int, n_strange: int, epsilon: float) -> DistributionShift:
    """Return whether more rows are strange than known ones would be, by an exact test.

    How many of `n_rows` are beyond what `epsilon` of `n_known` rows exceed is beta-binomial where
    all come from one distribution, whatever it is.

    >>> strange_shift(n_known=199, n_rows=100, n_strange=5, epsilon=0.05).p_value > 0.4
    True
    """
    rank = int(np.ceil(epsilon * (n_known + 1))) - 1  # strange is what exceeds so many but the top
    share = n_strange / n_rows
    if rank < 1:  # then nothing is ever strange
        return DistributionShift(1.0, None, epsilon, share)
    p_value = stats.betabinom.sf(n_strange - 1, n_rows, rank, n_known + 1 - rank)
    return DistributionShift(float(p_value), None, epsilon, share)
