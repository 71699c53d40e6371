"""Sums over rows for affine maps u = W x + b of log probabilities."""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential, highest
from dubito.kernels.row_statistics import CHUNK

ROWS = 64  # summed in the precision of x before float64 takes over
LOWEST = -1000  # probabilities below exp(-1000) are 0 in any precision


@inner
def _softmax_loss(scores, code, soft, probabilities):
    """Fill `probabilities` with the softmax of a row's scores, and return its loss."""
    kind = scores.dtype.type
    lowest = kind(LOWEST)
    top = highest(scores)
    total = 0.0
    for low in range(0, scores.size, CHUNK):
        part, out = scores[low : low + CHUNK], probabilities[low : low + CHUNK]
        for k in range(part.size):
            out[k] = exponential(max(part[k] - top, lowest))
        subtotal = kind(0)
        for k in range(part.size):
            subtotal += out[k]
        total += subtotal
    scale = kind(1.0 / total)
    for k in range(scores.size):
        probabilities[k] *= scale
    if soft.size == 0:
        return np.log(total) + np.float64(top - scores[code])
    expected = 0.0
    for k in range(scores.size):
        expected += soft[k] * np.float64(top - scores[k])
    return np.log(total) + expected


@kernel
def residual_rows(scores, codes, soft, weights):
    """Turn `scores` into weighted residuals w (p - q) in place, and return the weighted loss."""
    loss = 0.0
    kind = scores.dtype.type
    is_soft = soft.shape[0] == scores.shape[0]
    probabilities, no_labels = np.empty(scores.shape[1], scores.dtype), np.empty(0)
    for i in range(scores.shape[0]):
        row, weight = scores[i], kind(weights[i])
        code = max(codes[i], 0)
        if weight == 0:
            row[:] = 0
            continue
        loss += weights[i] * _softmax_loss(
            row, code, soft[i] if is_soft else no_labels, probabilities
        )
        for k in range(row.size):
            row[k] = weight * probabilities[k]
        if is_soft:
            for k in range(row.size):
                row[k] -= weight * kind(soft[i, k])
        else:
            row[code] -= weight
    return loss


@kernel
def vector_sums(x, codes, soft, weights, scale, bias, sums):
    """Add to `sums` r x, r, p (1 - p) x^2, p (1 - p) x and p (1 - p); return the weighted loss.

    The first two are the derivatives in scale and bias, the others their curvature, class by class,
    which is left out where `sums` has but two rows.
    """
    n_classes = x.shape[1]
    loss = 0.0
    kind = x.dtype.type
    is_soft, has_bends = soft.shape[0] == x.shape[0], sums.shape[0] > 2
    scores, probabilities = np.empty(n_classes, x.dtype), np.empty(n_classes, x.dtype)
    residuals, no_labels = np.empty(n_classes, x.dtype), np.empty(0)
    a, b = scale.astype(x.dtype), bias.astype(x.dtype)
    # Some rows at a time in the precision of x, before float64 takes over.
    part = np.zeros(sums.shape, x.dtype)
    for i in range(x.shape[0]):
        row, weight = x[i], kind(weights[i])
        if weight != 0:
            for k in range(n_classes):
                scores[k] = row[k] * a[k] + b[k]
            code = max(codes[i], 0)
            loss += weights[i] * _softmax_loss(
                scores, code, soft[i] if is_soft else no_labels, probabilities
            )
            for k in range(n_classes):
                residuals[k] = probabilities[k]
            if is_soft:
                for k in range(n_classes):
                    residuals[k] -= kind(soft[i, k])
            else:
                residuals[code] -= kind(1)
            for k in range(n_classes):
                r = weight * residuals[k]
                part[0, k] += r * row[k]
                part[1, k] += r
            if has_bends:
                for k in range(n_classes):
                    bend = weight * probabilities[k] * (kind(1) - probabilities[k])
                    part[2, k] += bend * row[k] * row[k]
                    part[3, k] += bend * row[k]
                    part[4, k] += bend
        if i % ROWS == ROWS - 1 or i == x.shape[0] - 1:
            for j in range(sums.shape[0]):
                for k in range(n_classes):
                    sums[j, k] += part[j, k]
                    part[j, k] = 0
    return loss
