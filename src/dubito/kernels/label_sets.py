"""The set of labels of highest expected F-beta, row by row, if labels are independent."""

import numpy as np

from dubito.kernels.compile import inner, kernel

TIE = 1e-12  # a larger set must be better by more than this


@inner
def _count_true(p, counts):
    """Fill `counts` with the probability of each number of true labels (Poisson binomial)."""
    counts[:] = 0.0
    counts[0] = 1.0
    for k in range(p.size):
        q = np.float64(p[k])
        for s in range(k + 1, 0, -1):
            counts[s] = counts[s] * (1.0 - q) + counts[s - 1] * q
        counts[0] *= 1.0 - q


@inner
def _add_hits(q, counts, hits):
    """Add, for each number of true labels, the probability of it and that a label is among them.

    The distribution without the label comes from that of all by a division, which starts at the end
    where errors shrink.
    """
    n = counts.size - 1
    rest = 0.0
    if q <= 0.5:
        factor = 1.0 / (1.0 - q)
        for s in range(n):
            rest = (counts[s] - q * rest) * factor
            hits[s + 1] += q * rest
    else:
        factor = 1.0 / q
        for s in range(n - 1, -1, -1):
            rest = (counts[s + 1] - (1.0 - q) * rest) * factor
            hits[s + 1] += q * rest


@kernel
def best_sets(p, square, is_selected, values):
    """Fill the selected labels of each row, and their expected F-beta; `square` is beta squared.

    The best set of k labels holds the k most probable ones. An empty set has F-beta 1 if no label
    is true.
    """
    n_rows, n = p.shape
    order, counts, hits = np.empty(n, np.int64), np.empty(n + 1), np.empty(n + 1)
    for i in range(n_rows):
        for k in range(n):
            place = k
            while place > 0 and p[i, order[place - 1]] < p[i, k]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = k
        _count_true(p[i], counts)
        hits[:] = 0.0
        size, best = 0, counts[0]
        for k in range(n):
            _add_hits(np.float64(p[i, order[k]]), counts, hits)
            value = 0.0
            for s in range(1, n + 1):
                value += hits[s] / (square * s + (k + 1))
            value *= 1.0 + square
            if value > best + TIE:
                size, best = k + 1, value
        for k in range(n):
            is_selected[i, order[k]] = k < size
        values[i] = best
