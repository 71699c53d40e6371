"""Weighted sums of row numbers in one pass, without temporary arrays."""

import numpy as np

from dubito.kernels.compile import kernel

__all__ = ["N_SCORES", "score_sums"]

N_SCORES = 9


@kernel
def score_sums(weights, correct, confidence, entropy, squares, brier, losses, sums):
    """Fill `sums` with the weight, and weight times each number of a row.

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
