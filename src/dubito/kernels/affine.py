"""Sums over rows for maps of log probabilities x to scores u = W x + b.

With p = softmax(u), q the label probabilities and r = p - q, the loss of a row is
log(sum exp(u)) - sum_k q_k u_k, and its derivative in u is r.
"""

import numpy as np

from dubito.kernels.compile import kernel
from dubito.kernels.elementary import exponential
from dubito.kernels.rows import top_class

__all__ = ["residual_rows", "vector_sums"]

LOWEST = -1000.0  # shares below exp(-1000) are nothing in any precision


@kernel
def softmax_loss(scores, code, soft, shares):
    """Fill `shares` with the softmax of a row's scores, and return its loss."""
    top = scores[top_class(scores)]
    total = 0.0
    for k in range(scores.size):
        e = exponential(max(scores[k] - top, LOWEST))
        shares[k] = e
        total += e
    scale = 1.0 / total
    for k in range(scores.size):
        shares[k] *= scale
    if soft.size == 0:
        return np.log(total) + top - scores[code]
    expected = 0.0
    for k in range(scores.size):
        expected += soft[k] * scores[k]
    return np.log(total) + top - expected


@kernel
def residual_rows(scores, codes, soft, weights):
    """Turn `scores` into weighted residuals w (p - q) in place, and return the weighted loss."""
    loss = 0.0
    is_soft = soft.shape[0] == scores.shape[0]
    shares = np.empty(scores.shape[1])
    for i in range(scores.shape[0]):
        row, weight = scores[i], weights[i]
        code = max(codes[i], 0)
        if weight == 0.0:
            row[:] = 0.0
            continue
        loss += weight * softmax_loss(row, code, soft[i] if is_soft else shares[:0], shares)
        for k in range(row.size):
            row[k] = weight * (shares[k] - (soft[i, k] if is_soft else 0.0))
        if not is_soft:
            row[code] -= weight
    return loss


@kernel
def vector_sums(x, codes, soft, weights, scale, bias, sums):
    """Add to `sums` the derivatives in scale and bias, r x and r, and return the weighted loss."""
    n_classes = x.shape[1]
    loss = 0.0
    is_soft = soft.shape[0] == x.shape[0]
    scores, shares = np.empty(n_classes), np.empty(n_classes)
    for i in range(x.shape[0]):
        row, weight = x[i], weights[i]
        if weight == 0.0:
            continue
        for k in range(n_classes):
            scores[k] = row[k] * scale[k] + bias[k]
        code = max(codes[i], 0)
        loss += weight * softmax_loss(scores, code, soft[i] if is_soft else shares[:0], shares)
        if is_soft:
            for k in range(n_classes):
                shares[k] -= soft[i, k]
        else:
            shares[code] -= 1.0
        for k in range(n_classes):
            sums[0, k] += weight * shares[k] * row[k]
            sums[1, k] += weight * shares[k]
    return loss
