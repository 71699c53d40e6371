"""Loss, gradient and curvature in the inverse temperature, all in one pass over the matrix.

With x = beta (z - z_top) and e = exp(x), the sums s0 = sum e, s1 = sum x e, s2 = sum x^2 e of a row
and its expected x under the label probabilities, t, give the loss, and its first and second
derivative in beta times beta and beta^2:

    loss = log(s0) - t        slope = s1 / s0 - t        bend = s2 / s0 - (s1 / s0)^2

Probabilities stand for their logarithms, floored.
"""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential, highest, logarithm
from dubito.kernels.row_statistics import CHUNK, fill_tile

TILE = 256  # rows per tile of the narrow kernel
STRIP = 16  # classes of a tile summed in the array's precision before float64 takes over
LOWEST = -1000  # keeps x * e finite; probabilities below exp(-1000) are 0 in any precision


@kernel
def label_scores(array, codes, soft, is_logits, floor, scores):
    """Fill `scores` with the logit of each row's label, or its mean under label probabilities."""
    n_classes = array.shape[1]
    is_soft = soft.shape[0] == array.shape[0]
    for i in range(array.shape[0]):
        total = 0.0
        if is_soft:
            for k in range(n_classes):
                value = np.float64(array[i, k])
                total += soft[i, k] * (value if is_logits else np.log(max(value, floor)))
        else:
            value = np.float64(array[i, max(codes[i], 0)])
            total = value if is_logits else np.log(max(value, floor))
        scores[i] = total


@kernel
def wide_temperature_sums(array, scores, weights, beta, is_logits, floor, sums):
    """Add weight, loss, slope and bend to `sums`, lanes running over the classes."""
    one = array.dtype.type(1)
    b, least = one * array.dtype.type(beta), array.dtype.type(floor)
    lowest = array.dtype.type(LOWEST)
    n_classes = array.shape[1]
    for i in range(array.shape[0]):
        if weights[i] == 0.0:
            continue
        row = array[i]
        top = highest(row)
        if not is_logits:
            top = np.log(max(top, least))
        s0 = s1 = s2 = 0.0
        for low in range(0, n_classes, CHUNK):
            part = row[low : low + CHUNK]
            a = c = f = one - one
            for k in range(part.size):
                value = part[k] if is_logits else logarithm(max(part[k], least))
                x = max((value - top) * b, lowest)
                e = exponential(x)
                a += e
                c += x * e
                f += x * x * e
            s0 += a
            s1 += c
            s2 += f
        _add_row(weights[i], s0, s1, s2, (scores[i] - top) * np.float64(b), sums)


@kernel
def narrow_temperature_sums(array, scores, weights, beta, is_logits, floor, sums):
    """Add weight, loss, slope and bend to `sums`, lanes running over the rows."""
    n_rows, n_classes = array.shape
    zero = array.dtype.type(0)
    b, least, lowest = array.dtype.type(beta), array.dtype.type(floor), array.dtype.type(LOWEST)
    tile = np.empty((n_classes, TILE), array.dtype)
    top = np.empty(TILE, array.dtype)
    s0, s1, s2 = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    a, c, f = np.empty(TILE, array.dtype), np.empty(TILE, array.dtype), np.empty(TILE, array.dtype)
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        fill_tile(array[low : low + size], tile)
        if not is_logits:
            for k in range(n_classes):
                column = tile[k]
                for j in range(size):
                    column[j] = logarithm(max(column[j], least))
        for j in range(size):
            top[j] = tile[0, j]
        for k in range(1, n_classes):
            column = tile[k]
            for j in range(size):
                top[j] = column[j] if column[j] > top[j] else top[j]
        s0[:size] = 0.0
        s1[:size] = 0.0
        s2[:size] = 0.0
        for first in range(0, n_classes, STRIP):
            a[:size] = zero
            c[:size] = zero
            f[:size] = zero
            for k in range(first, min(first + STRIP, n_classes)):
                column = tile[k]
                for j in range(size):
                    x = max((column[j] - top[j]) * b, lowest)
                    e = exponential(x)
                    a[j] += e
                    c[j] += x * e
                    f[j] += x * x * e
            for j in range(size):
                s0[j] += a[j]
                s1[j] += c[j]
                s2[j] += f[j]
        _add_tile(weights[low : low + size], s0, s1, s2, scores[low : low + size], top, b, sums)


@inner
def _add_tile(weights, s0, s1, s2, scores, top, b, sums):
    """Add the sums of some rows for the inverse temperature, as `_add_row` does of one.

    Each loop has few enough arrays for the compiler to see that they are apart.
    """
    weight = loss = slope = bend = 0.0
    for j in range(weights.size):
        s2[j] = max(s2[j] / s0[j] - (s1[j] / s0[j]) * (s1[j] / s0[j]), 0.0)
    for j in range(weights.size):
        s1[j] /= s0[j]
        s0[j] = logarithm(s0[j])
    for j in range(weights.size):
        t = (scores[j] - top[j]) * np.float64(b)
        weight += weights[j]
        loss += weights[j] * (s0[j] - t)
        slope += weights[j] * (s1[j] - t)
        bend += weights[j] * s2[j]
    sums[0] += weight
    sums[1] += loss
    sums[2] += slope
    sums[3] += bend


@inner
def _add_row(weight, s0, s1, s2, t, sums):
    """Add the sums of one row for the inverse temperature."""
    mean = s1 / s0
    sums[0] += weight
    sums[1] += weight * (np.log(s0) - t)
    sums[2] += weight * (mean - t)
    sums[3] += weight * max(s2 / s0 - mean * mean, 0.0)


@kernel
def temper_rows(array, beta, is_logits, floor, tempered):
    """Fill `tempered` with beta (z - z_top): 0 for the top class, below 0 for what is below it."""
    least, tiny = array.dtype.type(floor), np.nextafter(array.dtype.type(0), array.dtype.type(-1))
    b = array.dtype.type(beta)
    for i in range(array.shape[0]):
        row, out = array[i], tempered[i]
        top = highest(row)
        most = top if is_logits else np.log(max(top, least))
        for k in range(row.size):
            value = row[k] if is_logits else np.log(max(row[k], least))
            scaled = (value - most) * b
            # Rounding must not make a tie, and with it another class, of a small difference.
            out[k] = min(scaled, tiny) if row[k] < top else scaled
