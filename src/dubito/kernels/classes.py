"""Reliability of every class at once: the second and last look at a block of the matrix."""

import numpy as np

from dubito.kernels.bins import bin_of
from dubito.kernels.compile import kernel
from dubito.kernels.elementary import exponential

__all__ = ["class_sums"]

FEW = 32  # up to so many classes, all probabilities are put in their bins one by one
TILE = 256  # rows of these whose exponentials are taken at once


@kernel
def few_class_sums(array, labels, soft, weights, predicted, confidence, is_logits, edges, sums):
    """Add each row as `class_sums` does, without a branch that depends on a probability.

    Bins are guessed as `bin_of` does it, but in place: a call an entry would take twice as long.
    Without a sign, no index is taken for one that counts from the end.
    """
    n_rows, n_classes = array.shape
    n_bins, width, one = np.uint64(edges.size - 1), np.float64(edges.size - 1), np.uint64(1)
    shares = np.empty(TILE * n_classes, array.dtype)
    pairs = np.zeros((n_classes * (edges.size - 1), 2))
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        fill_shares(array[low : low + size], predicted[low : low + size], is_logits, shares)
        for j in range(size):
            weight, factor = weights[low + j], confidence[low + j] if is_logits else 1.0
            if weight == 0.0:
                continue
            part, start = shares[j * n_classes : (j + 1) * n_classes], np.uint64(0)
            for k in range(n_classes):
                share = part[k] * factor
                b = min(np.uint64(np.int64(share * width)), n_bins - one)
                if not (share > edges[b] and share <= edges[b + one]):
                    b = np.uint64(bin_of(share, edges))
                pairs[start + b, 0] += weight
                pairs[start + b, 1] += weight * share
                start += n_bins
            if soft.shape[0] > 0:
                for k in range(n_classes):
                    sums[2, k, bin_of(part[k] * factor, edges)] += weight * soft[low + j, k]
            else:
                label = labels[low + j]
                sums[2, label, bin_of(part[label] * factor, edges)] += weight
    for k in range(n_classes):
        for b in range(edges.size - 1):
            sums[0, k, b] += pairs[k * (edges.size - 1) + b, 0]
            sums[1, k, b] += pairs[k * (edges.size - 1) + b, 1]


@kernel
def fill_shares(array, predicted, is_logits, shares):
    """Fill `shares` with exp(z - z_top) of one row after the other, or with probabilities."""
    n_rows, n_classes = array.shape
    for j in range(n_rows):
        row, part = array[j], shares[j * n_classes : (j + 1) * n_classes]
        shift = row[predicted[j]] if is_logits else row.dtype.type(0)
        for k in range(n_classes):
            part[k] = row[k] - shift
    if is_logits:
        for m in range(n_rows * n_classes):
            shares[m] = exponential(shares[m])


@kernel
def class_sums(array, labels, soft, weights, predicted, confidence, is_logits, edges, sums):
    """Add each row to `sums` (weight, probability, label; each classes x bins).

    Nearly all probabilities lie in the first bin: those of a row are added to it as one vector, and
    only the few above its edge are put elsewhere one by one. `labels` are column numbers; where
    `soft` has rows, they are label probabilities instead.
    """
    if array.shape[1] <= FEW:
        few_class_sums(array, labels, soft, weights, predicted, confidence, is_logits, edges, sums)
        return
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
