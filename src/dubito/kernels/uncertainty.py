"""Uncertainty of rows: scores of outputs in one pass, decomposition and votes of several passes.

Several passes are an array of passes x (rows * classes): entries of whole rows lie side by side, so
that lanes are full whether there are two classes or a thousand. All sums are float64.
"""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential, highest, logarithm
from dubito.kernels.row_statistics import fill_tile, sum_of, top_class

# The position of each score in the output of the kernels.
LEAST_CONFIDENCE, ENTROPY, MARGIN_UNCERTAINTY, ENERGY = range(4)
N_SCORES = 4

TILE = 256  # rows per tile of the narrow kernel
STRIP = 8  # classes of a tile summed in the array's precision before float64 takes over
CHUNK = 256  # classes of a wide row summed in the array's precision before float64 takes over
LOWEST = -1000  # probabilities below exp(-1000) are 0 in any precision; keeps d * e finite


@inner
def _finish_row(i, top, second, rest, spread, is_logits, scores):
    """Write the scores of row i from its two highest entries and the sums over all but the top."""
    if is_logits:
        gap = max(second - top, LOWEST)
        scale, second_exp, log_scale, highest_logit = np.exp(gap), 1.0, gap, top
    else:
        scale, second_exp, log_scale, highest_logit = 1.0 / top, second, -np.log(top), 0.0
    spread = scale * (spread + log_scale * rest)
    rest, second_exp = scale * rest, scale * second_exp
    total, log_total = 1.0 + rest, np.log1p(rest)
    scores[LEAST_CONFIDENCE, i] = rest / total
    scores[ENTROPY, i] = log_total - spread / total
    scores[MARGIN_UNCERTAINTY, i] = (rest + second_exp) / total
    scores[ENERGY, i] = -(highest_logit + log_total)


@inner
def _sum_exponentials(row, second, is_logits):
    """Return sum e and sum e log e over a part of a row."""
    rest, spread = 0.0, 0.0
    lowest = row.dtype.type(LOWEST)
    for low in range(0, row.size, CHUNK):
        part = row[low : low + CHUNK]
        a = b = second - second
        for k in range(part.size):
            d = max(part[k] - second, lowest) if is_logits else logarithm(part[k])
            e = exponential(d) if is_logits else part[k]
            a += e
            b += d * e
        rest += a
        spread += b
    return rest, spread


@inner
def _second_highest(row, best):
    """Return the highest entry but that at `best`, of a row with two entries or more."""
    if best == 0:
        return highest(row[1:])
    if best == row.size - 1:
        return highest(row[:best])
    return max(highest(row[:best]), highest(row[best + 1 :]))


@kernel
def wide_scores(array, is_logits, scores):
    """Fill `scores` row by row, lanes running over the classes."""
    for i in range(array.shape[0]):
        row = array[i]
        best = top_class(row)
        second = _second_highest(row, best)
        a, b = _sum_exponentials(row[:best], second, is_logits)
        rest, spread = _sum_exponentials(row[best + 1 :], second, is_logits)
        top = np.float64(row[best])
        _finish_row(i, top, np.float64(second), a + rest, b + spread, is_logits, scores)


@kernel
def narrow_scores(array, is_logits, scores):
    """Fill `scores` tile by tile, lanes running over the rows."""
    n_rows, n_classes = array.shape
    tile = np.empty((n_classes, TILE), array.dtype)
    top, second = np.empty(TILE, array.dtype), np.empty(TILE, array.dtype)
    best = np.empty(TILE, np.int32)
    sums, part = np.empty((2, TILE)), np.empty((2, TILE), array.dtype)
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        fill_tile(array[low : low + size], tile)
        _two_highest(tile, size, top, second, best)
        sums[:, :size] = 0.0
        for first in range(0, n_classes, STRIP):
            _sum_strip(tile[first : first + STRIP], first, size, second, best, is_logits, part)
            for m in range(2):
                for j in range(size):
                    sums[m, j] += part[m, j]
        for j in range(size):
            high, next_high = np.float64(top[j]), np.float64(second[j])
            _finish_row(low + j, high, next_high, sums[0, j], sums[1, j], is_logits, scores)


@inner
def _two_highest(tile, size, top, second, best):
    """Fill the highest entry, the next one and the place of the first, one row per lane."""
    for j in range(size):
        top[j] = tile[0, j]
    second[:size] = tile.dtype.type(-np.inf)
    best[:size] = 0
    for k in range(1, tile.shape[0]):
        column = tile[k]
        for j in range(size):
            is_higher = column[j] > top[j]
            lower = top[j] if is_higher else column[j]
            second[j] = lower if lower > second[j] else second[j]
            top[j] = column[j] if is_higher else top[j]
            best[j] = np.int32(k) if is_higher else best[j]


@inner
def _sum_strip(strip, first, size, second, best, is_logits, sums):
    """Sum e and e log e over some classes, the top one left out, one row per lane."""
    zero, lowest = second.dtype.type(0), second.dtype.type(LOWEST)
    rest, spread = sums[0], sums[1]
    sums[:, :size] = zero
    for k in range(strip.shape[0]):
        column = strip[k]
        this = np.int32(first + k)
        if is_logits:
            for j in range(size):
                # That of the top class may lie above 0; it is left out.
                d = min(max(column[j] - second[j], lowest), zero)
                e = exponential(d) if best[j] != this else zero
                rest[j] += e
                spread[j] += d * e
        else:
            for j in range(size):
                e = column[j] if best[j] != this else zero
                rest[j] += e
                spread[j] += logarithm(e) * e


TILE_ENTRIES = 1024  # entries at a time, whole rows: intermediate results stay in the L1 cache
TINY = 2.2250738585072014e-308  # the smallest normal number
NEAR = 1e-3  # so close to the mean, relatively, its series keeps more digits than logarithms do
SAME = 1e-12  # relative difference of weights due to rounding


@inner
def _fill_mean(passes, start, mean):
    """Fill `mean` with that of the passes from an entry on; of equal passes, exactly what they are.

    No entry is above 1, whatever rounding left: p log p and p (1 - p) must not change their sign.
    """
    n_passes, size = passes.shape[0], mean.size
    first = passes[0, start : start + size]
    mean[:] = 0.0
    for m in range(1, n_passes):
        part = passes[m, start : start + size]
        for j in range(size):
            mean[j] += min(np.float64(part[j]), 1.0) - min(np.float64(first[j]), 1.0)
    for j in range(size):
        mean[j] = max(min(np.float64(first[j]), 1.0) + mean[j] / n_passes, 0.0)


@inner
def _fill_rows(entries, n_classes, result):
    """Fill `result` with the sum of each row's entries."""
    for i in range(result.size):
        result[i] = sum_of(entries[i * n_classes : (i + 1) * n_classes])


@kernel
def entropy_parts(passes, first, n_classes, total, aleatoric, epistemic):
    """Fill in entropy of the mean, mean entropy, and divergence, of the rows from `first` on.

    The divergence p log(p / m) - p + m, summed over passes and classes, is that of Kullback and
    Leibler, as p - m sums to 0. No entry of it is negative.
    """
    n_passes, step = passes.shape[0], max(TILE_ENTRIES // n_classes, 1)
    buffer = np.empty((5, step * n_classes))
    for low in range(0, total.size, step):
        high = min(low + step, total.size)
        start, size = (first + low) * n_classes, (high - low) * n_classes
        mean, log_mean, inverse = buffer[0, :size], buffer[1, :size], buffer[2, :size]
        own, gap = buffer[3, :size], buffer[4, :size]
        _fill_mean(passes, start, mean)
        for j in range(size):
            log_mean[j] = logarithm(mean[j])
            inverse[j] = 1.0 / max(mean[j], TINY)
            own[j] = -mean[j] * log_mean[j]
        _fill_rows(own, n_classes, total[low:high])
        own[:], gap[:] = 0.0, 0.0
        for m in range(n_passes):
            part = passes[m, start : start + size]
            for j in range(size):
                p = min(np.float64(part[j]), 1.0)
                log_p = logarithm(p)
                own[j] -= p * log_p
                t = (p - mean[j]) * inverse[j]
                near = mean[j] * t * t * (1 / 2 - t * (1 / 6 - t * (1 / 12 - t / 20)))
                far = max(p * (log_p - log_mean[j]) - (p - mean[j]), 0.0)
                gap[j] += near if abs(t) < NEAR else far
        _scale_rows(own, gap, n_classes, n_passes, aleatoric[low:high], epistemic[low:high])


@kernel
def variance_parts(passes, first, n_classes, total, aleatoric, epistemic):
    """Fill in the law of total variance of one-hot labels, of the rows from `first` on."""
    n_passes, step = passes.shape[0], max(TILE_ENTRIES // n_classes, 1)
    buffer = np.empty((3, step * n_classes))
    for low in range(0, total.size, step):
        high = min(low + step, total.size)
        start, size = (first + low) * n_classes, (high - low) * n_classes
        mean, own, gap = buffer[0, :size], buffer[1, :size], buffer[2, :size]
        _fill_mean(passes, start, mean)
        for j in range(size):
            own[j] = mean[j] * (1.0 - mean[j])
        _fill_rows(own, n_classes, total[low:high])
        own[:], gap[:] = 0.0, 0.0
        for m in range(n_passes):
            part = passes[m, start : start + size]
            for j in range(size):
                p = min(np.float64(part[j]), 1.0)
                own[j] += p * (1.0 - p)
                gap[j] += (p - mean[j]) * (p - mean[j])
        _scale_rows(own, gap, n_classes, n_passes, aleatoric[low:high], epistemic[low:high])


@inner
def _scale_rows(own, gap, n_classes, n_passes, aleatoric, epistemic):
    """Fill both parts of the uncertainty with row sums of entries summed over the passes."""
    _fill_rows(own, n_classes, aleatoric)
    _fill_rows(gap, n_classes, epistemic)
    for i in range(aleatoric.size):
        aleatoric[i] /= n_passes
        epistemic[i] /= n_passes


@kernel
def top_rows(array, predicted, confidence):
    """Fill in the first largest entry of each row, and where it is."""
    for i in range(array.shape[0]):
        best = top_class(array[i])
        predicted[i] = best
        confidence[i] = array[i, best]


@inner
def _winner(weights):
    """Return the first class whose weight is the largest but for rounding."""
    highest = 0.0
    for k in range(weights.size):
        highest = max(highest, weights[k])
    best = 0
    while weights[best] < highest * (1.0 - SAME):
        best += 1
    return best


@kernel
def mean_tops(passes, first, n_classes, chosen, probability):
    """Fill in the top class of the mean of the passes, and its probability, from row `first` on."""
    mean = np.empty(n_classes)
    for i in range(chosen.size):
        _fill_mean(passes, (first + i) * n_classes, mean)
        best = _winner(mean)
        chosen[i] = best
        probability[i] = mean[best] / mean.sum()


@kernel
def tally_rows(votes, weights, n_classes, chosen, fraction):
    """Fill in the class with most weight, and its fraction: both are passes x rows.

    Only the classes that a row's views vote for are looked at, however many there are.
    """
    n_views, n_rows = votes.shape
    tally = np.zeros(n_classes)
    for i in range(n_rows):
        total, highest = 0.0, 0.0
        for m in range(n_views):
            k = votes[m, i]
            tally[k] += weights[m, i]
            total += weights[m, i]
        for m in range(n_views):
            highest = max(highest, tally[votes[m, i]])
        best = n_classes
        for m in range(n_views):
            k = votes[m, i]
            if k < best and tally[k] >= highest * (1.0 - SAME):
                best = k
        chosen[i] = best
        fraction[i] = tally[best] / total
        for m in range(n_views):
            tally[votes[m, i]] = 0.0
