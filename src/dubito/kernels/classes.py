"""Reliability of every class at once: the second and last look at a block of the matrix."""

import numpy as np

from dubito.kernels.bins import bin_of
from dubito.kernels.compile import kernel
from dubito.kernels.elementary import exponential

__all__ = ["class_sums"]


@kernel
def class_sums(array, labels, soft, weights, predicted, confidence, is_logits, edges, sums):
    """Add each row to `sums` (weight, probability, label; each classes x bins).

    Nearly all probabilities lie in the first bin: those of a row are added to it as one vector, and
    only the few above its edge are put elsewhere one by one. `labels` are column numbers; where
    `soft` has rows, they are label probabilities instead.
    """
    n_rows, n_classes = array.shape
    is_soft = soft.shape[0] > 0
    edge = edges[1] if edges.size > 2 else np.inf
    shares = np.empty(n_classes)
    first_weight, first_share = np.zeros(n_classes), np.zeros(n_classes)
    for i in range(n_rows):
        weight = weights[i]
        if weight == 0.0:
            continue
        row = array[i]
        top, factor = row[predicted[i]], confidence[i]
        for k in range(n_classes):
            share = exponential(row[k] - top) * factor if is_logits else np.float64(row[k])
            shares[k] = share
            is_first = share <= edge
            first_weight[k] += weight if is_first else 0.0
            first_share[k] += weight * share if is_first else 0.0
        for k in range(n_classes):
            if shares[k] > edge:
                b = bin_of(shares[k], edges)
                sums[0, k, b] += weight
                sums[1, k, b] += weight * shares[k]
        if is_soft:
            for k in range(n_classes):
                sums[2, k, bin_of(shares[k], edges)] += weight * soft[i, k]
        else:
            sums[2, labels[i], bin_of(shares[labels[i]], edges)] += weight
    for k in range(n_classes):
        sums[0, k, 0] += first_weight[k]
        sums[1, k, 0] += first_share[k]
