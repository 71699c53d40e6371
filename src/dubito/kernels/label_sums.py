"""Sums over rows of binary labels: logistic loss, decisions, rankings and fine cells."""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import bits_of, exponential, logarithm_past_1

N_ROW_SUMS = 6  # rows, their weight, exact matches, ranking loss, coverage, average precision
# Weight, probability, label, squared error, selected, selected with the label, log loss.
N_LABEL_SUMS = 7
FLOOR = 1e-12  # of the probability of what came true, so that the log loss is finite
CUT = 50  # bits of a float64 that are cut off: four cells per factor of 2
HALF = 1022 << (52 - CUT)
REACH = 64  # cells on either side of 1/2: down to 2^-17
N_CELLS = 2 * REACH + 1


@inner
def _cell_of(p):
    """Return the cell of a probability, finest near 0 and 1."""
    near = max((bits_of(min(p, 1.0 - p)) >> np.int64(CUT)) - (HALF - REACH), 0)
    return near if p <= 0.5 else 2 * REACH - near


@kernel
def label_sums(p, y, weights, threshold, first_row, rows, sums, cells, n_known):
    """Add rows to one of the buckets of `rows` and `sums`, and to its `cells`, if there are any.

    Unknown labels are NaN. The bucket of a row depends on its number alone. A weight stands for so
    many rows, which go to different buckets. `n_known` counts the known labels.
    """
    n_buckets = sums.shape[0]
    for i in range(p.shape[0]):
        if weights[i] == 0.0:
            continue
        n_right, is_any = 1.0, False
        for k in range(p.shape[1]):
            if not np.isnan(y[i, k]):
                is_any = True
                n_known[k] += 1
                n_right *= y[i, k] if p[i, k] >= threshold else 1.0 - y[i, k]
        if not is_any:
            continue
        wrong, coverage, precision = _ranking(p[i], y[i])
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
                    cell = _cell_of(chance)
                    cells[bucket, k, cell, 0] += weight
                    cells[bucket, k, cell, 1] += weight * label
                    cells[bucket, k, cell, 2] += weight * chance


@inner
def _ranking(p, y):
    """Return ranking loss, coverage and average precision of a row, over labels that are 0 or 1."""
    n_relevant = n_other = 0
    for k in range(p.size):
        n_relevant += y[k] == 1.0
        n_other += y[k] == 0.0
    loss = precision = 0.0
    coverage = 0
    for k in range(p.size):
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
