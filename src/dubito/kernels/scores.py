"""Weighted sums of row numbers in one pass, without temporary arrays."""

import numpy as np

from dubito.kernels.compile import kernel
from dubito.kernels.elementary import logarithm

__all__ = ["N_SCORES", "N_SURPRISES", "score_sums", "surprise_sums"]

N_SCORES = 9
N_SURPRISES = 10


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


@kernel
def surprise_sums(weights, correct, confidence, doubt, entropy, variance, losses, sums):
    """Fill `sums` with what a test of calibration needs.

    These are: rows of infinite loss, weight, loss above entropy (where finite), confidence above
    correct, the variances of both and their covariance if confidence is true, squared weight,
    errors, and errors to be expected.
    """
    n = w = a = b = v = u = c = s = wrong = expected = 0.0
    for i in range(weights.size):
        weight, says = weights[i], confidence[i]
        is_impossible = losses[i] == np.inf
        square = weight * weight
        n += 1.0 if is_impossible and weight > 0.0 else 0.0
        w += weight
        a += 0.0 if is_impossible else weight * (losses[i] - entropy[i])
        b += weight * (says - correct[i])
        v += square * variance[i]
        u += square * says * doubt[i]
        # E[1(top) (log p + entropy)] = c (log c + entropy).
        c += square * says * (logarithm(says) + entropy[i])
        s += square
        wrong += weight * (1.0 - correct[i])
        expected += weight * doubt[i]
    sums[0], sums[1], sums[2], sums[3], sums[4] = n, w, a, b, v
    sums[5], sums[6], sums[7], sums[8], sums[9] = u, c, s, wrong, expected
