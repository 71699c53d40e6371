"""Several passes over the same rows: uncertainty decomposition and votes.

`passes` is passes x (rows * classes): entries of whole rows lie side by side, so that lanes are
full whether there are two classes or a thousand. All sums are float64.
"""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import logarithm
from dubito.kernels.row_statistics import top_class

TILE = 1024  # entries at a time, whole rows: intermediate results stay in the L1 cache
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
        row = entries[i * n_classes : (i + 1) * n_classes]
        total = 0.0
        for k in range(row.size):
            total += row[k]
        result[i] = total


@kernel
def entropy_parts(passes, first, n_classes, total, aleatoric, epistemic):
    """Fill in entropy of the mean, mean entropy, and divergence, of the rows from `first` on.

    The divergence p log(p / m) - p + m, summed over passes and classes, is that of Kullback and
    Leibler, as p - m sums to 0. No entry of it is negative.
    """
    n_passes, step = passes.shape[0], max(TILE // n_classes, 1)
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
    n_passes, step = passes.shape[0], max(TILE // n_classes, 1)
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
