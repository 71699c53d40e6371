"""Calibration maps of a block of rows, class by class: arrays are classes x rows, in float64.

SIMD lanes run over rows, tile by tile, so that a tile stays in the L1 cache. What comes of a row
does not depend on the rows beside it, nor on whether it was given in float32 or float64. Inputs of
classes x rows are not marked as read-only: one kernel's result is another one's input, and shared
inner kernels compile once.
"""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential, logarithm
from dubito.kernels.row_statistics import fill_maxima

TILE = 256  # rows
TILE_ENTRIES = 2560  # of a tile of many classes
LOWEST = -1000.0  # probabilities below exp(-1000) are 0 in any precision
FARTHEST = -1e30  # log probabilities that products leave finite


@inner
def _tile_size(n_classes):
    """Return how many rows of a tile of exponentials stay in the L1 cache."""
    return max(16, min(TILE, TILE_ENTRIES // n_classes))


@inner
def _fill_log_sums(x, beta, low, size, top, total):
    """Fill `top` with the highest entry of some rows, and `total` with their log-sum-exp above it.

    Both are of rows times beta.
    """
    fill_maxima(x, low, size, top)
    for j in range(size):
        top[j] *= beta
        total[j] = 0.0
    for k in range(x.shape[0]):
        column = x[k, low : low + size]
        for j in range(size):
            total[j] += exponential(max(beta * column[j] - top[j], LOWEST))
    for j in range(size):
        total[j] = logarithm(total[j])


@kernel
def log_softmax_columns(array, is_logits, floor, result):
    """Fill `result`, classes x rows, with the log probabilities of rows of logits or probabilities.

    Probabilities below `floor` are raised to it.
    """
    top, total = np.empty(TILE), np.empty(TILE)
    for low in range(0, array.shape[0], TILE):
        size = min(TILE, array.shape[0] - low)
        for j in range(size):
            for k in range(array.shape[1]):
                result[k, low + j] = array[low + j, k]
        if not is_logits:
            for k in range(array.shape[1]):
                column = result[k, low : low + size]
                for j in range(size):
                    column[j] = logarithm(max(column[j], floor))
        # The top is subtracted in a loop of its own: sums may be reordered, and beside a top of
        # 1e16 or more the log-sum-exp would be lost.
        fill_maxima(result, low, size, top)
        for k in range(array.shape[1]):
            column = result[k, low : low + size]
            for j in range(size):
                column[j] -= top[j]
        _fill_log_sums(result, 1.0, low, size, top, total)
        for k in range(array.shape[1]):
            column = result[k, low : low + size]
            for j in range(size):
                column[j] = max(column[j] - total[j], FARTHEST)


@kernel
def add_softmax(scores, beta, weight, mixed):
    """Add the softmax of beta times `scores`, times a weight, to `mixed`."""
    n_classes, n_rows = scores.shape
    step = _tile_size(n_classes)
    top, total, parts = np.empty(step), np.empty(step), np.empty((n_classes, step))
    for low in range(0, n_rows, step):
        size = min(step, n_rows - low)
        fill_maxima(scores, low, size, top)
        total[:size] = 0.0
        for k in range(n_classes):
            column, part = scores[k, low : low + size], parts[k]
            for j in range(size):
                part[j] = exponential(max(beta * (column[j] - top[j]), LOWEST))
            for j in range(size):
                total[j] += part[j]
        for j in range(size):
            total[j] = weight / total[j]
        for k in range(n_classes):
            column, part = mixed[k, low : low + size], parts[k]
            for j in range(size):
                column[j] += part[j] * total[j]


@kernel
def fill_basis(x, beta, lowest, knots, features):
    """Fill `features` with log probabilities at an inverse temperature and functions of them.

    The log probabilities u, none below `lowest`, are as many rows as there are classes. If there
    are more, exp(u) follows, and max(u - c, 0) for each knot c.
    """
    n_classes, n_rows = x.shape
    top, total = np.empty(TILE), np.empty(TILE)
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        _fill_log_sums(x, beta, low, size, top, total)
        for k in range(n_classes):
            column, out = x[k, low : low + size], features[k, low : low + size]
            for j in range(size):
                out[j] = max((beta * column[j] - top[j]) - total[j], lowest)
        if features.shape[0] == n_classes:
            continue
        for k in range(n_classes):
            u, out = features[k, low : low + size], features[n_classes + k, low : low + size]
            for j in range(size):
                out[j] = exponential(u[j])
            for m in range(knots.size):
                out, knot = features[(2 + m) * n_classes + k, low : low + size], knots[m]
                for j in range(size):
                    out[j] = max(u[j] - knot, 0.0)


@kernel
def fill_bumps(x, lowest, centers, width, bumps):
    """Fill `bumps`, centers x rows, with exp(-d^2 / 2 width^2) of the distance d to each center.

    Log probabilities below `lowest` count as that.
    """
    n_classes, n_rows = x.shape
    scale = -0.5 / (width * width)
    step = _tile_size(n_classes)
    near, squares = np.empty((n_classes, step)), np.empty(step)
    for low in range(0, n_rows, step):
        size = min(step, n_rows - low)
        for k in range(n_classes):
            column, out = x[k, low : low + size], near[k]
            for j in range(size):
                out[j] = max(column[j], lowest)
        for m in range(centers.shape[0]):
            squares[:size] = 0.0
            for k in range(n_classes % 2):  # the other classes go two at a time
                a, u = centers[m, k], near[k]
                for j in range(size):
                    squares[j] += (u[j] - a) * (u[j] - a)
            for k in range(n_classes % 2, n_classes, 2):
                a, b, u, v = centers[m, k], centers[m, k + 1], near[k], near[k + 1]
                for j in range(size):
                    squares[j] += (u[j] - a) * (u[j] - a) + (v[j] - b) * (v[j] - b)
            out = bumps[m, low : low + size]
            for j in range(size):
                out[j] = exponential(max(scale * squares[j], LOWEST))


@kernel
def log_odds_columns(x, floor, result):
    """Fill `result` with the log odds of each class against all others, from log probabilities.

    Those of the top class come from the sum of the others: no 1 - 0.9999999. None is beyond the log
    odds of `floor`.
    """
    n_classes, n_rows = x.shape
    limit = np.log((1.0 - floor) / floor)
    top, total, rest = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        fill_maxima(x, low, size, top)
        for j in range(size):
            total[j] = rest[j] = 0.0
        for k in range(n_classes):
            column, out = x[k, low : low + size], result[k, low : low + size]
            for j in range(size):
                out[j] = exponential(max(column[j], LOWEST))
            for j in range(size):
                total[j] += out[j]
                rest[j] += out[j] if column[j] < top[j] else 0.0
        for k in range(n_classes):
            out = result[k, low : low + size]
            for j in range(size):
                # Above 1/2 there is but the top class.
                others = rest[j] if out[j] > 0.5 * total[j] else total[j] - out[j]
                odds = out[j] / max(others, floor * total[j])
                out[j] = min(max(logarithm(max(odds, floor)), -limit), limit)


@kernel
def write_probabilities(mixed, floor, result):
    """Fill `result`, rows x classes, with `mixed`, whose rows are made to sum to 1.

    No entry is below `floor`. The first highest entry stays the first highest: rounding makes no
    tie before it.
    """
    n_classes, n_rows = mixed.shape
    kind = result.dtype.type
    least, zero = kind(floor), kind(0)
    top, total, best = np.empty(TILE), np.empty(TILE), np.empty(TILE, np.int64)
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        rows = result[low : low + size]
        for j in range(size):
            top[j], total[j], best[j] = -1.0, 0.0, 0
        for k in range(n_classes):
            column = mixed[k, low : low + size]
            for j in range(size):
                is_higher = column[j] > top[j]
                top[j] = column[j] if is_higher else top[j]
                best[j] = k if is_higher else best[j]
                total[j] += column[j]
        for j in range(size):
            total[j] = 1.0 / total[j]
        for k in range(n_classes):
            column = mixed[k, low : low + size]
            for j in range(size):
                rows[j, k] = max(kind(column[j] * total[j]), least)
        for j in range(size):
            out = rows[j]
            highest = out[best[j]]
            for k in range(best[j]):
                if out[k] >= highest:
                    out[k] = np.nextafter(highest, zero)
