"""Right-closed bins (a, b], shared by fit, predict and measure, and per-class reliability sums."""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential, highest

LOWEST = -1000.0  # probabilities below exp(-1000) are 0 in any precision


@inner
def _bin_of(value, edges):
    """Return the bin of a value: 0 belongs to the first, 1.0 to the last."""
    low, high = 0, edges.size - 2
    # Bins of equal width over [0, 1] are guessed: a search mispredicts a branch a step.
    guess = min(max(int(value * (high + 1)), low), high)
    if value > edges[guess] and value <= edges[guess + 1]:
        return guess
    while low < high:  # the first bin whose right edge is not below the value
        middle = (low + high) // 2
        if value <= edges[middle + 1]:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def bin_indices(values, edges, indices):
    """Fill `indices` with the bin of each value."""
    for i in range(values.size):
        indices[i] = _bin_of(values[i], edges)


@kernel
def reliability_sums(confidence, uncertainty, correct, weights, drawn_from, edges, sums):
    """Add each row to its bin of `sums` (sums x bins), all in one pass.

    The sums are: weight, noise, confidence, correct, variance if confidence is true, rows. Noise is
    the weight, but for a resample, whose rows repeat the noise of those it was drawn from.
    """
    for i in range(confidence.size):
        weight = weights[i]
        if weight == 0.0:
            continue
        b = _bin_of(confidence[i], edges)
        sums[0, b] += weight
        sums[1, b] += weight * weight / drawn_from[i]
        sums[2, b] += weight * confidence[i]
        sums[3, b] += weight * correct[i]
        sums[4, b] += weight * confidence[i] * uncertainty[i]
        sums[5, b] += 1.0


N_STATISTICS = 4  # confidence, correct, log loss and Brier score
N_MOMENTS = 2 + N_STATISTICS + N_STATISTICS**2


@kernel
def moment_sums(confidence, correct, losses, brier, weights, edges, sums):
    """Add each row to `sums`, bins x wrong and correct x moments.

    The moments are: rows, weight, the statistics of the row, and their products. An infinite loss
    counts as 0.
    """
    row = np.empty(N_STATISTICS)
    for i in range(confidence.size):
        weight = weights[i]
        if weight == 0.0:
            continue
        row[0], row[1], row[3] = confidence[i], correct[i], brier[i]
        row[2] = losses[i] if losses[i] < np.inf else 0.0
        cell = sums[_bin_of(confidence[i], edges), 1 if correct[i] > 0.5 else 0]
        cell[0] += 1.0
        cell[1] += weight
        for a in range(N_STATISTICS):
            cell[2 + a] += weight * row[a]
            for b in range(N_STATISTICS):
                cell[2 + N_STATISTICS * (1 + a) + b] += weight * row[a] * row[b]


BETAS = 512  # inverse temperatures at a time, whose sums stay in the caches


@kernel
def tempered_gaps(array, correct, weights, betas, is_logits, floor, edges, sums):
    """Add each row's weight times (confidence - correct) to its bin, at each inverse temperature.

    `sums` is inverse temperatures x bins; lanes run over the inverse temperatures.
    """
    confidence = np.empty(BETAS)
    for first in range(0, betas.size, BETAS):
        some = betas[first : first + BETAS]
        total = confidence[: some.size]
        for i in range(array.shape[0]):
            if weights[i] == 0.0:
                continue
            top = np.float64(highest(array[i]))
            top = top if is_logits else np.log(max(top, floor))
            total[:] = 0.0
            for k in range(array.shape[1]):
                value = np.float64(array[i, k])
                gap = (value if is_logits else np.log(max(value, floor))) - top
                for j in range(some.size):
                    total[j] += exponential(max(some[j] * gap, LOWEST))
            for j in range(some.size):
                p = 1.0 / total[j]
                sums[first + j, _bin_of(p, edges)] += weights[i] * (p - correct[i])


TILE = 256  # rows per tile of the narrow kernel


@kernel
def narrow_class_sums(array, labels, soft, weights, predicted, confidence, is_logits, edges, sums):
    """Add each row to `sums` as `wide_class_sums` does, lanes running over the rows.

    Probabilities above the first bin are put side by side before they are added one by one: a
    branch that depends on a probability would be guessed wrong too often.
    """
    n_rows, n_classes = array.shape
    edge = edges[1] if edges.size > 2 else np.inf
    tile, raw = np.empty((n_classes, TILE)), np.empty((n_classes, TILE), array.dtype)
    others = np.empty(TILE, np.int64)
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        rows, some = array[low : low + size], weights[low : low + size]
        _fill_probabilities(
            rows, predicted[low : low + size], confidence[low : low + size], is_logits, raw, tile
        )
        for k in range(n_classes):
            probabilities = tile[k]
            weight, probability = 0.0, 0.0
            for j in range(size):
                is_first = probabilities[j] <= edge
                weight += some[j] if is_first else 0.0
                probability += some[j] * probabilities[j] if is_first else 0.0
            sums[0, k, 0] += weight
            sums[1, k, 0] += probability
            n_others = 0
            for j in range(size):
                others[n_others] = j
                n_others += probabilities[j] > edge
            for m in range(n_others):
                j = others[m]
                b = _bin_of(probabilities[j], edges)
                sums[0, k, b] += some[j]
                sums[1, k, b] += some[j] * probabilities[j]
        _add_labels(tile, labels[low : low + size], soft[low : low + size], some, edges, sums[2])


@inner
def _fill_probabilities(rows, predicted, confidence, is_logits, raw, probabilities):
    """Fill `probabilities`, classes x rows, with probabilities; `raw` is room to make them."""
    size, n_classes = rows.shape
    for j in range(size):
        row = rows[j]
        top = row[predicted[j]] if is_logits else row.dtype.type(0)
        for k in range(n_classes):
            raw[k, j] = row[k] - top
    for k in range(n_classes):
        column, probability = raw[k], probabilities[k]
        if is_logits:
            for j in range(size):
                column[j] = exponential(column[j])
            for j in range(size):
                probability[j] = column[j] * confidence[j]
        else:
            for j in range(size):
                probability[j] = column[j]


@inner
def _add_labels(tile, labels, soft, weights, edges, sums):
    """Add the labels of a tile, classes x rows, to the bins of their probabilities."""
    if soft.shape[0] > 0:
        for k in range(tile.shape[0]):
            for j in range(labels.size):
                if weights[j] != 0.0:  # a label that is missing is NaN
                    sums[k, _bin_of(tile[k, j], edges)] += weights[j] * soft[j, k]
    else:
        for j in range(labels.size):
            sums[labels[j], _bin_of(tile[labels[j], j], edges)] += weights[j]


@kernel
def wide_class_sums(array, labels, soft, weights, predicted, confidence, is_logits, edges, sums):
    """Add each row to `sums` (weight, probability, label; each classes x bins).

    Nearly all probabilities lie in the first bin: those of a row are added to it as one vector, and
    only the few above its edge are put elsewhere one by one. `labels` are column numbers; where
    `soft` has rows, they are label probabilities instead.
    """
    n_rows, n_classes = array.shape
    is_soft = soft.shape[0] > 0
    edge = edges[1] if edges.size > 2 else np.inf
    probabilities = np.empty(n_classes)
    first_weight, first_probability = np.zeros(n_classes), np.zeros(n_classes)
    for i in range(n_rows):
        weight = weights[i]
        if weight == 0.0:
            continue
        row = array[i]
        top, factor = row[predicted[i]], confidence[i]
        for k in range(n_classes):
            probability = exponential(row[k] - top) * factor if is_logits else np.float64(row[k])
            probabilities[k] = probability
            is_first = probability <= edge
            first_weight[k] += weight if is_first else 0.0
            first_probability[k] += weight * probability if is_first else 0.0
        for k in range(n_classes):
            if probabilities[k] > edge:
                b = _bin_of(probabilities[k], edges)
                sums[0, k, b] += weight
                sums[1, k, b] += weight * probabilities[k]
        if is_soft:
            for k in range(n_classes):
                sums[2, k, _bin_of(probabilities[k], edges)] += weight * soft[i, k]
        else:
            sums[2, labels[i], _bin_of(probabilities[labels[i]], edges)] += weight
    for k in range(n_classes):
        sums[0, k, 0] += first_weight[k]
        sums[1, k, 0] += first_probability[k]
