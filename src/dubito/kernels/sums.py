"""Weighted sums of row statistics: proper scores, bootstrap weights, fixed fine grids."""

from math import exp, factorial

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import bits_of, logarithm

N_SCORES = 9
N_SURPRISES = 9


@kernel
def score_sums(weights, correct, confidence, entropy, squares, brier, losses, sums):
    """Fill `sums` with the weight, and the weighted sum of each row statistic.

    The last three are the weighted finite losses, and weight and number of the infinite ones.
    """
    w = c = f = h = s = b = loss = impossible = count = 0.0
    for i in range(weights.size):
        weight = weights[i]
        w += weight
        c += weight * correct[i]
        f += weight * confidence[i]
        h += weight * entropy[i]
        s += weight * squares[i]
        b += weight * brier[i]
        is_impossible = losses[i] == np.inf and weight > 0.0
        loss += 0.0 if losses[i] == np.inf else weight * losses[i]
        impossible += weight if is_impossible else 0.0
        count += 1.0 if is_impossible else 0.0
    sums[0], sums[1], sums[2], sums[3], sums[4] = w, c, f, h, s
    sums[5], sums[6], sums[7], sums[8] = b, loss, impossible, count


@kernel
def surprise_sums(weights, correct, confidence, doubt, entropy, variance, losses, sums):
    """Fill `sums` with the sums of a calibration test.

    These are: rows of infinite loss, weight, loss above entropy (where finite), confidence above
    correct, the variances of both and their covariance if confidence is true, errors, and expected
    errors.
    """
    n = w = a = b = v = u = c = wrong = expected = 0.0
    for i in range(weights.size):
        weight, p = weights[i], confidence[i]
        is_impossible = losses[i] == np.inf
        n += 1.0 if is_impossible and weight > 0.0 else 0.0
        w += weight
        a += 0.0 if is_impossible else weight * (losses[i] - entropy[i])
        b += weight * (p - correct[i])
        v += weight * variance[i]
        u += weight * p * doubt[i]
        # E[1(top) (log p + entropy)] = c (log c + entropy).
        c += weight * p * (logarithm(p) + entropy[i])
        wrong += weight * (1.0 - correct[i])
        expected += weight * doubt[i]
    sums[0], sums[1], sums[2], sums[3], sums[4] = n, w, a, b, v
    sums[5], sums[6], sums[7], sums[8] = u, c, wrong, expected


# P(a Poisson variable of mean 1 is above j), as thresholds of a 32-bit number, down to 1e-9.
ABOVE = np.array(
    [round((1 - sum(exp(-1) / factorial(i) for i in range(j + 1))) * 2**32) for j in range(12)],
    dtype=np.uint32,
)


MANY = 16.0  # above, the sum of so many draws is as good as normal


@kernel
def poisson_weights(weights, seed, first_row, resampled):
    """Fill `resampled` with a Poisson draw whose mean is the weight: so many rows were given.

    The draw of a row depends on `seed` and its number alone, so that any split of the rows into
    pieces gives the same resample. A large weight gets a number of the same mean and variance.
    """
    numbers = np.empty(weights.size, np.uint64)
    for i in range(weights.size):
        numbers[i] = np.uint64(first_row + i + 1) * STEP
    _draw(weights, np.uint64(seed), numbers, resampled)


@kernel
def resample_sums(columns, weights, numbers, ends, seeds, sums):
    """Fill `sums`, resamples x sums x groups, with weighted sums of columns over resamples.

    Rows are in the order of their groups, which end at `ends`; `numbers` are theirs times `STEP`,
    counted from 1. The first two sums are the weight and the noise, as in `reliability_sums`.
    """
    resampled = np.empty(weights.size)
    for r in range(seeds.size):
        _draw(weights, seeds[r], numbers, resampled)
        low = 0
        for g in range(ends.size):
            drawn, given = resampled[low : ends[g]], weights[low : ends[g]]
            weight = noise = 0.0
            for i in range(drawn.size):
                weight += drawn[i]
                noise += drawn[i] * drawn[i] / given[i]
            sums[r, 0, g], sums[r, 1, g] = weight, noise
            for k in range(columns.shape[0]):
                column = columns[k, low : ends[g]]
                total = 0.0
                for i in range(drawn.size):
                    total += drawn[i] * column[i]
                sums[r, 2 + k, g] = total
            low = ends[g]


STEP = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64, from one row to the next


@inner
def _draw(weights, seed, numbers, resampled):
    """Fill `resampled` with a Poisson draw whose mean is the weight."""
    for i in range(weights.size):
        uniform = _uniform_of(numbers[i] + seed)
        times = 0
        for j in range(ABOVE.size):
            times += uniform < ABOVE[j]
        resampled[i] = times
    for i in range(weights.size):
        weight = weights[i]
        if weight > MANY:
            resampled[i] = weight + np.sqrt(weight) * (resampled[i] - 1.0)
        elif weight != 1.0:
            probability = np.exp(-weight)
            above, times = 1.0 - probability, 0
            while _uniform_of(numbers[i] + seed) < above * 2.0**32 and probability > 0.0:
                times += 1
                probability *= weight / times
                above -= probability
            resampled[i] = times


@inner
def _uniform_of(x):
    """Return a random 32-bit number, by the mixing of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint32((x ^ (x >> np.uint64(31))) >> np.uint64(32))


CUT = 42  # bits of a float64 that are cut off
HALF = 1022 << (52 - CUT)  # the cell of a score of 1/2


@inner
def _cell_of(doubt):
    """Return the cell of a score (1 - confidence)."""
    near = bits_of(min(doubt, 1.0 - doubt)) >> np.int64(CUT)
    return near if doubt <= 0.5 else 2 * HALF - near


@kernel
def cell_bounds(doubt):
    """Return the first and the last cell of the scores."""
    lowest, highest = doubt[0], doubt[0]
    for i in range(doubt.size):
        lowest, highest = min(lowest, doubt[i]), max(highest, doubt[i])
    return _cell_of(lowest), _cell_of(highest)


@kernel
def cell_sums(doubt, weights, correct, first, sums):
    """Add each row's weight, and its weight if wrong, to its cell of `sums` (cells x 2)."""
    for i in range(doubt.size):
        # Clamped, as a score that changed after the bounds were found must not be written outside.
        cell = np.uint64(min(max(_cell_of(doubt[i]) - first, 0), sums.shape[0] - 1))
        sums[cell, 0] += weights[i]
        sums[cell, 1] += weights[i] * (1.0 - correct[i])


@kernel
def residual_sums(confidence, correct, weights, sums):
    """Split each residual, correct minus confidence, linearly between the two nearest cells.

    Returns the total weight.
    """
    total = 0.0
    last = sums.size - 1
    for i in range(confidence.size):
        place = min(max(confidence[i] * sums.size - 0.5, 0.0), np.float64(last))
        low = np.uint64(max(min(int(place), last - 1), 0))
        fraction = place - low
        residual = weights[i] * (correct[i] - confidence[i])
        sums[low] += residual * (1.0 - fraction)
        sums[low + np.uint64(1)] += residual * fraction
        total += weights[i]
    return total
