"""Weighted sums of row statistics: proper scores, bootstrap weights, fine grids, binary labels."""

from math import exp, factorial

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import bits_of, exponential, logarithm, logarithm_past_1

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
def surprise_sums(weights, correct, confidence, uncertainty, entropy, variance, losses, sums):
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
        u += weight * p * uncertainty[i]
        # E[1(top) (log p + entropy)] = c (log c + entropy).
        c += weight * p * (logarithm(p) + entropy[i])
        wrong += weight * (1.0 - correct[i])
        expected += weight * uncertainty[i]
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
def _cell_of(uncertainty):
    """Return the cell of a score (1 - confidence)."""
    near = bits_of(min(uncertainty, 1.0 - uncertainty)) >> np.int64(CUT)
    return near if uncertainty <= 0.5 else 2 * HALF - near


@kernel
def cell_bounds(uncertainty):
    """Return the first and the last cell of the scores."""
    lowest, highest = uncertainty[0], uncertainty[0]
    for i in range(uncertainty.size):
        lowest, highest = min(lowest, uncertainty[i]), max(highest, uncertainty[i])
    return _cell_of(lowest), _cell_of(highest)


@kernel
def cell_sums(uncertainty, weights, correct, first, sums):
    """Add each row's weight, and its weight if wrong, to its cell of `sums` (cells x 2)."""
    for i in range(uncertainty.size):
        # Clamped, as a score that changed after the bounds were found must not be written outside.
        cell = np.uint64(min(max(_cell_of(uncertainty[i]) - first, 0), sums.shape[0] - 1))
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


N_ROW_SUMS = 6  # rows, their weight, exact matches, ranking loss, coverage, average precision
# Weight, probability, label, squared error, selected, selected with the label, log loss.
N_LABEL_SUMS = 7
FLOOR = 1e-12  # of the probability of what came true, so that the log loss is finite
LABEL_CUT = 50  # bits of a float64 that are cut off: four cells per factor of 2
LABEL_HALF = 1022 << (52 - LABEL_CUT)
REACH = 64  # cells on either side of 1/2: down to 2^-17
N_CELLS = 2 * REACH + 1


@inner
def _label_cell_of(p):
    """Return the cell of a probability, finest near 0 and 1."""
    near = max((bits_of(min(p, 1.0 - p)) >> np.int64(LABEL_CUT)) - (LABEL_HALF - REACH), 0)
    return near if p <= 0.5 else 2 * REACH - near


@kernel
def label_sums(p, y, weights, threshold, first_row, order, rows, sums, cells, n_known):
    """Add rows to one of the buckets of `rows` and `sums`, and to its `cells`, if there are any.

    Unknown labels are NaN. The bucket of a row depends on its number alone. A weight stands for so
    many rows, which go to different buckets. `n_known` counts the known labels. Figures of a row
    sum over labels in their `order`, so that they do not depend on that of the columns.
    """
    n_buckets = sums.shape[0]
    for i in range(p.shape[0]):
        if weights[i] == 0.0:
            continue
        n_right, is_any = 1.0, False
        for k in order:
            if not np.isnan(y[i, k]):
                is_any = True
                n_known[k] += 1
                n_right *= y[i, k] if p[i, k] >= threshold else 1.0 - y[i, k]
        if not is_any:
            continue
        wrong, coverage, precision = _ranking(p[i], y[i], order)
        n_copies = min(max(int(weights[i] + 0.5), 1), n_buckets)
        weight = weights[i] / n_copies
        for copy in range(n_copies):
            bucket = (first_row + i + copy) % n_buckets
            rows[bucket, 0] += 1.0 if copy == 0 else 0.0
            rows[bucket, 1] += weight
            rows[bucket, 2] += weight * n_right
            rows[bucket, 3] += weight * wrong
            rows[bucket, 4] += weight * coverage
            rows[bucket, 5] += weight * precision
            for k in range(p.shape[1]):
                label, chance = y[i, k], np.float64(p[i, k])
                if np.isnan(label):
                    continue
                square = label * (1.0 - chance) ** 2 + (1.0 - label) * chance**2
                sums[bucket, k, 0] += weight
                sums[bucket, k, 1] += weight * chance
                sums[bucket, k, 2] += weight * label
                sums[bucket, k, 3] += weight * square
                loss = 0.0
                if label > 0.0:
                    loss -= label * np.log(max(chance, FLOOR))
                if label < 1.0:
                    loss -= (1.0 - label) * np.log(max(1.0 - chance, FLOOR))
                sums[bucket, k, 6] += weight * loss
                if chance >= threshold:
                    sums[bucket, k, 4] += weight
                    sums[bucket, k, 5] += weight * label
                if cells.shape[0] == n_buckets:
                    cell = _label_cell_of(chance)
                    cells[bucket, k, cell, 0] += weight
                    cells[bucket, k, cell, 1] += weight * label
                    cells[bucket, k, cell, 2] += weight * chance


@inner
def _ranking(p, y, order):
    """Return ranking loss, coverage and average precision of a row, over labels that are 0 or 1."""
    n_relevant = n_other = 0
    for k in range(p.size):
        n_relevant += y[k] == 1.0
        n_other += y[k] == 0.0
    loss = precision = 0.0
    coverage = 0
    for k in order:
        if y[k] != 1.0:
            continue
        relevant = other = 0
        for j in range(p.size):
            if p[j] >= p[k]:
                relevant += y[j] == 1.0
                other += y[j] == 0.0
        loss += other
        coverage = max(coverage, relevant + other)
        precision += relevant / (relevant + other)
    if n_relevant == 0 or n_other == 0:  # as scikit-learn does: no order is wrong
        return 0.0, float(coverage), 1.0
    return loss / (n_relevant * n_other), float(coverage), precision / n_relevant


@kernel
def logistic_sums(odds, weights, positive, intercept, slope, sums):
    """Fill `sums` with the log loss of a line through log odds, and its derivatives.

    These are minus the gradient and the curvature: of the intercept, of both, and of the slope.
    """
    loss = first = second = a = b = c = 0.0
    for i in range(odds.size):
        x = odds[i]
        score = intercept + slope * x
        e = exponential(-abs(score))
        fitted = (1.0 if score >= 0.0 else e) / (1.0 + e)
        loss += weights[i] * (max(score, 0.0) + logarithm_past_1(e)) - positive[i] * score
        residual = positive[i] - weights[i] * fitted
        variance = weights[i] * e / ((1.0 + e) * (1.0 + e))
        first += residual
        second += residual * x
        a += variance
        b += variance * x
        c += variance * x * x
    sums[0], sums[1], sums[2], sums[3], sums[4], sums[5] = loss, first, second, a, b, c


@kernel
def pooled_areas(scores, weights, positive, ends, total, hits, sums):
    """Add the areas of several rankings together to `sums`, of `total` weight and `hits` positives.

    The rankings are ascending, lie one after the other and end at `ends`. A heap of them, by their
    next score, merges them. The sums are: negatives and positives so far, pairs of both in order,
    and precision at the positives.
    """
    heads = np.append(np.zeros(1, np.int64), ends[:-1])
    heap = np.argsort(scores[heads])
    size = heap.size
    below, hits_below, pairs, precision = sums[0], sums[1], sums[2], sums[3]
    while size:
        score = scores[heads[heap[0]]]
        weight = hit = 0.0
        while size and scores[heads[heap[0]]] == score:  # a tie within or between rankings
            top = heap[0]
            weight += weights[heads[top]]
            hit += positive[heads[top]]
            heads[top] += 1
            if heads[top] == ends[top]:
                size -= 1
                heap[0] = heap[size]
            _sift(heap, size, scores, heads)
        pairs += hit * (below + (weight - hit) / 2)
        precision += hit * (hits - hits_below) / (total - below - hits_below)
        below += weight - hit
        hits_below += hit
    sums[0], sums[1], sums[2], sums[3] = below, hits_below, pairs, precision


@inner
def _sift(heap, size, scores, heads):
    """Move the first entry of a heap down to its place."""
    place, moved = 0, heap[0]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and scores[heads[heap[child + 1]]] < scores[heads[heap[child]]]:
            child += 1
        if scores[heads[heap[child]]] >= scores[heads[moved]]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved
